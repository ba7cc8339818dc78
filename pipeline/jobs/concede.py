"""Job `concede`: what of a partner's return of our bills is right, in an operator's word; `invoice` then credits it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.concessions import Concession
from pipeline.core.tariffs import Item
from pipeline.jobs.operator_word import OperatorWord
from pipeline.jobs.result import JobResult
from pipeline.jobs.their_bill import take_return
from pipeline.lake.lake_files import LakeFiles
from pipeline.lake.table_log import ConflictError
from pipeline.lake.tables import Change, Lake
from pipeline.partners.bill_return_file import BillObjection, BillReturn
from pipeline.schemas import CONCESSION, INVOICE
from protofly.errors import SettingsError

APP: Final = "concede"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Selection from a return; by default all counts that were objected to, with the partner's figures.

    Attributes:
        number: Of the document.
        counted: What its line counts.
        quantity: So much of one line.
    """

    number: str = ""
    counted: str = ""
    quantity: int | None = None


class _Line(NamedTuple):
    """A line that may be conceded: wholly, which is `less`, or up to `most`; both below zero where we pay."""

    item: Item
    month: str
    objection: BillObjection
    billed: int
    less: int
    most: int


_Key: TypeAlias = tuple[str, Item]
"""A month, and what is billed."""


def conceded(lake: LakeFiles, our_domain: str, peer: str, month: str) -> list[Concession]:
    """Read the concessions to a partner about the bills of a month, in order. Raises LakeError."""
    return [
        Concession(_item(row), row["billed"], row["less"])
        for row in _entered(lake, our_domain, peer)
        if row["month"] == month
    ]


