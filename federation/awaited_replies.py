"""What our senders wait for from one domain: replies, receipts, and the answers that we give where it is silent.

Each request gets one final answer: the domain's, or ours. What comes after it is marked late.
Source: message specification, section 3.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

import msgspec

from federation.core.outbound_queue import Pending
from federation.core.transactions import NOTHING, ONE_REPLY, Tracking, Transactions, mirrored, tracking_of
from federation.link_context import LinkContext
from protofly import codec
from protofly.address import domain_of
from protofly.errors import Code
from protofly.late_replies import marked_late
from protofly.limits import REQUEST_TTL_SECONDS
from protofly.message import Message


class AwaitedReplies:
    """Open requests of ours to one domain, and the answers that we give in its place.

    Args:
        our_domains: Our domain and its aliases.
        counters: Those of the link: "late replies", "timeouts".
    """

    def __init__(self, domain: str, our_domains: frozenset[str], context: LinkContext, counters: Counter[str]) -> None:
        self._domain = domain
        self._our_domains = our_domains
        self._context = context
        self._counters = counters
        self._transactions = Transactions(doubt_until=context.started_seconds + REQUEST_TTL_SECONDS)

    def __len__(self) -> int:
        return len(self._transactions)

    def sent(self, message: Message, now: float, ttl_seconds: float) -> None:
        """A message was queued for the domain; `now` is monotonic seconds."""
        tracking = tracking_of(message)
        if tracking is NOTHING:
            return
        if self._awaits_one(message, tracking):
            self._transactions.started(message, now, ttl_seconds)
        elif domain_of(message.to) != self._domain:
            self._transactions.addressed(message, now)

    def _awaits_one(self, message: Message, tracking: Tracking) -> bool:
        """To observers of ours abroad no answer in the object's name counts, so silence is none either."""
        return tracking is ONE_REPLY and domain_of(message.to) not in self._our_domains

    def is_open(self, reply: Message) -> bool:
        """Whether a reply would answer an open request, or comes from observers that were notified."""
        return self._transactions.is_open(reply)

    def is_asked(self, reply: Message) -> bool:
        """Whether a reply would answer an open request, by asker, id and asked."""
        return self._transactions.is_asked(reply)

    def came(self, reply: Message, now: float) -> Message:
        """A reply of the domain passed our gate: the reply to deliver, marked if it comes too late."""
        transactions = self._transactions
        if transactions.replied(reply, now) or transactions.is_open(reply):
            return reply
        if not transactions.is_late(reply, now):
            return reply
        self._counters["late replies"] += 1
        return marked_late(reply)

    def denied(self, reply: Message, code: Code, value: object) -> None:
        """A reply of the domain did not pass our gate: the sender of its request is told so, if it still waits."""
        request = mirrored(reply, "read")
        if self._transactions.answered(request, time.monotonic()):
            self.answer(request, code, value=value)

    def delivered(self, gone: Iterable[Pending], now: float) -> None:
        """The far end answers for these: receipts for senders who asked for one, hops for traced messages."""
        for pending in gone:
            peek = pending.message.peek
            if peek.receipt and pending.message.wants_receipt:
                self._transactions.answered(pending.message, now)
                self._context.answer(codec.response(pending.message, 200, extra={"source": self._context.node}))
            if peek.trace:
                self._context.traces.hop(pending.message.trace, "stub", pending.handed_seconds)
                self._context.traces.hop(pending.message.trace, "acknowledged", now)

    def failed(self, pending: Pending, code: Code, detail: str, now: float) -> None:
        """A message of ours ends here: its sender is told why, if it still waits."""
        was_open = self._transactions.answered(pending.message, now)
        if was_open or not self._awaits_one(pending.message, tracking_of(pending.message)):
            self.answer(pending.message, code, detail)

    def expire(self, now: float, *, detail: str = "", value: object = None) -> int:
        """Answer some of the requests whose time is over; returns how many. `detail` says what is wrong, if known."""
        unanswered = self._transactions.expired(now)
        for request in unanswered:
            self._counters["timeouts"] += 1
            self.answer(request, Code.GATEWAY_TIMEOUT, detail, value)
        return len(unanswered)

    def answer(self, message: Message, code: Code, detail: str = "", value: object = None) -> None:
        """Tell a local sender that its message ended here."""
        if message.expects_reply:
            told = msgspec.UNSET if value is None else value
            self._context.answer(codec.refusal(message, code, source=self._context.node, detail=detail, value=told))
