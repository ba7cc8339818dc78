"""What our senders wait for from one domain: replies, receipts, and the answers that we give where it is silent.

Each request gets one final answer: the domain's, or ours. What comes after it is marked late. Answers of ours are
returned; who calls delivers them. Source: message specification, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from federation.core.link_counts import LinkCount
from federation.core.moved_link import MovedAddressed, MovedRequest
from federation.core.outbound_queue import OutboundMessage
from federation.core.transactions import NOTHING, ONE_REPLY, Tracking, Transactions, mirrored, tracking_of
from protofly import codec
from protofly.address import domain_of
from protofly.counters import Counters
from protofly.errors import Code
from protofly.late_replies import marked_late
from protofly.message import Message


@dataclass(frozen=True, slots=True)
class LinkNames:
    """The names of both sides of a link.

    Attributes:
        domain: The foreign domain.
        node: Address of our node, in whose name it answers.
        our_domains: Our domain and its aliases.
    """

    domain: str
    node: str
    our_domains: frozenset[str]


class AwaitedReplies:
    """Open requests of ours to one domain. Times are monotonic seconds.

    Args:
        names: Whose link it is.
        doubt_until: Until then a reply to an unknown request may answer one of the process before this one.
        counters: Those of the link: "late replies", "timeouts".
    """

    def __init__(self, names: LinkNames, *, doubt_until: float, counters: Counters) -> None:
        self._domain, self._node, self._our_domains = names.domain, names.node, names.our_domains
        self._counters = counters
        self._transactions = Transactions(doubt_until=doubt_until)

    def __len__(self) -> int:
        return len(self._transactions)

    def sent(self, message: Message, now: float, ttl_seconds: float) -> None:
        """Remember what a message that was queued for the domain expects; `ttl_seconds` as in `Transactions`."""
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
        """True when a reply would answer an open request, or comes from observers that were notified."""
        return self._transactions.is_open(reply)

    def is_asked(self, reply: Message) -> bool:
        """True when a reply would answer an open request, by asker, id and asked."""
        return self._transactions.is_asked(reply)

    def came(self, reply: Message, now: float) -> Message:
        """Take in a reply of the domain that passed our gate; returns what to deliver, marked if it is late."""
        transactions = self._transactions
        if transactions.replied(reply, now) or transactions.is_open(reply):
            return reply
        if not transactions.is_late(reply, now):
            return reply
        self._counters[LinkCount.LATE_REPLIES] += 1
        return marked_late(reply)

    def denied(self, reply: Message, code: Code, value: object, now: float) -> Message | None:
        """A reply of the domain did not pass our gate: returns the answer in its place, if one is still expected."""
        request = mirrored(reply, "read")
        return self._refusal(request, code, "", value) if self._transactions.answered(request, now) else None

    def receipts(self, gone: Iterable[Message], now: float) -> list[Message]:
        """Receipts for those of the messages that the far end answers for whose senders asked for one."""
        given = []
        for sent in gone:
            if sent.wants_receipt:
                self._transactions.answered(sent, now)
                given.append(codec.response(sent, 200, extra={"source": self._node}))
        return given

    def failed(self, sent: OutboundMessage, code: Code, detail: str, now: float) -> Message | None:
        """A message of ours ended here: returns the answer to its sender, if it still waits for one."""
        message = sent.message
        was_open = self._transactions.answered(message, now)
        if was_open or (message.expects_reply and not self._awaits_one(message, tracking_of(message))):
            return self._refusal(message, code, detail)
        return None

    def expire(self, now: float, *, detail: str = "", value: object = None) -> list[Message]:
        """Answers to some of the requests whose time is over. `detail` says what is wrong with the link, if known."""
        requests = self._transactions.expired(now)
        self._counters[LinkCount.TIMEOUTS] += len(requests)
        return [self._refusal(request, Code.GATEWAY_TIMEOUT, detail, value) for request in requests]

    def abandon(self, code: Code, detail: str, now: float) -> list[Message]:
        """Answers to all requests that have no reply yet: nobody waits for one any longer."""
        return [self._refusal(request, code, detail) for request in self._transactions.abandon(now)]

    def hand_over(self, now: float) -> tuple[list[MovedRequest], list[MovedAddressed]]:
        """Forget what is waited for: another node goes on with it."""
        return self._transactions.hand_over(now)

    def restore(self, requests: Iterable[MovedRequest], addressed: Iterable[MovedAddressed], now: float) -> None:
        """Go on for another node."""
        for one in requests:
            self._transactions.restore_request(one.message, now + one.left_seconds, one.ttl_seconds)
        for pair in addressed:
            self._transactions.restore_addressed(pair.from_, pair.to, now + pair.left_seconds)

    def _refusal(self, message: Message, code: Code, detail: str, value: object = None) -> Message:
        shown = msgspec.UNSET if value is None else value
        return codec.refusal(message, code, source=self._node, detail=detail, value=shown)
