"""A node with one mistake in its protocol, for the harness to find.

Use: `python -m tests.interop.lab.mutant_node NAME serve …`.

Mistakes are put into the running program from here; what is shipped has no switch for them.
"""

from __future__ import annotations

import runpy
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from federation.core.border import InwardBorder
from federation.core.link_machine import LinkMachine
from federation.core.outbound_queue import OutboundMessage, OutboundQueue
from federation.domain_link import DomainLink
from protofly import codec
from protofly.message import Message

STALL_SECONDS = 4.0


def wrong_sender_believed() -> None:
    def check_sender(self: InwardBorder, message: Message) -> None:
        self.known_senders.add(message.from_)

    InwardBorder.check_sender = check_sender  # type: ignore[assignment, method-assign, unused-ignore]


def under_way_forgotten_with_the_line() -> None:
    genuine = OutboundQueue.carrier_lost

    def carrier_lost(self: OutboundQueue, now: float) -> None:
        self.accepted(1 << 62)
        genuine(self, now)

    OutboundQueue.carrier_lost = carrier_lost  # type: ignore[assignment, method-assign, unused-ignore]


def seen_numbers_forgotten() -> None:
    def unseen(_self: LinkMachine, messages: Sequence[tuple[int, bytes]], _stream: str) -> tuple[Sequence[bytes], int]:
        return [raw for _, raw in messages], max(number for number, _ in messages)

    LinkMachine.unseen = unseen  # type: ignore[assignment, method-assign, unused-ignore]
    DomainLink.processed = lambda _self, _stream: 0  # type: ignore[assignment, method-assign, unused-ignore]


def newest_first_after_a_wait() -> None:
    genuine = OutboundQueue.take_batch

    def take_batch(self: OutboundQueue, most: int, size: int, now: float) -> list[OutboundMessage]:
        if all(not one.number for one in self._waiting):
            self._waiting.reverse()
        return genuine(self, most, size, now)

    OutboundQueue.take_batch = take_batch  # type: ignore[assignment, method-assign, unused-ignore]


def content_changed() -> None:
    genuine = InwardBorder.cross

    def cross(self: InwardBorder, message: Message) -> tuple[Message, bytes]:
        inner, msg_id = genuine(self, message)
        return codec.with_body(inner, bytes(inner.body).replace(b'"xxx', b'"xyx')), msg_id

    InwardBorder.cross = cross  # type: ignore[assignment, method-assign, unused-ignore]


def everybody_waits_for_a_lost_line() -> None:
    genuine = LinkMachine._carrier_down

    def carrier_down(self: LinkMachine, event: Any, now: float) -> Any:
        time.sleep(STALL_SECONDS)
        return genuine(self, event, now)

    LinkMachine._carrier_down = carrier_down  # type: ignore[assignment, method-assign, unused-ignore]


MUTANTS: dict[str, Callable[[], None]] = {
    one.__name__.replace("_", "-"): one
    for one in (
        wrong_sender_believed,
        under_way_forgotten_with_the_line,
        seen_numbers_forgotten,
        newest_first_after_a_wait,
        content_changed,
        everybody_waits_for_a_lost_line,
    )
}


if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    runpy.run_module("trapezoid", run_name="__main__", alter_sys=True)
