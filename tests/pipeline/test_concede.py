"""Returns of our bills that are conceded: which lines, how much, and what is refused."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.concessions import after_concessions
from pipeline.core.tariffs import Charge
from pipeline.jobs import concede
from pipeline.jobs.concede import Part
from pipeline.lake.table_log import ConflictError
from pipeline.lake.tables import Lake
from pipeline.partners.bill_return_file import BillObjection, BillReturn, ReturnedItem
from pipeline.schemas import CONCESSION, INVOICE
from protofly.errors import SettingsError

A, B = "a.example", "b.example"
TIMES = itertools.count(1)
IN = ReturnedItem(currency="EUR", role="in", counted="delivered", price="0.5", per=1)
OUT = ReturnedItem(currency="EUR", role="out", counted="messages", price="0.10", per=1)


def line(number: str, quantity: int, role: str = "in", **members: Any) -> dict[str, Any]:
    item = {"tariff": "t", "counted": "delivered", "price": "0.50"} if role == "in" else {}
    usual = {"item": 1, "month": "2026-03", "role": role, "currency": "EUR", "our_domain": A, "peer_domain": B}
    out = {
        "tariff": "t",
        "counted": "messages",
        "price": "0.10",
        "per": 1,
        "issued_us": 1,
        "number": number,
        "quantity": quantity,
    }
    return usual | out | item | members


@pytest.fixture
def billed(tmp_path: Path) -> Lake:
    """Four and three of two tariffs with one price, bytes, and two that we pay for; a note over one less."""
    lake = Lake(tmp_path / "lake", cast("SparkSession", None))  # nothing here asks Spark
    rows = [
        line("in-1", 5),
        line("in-1", 3, tariff="u", item=2),
        line("in-1", 900, counted="bytes_wire", item=3),
        line("out-1", 2, "out"),
        line("in-2", -1),
        line("in-1", 50, our_domain="c.example"),
        line("april", 70, month="2026-04"),
    ]
    lake.commit(pa.Table.from_pylist(rows, to_arrow_schema(INVOICE.schema)), INVOICE)
    return lake


def objection(number: str, ours: int | None, item: ReturnedItem | None, reason: str = "quantity") -> BillObjection:
    quantity = None if ours is None else 7
    return BillObjection(number=number, reason=reason, detail="", quantity=quantity, ours=ours, item=item)


def returned(*objections: BillObjection) -> BillReturn:
    return BillReturn(domain=B, peer=A, made_us=next(TIMES), sha256=("0" * 64,), objections=objections)


def rows(lake: Lake) -> list[tuple[str, str, int, int]]:
    return sorted(
        (row["tariff"], row["counted"], row["billed"], row["less"]) for row in lake.read_small(CONCESSION).to_pylist()
    )


def test_all_that_is_not_accepted_is_conceded_also_what_we_owe(billed: Lake) -> None:
    what = returned(objection("in-2", 2, IN), objection("out-1", 5, OUT))
    done = concede.run(billed, what, Part(), why=" they are right ")
    assert rows(billed) == [("t", "delivered", 4, 4), ("t", "messages", 2, -3), ("u", "delivered", 3, 1)]
    assert {row["why"] for row in done.details["conceded"]} == {"they are right"}
    assert "in-2: 0 delivered for 4, at 0.50 EUR for 1" in done.outcome
    assert {(one.item.role, one.billed, one.less) for one in concede.conceded(billed, A, B, "2026-03")} == {
        ("in", 4, 4),
        ("in", 3, 1),
        ("out", 2, -3),
    }
    assert concede.conceded(billed, A, B, "2026-04") == []


def test_a_part_is_conceded_and_a_later_return_is_about_the_rest(billed: Lake) -> None:
    what = returned(objection("out-1", 5, OUT))
    concede.run(billed, what, Part(quantity=1), why="one")
    concede.run(billed, returned(objection("out-1", 5, OUT)), Part(), why="all")
    assert rows(billed) == [("t", "messages", 2, -1), ("t", "messages", 3, -2)]
    made = concede.conceded(billed, A, B, "2026-03")
    item = made[0].item
    assert [after_concessions({item: Charge(now)}, made)[item].quantity for now in (2, 4)] == [5, 5]
    assert after_concessions({item: Charge(1)}, made)[item].quantity == 4
    with pytest.raises(SettingsError, match="nothing-due"):
        concede.run(billed, returned(objection("out-1", 5, OUT)), Part(), why="again")


def test_a_document_that_is_disputed_in_words_is_conceded_by_its_lines(billed: Lake) -> None:
    what = returned(objection("in-1", None, None, "disputed"), objection("out-1", None, None, "disputed"))
    concede.run(billed, what, Part(counted="bytes_wire", quantity=100), why="a test of ours")
    assert rows(billed) == [("t", "bytes_wire", 900, 100)]
    concede.run(billed, what, Part(), why="the contract had ended")
    with pytest.raises(SettingsError, match="conceded-before"):
        concede.run(billed, what, Part(counted="bytes_wire"), why="all of it")
    assert rows(billed)[1:] == [("t", "delivered", 4, 4), ("u", "delivered", 3, 3)]


@pytest.mark.parametrize(
    ("what", "part", "code"),
    [
        (objection("in-1", None, None, "tariff"), Part(), "no-count"),
        (objection("in-1", 2, None), Part(), "no-count"),
        (objection("out-1", 5, OUT), Part(counted="bytes_in"), "no-count"),
        (objection("in-1", 2, IN), Part(number="in-2"), "no-count"),
        (objection("in-1", 2, IN), Part(quantity=1), "which-line"),
        (objection("out-1", 5, OUT), Part(quantity=4), "too-much"),
        (objection("out-1", 5, OUT), Part(quantity=0), "too-much"),
        (objection("out-1", 5, OUT), Part(quantity=-1), "too-much"),
        (objection("in-1", 7, IN), Part(), "nothing-due"),
        (objection("out-1", 2, OUT), Part(), "nothing-due"),
        (objection("in-9", 2, IN), Part(), "unknown-number"),
    ],
)
def test_what_cannot_be_conceded_is_refused_and_leaves_nothing(
    billed: Lake, what: BillObjection, part: Part, code: str
) -> None:
    with pytest.raises(SettingsError, match=f"^settings: {code}: "):
        concede.run(billed, returned(what), part, why="why not")
    assert not billed.has(CONCESSION)


def test_without_a_reason_nothing_is_conceded(billed: Lake) -> None:
    with pytest.raises(SettingsError, match="--why"):
        concede.run(billed, returned(objection("in-1", 2, IN)), Part(), why=" ")
    assert not billed.has(CONCESSION)


def test_a_return_is_conceded_once(billed: Lake) -> None:
    what = returned(objection("out-1", 5, OUT))
    concede.run(billed, what, Part(quantity=1), why="the first word")
    with pytest.raises(SettingsError, match=r"conceded-before: .*@.* has conceded this return: the first word"):
        concede.run(billed, what, Part(), why="more")
    assert len(rows(billed)) == 1


def test_of_two_who_concede_at_the_same_moment_one_fails(billed: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    what = returned(objection("out-1", 5, OUT))
    concede.run(billed, what, Part(), why="one")
    monkeypatch.setattr(concede, "_entered", lambda *_: [])  # what the slower one has read before
    with pytest.raises(ConflictError, match="at the same moment"):
        concede.run(billed, what, Part(), why="other")
    assert len(rows(billed)) == 1
