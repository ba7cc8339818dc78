"""Records of what gates decided: denials, and what rules in report mode would have done.

Between domains every decision has its message record, and these stand beside it. On the own bus, and before there is a
link at all, there is nothing else; how many of those are written has a bound (`core/decision_budget`), and each says
how many were left out before it. Source: pipeline study, section 8.1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from secrets import token_bytes
from typing import NamedTuple

from federation.core.border import id_of_ours
from federation.core.decision_budget import DecisionBudget
from federation.core.message_ids import MessageIds
from policy.core.engine import Facts
from policy.core.gate import Gate, GateVerdict
from policy.core.model import Recipients
from policy.core.recorded_facts import record_facts
from protofly.limits import HEADER_CHARS
from protofly.records import DecisionRecord, GateFacts, Record
from protofly.trace_context import traceparent_of

CarryOut = Callable[[Facts, GateVerdict], None]
"""Does what a rule wants beside its decision, for verdicts with `duties`; never blocks."""


def carry_out_nothing(_facts: Facts, _verdict: GateVerdict) -> None:
    """Nobody does what rules want beside their decisions."""


class Judged(NamedTuple):
    """A verdict, and the id of its record in hex; "" if it was not recorded."""

    verdict: GateVerdict
    msg_id: str


class DecisionRecords:
    """Records the decisions of the gates `local` and `peer`.

    Args:
        gate: Says what the policies in force read.
        record: Takes records.
        hides_addresses: True when addresses are hashed on their way to the disk.
        carry_out: Does what rules want beside their decisions.
        recipients: Knows about recipients of ours, for those who ask the gate.

    Attributes:
        gate: The same.
        carry_out: The same.
        recipients: The same.
    """

    def __init__(
        self,
        gate: Gate,
        record: Callable[[Record], None],
        *,
        hides_addresses: bool = False,
        carry_out: CarryOut = carry_out_nothing,
        recipients: Recipients | None = None,
    ) -> None:
        self.gate = gate
        self._record = record
        self._hides_addresses = hides_addresses
        self._budget = DecisionBudget()
        self._ids = MessageIds(token_bytes(8))
        self.carry_out = carry_out
        self.recipients = recipients

    @property
    def left_out(self) -> int:
        """Decisions that were not recorded for want of budget, since the start."""
        return self._budget.left_out

    def judge(self, facts: Facts, *, group: str, source: str) -> Judged:
        """Have the gate judge, and record the verdict if it is a denial or a shadow rule spoke.

        Args:
            facts: What the gate is shown.
            group: What kind of source it is, a word of ours.
            source: Who caused this: a session, an address or a domain.
        """
        verdict = self.gate.judge(facts)
        return Judged(verdict, self.note(facts, verdict, group=group, source=source))

    def note(self, facts: Facts, verdict: GateVerdict, *, group: str, source: str) -> str:
        """Record a verdict as `judge` does, and return the id of its record."""
        if verdict.duties is not None:
            self.carry_out(facts, verdict)
        if verdict.permitted and not verdict.decision.shadow:
            return ""
        left_out = self._budget.take(group, source, time.monotonic())
        if left_out is None:
            return ""
        reads, is_hashed = self.gate.facts_read, self._hides_addresses
        recorded = record_facts(facts, facts.from_domain, facts.to_domain, reads, is_hashed=is_hashed)
        msg_id = id_of_ours(facts.message, self._ids.next(facts.now))
        self._record(decision_record(facts, verdict, recorded, msg_id=msg_id, left_out=left_out))
        return msg_id.hex()


def decision_record(
    facts: Facts, verdict: GateVerdict, recorded: GateFacts | None, *, msg_id: bytes = b"", left_out: int = 0
) -> DecisionRecord:
    """The record of one decision."""
    message = facts.message
    return DecisionRecord(
        ts_us=int(facts.now * 1e6),
        hook=facts.hook,
        effect="permit" if verdict.permitted else "deny",
        permitted=verdict.permitted,
        policy_rev=verdict.revision,
        src_domain=facts.from_domain,
        dst_domain=facts.to_domain,
        link_domain=facts.link_domain or None,
        msg_id=msg_id.hex() or None,
        msg_type=message.type[:HEADER_CHARS],
        src_key=message.from_[:HEADER_CHARS],
        dst_key=message.to[:HEADER_CHARS],
        size_in=len(message.raw),
        rule_id=verdict.rule_id or None,
        reason=None if verdict.code is None else verdict.code.word,
        retry_after_us=int(verdict.retry_after_seconds * 1e6) or None,
        shadow=tuple(f"{one.rule_id} {one.effect.value}" for one in verdict.decision.shadow if one.rule_id) or None,
        obligations=tuple(f"{one.name}={one.value}" for one in verdict.decision.obligations) or None,
        facts=recorded,
        trace_id=traceparent_of(message.trace) if message.peek.trace else None,
        left_out=left_out or None,
    )
