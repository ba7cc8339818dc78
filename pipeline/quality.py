"""Quality rules: what is wrong with a row, all of it, in one pass, in words that explain themselves."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final, Literal

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.findings import Severity
from pipeline.segments import CLOCK_SLACK_US, TIME_MAX_US, TIME_MIN_US
from protofly.records import RECORD_TYPES, Kind

_WORST: Final = "_worst"
HEX_DIGITS: Final = 32
"""Of 16 bytes."""
_MEASURES: Final = ("attempt", "size_in", "size_wire", "d_policy_us", "d_stub_us", "d_peer_us", "d_total_us", "fuel")


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that may be wrong. `broken` is true where it is; null counts as fine.

    Rows with a broken rule of severity SEVERE or worse belong in quarantine; a WARNING stays with its row.
    """

    name: str
    severity: Severity
    broken: Column


def with_errors(rows: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """The rows with `errors`, names of all broken rules in the order of the list, and `severity`, that of the worst.

    Good rows pay for each rule once; the names are looked for only where something is wrong.
    """
    found = [(rule, F.coalesce(rule.broken, F.lit(False))) for rule in rules]
    worst = F.lit(int(Severity.FINE))
    for severity in (Severity.WARNING, Severity.SEVERE, Severity.FATAL):
        hits = [hit for rule, hit in found if rule.severity is severity]
        if hits:
            worst = F.when(reduce(or_, hits), F.lit(int(severity))).otherwise(worst)
    names = F.array_compact(F.array(*[F.when(hit, F.lit(rule.name)) for rule, hit in found]))
    # A projection of its own: what is used more than once is then not computed more than once.
    judged = rows.withColumn(_WORST, worst)
    words = F.array(*[F.lit(severity.word) for severity in Severity])
    return judged.withColumns(
        {
            "errors": F.when(F.col(_WORST) == 0, F.array().cast("array<string>")).otherwise(names),
            "severity": F.get(words, F.col(_WORST)),
            "is_good": F.col(_WORST) < int(Severity.SEVERE),
        }
    ).drop(_WORST)


def is_sound(rules: Sequence[Rule]) -> Column:
    """Whether none of the rules is broken, not even one that only warns. Far cheaper than saying which."""
    return ~reduce(or_, [F.coalesce(rule.broken, F.lit(False)) for rule in rules])


def record_rules(kind: Kind) -> list[Rule]:
    """Rules for parsed lines of a kind, beside the facts of their segment in columns `m_…`.

    What must be there and which words are possible is taken from the record's own class. Parsed lines carry
    `spoilt`, true where the line was no JSON object of this shape, and `repeated`, true where its number came before.
    """
    record_type = RECORD_TYPES[kind]
    time_us = F.col("ts_us")
    is_far = (time_us < F.col("m_opened_us") - CLOCK_SLACK_US) | (time_us > F.col("m_closed_us") + CLOCK_SLACK_US)
    is_absurd = (time_us < TIME_MIN_US) | (time_us >= TIME_MAX_US)
    rules = [
        Rule("not-a-record", Severity.SEVERE, F.col("spoilt")),
        Rule("repeated", Severity.SEVERE, F.col("repeated")),
        Rule("schema", Severity.SEVERE, _differs("v", F.lit(record_type.schema_version))),
        Rule("identity", Severity.SEVERE, _differs("node", F.col("m_node")) | _differs("boot", F.col("m_boot"))),
        Rule("sequence", Severity.SEVERE, _is_outside("seq", "m_first_seq", "m_last_seq")),
        Rule("time", Severity.SEVERE, _is_outside("ts_us", "m_min_ts_us", "m_max_ts_us") | is_far | is_absurd),
    ]
    for member in msgspec.structs.fields(record_type):
        if member.required and member.name != "ts_us":
            rules.append(Rule(f"missing:{member.name}", Severity.SEVERE, F.col(member.name).isNull()))
        words = _words(member.type)
        if words:
            rules.append(Rule(f"word:{member.name}", Severity.SEVERE, ~F.col(member.name).isin(*words)))
    if kind is Kind.MESSAGE:
        rules += _message_rules()
    return rules


def _message_rules() -> list[Rule]:
    measures = F.least(*[F.col(name).cast("long") for name in _MEASURES])
    return [
        Rule("hex:msg_id", Severity.SEVERE, _is_no_hex("msg_id")),
        Rule("hex:digest", Severity.SEVERE, _is_no_hex("digest")),
        Rule("negative", Severity.SEVERE, measures < 0),
        Rule("own-domain", Severity.WARNING, F.col("src_domain") == F.col("dst_domain")),
    ]


def _differs(name: str, expected: Column) -> Column:
    return ~F.col(name).eqNullSafe(expected)


def _is_outside(name: str, first: str, last: str) -> Column:
    return F.col(name).isNull() | (F.col(name) < F.col(first)) | (F.col(name) > F.col(last))


def _is_no_hex(name: str) -> Column:
    # Several times cheaper than a regular expression.
    return (F.length(name) != HEX_DIGITS) | (F.unhex(name).isNull() & F.col(name).isNotNull())


def _words(type_: object) -> tuple[str, ...]:
    """The words of a Literal, also of an optional one; nothing for other types."""
    if typing.get_origin(type_) is Literal:
        return typing.get_args(type_)
    if isinstance(type_, types.UnionType) or typing.get_origin(type_) is typing.Union:
        return tuple(word for part in typing.get_args(type_) for word in _words(part))
    return ()
