"""The state of the link to one foreign domain, as a machine: events in, actions out.

    event ──▶ handle(event, now) ──▶ actions, in the order in which they are to be performed

The machine knows no clock, socket, gate or record; `DomainLink` reads the clock, asks the gate, performs and records.
What it answers for, over all events:

* A message that it takes (no `Rejected`) leaves it exactly once: in `Delivered`, or in `Ended` with a code.
* Messages go out in the order in which they came, by one carrier at a time: the first that is up, until it is down.
* What a lost carrier had and the far end did not accept goes again, with its old number, so that nothing that was
  acknowledged is repeated and nothing that was not is lost.
* A sender that waits for an answer gets one, the domain's or ours.

State changes before the actions are performed. So an action may lead to the next event while it is being performed,
and an action that has been overtaken (a pump of a carrier that is down again) does nothing.

The queue, the replies and `unseen` are open to those who need one step of them and no decision: carriers take batches
from `queue`, the inbound side takes what was `unseen` before, and asks `replies` about each reply, because what may
enter depends on the replies before it in the same batch. Source: design, sections 3 and 9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from federation.core.awaited_replies import AwaitedReplies, LinkNames
from federation.core.canary_lane import CanaryLane
from federation.core.carrier import Accepted, Carrier, CarrierDown, CarrierProved, CarrierUp, Convicted, Refused
from federation.core.carrier_order import CarrierOrder
from federation.core.line_watch import LineWatch, Sight
from federation.core.link_counts import LinkCount
from federation.core.outbound_queue import OutboundMessage, OutboundQueue, QueueLimits
from federation.core.peer_streams import PeerStreams
from protofly.counters import Counters
from protofly.errors import Code, PeerError
from protofly.message import Message

Outcome = Literal["delivered", "trapped", "timeout", "rejected", "expired", "undeliverable"]
"""The end of a message of ours, for its record."""
_Failed = Literal["trapped", "rejected", "expired"]
_SENT: Final = LinkCount.SENT  # looked up once: it is counted for each message

# Events of the node's side; those of carriers are in `carrier`.


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Some time has passed; `heard_seconds` is when the carrier in use last heard anything."""

    heard_seconds: float


class CannotProbe(msgspec.Struct, frozen=True, gc=False):
    """The carrier in use has no way to ask for a sign of life."""


class TakeOver(msgspec.Struct, frozen=True, gc=False):
    """Messages are to go by `new`, once nothing is under way by `old`, which gets no more of them.

    `is_now`: at once; what is under way goes again, with its numbers. Without effect unless `old` carries.
    """

    old: Carrier
    new: Carrier
    is_now: bool = False


class NewStream(msgspec.Struct, frozen=True, gc=False):
    """A fresh name for our sequence of numbers: 32 hex digits."""

    name: str


class GiveUp(msgspec.Struct, frozen=True, gc=False):
    """The domain cannot be reached, for a reason that time does not heal."""

    code: Code
    detail: str


class StopWaiting(msgspec.Struct, frozen=True, gc=False):
    """The node waits for no reply any longer, and answers all requests itself."""

    code: Code
    detail: str


class StubVerified(msgspec.Struct, frozen=True, gc=False):
    """The kind of the stub is known; `check` raises PeerError for messages that are not for such a stub."""

    check: Callable[[Message], None]


# Actions.


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """The message that was submitted is not taken; nothing is remembered of it but its record."""

    message: OutboundMessage
    code: Code


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """The far end answers for these: record them. `relieves`: senders that pause may go on."""

    messages: list[OutboundMessage]
    relieves: bool


