"""A node with one mistake in its protocol, for the harness to find.

Use: `python -m tests.interop.lab.mutant_node NAME serve …`.

Mistakes are put into the running program from here; what is shipped has no switch for them.
"""

from __future__ import annotations

import itertools
import runpy
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import trio

from catalogue_client.core import trust
from federation.core import auth, border
from federation.core.awaited_replies import AwaitedReplies
from federation.core.border import InwardBorder
from federation.core.link_frames import FrameKind, LinkFrame, decode_messages
from federation.core.link_machine import LinkMachine, Pump, Switched
from federation.core.outbound_queue import OutboundMessage, OutboundQueue
from federation.core.stub_release import ReleaseAction
from federation.discovery import dialler
from federation.discovery.identity import Identity
from federation.links.domain_link import DomainLink
from federation.links.inbound import Inbound
from federation.links.link_context import LinkClock
from federation.links.outward_flow import OutwardFlow
from federation.links.peer_session import PeerSession
from federation.stubs.instance_watch import InstanceWatch
from federation.stubs.stub_releases import StubReleases
from federation.stubs.stub_succession import StubSuccession
from msg_node.addresses.core.subscription_rights import Right, SubscriptionRights
from msg_node.kernel.service import Caller
from policy.core.gate import Gate
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.message import Message
from protofly.signatures import Envelope
from tests.interop.lab.border_mistakes import MISTAKES_OF_PROOF_AND_NAME

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


def every_fifth_reply_is_for_another_request() -> None:
    genuine, count = AwaitedReplies.came, itertools.count(1)

    def came(self: AwaitedReplies, reply: Message, now: float) -> Message:
        passed = genuine(self, reply, now)
        return passed if next(count) % 5 else codec.decode(bytes(passed.raw).replace(b'"id":', b'"id":9', 1))[0]

    AwaitedReplies.came = came  # type: ignore[method-assign, unused-ignore]


def things_claimed_by_all() -> None:
    genuine = SubscriptionRights.right

    def right(self: SubscriptionRights, caller: Caller, key: str, claimed: Collection[str] = ()) -> Right:
        found = genuine(self, caller, key, claimed)
        return Right.LISTEN if found is Right.REFUSED else found

    SubscriptionRights.right = right  # type: ignore[method-assign, unused-ignore]


def nobody_proves_itself_twice() -> None:
    genuine = Identity.verify
    proved = Counter[str]()

    async def verify(self: Identity, token: bytes, **known: Any) -> auth.Claims:
        claims = await genuine(self, token, **known)
        proved[claims.iss] += 1
        if proved[claims.iss] > 2:
            raise PeerError(Code.AUTH_POLICY, "it was here before", domain=claims.iss)
        return claims

    Identity.verify = verify  # type: ignore[assignment, method-assign, unused-ignore]


def forged_tokens_believed() -> None:
    auth.verify_signature = lambda *_: True  # type: ignore[attr-defined, unused-ignore]


def flags_of_others_left() -> None:
    border._INWARD_FLAGS = ("via",)  # type: ignore[assignment, unused-ignore]


def unsigned_documents_believed() -> None:
    Envelope.signers = lambda *_, **__: 16  # type: ignore[assignment, method-assign, unused-ignore]


def older_documents_believed() -> None:
    trust.check_serial = lambda *_, **__: None


def internal_addresses_connected() -> None:
    dialler.judge_address = lambda *_, **__: None  # type: ignore[assignment, attr-defined, unused-ignore]


def revoked_stubs_go_on() -> None:
    async def wait_outdated(_self: InstanceWatch, *_: object) -> None:
        await trio.sleep_forever()

    InstanceWatch.wait_outdated = wait_outdated  # type: ignore[assignment, method-assign, unused-ignore]


def messages_of_flows_lost() -> None:
    genuine, count = OutwardFlow.send, itertools.count(1)

    def send(self: OutwardFlow, messages: list[Message], now: float) -> int:
        return len(messages) if next(count) % 10 == 0 else genuine(self, messages, now)

    OutwardFlow.send = send  # type: ignore[method-assign]


def acknowledged_too_early() -> None:
    genuine = PeerSession._frame
    held = WeakKeyDictionary[PeerSession, LinkFrame]()

    async def frame(self: PeerSession, frame: LinkFrame) -> None:
        """What has come is acknowledged, and handed over when more comes: the last is lost with the line."""
        if frame.kind is not FrameKind.MESSAGES:
            await genuine(self, frame)
            return
        if self in held:
            await genuine(self, held.pop(self))
        held[self] = frame
        self._processed = frame.arg + len(decode_messages(frame.payload)) - 1
        self._acknowledge()
        self._line.send_nowait(self._websocket.data_to_send())

    PeerSession._frame = frame  # type: ignore[method-assign, unused-ignore]


def one_number_too_many_seen() -> None:
    genuine, count = LinkMachine.unseen, itertools.count(1)

    def unseen(self: LinkMachine, messages: Sequence[tuple[int, bytes]], stream: str) -> tuple[Sequence[bytes], int]:
        fresh, processed = genuine(self, messages, stream)
        return fresh, processed + (next(count) % 20 == 0)

    LinkMachine.unseen = unseen  # type: ignore[method-assign, unused-ignore]


