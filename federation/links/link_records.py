"""What one link writes down about messages: a record per message and side, and decisions worth a line.

A refused message has a line in the log as well, within an allowance, which names the id of its record: `msg_id` leads
from the line to the record, to the decision, and to the span, on both sides.

Every message costs one record, so the record is a copy of a template in which only what differs is set: 0.4 µs where
building it anew takes 2. Messages of one flow that pass together have one run of records, which costs half of that
here, and a third where it is written. Source: design, section 7.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Literal

from federation.core.border import id_of_ours
from federation.core.link_machine import Outcome
from federation.core.outbound_queue import OutboundMessage
from federation.links.decision_records import CarryOut, carry_out_nothing, decision_record
from federation.log_allowance import LogAllowance
from policy.core.engine import Facts
from policy.core.gate import Gate, GateVerdict
from policy.core.recorded_facts import FactsRecorder, with_transfer
from protofly.errors import Code
from protofly.message import Message
from protofly.record_runs import SHORTEST_RUN, MessageRun
from protofly.records import GateFacts, MessageRecord, Record, StubEvent, envelope_digest
from protofly.trace_context import traceparent_of

logger = logging.getLogger("federation")

_flow: Final = attrgetter("flow")

REFUSALS_PER_MINUTE = 10
"""Lines in the log about refused messages of one link, for each direction; the records and counters have them all."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Settings and dependencies for the records of links and guests.

    Attributes:
        our_domain: Our main domain.
        gate: Says which facts the policies in force read.
        record: Takes records; never blocks.
        hides_addresses: True when addresses are hashed on their way to the disk.
        carry_out: Does what rules want beside their decisions.
        record_run: Takes records of a flow as one thing; never blocks. None: `record` takes them, each by itself.
    """

    our_domain: str
    gate: Gate
    record: Callable[[Record], None]
    hides_addresses: bool = False
    carry_out: CarryOut = carry_out_nothing
    record_run: Callable[[MessageRun], None] | None = None


class LinkRecords:
    """The audit records of the link to one domain, or of its guests.

    Args:
        domain: The foreign domain.
        recording: How it is recorded.
        monotonic: Seconds; decides which minute a line of the log belongs to.

    Attributes:
        way: Another object as soon as messages go another way.
    """

    def __init__(self, domain: str, recording: Recording, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        our_domain = recording.our_domain
        self._log_lines = LogAllowance(REFUSALS_PER_MINUTE, monotonic)
        self._domain = domain
        self._gate = recording.gate
        self._recorder = FactsRecorder(our_domain, domain, is_hashed=recording.hides_addresses)
        self.record = recording.record
        self._carry_out = recording.carry_out
        self._record_run = recording.record_run
        self._out = _template("out", our_domain, domain)
        self._in = _template("in", domain, our_domain)
        self.way = object()

    def carried(self, *, channel: str, peer_node: str, stub_version: str) -> None:
        """From now on messages go this way."""
        self.way = object()
        for template in (self._out, self._in):
            template.channel = channel or None
            template.peer_node = peer_node or None
        self._out.stub_ver = stub_version or None

    @contextmanager
    def as_carried_by(self, channel: str, stub_version: str) -> Iterator[None]:
        """Record messages of ours within this context as carried on this channel by this version of the stub."""
        before = self._out.channel, self._out.stub_ver
        self._out.channel, self._out.stub_ver = channel, stub_version
        try:
            yield
        finally:
            self._out.channel, self._out.stub_ver = before

    def facts_of(self, facts: Facts, verdict: GateVerdict) -> GateFacts | None:
        """The part of the gate's facts that the record of a message keeps, with what a rule says about its data."""
        recorded = self._recorder.record(facts, self._gate.facts_read)
        return recorded if verdict.transfer is None else with_transfer(recorded, verdict.transfer)

    def delivered(self, gone: Iterable[OutboundMessage], now: float) -> None:
        """The far end answers for these; `now` is monotonic seconds."""
        for flow, messages in groupby(gone, _flow):
            some = list(messages)
            if flow is not None and len(some) >= SHORTEST_RUN and all(map(_is_usual, some)):
                self._delivered_run(some, now)
                continue
            for pending in some:
                entry: MessageRecord = self._out.__copy__()
                self._fill(entry, pending, now)
                self.record(entry)

    def _delivered_run(self, some: list[OutboundMessage], now: float) -> None:
        """The same for messages of one flow, which a carrier took once and for all."""
        like: MessageRecord = self._out.__copy__()
        self._fill(like, some[0], now)
        self._run(
            like,
            {
                "ts_us": [one.ts_us for one in some],
                "msg_id": [one.msg_id.hex() for one in some],
                "size_in": [len(one.message.raw) for one in some],
                "size_wire": [len(one.wire) for one in some],
                "digest": [one.digest for one in some],
                "d_stub_us": [one.stub_us for one in some],
                "d_peer_us": [int((now - one.handed_seconds) * 1e6) for one in some],
                "d_total_us": [int((now - one.accepted_seconds) * 1e6) for one in some],
                "fuel": [one.fuel for one in some],
            },
        )

    def _run(self, like: MessageRecord, columns: dict[str, list[Any]]) -> None:
        run = MessageRun(like, columns)
        if self._record_run is not None:
            self._record_run(run)
        else:
            for entry in run.records():
                self.record(entry)

    def ended(self, pending: OutboundMessage, outcome: Outcome, code: Code, now: float) -> None:
        """A message of ours ended here in another way than by arriving."""
        entry: MessageRecord = self._out.__copy__()
        self._fill(entry, pending, now)
        entry.outcome, entry.outcome_code = outcome, code.word
        self.record(entry)
        if outcome == "trapped":
            self.record(
                StubEvent(
                    ts_us=int(time.time() * 1e6),
                    domain=self._domain,
                    event="quarantined",
                    stub_ver=entry.stub_ver,
                    code=code.word,
                    trap=pending.trap,
                    msg_id=entry.msg_id,
                )
            )

    def not_taken(self, pending: OutboundMessage, code: Code, now: float) -> None:
        """A message of ours did not fit into the queue of the link; who sent an event hears of it nowhere else."""
        entry: MessageRecord = self._out.__copy__()
        self._fill(entry, pending, now)
        entry.outcome, entry.outcome_code = "rejected", code.word
        self._refused(entry)

    @staticmethod
    def _fill(entry: MessageRecord, pending: OutboundMessage, now: float) -> None:
        message = pending.message
        entry.ts_us = pending.ts_us
        entry.msg_id = pending.msg_id.hex()
        entry.attempt = pending.suspected + 1
        entry.src_key = message.from_
        entry.dst_key = message.to
        entry.msg_type = message.type
        entry.size_in = len(message.raw)
        entry.size_wire = len(pending.wire)
        entry.digest = pending.digest
        entry.policy_rev = pending.revision or None
        entry.rule_id = pending.rule_id or None
        entry.reason = pending.reason
        entry.facts = pending.facts
        entry.d_policy_us = pending.policy_us
        entry.d_stub_us = pending.stub_us
        entry.fuel = pending.fuel
        entry.trap = pending.trap
        if pending.handed_seconds:
            entry.d_peer_us = int((now - pending.handed_seconds) * 1e6)
        entry.d_total_us = int((now - pending.accepted_seconds) * 1e6)
        if message.peek.trace:
            entry.trace_id = traceparent_of(message.trace)

    def kept_back(
        self,
        facts: Facts,
        verdict: GateVerdict,
        msg_id: bytes,
        code: Code,
        *,
        outcome: Literal["denied", "rejected"],
        policy_us: int,
    ) -> str:
        """A message of ours did not get as far as the queue: our gate denied it, or the link takes none.

        Returns:
            The id under which it is recorded.
        """
        message = facts.message
        entry: MessageRecord = self._out.__copy__()
        entry.channel = entry.peer_node = entry.stub_ver = None
        digest = envelope_digest(message.type, message.from_, message.to, message.id, message.body)
        msg_id = id_of_ours(message, msg_id)
        self._judged(entry, facts, verdict, msg_id, digest)
        entry.outcome, entry.outcome_code, entry.d_policy_us = outcome, code.word, policy_us
        if outcome == "denied":
            entry.decision = "deny"
            self.decided(facts, verdict, msg_id)
        self._refused(entry)
        return entry.msg_id

    def handed(self, facts: Facts, verdict: GateVerdict, msg_id: bytes, code: Code | None, *, policy_us: int) -> None:
        """A message of ours was given to a guest at once; `code` says why not."""
        message = facts.message
        entry: MessageRecord = self._out.__copy__()
        digest = envelope_digest(message.type, message.from_, message.to, message.id, message.body)
        self._judged(entry, facts, verdict, msg_id, digest)
        entry.d_policy_us = policy_us
        if code is not None:
            entry.outcome, entry.outcome_code = "undeliverable", code.word
        self.record(entry)

    def _judged(self, entry: MessageRecord, facts: Facts, verdict: GateVerdict, msg_id: bytes, digest: str) -> None:
        """Fill in the facts that are known at the gate."""
        message = facts.message
        entry.ts_us = int(facts.now * 1e6)
        entry.msg_id = msg_id.hex()
        entry.src_key = message.from_
        entry.dst_key = message.to
        entry.msg_type = message.type
        entry.size_in = len(message.raw)
        entry.digest = digest
        entry.policy_rev = verdict.revision
        entry.rule_id = verdict.rule_id or None
        entry.reason = verdict.step
        entry.facts = self.facts_of(facts, verdict)
        if message.peek.trace:
            entry.trace_id = traceparent_of(message.trace)

    def refused(self, message: Message, msg_id: bytes, code: Code, now: float, size_bytes: int) -> None:
        """A message of the peer's was turned away before our gate saw it; `now` is seconds since the Unix epoch."""
        entry: MessageRecord = self._in.__copy__()
        entry.ts_us = int(now * 1e6)
        entry.msg_id = msg_id.hex()
        entry.src_key = message.from_
        entry.dst_key = message.to
        entry.msg_type = message.type
        entry.size_in = entry.size_wire = size_bytes
        entry.digest = envelope_digest(message.type, message.from_, message.to, message.id, message.body)
        entry.outcome, entry.outcome_code, entry.decision = "rejected", code.word, None
        self._refused(entry)

    def entering(self, facts: Facts, verdict: GateVerdict, msg_id: bytes, digest: str) -> MessageRecord:
        """Begin the record of a message of the peer's that came to our gate; `arrived` or `denied` ends it."""
        entry: MessageRecord = self._in.__copy__()
        self._judged(entry, facts, verdict, msg_id, digest)
        entry.size_wire = facts.size_bytes
        return entry

    def arrived_run(self, run: MessageRun, codes: Sequence[Code | None], total_us: int) -> None:
        """The same as `arrived` for messages of one flow."""
        run.like.d_total_us = total_us
        if codes.count(None) == len(codes):
            self._run(run.like, run.columns)
            return
        for entry, code in zip(run.records(), codes, strict=True):
            self.arrived(entry, code, total_us)

    def arrived(self, entry: MessageRecord, code: Code | None, total_us: int) -> None:
        """The message was handed to the bus; `code` says why nobody could be given it."""
        entry.d_total_us = total_us
        if code is not None:
            entry.outcome, entry.outcome_code = "undeliverable", code.word
        self.record(entry)

    def denied(self, entry: MessageRecord, facts: Facts, verdict: GateVerdict, msg_id: bytes) -> None:
        """Our gate did not let a message of the peer's pass."""
        code = verdict.code or Code.POLICY
        entry.decision, entry.outcome, entry.outcome_code = "deny", "denied", code.word
        self.decided(facts, verdict, msg_id)
        self._refused(entry)

    def _refused(self, entry: MessageRecord) -> None:
        """Record a message that was refused, and say so in the log while there is room for it."""
        self.record(entry)
        if self._log_lines.takes(entry.role):
            logger.info(
                "a message from %s to %s was %s%s: %s, id %s",
                entry.src_domain,
                entry.dst_domain,
                entry.outcome,
                f" by {entry.rule_id}" if entry.rule_id else "",
                entry.outcome_code,
                entry.msg_id,
                extra={"domain": self._domain, "code": entry.outcome_code, "msg_id": entry.msg_id},
            )

    def decided(self, facts: Facts, verdict: GateVerdict, msg_id: bytes = b"") -> None:
        """A gate said no, or a rule in report mode would have said something else, or has duties for us."""
        if verdict.duties is not None:
            self._carry_out(facts, verdict)
        self.record(decision_record(facts, verdict, self.facts_of(facts, verdict), msg_id=msg_id))


def _is_usual(pending: OutboundMessage) -> bool:
    """True for a message that a carrier took once; the record of another one says more."""
    return pending.handed_seconds != 0.0 and not pending.suspected and pending.trap is None


def _template(role: Literal["out", "in"], src_domain: str, dst_domain: str) -> MessageRecord:
    return MessageRecord(
        ts_us=0,
        role=role,
        msg_id="",
        attempt=1,
        src_domain=src_domain,
        dst_domain=dst_domain,
        src_key="",
        dst_key="",
        msg_type="",
        size_in=0,
        digest="",
        outcome="delivered",
        decision="permit",
    )
