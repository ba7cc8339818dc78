"""A node that is stopped while messages go through it: its exit status, and what became of the messages that it took.

The sending node gets the signal in the middle of a run. Its own message records say how many messages it took for the
other domain, the receiving client how many arrived, and the last lines of its log how many it says are lost. Messages
that come when it takes no more are refused: they are not lost.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from typing import Any, Final

import trio

from benchmarks.sides import Load, Pair
from benchmarks.variants import DOMAINS, TrapezoidVariant
from interop.lab.spool import read_records
from protofly.errors import TransportError
from protofly.records import MessageRecord

RUN: Final = 1_000_000
"""Number of the run in its messages: no other run has it."""
IDLE_SECONDS: Final = 3.0
SENDING_SECONDS: Final = 60.0
"""So long the sender would go on: longer than a node takes to stop."""
STOP_AFTER_SECONDS: Final = 2.0
_LOST: Final = re.compile(r"stopped: (\d+) messages are lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """A stop under load.

    Attributes:
        exit_status: Of the node.
        taken: Messages that the node let out to the other domain.
        arrived: Those that arrived.
        said_lost: Messages that the node says are lost.
        duplicated: Messages that arrived more than once.
        reordered: Connections on which the order was another.
    """

    exit_status: int | None
    taken: int
    arrived: int
    said_lost: int
    duplicated: int
    reordered: int

    @property
    def unsaid(self) -> int:
        """Messages that are lost, or said to be, and that exit status and log do not report rightly."""
        missing = max(0, self.taken - self.arrived)
        if self.exit_status == 0:
            return missing
        return 0 if 0 < self.said_lost >= missing else max(missing, 1)


async def drain_under_load(variant: TrapezoidVariant, load: Load) -> Drained:
    """Stop the sending node while messages go through it at the rate of `load`; it is of no use afterwards."""
    load = replace(load, count=int(load.rate * SENDING_SECONDS))
    pair, node = await variant.pair(1), variant.laboratory.nodes[DOMAINS[0]]
    began_us, received = time.time_ns() // 1000, dict[str, Any]()
    exit_status: int | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_receive, pair, load, received)
        nursery.start_soon(_send, pair, load)
        await trio.sleep(STOP_AFTER_SECONDS)
        exit_status = await node.stop()
    records = read_records(node.folder.data / "records", MessageRecord)
    said = _LOST.findall(node.folder.log.read_text(encoding="utf-8"))
    return Drained(
        exit_status=exit_status,
        taken=sum(1 for one in records if one.ts_us >= began_us and one.role == "out" and one.decision == "permit"),
        arrived=received["received"] - received["duplicated"],
        said_lost=int(said[-1]) if said else 0,
        duplicated=received["duplicated"],
        reordered=received["reordered"],
    )


async def _receive(pair: Pair, load: Load, received: dict[str, Any]) -> None:
    received.update(await pair.receiver.do("receive", run=RUN, count=load.count, idle_seconds=IDLE_SECONDS))


async def _send(pair: Pair, load: Load) -> None:
    """Send until the node closes the connection."""
    members = {"targets": pair.receiver.addresses, "count": load.count, "rate": load.rate}
    try:
        await pair.sender.do("send", run=RUN, **members, body_bytes=load.body_bytes, type="event")
    except TransportError:
        return
