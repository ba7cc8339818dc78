"""What is the same about all messages of one flow that a link brings, so that it is decided once.

The counterpart of `outward_flow`, and kept with one carrier: messages with the same text around id and body, and the
same nodes in their `via`. The first of them went the whole way of `inbound`. What was decided about those holds
for as long as the border, the era of the gate and the way that records name are the same objects, and the sender is
one of those that the border knows. Per message remain: its id in the records, JSON, rates, digest, record.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from federation.core.border import TRAILER_BYTES, InwardBorder, KnownHops, trailer
from federation.core.interworking import INTERWORKING_TYPES
from federation.links.flow_table import FLOWS_PER_LINK, FlowMode, FlowTable
from federation.links.link_context import BorderRules
from federation.links.link_records import LinkRecords
from policy.core.engine import Facts
from policy.core.gate import Settled
from protofly.address import domain_of
from protofly.errors import Code
from protofly.forwarding import FORWARD
from protofly.header_text import HeaderText, header_text
from protofly.message import Message
from protofly.record_runs import SHORTEST_RUN, MessageRun
from protofly.records import MessageRecord, envelope_digests

logger = logging.getLogger("federation")

_UNUSUAL_TYPES: Final = INTERWORKING_TYPES | {FORWARD, "response"}


@dataclass(slots=True)
class Entered:
    """Messages that passed our gate, in order, and their records or runs of records, which the bus ends."""

    messages: list[Message] = field(default_factory=list)
    recorded: list[MessageRecord | MessageRun] = field(default_factory=list)

    def take(self, message: Message, record: MessageRecord) -> None:
        """Add a message."""
        self.messages.append(message)
        self.recorded.append(record)

    def take_run(self, messages: list[Message], run: MessageRun) -> None:
        """Add messages of one flow."""
        self.messages += messages
        if len(run) < SHORTEST_RUN:
            self.recorded += run.records()
        else:
            self.recorded.append(run)


@dataclass(frozen=True, slots=True)
class InwardTerms:
    """The decisions that all messages of an inward flow share.

    Attributes:
        settled: By the gate.
        hops: In their trailer.
        way: `LinkRecords.way` when `record` was made.
        record: As all of them have it.
    """

    settled: Settled
    hops: KnownHops
    way: object
    record: MessageRecord


class InwardFlow:
    """One flow on its way in."""

    __slots__ = ("_cut", "_digest", "_type", "_verdict", "sender", "terms", "text")

    def __init__(self, like: Message, text: HeaderText, terms: InwardTerms) -> None:
        self.text, self.terms = text, terms
        self._cut = TRAILER_BYTES + len(terms.hops.end)
        self.sender, self._type, self._verdict = like.from_, like.type, like.verdict
        self._digest = envelope_digests(like.type, like.from_, like.to)

    def enter(self, raws: Sequence[bytes], start: int, now: float, entered: Entered) -> int:
        """Enter messages of the flow, from text `start`, up to the first that is none or exceeds a rate.

        Returns how many; `now` is seconds since the Unix epoch, and the flow holds.
        """
        bucket, type_ = self.terms.settled.bucket, self._type
        messages, ids = list[Message](), list[bytes]()
        for index in range(start, len(raws)):
            raw = raws[index]
            found = self._read(raw)
            if found is None or (bucket is not None and bucket.take(len(raw), now, type_)):
                break
            messages.append(found[0])
            ids.append(found[1])
        if messages:
            run = self._run(messages, ids, raws[start : start + len(messages)], int(now * 1e6))
            entered.take_run(messages, run)
        return len(messages)

    def make(self, raw: bytes, ts_us: int) -> tuple[Message, MessageRecord] | None:
        """The message that a text is, as it goes to our bus, and its record; None for a text of another flow."""
        found = self._read(raw)
        if found is None:
            return None
        [record] = self._run([found[0]], [found[1]], [raw], ts_us).records()
        return found[0], record

    def _read(self, raw: bytes) -> tuple[Message, bytes] | None:
        """The message that a text is, and its id in the records; None for a text of another flow."""
        message = self.text.decode(raw, self._cut)
        found = None if message is None else trailer(raw, self.terms.hops.end)
        if message is None or found is None:
            return None
        if self._verdict is not None:
            message.judged(self._verdict)
        return message, found[1]

    def _run(self, messages: list[Message], ids: list[bytes], raws: Sequence[bytes], ts_us: int) -> MessageRun:
        """The records of messages of the flow."""
        like: MessageRecord = self.terms.record.__copy__()
        like.ts_us = ts_us
        digest = self._digest
        columns: dict[str, list[Any]] = {
            "msg_id": [one.hex() for one in ids],
            "size_in": [len(message.raw) for message in messages],
            "size_wire": [len(raw) for raw in raws],
            "digest": [digest(message.id, message.body) for message in messages],
        }
        return MessageRun(like, columns)


class InwardFlows:
    """The flows that one carrier brings.

    Args:
        domain: Of the link.
        border: What crosses it speaks for these; another border means other flows.

    Attributes:
        link_class: The trust class of the domain.
    """

    def __init__(self, domain: str, border: InwardBorder, rules: BorderRules, records: LinkRecords) -> None:
        self._domain, self._border, self._rules, self._records = domain, border, rules, records
        self._table: FlowTable[InwardFlow] = FlowTable(FLOWS_PER_LINK)
        self.link_class = rules.gate.class_of(domain)
        is_legacy = rules.interworking.admission(domain) is not None
        self._makes_flows = rules.flows != "off" and not is_legacy

    def take(self, raws: Sequence[bytes], start: int, now: float, entered: Entered) -> int:
        """Enter messages of one flow, from text `start`; returns how many. The next one goes the whole way.

        `now` is seconds since the Unix epoch.
        """
        table = self._table
        flow = table.last
        if flow is None:
            return 0
        taken = flow.enter(raws, start, now, entered) if self._holds(flow) else 0
        if not taken:
            flow = table.find(raws[start])
            if flow is None or not self._holds(flow):
                return 0
            taken = flow.enter(raws, start, now, entered)
        if taken:
            table.used(flow, taken)
            self._border.known_hops = flow.terms.hops  # as each of them would have left it
        return taken

    def _holds(self, flow: InwardFlow) -> bool:
        terms = flow.terms
        if (
            terms.settled.era is self._rules.gate.era
            and terms.way is self._records.way
            and flow.sender in self._border.known_senders
        ):
            return True
        self._table.drop(flow)
        return False

    def notice(self, inner: Message, size_bytes: int, entered: Entered) -> None:
        """A message has entered the whole way, the last of `entered`; its text had the trailer that the last one had.

        Args:
            inner: Without that trailer.
            size_bytes: With it.
            entered: Its record is a pattern for those of the flow.
        """
        rules, border, domain = self._rules, self._border, self._domain
        if not self._makes_flows or inner.type in _UNUSUAL_TYPES or not self._table.wants(inner):
            return
        if rules.identify is not None:
            return
        text = header_text(inner)
        if text is None or "@" in inner.from_ or "msgId" in rules.gate.facts_read:
            return
        last = entered.recorded[-1]
        assert isinstance(last, MessageRecord)
        record: MessageRecord = last.__copy__()
        names, hops = (domain_of(inner.from_), domain_of(inner.to)), border.hops_crossed
        facts = Facts("in", inner, *names, domain, size_bytes, hops, record.ts_us / 1e6, link_class=self.link_class)
        settled = rules.gate.settle(facts)
        if settled is not None:
            terms = InwardTerms(settled, border.known_hops, self._records.way, record)
            self._table.keep(InwardFlow(inner, text, terms), inner)

    def end_turn(self, entered: Entered) -> None:
        """All texts of a turn have been taken."""


class _Expected(NamedTuple):
    """The message and record that a flow would have made of a text, and how many messages had entered before it."""

    flow: InwardFlow
    message: Message
    record: MessageRecord
    before: int


class VerifiedInwardFlows(InwardFlows):
    """Lets every message go the whole way, and reports where a flow would have done something else."""

    _expected: _Expected | None = None

    def take(self, raws: Sequence[bytes], start: int, now: float, entered: Entered) -> int:
        """See `InwardFlows.take`: none is taken."""
        self.end_turn(entered)
        flow = self._table.last
        made = flow.make(raws[start], int(now * 1e6)) if flow is not None and self._holds(flow) else None
        if flow is not None and made is None:
            flow = self._table.find(raws[start])
            made = flow.make(raws[start], int(now * 1e6)) if flow is not None and self._holds(flow) else None
        if flow is not None and made is not None:
            self._table.used(flow, 1)
            self._expected = _Expected(flow, *made, len(entered.messages))
        return 0

    def end_turn(self, entered: Entered) -> None:
        """The message before, if there was one, has gone the whole way."""
        expected, self._expected = self._expected, None
        difference = "" if expected is None else _difference(expected, entered)
        if expected is not None and difference:
            code, message = Code.FLOW_DIFFERS.word, expected.message
            names = (ascii(message.from_), ascii(message.to))
            text = '%s: %s from %s to %s: %s; set [debug] flows = "off", and report it'
            logger.error(text, code, ascii(message.type), *names, difference, extra={"code": code})


def _difference(expected: _Expected, entered: Entered) -> str:
    """How a message was treated otherwise than its flow would have treated it, in words; "" for not at all."""
    if len(entered.messages) == expected.before:
        return "" if expected.flow.terms.settled.bucket is not None else "it did not enter"
    for whole, flow in (
        (entered.messages[expected.before], expected.message),
        (entered.recorded[expected.before], expected.record),  # all by themselves while no flow takes any
    ):
        for name in whole.__struct_fields__:
            of_whole, of_flow = getattr(whole, name), getattr(flow, name)
            if of_whole != of_flow:
                return f"{name} is {of_whole!r}, and would be {of_flow!r}"
    return ""


INWARD_FLOWS: Final[dict[FlowMode, type[InwardFlows]]] = {
    "on": InwardFlows,
    "verify": VerifiedInwardFlows,
    "off": InwardFlows,
}
"""Handlers for messages of flows, by the value of `[debug] flows`."""
