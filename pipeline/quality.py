"""Quality rules: what is wrong with a row, all of it, in one pass, in words that explain themselves.

Conditions are SQL: a rule made of Columns would take some twenty calls into the JVM, all rules together as many as a
small segment takes to be read.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
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
    """One thing that may be wrong. `broken` is an SQL condition, true where it is; null counts as fine.

    Rows with a broken rule of severity SEVERE or worse belong in quarantine; a WARNING stays with its row.
    """

    name: str
    severity: Severity
    broken: str


def with_errors(rows: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """The rows with `errors`, names of all broken rules in the order of the list, and `severity`, that of the worst.

    Good rows pay for each rule once; the names are looked for only where something is wrong.
    """
    worst = "0"
    for severity in (Severity.WARNING, Severity.SEVERE, Severity.FATAL):
        hits = [f"({rule.broken})" for rule in rules if rule.severity is severity]
        if hits:
            worst = f"IF({' OR '.join(hits)}, {int(severity)}, {worst})"
    names = ", ".join(f"IF({rule.broken}, '{rule.name}', NULL)" for rule in rules)
    # A projection of its own: what is used more than once is then not computed more than once.
    judged = rows.withColumn(_WORST, F.expr(worst))
    words = ", ".join(f"'{severity.word}'" for severity in Severity)
    return judged.withColumns(
        {
            "errors": F.expr(f"IF({_WORST} = 0, CAST(array() AS array<string>), array_compact(array({names})))"),
            "severity": F.expr(f"get(array({words}), {_WORST})"),
            "is_good": F.expr(f"{_WORST} < {int(Severity.SEVERE)}"),
        }
    ).drop(_WORST)


def is_sound(rules: Sequence[Rule]) -> Column:
    """Whether none of the rules is broken, not even one that only warns. Far cheaper than saying which."""
    return F.expr(f"NOT coalesce({' OR '.join(f'({rule.broken})' for rule in rules)}, false)")


def record_rules(kind: Kind) -> list[Rule]:
    """Rules for parsed lines of a kind, beside the facts of their segment in columns `m_…`.

    What must be there and which words are possible is taken from the record's own class. Parsed lines carry
    `spoilt`, true where the line was no JSON object of this shape, and `repeated`, true where its number came before.
    """
    record_type = RECORD_TYPES[kind]
    is_far = f"ts_us < m_opened_us - {CLOCK_SLACK_US} OR ts_us > m_closed_us + {CLOCK_SLACK_US}"
    is_absurd = f"ts_us < {TIME_MIN_US} OR ts_us >= {TIME_MAX_US}"
    is_outside = _is_outside("ts_us", "m_min_ts_us", "m_max_ts_us")
    rules = [
        Rule("not-a-record", Severity.SEVERE, "spoilt"),
        Rule("repeated", Severity.SEVERE, "repeated"),
        Rule("schema", Severity.SEVERE, f"NOT v <=> {record_type.schema_version}"),
        Rule("identity", Severity.SEVERE, "NOT node <=> m_node OR NOT boot <=> m_boot"),
        Rule("sequence", Severity.SEVERE, _is_outside("seq", "m_first_seq", "m_last_seq")),
        Rule("time", Severity.SEVERE, f"{is_outside} OR {is_far} OR {is_absurd}"),
    ]
    for member in msgspec.structs.fields(record_type):
        if member.required and member.name != "ts_us":
            rules.append(Rule(f"missing:{member.name}", Severity.SEVERE, f"{member.name} IS NULL"))
        words = _words(member.type)
        if words:
            possible = ", ".join(f"'{word}'" for word in words)
            rules.append(Rule(f"word:{member.name}", Severity.SEVERE, f"{member.name} NOT IN ({possible})"))
    if kind is Kind.MESSAGE:
        rules += _message_rules()
    return rules


def _message_rules() -> list[Rule]:
    return [
        Rule("hex:msg_id", Severity.SEVERE, _is_no_hex("msg_id")),
        Rule("hex:digest", Severity.SEVERE, _is_no_hex("digest")),
        Rule("negative", Severity.SEVERE, f"least({', '.join(_MEASURES)}) < 0"),
        Rule("own-domain", Severity.WARNING, "src_domain = dst_domain"),
    ]


def _is_outside(name: str, first: str, last: str) -> str:
    return f"{name} IS NULL OR {name} < {first} OR {name} > {last}"


def _is_no_hex(name: str) -> str:
    # Several times cheaper than a regular expression.
    return f"length({name}) != {HEX_DIGITS} OR (unhex({name}) IS NULL AND {name} IS NOT NULL)"


def _words(type_: object) -> tuple[str, ...]:
    """The words of a Literal, also of an optional one; nothing for other types."""
    if typing.get_origin(type_) is Literal:
        return typing.get_args(type_)
    if isinstance(type_, types.UnionType) or typing.get_origin(type_) is typing.Union:
        return tuple(word for part in typing.get_args(type_) for word in _words(part))
    return ()