class Ended(msgspec.Struct, frozen=True, gc=False):
    """A message of ours ended here: record it."""

    message: OutboundMessage
    outcome: Outcome
    code: Code


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Give this reply to a local sender."""

    reply: Message


class Pump(msgspec.Struct, frozen=True, gc=False):
    """Have the carrier take what waits."""

    carrier: Carrier


class EndCarrier(msgspec.Struct, frozen=True, gc=False):
    """Have the carrier end in good order."""

    carrier: Carrier


class Probe(msgspec.Struct, frozen=True, gc=False):
    """Have the carrier ask for a sign of life; `CannotProbe` if it cannot."""

    carrier: Carrier


class CameUp(msgspec.Struct, frozen=True, gc=False):
    """A carrier more is up."""

    event: CarrierUp


class Switched(msgspec.Struct, frozen=True, gc=False):
    """Messages go by another carrier from now on, although the one before is still up."""

    carrier: Carrier


class SpeaksFor(msgspec.Struct, frozen=True, gc=False):
    """A carrier speaks for these domains now."""

    event: CarrierProved


class WentDown(msgspec.Struct, frozen=True, gc=False):
    """A carrier less is up; `waiting` messages wait or were under way. `was_last`: none is left."""

    carrier: Carrier
    waiting: int
    detail: str
    was_active: bool
    was_last: bool


class Stalled(msgspec.Struct, frozen=True, gc=False):
    """The line is silent although the far end owes us something."""

    detail: str


class HeardAgain(msgspec.Struct, frozen=True, gc=False):
    """A stall of so many seconds has ended."""

    seconds: float


class Quarantine(msgspec.Struct, frozen=True, gc=False):
    """Keep a message that killed the stub twice."""

    message: OutboundMessage


@dataclass(frozen=True, slots=True)
class Signal:
    """An action without further facts."""

    name: str


NEEDED = Signal("needed")
"""Messages wait and no carrier is up: have one made."""
RELIEVED = Signal("relieved")
"""Senders that pause may go on."""
NAME_STREAM = Signal("name stream")
"""The numbers of the stream are used up: give it a `NewStream`."""

LinkEvent = (
    OutboundMessage
    | Accepted
    | Refused
    | Convicted
    | CarrierUp
    | CarrierProved
    | CarrierDown
    | Tick
    | CannotProbe
    | TakeOver
    | NewStream
    | GiveUp
    | StopWaiting
    | StubVerified
)
LinkAction = (
    Rejected
    | Delivered
    | Ended
    | Answer
    | Pump
    | EndCarrier
    | Probe
    | CameUp
    | Switched
    | SpeaksFor
    | WentDown
    | Stalled
    | HeardAgain
    | Quarantine
    | Signal
)

_TAKEN: list[LinkAction] = []
_TAKEN_AND_NEEDED: list[LinkAction] = [NEEDED]


class LinkMachine:
    """The state of one link. All times are monotonic seconds.

    Args:
        names: Whose link it is.
        stream: 32 hex digits that name our sequence of message numbers.
        limits: Bounds of the queue.
        doubt_until: See `AwaitedReplies`.

    Attributes:
        queue: Our messages that wait or are under way.
        replies: What our senders wait for.
        streams: How far the peer's streams were seen through.
        carriers: Those that are up; messages go by the first.
        canary: The messages that go by a newer version of the stub meanwhile; None while there is none.
        refusal: What messages are refused with while no carrier is up, until `refuse_until`; None: they wait.
        last_code: Why the stub ended last, for what waits too long.
    """

    def __init__(self, names: LinkNames, stream: str, limits: QueueLimits, *, doubt_until: float = 0.0) -> None:
        self._domain = names.domain
        self.counters = Counters(LinkCount)
        self.queue = OutboundQueue(stream, limits)
        self.replies = AwaitedReplies(names, doubt_until=doubt_until, counters=self.counters)
        self.streams = PeerStreams()
        self.carriers = CarrierOrder()
        self.canary: CanaryLane | None = None
        self.peer_node = ""
        self.state = "created"
        self.detail = ""
        self.refusal: Code | None = None
        self.refuse_until = 0.0
        self.last_code: Code | None = None
        self._watch = LineWatch()
        self._handlers: dict[type, Callable[..., list[LinkAction]]] = {
            Accepted: self._accepted,
            Refused: self._refused,
            Convicted: self._convicted,
            CarrierUp: self._carrier_up,
            CarrierProved: lambda event, _now: [SpeaksFor(event)],
            CarrierDown: self._carrier_down,
            TakeOver: lambda event, now: (
                self._switch_if_clear(now, is_now=event.is_now) if self.carriers.designate(event.old, event.new) else []
            ),
            Tick: self._tick,
            CannotProbe: self._cannot_probe,
            NewStream: self._new_stream,
            GiveUp: self._give_up,
            StopWaiting: lambda event, now: [*map(Answer, self.replies.abandon(event.code, event.detail, now))],
            StubVerified: self._stub_verified,
        }

    def handle(self, event: LinkEvent, now: float) -> list[LinkAction]:
        """Take in one event; returns what is to be done, in order. `now` never goes back.

        Submitting stands first and here: it happens once per message, everything else once per batch.
        """
        if type(event) is not OutboundMessage:
            return self._handlers[type(event)](event, now)
        ttl_seconds = event.deadline_seconds  # until `submit` makes it a point in time
        queue = self.queue if self.canary is None else self.canary.queue_for(event.message, self.queue)
        code = queue.submit(event)
        if code is not None:
            self.counters[LinkCount.OVERFLOWED] += 1
            if not event.message.expects_reply:
                self.counters[LinkCount.LOST_EVENTS] += 1
            return [Rejected(event, code)]
        self.counters[_SENT] += 1
        self.replies.sent(event.message, now, ttl_seconds)
        return _TAKEN if self.carriers else _TAKEN_AND_NEEDED

    def check_accepting(self, now: float) -> None:
        """Check that messages are taken now.

        Raises:
            PeerError: `refusal`, while no carrier is up and it is not over.
        """
        if self.refusal is not None and now < self.refuse_until and not self.carriers:
            raise PeerError(self.refusal, self.detail, domain=self._domain)

    # What is so.

    @property
    def carried_by(self) -> str:
        """The channel of messages: "stub", "peer", or "" while no carrier is up."""
        return self.carriers[0].channel if self.carriers else ""

    def silent_seconds(self, now: float) -> float:
        """Seconds for which a stalled line has been silent; 0 while it is not stalled."""
        since = self._watch.silent_since
        return 0.0 if since is None else now - since

    # Carriers.

    def _carrier_up(self, event: CarrierUp, now: float) -> list[LinkAction]:
        """The first carrier that is up carries until it is down, so that the order holds."""
        carrier = event.carrier
        actions: list[LinkAction] = []
        for old in [one for one in self.carriers if one.origin and one.origin == carrier.origin]:
            actions += [*self._carrier_down(CarrierDown(old), now), EndCarrier(old)]
        self.carriers.append(carrier)
        self.peer_node = event.peer_node
        self._is_carried_again()
        self.refusal = self.last_code = None
        return [*actions, CameUp(event), Pump(self.carriers[0]), RELIEVED]

    def _carrier_down(self, event: CarrierDown, now: float) -> list[LinkAction]:
        carrier = event.carrier
        if carrier not in self.carriers:
            return []
        was_active = self.carriers.lose(carrier)
        waiting, detail = self.queue.under_way + self.queue.waiting, self.detail
        if was_active:
            self._watch.reset()
            self.queue.carrier_lost(now)
        down = WentDown(carrier, waiting, detail, was_active, not self.carriers)
        if self.carriers:
            self._is_carried_again()
            return [down, Pump(self.carriers[0])]
        self.state = "disconnected"
        return [down]

    def _switch_if_clear(self, now: float, *, is_now: bool = False) -> list[LinkAction]:
        """Have the successor carry as soon as nothing is under way: its messages follow, and overtake nothing."""
        if self.carriers.successor is None or (self.queue.under_way and not is_now):
            return []
        if self.queue.under_way:
            self.queue.carrier_lost(now)
        self.carriers.promote()
        self._watch.reset()
        self._is_carried_again()
        return [Switched(self.carriers[0]), Pump(self.carriers[0]), RELIEVED]

    def _is_carried_again(self) -> None:
        if self._watch.is_stalled:
            self.state = "stalled"
        else:
            self.state, self.detail = "live", ""
        self.queue.is_carried = True

    # What the far end says about our messages.

    def _accepted(self, event: Accepted, now: float) -> list[LinkAction]:
        queue = self.queue
        actions: list[LinkAction] = []
        done = queue.resume(event.number)
        if done:
            self.counters[LinkCount.ACCEPTED] += len(done)
            actions.append(Delivered(done, not queue.is_congested))
            asking = [sent.message for sent in done if sent.message.peek.receipt]
            if asking:
                actions += map(Answer, self.replies.receipts(asking, now))
        if queue.is_exhausted and not queue.under_way:
            actions.append(NAME_STREAM)
        elif self.carriers.successor is not None:
            actions += self._switch_if_clear(now)
        elif queue.waiting and self.carriers:
            actions.append(Pump(self.carriers[0]))
        return actions

    def _new_stream(self, event: NewStream, _now: float) -> list[LinkAction]:
        """After 2^32 messages: another name, numbers from 1, and new carriers, which know it."""
        self.queue.begin_stream(event.name)
        return [EndCarrier(carrier) for carrier in self.carriers]

    def _refused(self, event: Refused, now: float) -> list[LinkAction]:
        message = self.queue.refused(event.number)
        if message is None:
            return []
        return [*self.end_message(message, "rejected", event.code, event.detail, now), *self._switch_if_clear(now)]

    def _convicted(self, event: Convicted, now: float) -> list[LinkAction]:
        message = event.message
        ended = self.end_message(message, "trapped", Code.QUARANTINED, "", now)
        return [Quarantine(message), *ended, *self._switch_if_clear(now)]

    def end_message(
        self, message: OutboundMessage, outcome: _Failed, code: Code, detail: str, now: float
    ) -> list[LinkAction]:
        """A message of ours ends here: count it, and answer its sender."""
        self.counters[outcome] += 1
        reply = self.replies.failed(message, code, detail, now)
        ended = Ended(message, outcome, code)
        return [ended] if reply is None else [ended, Answer(reply)]

    # What comes in.

    def unseen(self, messages: Sequence[tuple[int, bytes]], stream: str) -> tuple[Sequence[bytes], int]:
        """Leave out what came before; what comes without a number cannot be recognised.

        Args:
            messages: In order: number in the peer's stream (0 for none), and text.
            stream: The peer's stream.

        Returns:
            The texts, and the number to note in `streams` once they are delivered.
        """
        processed = self.streams.processed(stream)
        if len(messages) == 1 and messages[0][0] > processed:  # the usual run at a low rate
            return (messages[0][1],), messages[0][0]
        fresh = []
        for number, raw in messages:
            if number:
                if number <= processed:
                    continue
                processed = number
            fresh.append(raw)
        self.counters[LinkCount.DUPLICATES] += len(messages) - len(fresh)
        return fresh, processed

    # Time.

    def _tick(self, event: Tick, now: float) -> list[LinkAction]:
        """Answer some of what waited too long, and watch the line; `Ended` or `Answer` says that there may be more.

        Replies that nobody gave are looked at once nothing waits any more: what still waits here has another code.
        """
        actions: list[LinkAction] = []
        overdue = [message for queue in queues_of(self) for message in queue.expire(now)]
        code = Code.GATEWAY_TIMEOUT  # the far end has not taken it in time, which is the same as no answer in time
        if not self.carriers:
            code = self.refusal or self.last_code or Code.DEPLOY_TIMEOUT
        for message in overdue:
            actions += self.end_message(message, "expired", code, self.detail, now)
        if self.carriers:
            actions += self._look_at_line(event.heard_seconds, now)
        if not overdue:
            seconds = self.silent_seconds(now)
            detail = f"{self._domain} is stalled: nothing heard for {seconds:.0f} s" if seconds else ""
            value = {"link": "stalled", "silentSeconds": round(seconds, 1)} if seconds else None
            actions += map(Answer, self.replies.expire(now, detail=detail, value=value))
        return actions

    def _look_at_line(self, heard_seconds: float, now: float) -> list[LinkAction]:
        untaken, awaited = self.queue.under_way + self.queue.waiting, len(self.replies)
        sight = self._watch.look(now, heard=heard_seconds, is_owed=untaken > 0 or awaited > 0)
        if sight is Sight.SILENT:
            return [Probe(self.carriers[0])]
        if sight is Sight.STALLED:
            waits = f"{untaken} messages are not taken, {awaited} requests wait for their reply"
            self.state, self.detail = "stalled", f"nothing heard for {self.silent_seconds(now):.0f} s; {waits}"
            self.counters[LinkCount.STALLS] += 1
            return [Stalled(self.detail)]
        if sight is Sight.HEARD_AGAIN:
            self.state, self.detail = "live", ""
            return [HeardAgain(self._watch.stalled_seconds)]
        return []

    def _cannot_probe(self, _event: CannotProbe, _now: float) -> list[LinkAction]:
        """A reply may take its time; only messages that are not taken speak against such a line."""
        if not (self.queue.under_way or self.queue.waiting):
            self._watch.reset()
        return []

    # What the stub's supervisor finds out.

    def _give_up(self, event: GiveUp, now: float) -> list[LinkAction]:
        self.detail = event.detail
        ended = [
            action
            for queue in queues_of(self)
            for message in queue.abandon()
            for action in self.end_message(message, "rejected", event.code, event.detail, now)
        ]
        return [*ended, *self._switch_if_clear(now)]

    def _stub_verified(self, event: StubVerified, now: float) -> list[LinkAction]:
        return [
            action
            for message, code in self.queue.withdraw(event.check)
            for action in self.end_message(message, "rejected", code, "", now)
        ]


def queues_of(machine: LinkMachine) -> Sequence[OutboundQueue]:
    """The queues of a link: one, and two more while a newer version of the stub carries a share."""
    canary = machine.canary
    return (machine.queue,) if canary is None else (machine.queue, canary.queue, canary.held)
