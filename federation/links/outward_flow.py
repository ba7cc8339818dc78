"""What is the same about all messages of one flow that leave by one link, so that it is decided once.

A flow is what has the same sender, recipient, type and roles, and no member in its body that a node reads. The first
message of it went the whole way of `outbound`; what was decided about that one holds for the others until something
changes that it was decided from. `is_current` says so, `send` then does for each message what differs: rates, its id,
its text for the far end, its digest. What `send` does not take is for the link's own `send` to judge.
"""

from __future__ import annotations

from binascii import hexlify
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, Self

from federation.core.border import TRAILER, OutwardBorder
from federation.core.link_counts import LinkCount
from federation.core.link_machine import LinkMachine
from federation.core.outbound_queue import OutboundMessage
from federation.core.transactions import NOTHING, tracking_of
from federation.links.link_context import BorderRules
from policy.core.gate import Settled
from protofly.limits import CROSSING_BYTES, REQUEST_TTL_SECONDS
from protofly.message import Message
from protofly.records import GateFacts, envelope_digests

_DECIDED = ("message", "wire", "digest", "rule_id", "revision", "reason", "facts", "ttl_seconds")
"""What `send` says of a message as its link says it."""


@dataclass(frozen=True, slots=True)
class FlowTerms:
    """The decisions that all messages of an outward flow share.

    Attributes:
        settled: By the gate.
        rules: Of the border between our domain and others.
        border: Makes them ready to leave.
        facts: What their records say about what the gate was shown.
    """

    settled: Settled
    rules: BorderRules
    border: OutwardBorder
    facts: GateFacts | None


class Way(Protocol):
    """The link by which a flow leaves."""

    domain: str
    machine: LinkMachine
    now: Callable[[], float]
    last_used_seconds: float
    touched: Callable[[Self], None]


class OutwardFlow:
    """One flow on its way out.

    Args:
        like: A message of the flow.
        link: The one that took it.
        links: All that there are, by domain.
    """

    def __init__(self, like: Message, link: Way, links: Mapping[str, Way], terms: FlowTerms) -> None:
        self._link, self._links = link, links
        self._gate, self._ids, self._settled = terms.rules.gate, terms.rules.ids, terms.settled
        verdict = terms.settled.verdict
        self._rule_id, self._revision, self._reason = verdict.rule_id, verdict.revision, verdict.step
        self._tail, self._facts = terms.border.end_of_text, terms.facts
        self._type = like.type
        self._mark = object()
        self._digest = envelope_digests(like.type, like.from_, like.to)
        self._is_tracked = tracking_of(like) is not NOTHING

    @property
    def is_current(self) -> bool:
        """True while what was decided holds, and the link is the one of its domain."""
        link, settled = self._link, self._settled
        return (
            settled.era is self._gate.era
            and self._links.get(link.domain) is link
            and link.machine.refusal is None
            and bool(link.machine.carriers)
            and link.machine.canary is None
        )

    @property
    def sent(self) -> int:
        """Messages that the link has taken."""
        return self._link.machine.counters[LinkCount.SENT]

    def difference(self, message: Message, sent: int) -> str:
        """Describe the difference between the link's treatment of a message and that of `send`; "" if there is none.

        The link has just judged it, and had `sent` so many before.
        """
        queue = self._link.machine.queue
        if self.sent != sent + 1:
            may_refuse = self._settled.bucket is not None or queue.is_congested
            return "" if may_refuse and self.sent == sent else "the link did not take it"
        [taken] = deque(queue, maxlen=1)
        made = self._make(message, taken.msg_id, taken.ts_us, taken.accepted_seconds)
        for name in _DECIDED:
            whole, flow = getattr(taken, name), getattr(made, name)
            if whole != flow:
                return f"{name} is {whole!r}, and would be {flow!r}"
        return ""

    def send(self, messages: list[Message], now: float) -> int:
        """Queue messages of the flow, in order; returns how many.

        The next one has to be judged by itself: it exceeds a rate or a bound, or senders should pause first.

        Args:
            messages: All of the flow, and it `is_current`.
            now: Seconds since the Unix epoch.
        """
        link = self._link
        started, machine = link.now(), link.machine
        taken = machine.queue.submit_run(self._made_ready(messages, now, started))
        if taken:
            machine.counters[LinkCount.SENT] += taken
            if self._is_tracked:
                for message in messages[:taken]:
                    machine.replies.sent(message, started, REQUEST_TTL_SECONDS)
            link.last_used_seconds = started
            link.touched(link)
        return taken

    def _made_ready(self, messages: list[Message], now: float, started: float) -> Iterator[OutboundMessage]:
        """The messages as they are queued, each when it is asked for, up to the first that is not to pass like this."""
        bucket, type_, next_id, make = self._settled.bucket, self._type, self._ids.next, self._make
        ts_us = int(now * 1e6)
        for message in messages:
            pending = make(message, next_id(now), ts_us, started)
            if len(pending.wire) > CROSSING_BYTES:
                return
            if bucket is not None and bucket.take(len(message.raw), now, type_):
                return
            yield pending

    def _make(self, message: Message, msg_id: bytes, ts_us: int, started: float) -> OutboundMessage:
        return OutboundMessage(
            message,
            message.raw[:-2] + TRAILER + hexlify(msg_id) + self._tail,
            msg_id,
            self._digest(message.id, message.body),
            ts_us,
            started,
            self._rule_id,
            self._revision,
            0,
            REQUEST_TTL_SECONDS,
            0,
            0.0,
            0,
            self._reason,
            self._facts,
            flow=self._mark,
        )