def run(lake: Lake, what: BillReturn, part: Part, *, why: str) -> JobResult:
    """Enter what is conceded of a return, with who concedes it and why.

    `details` has `conceded`: the lines, with what was billed and how much less will be.

    Args:
        lake: Reads `invoice`; writes `concession`, and `peer_return` if the return is new.
        what: As the partner has signed it.
        part: What of it.
        why: The reason, for those who look at the credit note later.

    Raises:
        SettingsError: `no-count`, the return has no such line with a count; `which-line`, a quantity of several lines;
            `too-much`; `conceded-before`, by this return; `nothing-due`, the bills say no more than the partner does;
            or no reason.
        ConflictError: Somebody concedes to the same partner at the same moment.
        LakeError: As the lake does.
    """
    word = OperatorWord.now(why)
    taken = take_return(lake, what)
    result = JobResult(APP, rows=taken.rows, versions=taken.versions)
    before = _entered(lake, what.peer, what.domain)
    lines = _chosen(_open_lines(_issued(lake, what), what, before), part)
    now_us = max([time.time_ns() // 1000, *(row["entered_us"] + 1 for row in before)])
    entered = {"our_domain": what.peer, "peer_domain": what.domain, "return_us": what.made_us, **word._asdict()}
    rows = [
        {
            "month": one.month,
            "number": one.objection.number,
            "reason": one.objection.reason,
            "billed": one.billed,
            "less": one.less,
            "entered_us": now_us,
            **one.item._asdict(),
            **entered,
        }
        for one in lines
    ]
    txn = (f"{APP}/{what.peer}/{what.domain}", len(before) + len(rows))
    done = lake.commit(pa.Table.from_pylist(rows, to_arrow_schema(CONCESSION.schema)), CONCESSION, Change(txn=txn))
    if done.is_repeated:
        raise ConflictError(f"another command concedes something to {what.domain} at the same moment: repeat it")
    result.wrote(done.table, done.rows, done.version)
    result.details = {"conceded": rows}
    months = ", ".join(sorted({one.month for one in lines}))
    result.outcome = f"{'; '.join(map(_said, lines))}; `invoice` of {months} issues the note"
    return result


def _said(line: _Line) -> str:
    item = line.item
    return (
        f"{line.objection.number}: {line.billed - line.less:,} {item.counted} for {line.billed:,}, "
        f"at {item.price} {item.currency} for {item.per:,}"
    )


def _item(row: Mapping[str, Any]) -> Item:
    return Item(*(row[name] for name in Item._fields))


def _entered(lake: LakeFiles, our_domain: str, peer: str) -> list[dict[str, Any]]:
    rows = lake.read_small(CONCESSION).to_pylist() if lake.has(CONCESSION) else []
    ours = [row for row in rows if (row["our_domain"], row["peer_domain"]) == (our_domain, peer)]
    return sorted(ours, key=lambda row: int(row["entered_us"]))


def _issued(lake: LakeFiles, what: BillReturn) -> list[dict[str, Any]]:
    """Lines of all documents between the two."""
    return [
        row
        for row in lake.read_small(INVOICE).to_pylist()
        if (row["our_domain"], row["peer_domain"]) == (what.peer, what.domain)
    ]


def _open_lines(
    issued: Sequence[Mapping[str, Any]], what: BillReturn, before: Sequence[Mapping[str, Any]]
) -> list[_Line]:
    """Lines that a return has made doubtful, and that were not conceded by it before. Raises SettingsError."""
    found: dict[_Key, _Line] = {}
    standing = _standing(issued, before)
    # Figures first: they say how much.
    for objection in sorted(what.objections, key=lambda one: one.reason != "quantity"):
        for one in _lines_of(issued, standing, objection):
            figures = found.setdefault((one.month, one.item), one)
            found[one.month, one.item] = figures._replace(most=max(figures.most, one.most, key=abs))
    if not found:
        raise SettingsError(
            "no-count: no line of the return has a count that can be conceded: a wrong price is mended by "
            "`invoice --reprice`, records that are missing by `settle --restate`"
        )
    known = {(row["month"], _item(row)): row for row in before if row["return_us"] == what.made_us}
    fresh = [one for key, one in found.items() if key not in known]
    if not fresh:
        row = next(row for key, row in known.items() if key in found)
        raise SettingsError(f"conceded-before: {row['who']} has conceded this return: {row['why']}")
    due = [one for one in fresh if one.most]
    if not due:
        raise SettingsError(
            f"nothing-due: with what was conceded before, the bills say no more than {what.domain} counts: "
            "run `invoice`, and ask the partner to check the month with all notes"
        )
    return due


def _standing(issued: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> dict[_Key, int]:
    """How much of each item is billed when all that was conceded is credited."""
    quantities = defaultdict[_Key, int](int)
    newest_us = defaultdict[str, int](int)
    for row in issued:
        quantities[row["month"], _item(row)] += row["quantity"]
        newest_us[row["month"]] = max(newest_us[row["month"]], row["issued_us"])
    for row in before:
        if row["entered_us"] > newest_us[row["month"]]:
            quantities[row["month"], _item(row)] -= row["less"]
    return quantities


def _lines_of(
    issued: Sequence[Mapping[str, Any]], standing: Mapping[_Key, int], objection: BillObjection
) -> list[_Line]:
    """The billed items that an objection is about."""
    document = [row for row in issued if row["number"] == objection.number]
    if not document or objection.reason not in {"quantity", "disputed"}:
        return []
    month = document[0]["month"]
    if objection.reason == "disputed":
        # Only a line that the partner is to pay: the other one is in our favour, or it would not be disputed.
        items = sorted({_item(row) for row in document if row["role"] == "in"})
        return [_Line(item, month, objection, *[standing[month, item]] * 3) for item in items]
    if objection.item is None or objection.quantity is None or objection.ours is None:
        return []
    wanted = _agreed(objection.item.role, objection.item)
    same = sorted(
        {_item(row) for row in issued if row["month"] == month and _agreed(row["role"], _item(row)) == wanted}
    )
    return _shared(same, [standing[month, item] for item in same], objection, month)


def _agreed(role: str, of: Any) -> tuple[str, str, str, Fraction, int]:
    """An item by what both sides have agreed on."""
    return of.currency, role, of.counted, Fraction(of.price), of.per


def _shared(items: Sequence[Item], billed: Sequence[int], objection: BillObjection, month: str) -> list[_Line]:
    """By how much each of the items, which are one and the same to the partner, is to change."""
    left = sum(billed) - (objection.ours or 0)
    found = []
    for item, count in zip(items, billed, strict=True):
        # The partner pays less, from whatever was billed; we pay more, for the first.
        less = max(0, min(left, count)) if item.role == "in" else min(0, left)
        left -= less
        found.append(_Line(item, month, objection, count, less, less))
    return found


def _chosen(lines: Sequence[_Line], part: Part) -> list[_Line]:
    """Those that are meant. Raises SettingsError."""
    chosen = [
        one for one in lines if part.number in {"", one.objection.number} and part.counted in {"", one.item.counted}
    ]
    if not chosen:
        names = ", ".join(f"{one.item.counted} of {one.objection.number}" for one in lines)
        raise SettingsError(f"no-count: the return has no such line that can be conceded: it has {names}")
    if part.quantity is None:
        return chosen
    if len(chosen) > 1:
        raise SettingsError(f"which-line: {len(chosen)} lines are meant: name one with --number and --counted")
    [line] = chosen
    if not 0 < part.quantity <= abs(line.most):
        raise SettingsError(f"too-much: from 1 to {abs(line.most):,} of {line.item.counted} can be conceded")
    return [line._replace(less=part.quantity if line.most > 0 else -part.quantity)]
