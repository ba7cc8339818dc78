"""The last decisions of the gates, as records have them: what other policies would be tried on.

Filled in the thread that writes records, a batch at a time. Denials are kept apart, so that traffic that passes cannot
push them out; of what passes, each batch leaves its last few.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Final, TypeAlias

import msgspec

from policy.core.gate import Gate, GateVerdict
from policy.core.model import Facts
from policy.core.recorded_facts import IDENTITY_FACTS, MESSAGE_FACTS, AlikeFacts
from policy.core.temporary import RULE_PREFIX
from protofly.record_runs import MessageRun, Recorded
from protofly.records import DecisionRecord, MessageRecord

DENIED: Final = 500
PERMITTED: Final = 500
OF_A_BATCH: Final = 20
"""So many messages that passed are kept of each batch."""
GATES_WITHOUT_LINK: Final = frozenset({"local", "peer"})
"""Their denials have no record of a message beside them."""
NOT_POLICIES: Final = frozenset({"rate", "node", "quota", "limit", "gate"})
"""Reasons of decisions that other policies would not change."""

HIDDEN_FACTS: Final = MESSAGE_FACTS | IDENTITY_FACTS
"""Facts that a record may lack that is `partial`; addresses are whole while they are in memory."""

Judged: TypeAlias = MessageRecord | DecisionRecord


class RecentDecisions:
    """Decisions that can be tried again."""

    def __init__(self) -> None:
        self._denied: deque[Judged] = deque(maxlen=DENIED)
        self._permitted: deque[MessageRecord] = deque(maxlen=PERMITTED)

    def __iter__(self) -> Iterator[Judged]:
        return iter(sorted([*self._denied, *self._permitted], key=lambda one: -one.ts_us))

    def observe(self, recorded: Sequence[Recorded]) -> None:
        """Keep copies of what a batch of records says about decisions: addresses in it are hashed later."""
        left = OF_A_BATCH
        for record in reversed(recorded):
            if isinstance(record, MessageRun):
                is_kept = record.like.decision == "permit" and record.like.reason not in NOT_POLICIES
                kept = record.last(left) if is_kept else []
                left -= len(kept)
                self._permitted += reversed(kept)
            elif isinstance(record, MessageRecord):
                if record.decision == "permit" and left and record.reason not in NOT_POLICIES:
                    left -= 1
                    self._permitted.append(copy(record))
                elif record.decision == "deny" and record.reason not in NOT_POLICIES:
                    self._denied.append(copy(record))
            elif isinstance(record, DecisionRecord) and _is_of_policies(record):
                self._denied.append(copy(record))


def _is_of_policies(record: DecisionRecord) -> bool:
    """True for a denial without a record of a message beside it, which other policies could change."""
    is_theirs = record.reason not in NOT_POLICIES and not (record.rule_id or "").startswith(RULE_PREFIX)
    return not record.permitted and record.hook in GATES_WITHOUT_LINK and is_theirs


class ChangedDecision(msgspec.Struct, frozen=True):
    """A decision that other policies would make otherwise: its record, and the new verdict."""

    record: Judged
    verdict: GateVerdict


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """Result of judging recorded decisions by other policies.

    Attributes:
        judged: So many were judged.
        unknown: So many could not be: these policies read what was not recorded.
        changed: Those that they decide otherwise, the newest first.
    """

    judged: int
    unknown: int
    changed: list[ChangedDecision]


def try_policies(
    gate: Gate, decisions: Sequence[Judged], missing: frozenset[str], *, in_force: Gate | None = None
) -> Trial:
    """Judge recorded decisions again.

    Args:
        gate: Has the policies that are tried; nothing is counted.
        decisions: As `RecentDecisions` gives them.
        missing: Facts that none of them has, see `policy.core.recorded_facts.unrecorded`.
        in_force: Has those in force, and nothing else that `gate` lacks. A decision changes if the two differ: what a
            block or a gate for a time has denied is none of the policies. None, or where it reads what was not
            recorded: if `gate` differs from the record.
    """
    if not missing.isdisjoint(gate.facts_read):
        return Trial(judged=0, unknown=len(decisions), changed=[])
    judged, changed = 0, list[ChangedDecision]()
    for record in decisions:
        if _hides(record, gate):
            continue
        judged += 1
        facts = _facts_of(record)
        verdict = gate.foresee(facts)
        was_permitted = _was_permitted(record)
        if in_force is not None and missing.isdisjoint(in_force.facts_read) and not _hides(record, in_force):
            was_permitted = in_force.foresee(facts).permitted
        if verdict.permitted is not was_permitted:
            changed.append(ChangedDecision(record, verdict))
    return Trial(judged=judged, unknown=len(decisions) - judged, changed=changed)


def _hides(record: Judged, gate: Gate) -> bool:
    """True if a record may lack facts that the policies of a gate read."""
    return record.facts is not None and record.facts.partial and not HIDDEN_FACTS.isdisjoint(gate.facts_read)


def _was_permitted(record: Judged) -> bool:
    return record.permitted if isinstance(record, DecisionRecord) else record.decision == "permit"


def _facts_of(record: Judged) -> Facts:
    """The facts that the gate knew, as far as they were recorded."""
    packed = None if record.facts is None else msgspec.json.encode(record.facts)
    if isinstance(record, MessageRecord):
        alike = AlikeFacts.read(record.role, record.src_domain, record.dst_domain, record.msg_type, packed)
        return alike.of(record.src_key, record.dst_key, record.size_in, record.size_wire, record.ts_us)
    alike = AlikeFacts.read(record.hook, record.src_domain, record.dst_domain, record.msg_type or "", packed)
    facts = alike.of(record.src_key or "", record.dst_key or "", record.size_in or 0, None, record.ts_us)
    return msgspec.structs.replace(facts, link_domain=record.link_domain or "")
