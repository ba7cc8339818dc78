"""Quality rules: what is wrong with a record, all of it, in words that explain themselves. No Spark in here.

A rule looks at a whole column at once, of the records of one segment or of many, and is fast where nothing is wrong,
which is nearly everywhere: it then says None.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Final, Literal, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns.words import codes_of, same_words, texts_where
from pipeline.core.findings import Severity
from pipeline.segments.claims import Claims
from pipeline.segments.line_members import FACTS, IDS, id_bytes
from pipeline.segments.record_lines import NOT_A_RECORD, OTHER_VERSION
from pipeline.segments.spool import CLOCK_SLACK_US, TIME_MAX_US, TIME_MIN_US
from protofly.records import RECORD_TYPES, RecordKind

REPEATED: Final = "repeated"
_MEASURES: Final = ("attempt", "size_in", "size_wire", "d_policy_us", "d_stub_us", "d_peer_us", "d_total_us", "fuel")

Mask: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool_]]
Bound: TypeAlias = int | np.ndarray[tuple[int], np.dtype[np.int64]]
"""One for all, or one for each."""
Members: TypeAlias = Mapping[str, pa.Array]
"""Columns of records by the names of their members, all of one length."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that may be wrong with a record. `broken` says with which ones it is; None for none of them.

    Records with a broken rule of severity SEVERE or worse belong in quarantine; a WARNING stays with its row.
    """

    name: str
    severity: Severity
    broken: Callable[[Members, Claims], Mask | None]


@dataclass(slots=True)
class Judgement:
    """Broken rules of some records; records that are not named are good.

    Attributes:
        errors: Names of the broken rules by the record's place, in the order of the rules.
        bad: The places of those that belong in quarantine, and how bad they are.
    """

    errors: dict[int, list[str]] = field(default_factory=dict)
    bad: dict[int, Severity] = field(default_factory=dict)


def judge(kind: RecordKind, members: Members, claims: Claims) -> Judgement:
    """Find everything that is wrong with the next records of some segments.

    A number that is not above those of the good records before it in its segment is `repeated`.
    """
    judgement = Judgement()
    for rule in record_rules(kind):
        broken = rule.broken(members, claims)
        if broken is not None:
            for place in np.flatnonzero(broken).tolist():
                _blame(judgement, place, rule.name, rule.severity)
    numbers = np.asarray(members["seq"].fill_null(0))
    is_good = np.ones(len(numbers), np.bool_)
    is_good[list(judgement.bad)] = False
    for source, span in claims.spans():
        good = span.start + np.flatnonzero(is_good[span])
        if len(good):
            ascending = np.concatenate(([source.highest], numbers[good]))
            before = np.maximum.accumulate(ascending)
            source.highest = int(before[-1])
            for place in good[ascending[1:] <= before[:-1]].tolist():
                _blame(judgement, place, REPEATED, Severity.SEVERE)
    return judgement


def _blame(judgement: Judgement, place: int, name: str, severity: Severity) -> None:
    judgement.errors.setdefault(place, []).append(name)
    if severity >= Severity.SEVERE:
        judgement.bad[place] = max(severity, judgement.bad.get(place, severity))


def reasons(kind: RecordKind) -> list[str]:
    """Everything that may be wrong with a line of a kind."""
    return [NOT_A_RECORD, REPEATED, *(rule.name for rule in record_rules(kind))]


@cache
def record_rules(kind: RecordKind) -> tuple[Rule, ...]:
    """Rules for records of a kind beside the manifest of their segment.

    What must be there and which words are possible is taken from the record's own class.
    """
    record_type = RECORD_TYPES[kind]
    severe: list[tuple[str, Callable[[Members, Claims], Mask | None]]] = [
        (
            OTHER_VERSION,
            _is_of_another_version,
        ),
        ("identity", _is_of_another),
        ("sequence", _is_no_number_of_its_segment),
        ("time", _is_no_time_of_its_segment),
    ]
    for member in msgspec.structs.fields(record_type):
        if member.required and member.name != "ts_us":
            severe.append((f"missing:{member.name}", partial(_is_missing, member.name)))
        words = _words(member.type)
        if words:
            severe.append((f"word:{member.name}", partial(_is_no_word, member.name, pa.array(words))))
        if member.name == FACTS:
            severe.append((f"object:{FACTS}", _has_odd_facts))
    if kind is RecordKind.MESSAGE:
        severe += [(f"hex:{name}", partial(_is_no_id, name)) for name in IDS]
        severe.append(("negative", _is_negative))
    rules = [Rule(name, Severity.SEVERE, broken) for name, broken in severe]
    if kind is RecordKind.MESSAGE:
        rules.append(Rule("own-domain", Severity.WARNING, _is_own_domain))
    return tuple(rules)


def _is_of_another_version(found: Members, claims: Claims) -> Mask | None:
    version = claims.numbers(lambda manifest: manifest.schema_version)
    return _is_outside(found["v"], version, version)


def _is_of_another(found: Members, claims: Claims) -> Mask | None:
    nodes, claimed = same_words([found["node"], claims.nodes()])
    is_other = codes_of(nodes) != codes_of(claimed)
    boots = _is_outside(found["boot"], boot := claims.numbers(lambda manifest: manifest.boot), boot)
    if boots is not None:
        is_other |= boots
    return is_other if is_other.any() else None


def _is_no_number_of_its_segment(found: Members, claims: Claims) -> Mask | None:
    first = claims.numbers(lambda manifest: manifest.first_seq)
    return _is_outside(found["seq"], first, claims.numbers(lambda manifest: manifest.last_seq))


def _is_no_time_of_its_segment(found: Members, claims: Claims) -> Mask | None:
    first = claims.numbers(lambda manifest: max(manifest.min_ts_us, manifest.opened_us - CLOCK_SLACK_US, TIME_MIN_US))
    last = claims.numbers(
        lambda manifest: min(manifest.max_ts_us, manifest.closed_us + CLOCK_SLACK_US, TIME_MAX_US - 1)
    )
    return _is_outside(found["ts_us"], first, last)


def _is_missing(name: str, found: Members, _: Claims) -> Mask | None:
    return _where(found[name].is_null()) if found[name].null_count else None


def _is_no_word(name: str, words: pa.Array, found: Members, _: Claims) -> Mask | None:
    return texts_where(found[name], lambda texts: pc.and_(pc.invert(pc.is_in(texts, words)), texts.is_valid()))


def _has_odd_facts(found: Members, _: Claims) -> Mask | None:
    if found[FACTS].null_count == len(found[FACTS]):
        return None
    return texts_where(found[FACTS], lambda texts: pc.invert(pc.starts_with(texts, "{")))


def _is_no_id(name: str, found: Members, _: Claims) -> Mask | None:
    if pa.types.is_binary(found[name].type):
        return None
    return np.array([digits is not None and id_bytes([digits]) is None for digits in found[name].to_pylist()])


def _is_negative(found: Members, _: Claims) -> Mask | None:
    masks = [
        _where(pc.less(found[name], 0))
        for name in _MEASURES
        if not _lie_between(found[name], 0, np.iinfo(np.int64).max)
    ]
    known = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(known) if known else None


def _is_own_domain(found: Members, _: Claims) -> Mask | None:
    src, dst = same_words([found["src_domain"], found["dst_domain"]])
    is_same = (codes_of(src) == codes_of(dst)) & (codes_of(src) > 0)
    return is_same if is_same.any() else None


def _lie_between(column: pa.Array, first: int, last: int) -> bool:
    """True if all values that there are do; also where there are none."""
    bounds = pc.min_max(column).as_py()
    return bounds["min"] is None or (first <= bounds["min"] and bounds["max"] <= last)


def _is_outside(column: pa.Array, first: Bound, last: Bound) -> Mask | None:
    """True if it is nothing, or not between these."""
    is_null = column.is_null() if column.null_count else None
    values = np.asarray(column if is_null is None else column.fill_null(0))
    is_outside = (values < first) | (values > last)
    if is_null is not None:
        is_outside |= np.asarray(is_null)
    return is_outside if is_outside.any() else None


def _where(condition: pa.BooleanArray) -> Mask | None:
    """Unknown counts as fine."""
    if not condition.true_count:
        return None
    return np.asarray(condition.fill_null(False))


def _words(type_: object) -> tuple[str, ...]:
    """The words of a Literal, also of an optional one; nothing for other types."""
    if typing.get_origin(type_) is Literal:
        return typing.get_args(type_)
    if isinstance(type_, types.UnionType) or typing.get_origin(type_) is typing.Union:
        return tuple(word for part in typing.get_args(type_) for word in _words(part))
    return ()
