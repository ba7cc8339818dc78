"""Decides recorded messages again, with the gate that nodes themselves use. No Spark here.

A replay is believed only if the deployed policy, asked again, says what the records say: the self-check. Of a proposed
policy the result names the rules that cannot be replayed, because they read what was not recorded; a message that such
a rule could have affected is counted and never guessed.

Source: pipeline study, section 3 (rule of honesty).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from pipeline.columns.groups import (
    Numbers,
    codes,
    column,
    group_numbers,
    lengths_of,
    numbers,
    run_of_rows,
    runs,
    starts_of,
    sums,
)
from pipeline.columns.replay_classes import ReplayClasses
from policy.core.closures import tests_of
from policy.core.compiler import attributes_of
from policy.core.engine import (
    ALWAYS,
    AllOf,
    AnyOf,
    CompiledPolicies,
    Condition,
    Effect,
    Mode,
    PolicySet,
    compile_canonical,
    compile_policies,
)
from policy.core.gate import Gate, PeerRule
from policy.core.model import DOCUMENT_PREFIX
from policy.core.recorded_facts import (
    ADDRESS_FACTS,
    IDENTITY_FACTS,
    MESSAGE_FACTS,
    AlikeFacts,
    unrecorded,
)
from policy.core.temporary import RULE_PREFIX
from protofly.forwarding import FORWARD

GATE_REFUSALS: Final = frozenset({"policy", "domain-blocked", "rate", "consent"})
"""Codes with which a gate denies; what was denied with another one never came so far."""

_OF_NO_POLICY: Final = (RULE_PREFIX, DOCUMENT_PREFIX)
"""What the rules of gates for a time, and of objects, begin with: no policy can be asked whether it would decide so."""
SAMPLES: Final = 20
_LIMIT: Final = b'"name":"limit"'
"""In the canonical source of policies with a limit; nothing else has that name there."""
_HASHED_KEY: Final = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?[0-9a-f]{24}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """Settings of a gate, in a form that travels to Spark's workers.

    Args:
        canonical: `CompiledPolicies.canonical`.
        peers: Entries of the settings by domain, as the gate takes them.
        allow: List of permitted domains, if there is one.
        deny: List of forbidden domains.
    """

    canonical: bytes
    peers: Mapping[str, PeerRule] = field(default_factory=dict)
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()

    @property
    def has_rates(self) -> bool:
        """True if what a message meets depends on the messages before it."""
        return _LIMIT in self.canonical or any(peer.rates or not peer.rate.is_unlimited for peer in self.peers.values())

    def gate(self) -> Gate:
        """A gate as it is after a start of the node. Raises SettingsError."""
        return Gate(compile_canonical(self.canonical), self.peers, allow=self.allow, deny=self.deny)


class Cell(NamedTuple):
    """Key of a row in the table of flips: one decision, and the decision of the replay."""

    src_domain: str
    dst_domain: str
    role: str
    old_decision: str
    new_decision: str
    old_rule: str
    new_rule: str


class Tally(Struct, gc=False):
    """Messages of one cell. `samples` are the smallest ids, so that it does not matter how the work was split."""

    messages: int = 0
    size_bytes: int = 0
    samples: list[bytes] = []

    def count(self, messages: int, size_bytes: int) -> None:
        """Count messages."""
        self.messages += messages
        self.size_bytes += size_bytes

    def sample(self, msg_id: bytes) -> bool:
        """Keep the id if it is one of the smallest; False if neither it nor any larger one is."""
        samples = self.samples
        if len(samples) >= SAMPLES and msg_id >= samples[-1]:
            return False
        place = bisect_left(samples, msg_id)
        if samples[place : place + 1] != [msg_id]:
            samples.insert(place, msg_id)
            del samples[SAMPLES:]
        return True


@dataclass(slots=True)
class Checked:
    """Counts of the self-check: replays under the deployed policy that agree with the records, and the others."""

    agreed: int = 0
    differed: int = 0
    other_revision: int = 0
    """Written under another policy than the one given as deployed, so there is nothing to compare with."""
    unchecked: int = 0
    """What the deployed policy read is hidden in the records."""
    not_replayable: int = 0
    differing: list[str] = field(default_factory=list)

    def add(self, names: Iterable[str], messages: int, msg_ids: Iterable[bytes]) -> None:
        """Add so many messages to these counts; of those on which the deployed policy differs, some ids are kept."""
        for name in names:
            setattr(self, name, getattr(self, name) + messages)
            if name == "differed" and len(self.differing) < SAMPLES:
                self.differing += [msg_id.hex() for msg_id in islice(msg_ids, SAMPLES - len(self.differing))]


def unreplayable_rules(new: CompiledPolicies, old: CompiledPolicies, *, is_hashed: bool) -> tuple[str, ...]:
    """Rules of a proposed policy that read what the records do not hold.

    Args:
        new: The proposed policy.
        old: The policy under which the records were written: they hold what it read of a message.
        is_hashed: Whether the records hold hashes in place of addresses.
    """
    return tuple(_doubts(new, old, is_hashed=is_hashed))


def _doubts(new: CompiledPolicies, old: CompiledPolicies, *, is_hashed: bool) -> dict[str, CompiledPolicies]:
    """Each such rule by name, alone, and with every comparison left out that cannot be made.

    What this remainder says is not applicable cannot have applied; anything else could have.
    """
    missing = unrecorded(old.facts_read, is_hashed=is_hashed)
    found = {}
    policies = ((policy_set, policy) for policy_set in new.sets for policy in policy_set.policies)
    for policy_set, policy in policies:
        for rule in policy.rules:
            alone = replace(policy_set, policies=(replace(policy, rules=(rule,)),))
            is_asked = Mode.REPORT not in (policy_set.mode, rule.mode)
            if is_asked and attributes_of([alone]) & missing:
                name = "/".join(part for part in (policy_set.id, policy.id, rule.id) if part)
                found[name] = compile_policies([_without(alone, missing)])
    return found


def _without(alone: PolicySet, missing: frozenset[str]) -> PolicySet:
    [policy] = alone.policies
    [rule] = policy.rules
    rest = replace(rule, target=_possible(rule.target, missing), condition=_possible(rule.condition, missing))
    return replace(
        alone,
        target=_possible(alone.target, missing),
        policies=(replace(policy, target=_possible(policy.target, missing), rules=(rest,)),),
    )


def _possible(condition: Condition, missing: frozenset[str]) -> Condition:
    """A condition that holds whenever the given one could, whatever the missing attributes are."""
    if not any(test.attribute in missing for test in tests_of(condition)):
        return condition
    if isinstance(condition, AllOf):
        return AllOf(parts=tuple(_possible(part, missing) for part in condition.parts))
    if isinstance(condition, AnyOf):
        return AnyOf(parts=tuple(_possible(part, missing) for part in condition.parts))
    return ALWAYS


class Replayer:
    """Decides records under both settings.

    Where rates are limited, the records of a node have to come together and in the order of their times; otherwise
    any order will do.

    Args:
        old: Settings that were in force.
        new: Settings that are proposed; the same as `old` for a self-check alone.
    """

    def __init__(self, old: GateSettings, new: GateSettings) -> None:
        self._old_settings, self._new_settings = old, new
        policies = compile_canonical(new.canonical)
        before = compile_canonical(old.canonical)
        self._old_revision = before.revision
        self._doubts = {
            is_hashed: tuple(_doubts(policies, before, is_hashed=is_hashed).values()) for is_hashed in (False, True)
        }
        people = ADDRESS_FACTS | IDENTITY_FACTS
        self._checks_hashed = before.facts_read.isdisjoint(people)
        self._decides_partial = policies.facts_read.isdisjoint(people | MESSAGE_FACTS)
        has_memory = old.has_rates or new.has_rates
        self._classes = None if has_memory else ReplayClasses((before, policies), _is_hashed)
        self._old, self._new = old.gate(), new.gate()
        self._source: tuple[str | None, int] | None = None
        self._groups: dict[tuple[Any, ...], _RecordGroup] = {}
        self.checked = Checked()
        self.cells: dict[Cell, Tally] = {}

    def replay(self, records: pa.Table) -> None:
        """Decide some records.

        Args:
            records: The columns `COLUMNS`; texts may be dictionaries.
        """
        groups, which = self._groups_of(records)
        if self._classes is None:
            self._replay_in_order(records, groups, which)
        else:
            self._replay_by_class(records, groups, which, self._classes)

    def _replay_in_order(self, records: pa.Table, groups: Sequence[_RecordGroup], which: Numbers) -> None:
        """Decide every record, as the node met it."""
        sources, source = _sources(records)
        starts = starts_of(source * len(groups) + which)
        rows = zip(_values(records, "msg_id"), *_shown(records), strict=True)
        for where, start, length in zip(
            source[starts].tolist(), starts.tolist(), lengths_of(starts, len(which)).tolist(), strict=True
        ):
            if self._source != sources[where]:
                self._begin(sources[where])
            group = groups[which[start]]
            for msg_id, *shown in islice(rows, length):
                said = self._said(group, *shown)
                self.checked.add(said.checks, 1, [msg_id])
                if said.tally is not None:
                    said.tally.count(1, shown[_SIZE_IN])
                    said.tally.sample(msg_id)

    def _replay_by_class(
        self, records: pa.Table, groups: Sequence[_RecordGroup], which: Numbers, classes: ReplayClasses
    ) -> None:
        """Decide one record of each class, and count all of them."""
        is_out = np.array([group.role == "out" for group in groups], bool)[which]
        size_in = numbers(records, "size_in")
        size_wire = column(records, "size_wire")
        is_wire = np.asarray(size_wire.is_valid()) & ~is_out
        size_bytes = np.where(is_wire, numbers(records, "size_wire", null=0), size_in)
        class_, _ = group_numbers([(which, len(groups)), *classes.keys(records, size_bytes)])
        order, starts = runs(class_)
        counts, sizes = lengths_of(starts, len(order)), sums(size_in[order], starts)
        msg_id = column(records, "msg_id")
        tallies: list[Tally] = []
        places: dict[int, int] = {}
        place_of_class = np.full(len(starts), -1)
        one = order[starts]
        rows = zip(which[one].tolist(), *_shown(records.take(pa.array(one))), strict=True)
        for number, (group, *shown) in enumerate(rows):
            said, count = self._said(groups[group], *shown), int(counts[number])
            rest = order[starts[number] : starts[number] + min(count, SAMPLES)]
            self.checked.add(said.checks, count, (msg_id[row].as_py() for row in rest.tolist()))
            if said.tally is not None:
                said.tally.count(count, int(sizes[number]))
                place_of_class[number] = places.setdefault(id(said.tally), len(tallies))
                if place_of_class[number] == len(tallies):
                    tallies.append(said.tally)
        place = np.empty(len(order), np.int64)
        place[order] = np.repeat(place_of_class, counts)
        _sample(msg_id, place, tallies)

    def _begin(self, source: tuple[str | None, int]) -> None:
        """A node that starts again starts with full buckets, and with the volumes that it had counted."""
        is_same_node = self._source is not None and self._source[0] == source[0]
        volumes = [gate.quotas.counted() if is_same_node else {} for gate in (self._old, self._new)]
        self._source = source
        self._old, self._new = self._old_settings.gate(), self._new_settings.gate()
        for gate, counted in zip((self._old, self._new), volumes, strict=True):
            gate.quotas.restore(counted)

    def _groups_of(self, records: pa.Table) -> tuple[list[_RecordGroup], Numbers]:
        """What records have in common with others, worked out once for all that are alike; and which each one is."""
        texts = [codes(column(records, name)) for name in _AlikeKey._fields]
        alike, _ = group_numbers((places, len(found)) for found, places in texts)
        order, starts = runs(alike)
        first = order[starts]
        groups = []
        for key in zip(*(np.array(found, object)[places[first]].tolist() for found, places in texts), strict=True):
            group = self._groups.get(key)
            if group is None:
                if len(self._groups) >= _KNOWN_GROUPS:
                    self._groups.clear()
                group = self._groups[key] = _RecordGroup.of(_AlikeKey(*key))
            groups.append(group)
        return groups, run_of_rows(order, starts)

    def take_cells(self) -> dict[Cell, Tally]:
        """Return the counts since the last time, and begin anew."""
        taken, self.cells = self.cells, {}
        for group in self._groups.values():
            group.tallies.clear()
        return taken

    def _said(
        self, group: _RecordGroup, src_key: str, dst_key: str, size_in: int, size_wire: int | None, ts_us: int
    ) -> _Said:
        """The verdicts of both settings about one record."""
        if group.facts is None:
            return _NOT_REPLAYABLE
        facts = group.facts.of(src_key, dst_key, size_in, size_wire, ts_us)
        was = self._old.judge(facts)
        now = self._new.judge(facts)
        if group.is_forward or group.rule.startswith(_OF_NO_POLICY) or (group.is_partial and not self._decides_partial):
            return _NOT_REPLAYABLE
        is_hashed = _is_hashed(src_key)
        if group.revision != self._old_revision:
            check = "other_revision"
        elif group.is_partial or (is_hashed and not self._checks_hashed):
            check = "unchecked"
        else:
            is_same = was.permitted == group.was_permitted and was.rule_id == group.rule
            check = "agreed" if is_same else "differed"
        doubts = self._doubts[is_hashed]
        if doubts and any(doubt.decide(facts).effect is not Effect.NOT_APPLICABLE for doubt in doubts):
            return _Said((check, "not_replayable"), None)
        tally = group.tallies.get((now.permitted, now.rule_id))
        if tally is None:
            said = now.permitted, now.rule_id
            tally = group.tallies[said] = self.cells.setdefault(group.cell(*said), Tally())
        return _Said((check,), tally)


def _is_hashed(key: str) -> bool:
    return "://" not in key and _HASHED_KEY.fullmatch(key) is not None


class _Said(NamedTuple):
    """What came out for a record: which counts of `Checked` it adds to, and in which cell it belongs."""

    checks: tuple[str, ...]
    tally: Tally | None


_NOT_REPLAYABLE: Final = _Said(("not_replayable",), None)


def _sample(msg_id: pa.Array, place: Numbers, tallies: Sequence[Tally]) -> None:
    """Take the smallest ids of each cell.

    Args:
        msg_id: Of all records.
        place: The place of each one's cell among these; -1 for none.
        tallies: The cells.
    """
    ascending = np.asarray(pc.sort_indices(msg_id)).astype(np.int64)
    ascending = ascending[place[ascending] >= 0]
    order, starts = runs(place[ascending])
    rows = ascending[order]
    for start, length in zip(starts.tolist(), lengths_of(starts, len(rows)).tolist(), strict=True):
        tally = tallies[place[rows[start]]]
        for row in rows[start : start + length].tolist():
            if not tally.sample(msg_id[row].as_py()):
                break


class _AlikeKey(NamedTuple):
    """Columns in which records of one group are equal; their names are those of the records."""

    role: Any
    src_domain: str
    dst_domain: str
    msg_type: str
    facts: str | None
    decision: str
    rule_id: str | None
    policy_rev: str | None


class _RecordGroup(Struct, gc=False):
    """What records that are alike but for addresses, size and time have in common, computed once.

    `facts` is None where those of the record cannot be read; `tallies` goes by what the new policies say.
    """

    src_domain: str
    dst_domain: str
    role: str
    decision: str
    rule: str
    revision: str | None
    was_permitted: bool
    is_forward: bool
    is_partial: bool
    facts: AlikeFacts | None
    tallies: dict[tuple[bool, str], Tally]

    @classmethod
    def of(cls, key: _AlikeKey) -> _RecordGroup:
        try:
            facts = AlikeFacts.read(key.role, key.src_domain, key.dst_domain, key.msg_type, key.facts)
        except ValueError:
            facts = None
        return cls(
            key.src_domain,
            key.dst_domain,
            key.role,
            key.decision,
            key.rule_id or "",
            key.policy_rev,
            key.decision == "permit",
            key.msg_type == FORWARD,
            facts is not None and facts.recorded.partial,
            facts,
            {},
        )

    def cell(self, permitted: bool, rule: str) -> Cell:
        """Where these records belong when the new policies say so."""
        decision = "permit" if permitted else "deny"
        return Cell(self.src_domain, self.dst_domain, self.role, self.decision, decision, self.rule, rule)


_SHOWN: Final = ("src_key", "dst_key", "size_in", "size_wire", "ts_us")
_SIZE_IN: Final = _SHOWN.index("size_in")
COLUMNS: Final = ("node", "boot", *_AlikeKey._fields, "msg_id", *_SHOWN)
_KNOWN_GROUPS: Final = 65_536


def _sources(records: pa.Table) -> tuple[list[tuple[str | None, int]], Numbers]:
    """Nodes and boots, and which of them each record is of."""
    found, places = codes(column(records, "node"))
    boots, boot = np.unique(numbers(records, "boot"), return_inverse=True)
    names = [(node, number) for node in found for number in boots.tolist()]
    return names, places * len(boots) + boot


def _shown(records: pa.Table) -> list[list[Any]]:
    """What a gate was shown of each record and is not alike in a group: the columns `_SHOWN`."""
    keys, rest = _SHOWN[:_SIZE_IN], _SHOWN[_SIZE_IN:]
    return [*(_texts(records, name) for name in keys), *(_values(records, name) for name in rest)]


def _texts(records: pa.Table, name: str) -> list[str]:
    """A column of texts in which equal ones are one object."""
    found, places = codes(column(records, name))
    texts: list[str] = np.array(found, object)[places].tolist()
    return texts


def _values(records: pa.Table, name: str) -> list[Any]:
    values = column(records, name)
    found: list[Any] = (
        values.to_pylist()
        if values.null_count or not pa.types.is_integer(values.type)
        else (values.to_numpy().tolist())
    )
    return found
