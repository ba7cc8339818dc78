"""What the far end of one link sends us: counted, checked, cleaned, judged by our gate, handed to our bus.

In whose name a message may come is a matter of the connection that brought it, and of what was proved on it. The main
domain of the link always counts; our own domains never do. Source: message specification, section 18.4.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from federation.awaited_replies import AwaitedReplies
from federation.core.border import InwardBorder, Speaker, check_source, id_carried
from federation.core.interworking import INTERWORKING_TYPES
from federation.core.peer_streams import PeerStreams
from federation.core.policy import Facts
from federation.link_books import LinkBooks
from federation.link_context import UNIDENTIFIED, LinkContext
from protofly import codec
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.message import Message
from protofly.records import MessageRecord, envelope_digest

SPOOFS_BEFORE_CLOSE = 3


class Near(Protocol):
    """What the way in needs from the rest of its link."""

    domain: str
    books: LinkBooks
    counters: Counter[str]
    streams: PeerStreams
    replies: AwaitedReplies

    def send_refusal(self, request: Message, code: Code, detail: str = "") -> None:
        """Answer a request of the peer's with a refusal."""


class Inbound:
    """The way in of one link."""

    def __init__(self, link: Near, context: LinkContext, our_domains: frozenset[str]) -> None:
        self._link = link
        self._context = context
        self._our_domains = our_domains
        self._is_legacy = context.interworking.admission(link.domain) is not None
        self._domains = frozenset({link.domain})
        self._border = self._new_border()
        self._spoofs = 0

    def carrier_live(self, domains: frozenset[str]) -> None:
        """A carrier is up: what was counted against the far end is forgotten, and its stub may be another one."""
        self._domains |= domains
        self._border = self._new_border()
        self._spoofs = 0

    def _new_border(self) -> InwardBorder:
        """What may come in from now on; a stub that starts anew may speak for other addresses than the one before."""
        legacy = self._context.interworking
        is_theirs = partial(legacy.speaks_for, self._link.domain) if legacy else None
        speaker = Speaker(self._domains, self._our_domains, is_theirs)
        return InwardBorder(self._context.node, speaker, max_hops=self._context.max_hops)

    def take(self, messages: Sequence[tuple[int, bytes]], stream: str) -> None:
        """Take messages in, in order; see `LinkPort.inbound`.

        Raises:
            PeerError: SPOOFED_SOURCE after the third message in the name of somebody else: the carrier is to be closed.
        """
        link = self._link
        processed = link.streams.processed(stream)
        arrived = time.monotonic()
        now = time.time()
        batch: list[Message] = []
        entries: list[MessageRecord] = []
        for number, raw in messages:
            if number and number <= processed:
                link.counters["duplicates"] += 1
                continue
            processed = number or processed
            try:
                for message in codec.decode(raw):
                    self._enter(message, len(raw), now, batch, entries)
            except codec.BrokenMessageError as exc:
                link.counters["broken"] += 1
                link.books.broken(exc)
        link.streams.heard(stream, processed)
        if batch:
            self._hand_to_bus(batch, entries, arrived)
        if self._spoofs >= SPOOFS_BEFORE_CLOSE:
            self._spoofs = 0
            raise PeerError(Code.SPOOFED_SOURCE, "too many messages in the name of others", domain=link.domain)

    def _enter(
        self, message: Message, size: int, now: float, batch: list[Message], entries: list[MessageRecord]
    ) -> None:
        """Check, clean and judge one message; those that may pass join the batch."""
        link = self._link
        try:
            self._check_sender(message)
            if message.type in INTERWORKING_TYPES:
                raise PeerError(Code.BAD_TYPE, "only interworking stubs are told this", domain=link.domain)
            inner, msg_id = self._border.cross(message)
            from_domain = link.domain if self._is_legacy else domain_of(inner.from_)  # its ranges are of its domain
            to_domain = domain_of(inner.to)
            identify = self._context.identify
            who = UNIDENTIFIED if identify is None else identify(inner, link.domain, now)
        except PeerError as exc:
            link.books.refused(message, id_carried(message), exc.code, now, size)
            self._refuse(message, exc.code, exc.detail)
            return
        hops = self._border.hops_crossed
        facts = Facts("in", inner, from_domain, to_domain, link.domain, size, hops, now, *who)
        verdict = self._context.gate.judge(facts)
        digest = envelope_digest(inner.type, inner.from_, inner.to, inner.id, inner.body)
        entry = link.books.entering(facts, verdict, msg_id, digest)
        if not verdict.permitted:
            code = verdict.code or Code.POLICY
            link.counters["denied"] += 1
            link.books.denied(entry, facts, verdict, msg_id)
            link.send_refusal(inner, code)
            if inner.is_response:
                link.replies.denied(inner, code, verdict.told)
            return
        if inner.type == "response":
            inner = link.replies.came(inner, time.monotonic())
        batch.append(inner)
        entries.append(entry)

    def _check_sender(self, message: Message) -> None:
        """A stranger's address may only answer what one of us asked it; nobody answers in a name of ours.

        Source: message specification, section 18.4.
        """
        try:
            self._border.check_sender(message)
        except PeerError:
            is_asked = message.is_response and self._link.replies.is_asked(message)
            if not is_asked or self._border.speaker.is_never(message.from_):
                raise
            check_source(message, self._border.speaker)

    def _refuse(self, message: Message, code: Code, detail: str) -> None:
        link = self._link
        if code is not Code.SPOOFED_SOURCE:
            link.send_refusal(message, code, detail)
        elif message.is_response and link.replies.is_open(message):
            link.counters["unheard acknowledgements"] += 1  # an honest observer of an object of ours, in its name
        else:
            self._spoofs += not message.is_response  # an honest node may be late with replies, or bring too many
            link.counters["spoofed"] += 1
            link.books.spoofed(message.from_, code)

    def _hand_to_bus(self, batch: list[Message], entries: list[MessageRecord], arrived: float) -> None:
        context, link = self._context, self._link
        codes = context.deliver(link.domain, batch)
        total_us = int((time.monotonic() - arrived) * 1e6)
        arrived_at_bus = link.books.arrived
        for message, entry, code in zip(batch, entries, codes, strict=True):
            if message.peek.trace:
                context.traces.hop(message.trace, "link in", arrived)
                context.traces.hop(message.trace, "bus")
            arrived_at_bus(entry, code, total_us)
            if code is not None:
                link.counters["undeliverable"] += 1
                link.send_refusal(message, code)
        link.counters["received"] += codes.count(None)