def what_goes_again_bears_new_numbers() -> None:
    genuine = OutboundQueue.carrier_lost

    def carrier_lost(self: OutboundQueue, now: float) -> None:
        genuine(self, now)
        for pending in self._waiting:
            pending.number = 0

    OutboundQueue.carrier_lost = carrier_lost  # type: ignore[method-assign, unused-ignore]


def policy_asked_after_delivery() -> None:
    genuine = Inbound._keep_out

    def keep_out(self: Inbound, message: Message, facts: Any, verdict: Any, *kept: Any) -> None:
        entry, entered = kept
        entered.take(message, entry.__copy__())
        genuine(self, message, facts, verdict, entry, entered)

    Inbound._keep_out = keep_out  # type: ignore[assignment, method-assign, unused-ignore]


def updates_reorder() -> None:
    def switch_if_clear(self: LinkMachine, _now: float, *, is_now: bool = False) -> list[Any]:
        del is_now
        if self.carriers.successor is None:
            return []
        self.carriers.promote()
        return [Switched(self.carriers[0]), Pump(self.carriers[0])]

    LinkMachine._switch_if_clear = switch_if_clear  # type: ignore[assignment, method-assign, unused-ignore]


def expired_documents_believed() -> None:
    genuine = trust.accept_live
    trust._check_live_times = lambda *_: None

    def accept_live(*arguments: Any, **named: Any) -> Any:
        live, state = genuine(*arguments, **named)
        return msgspec.structs.replace(live, expires=datetime.now(UTC) + timedelta(days=1)), state

    trust.accept_live = accept_live


def certificates_of_strangers_accepted() -> None:
    genuine = ssl.SSLContext.wrap_bio

    def wrap_bio(self: ssl.SSLContext, *arguments: Any, **named: Any) -> ssl.SSLObject:
        if not (named.get("server_side") or True in arguments[2:3]):
            self.check_hostname, self.verify_mode = False, ssl.CERT_NONE
        return genuine(self, *arguments, **named)

    ssl.SSLContext.wrap_bio = wrap_bio  # type: ignore[assignment, method-assign, unused-ignore]


def broken_updates_stay() -> None:
    async def is_live(_self: StubSuccession, _old: object, _run: object) -> bool:
        return True

    async def happened(_self: StubReleases, *_: object) -> ReleaseAction:
        return ReleaseAction.NOTHING

    StubSuccession._is_live = is_live  # type: ignore[assignment, method-assign, unused-ignore]
    StubReleases.happened = happened  # type: ignore[assignment, method-assign, unused-ignore]


def updates_not_taken() -> None:
    async def replace(_self: StubSuccession, _old: object) -> None:
        return None

    StubSuccession.replace = replace  # type: ignore[assignment, method-assign, unused-ignore]


def links_timed_by_the_clock_on_the_wall() -> None:
    genuine = LinkClock.__init__

    def init(self: LinkClock, *_: object, **__: object) -> None:
        genuine(self, time.time, time.time())

    LinkClock.__init__ = init  # type: ignore[assignment, method-assign, unused-ignore]


def flows_outlive_a_change() -> None:
    genuine = Gate._begin_era

    def begin_era(self: Gate) -> None:
        if not hasattr(self, "era"):
            genuine(self)

    Gate._begin_era = begin_era  # type: ignore[method-assign, unused-ignore]


def _by_name(*mistakes: Callable[[], None]) -> dict[str, Callable[[], None]]:
    return {one.__name__.replace("_", "-"): one for one in mistakes}


MUTANTS = _by_name(
    wrong_sender_believed,
    under_way_forgotten_with_the_line,
    seen_numbers_forgotten,
    newest_first_after_a_wait,
    content_changed,
    everybody_waits_for_a_lost_line,
    every_fifth_reply_is_for_another_request,
    things_claimed_by_all,
    nobody_proves_itself_twice,
)
"""Mistakes that a scene with lost lines and a hostile domain finds."""
SIMULATION_MUTANTS = _by_name(
    messages_of_flows_lost,
    acknowledged_too_early,
    one_number_too_many_seen,
    what_goes_again_bears_new_numbers,
    flows_outlive_a_change,
)
"""Mistakes that simulations find: about flows, which messages without a trace are, numbers and acknowledgements."""
SCENE_MUTANTS = _by_name(
    expired_documents_believed,
    certificates_of_strangers_accepted,
    broken_updates_stay,
    updates_not_taken,
    links_timed_by_the_clock_on_the_wall,
    policy_asked_after_delivery,
)
"""Mistakes that scenes of documents, releases and clocks find, with some of those that a hostile partner finds."""
BORDER_MUTANTS = _by_name(
    forged_tokens_believed,
    flags_of_others_left,
    unsigned_documents_believed,
    older_documents_believed,
    internal_addresses_connected,
    revoked_stubs_go_on,
    updates_reorder,
    *MISTAKES_OF_PROOF_AND_NAME,
)
"""Mistakes that a hostile partner finds."""


if __name__ == "__main__":
    (MUTANTS | SIMULATION_MUTANTS | SCENE_MUTANTS | BORDER_MUTANTS)[sys.argv.pop(1)]()
    runpy.run_module("trapezoid", run_name="__main__", alter_sys=True)
