"""A partner's bill held against our counts: what is objected to, and what is not."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from typing import Any

import pytest

from pipeline.core.bill_check import Objection, OurSide, objections, unchecked, uncorrected
from pipeline.core.tariffs import Counted, Rate, Tariff
from protofly.errors import SettingsError

A, B = "a.example", "b.example"
DAY = "2026-03-02"


def tariff(*rates: Rate, since: date = date(2026, 1, 1)) -> Tariff:
    """What b has agreed with a, from b's side."""
    return Tariff(id="ours", peer=A, valid_from=since, currency="EUR", rate=rates)


SENT = Rate("out", "delivered", "0.50")
CAME = Rate("in", "delivered", "0.10")


def day(role: str, **counts: Any) -> dict[str, Any]:
    usual = {"dt": DAY, "role": role, "messages": 100, "delivered": 90, "denied": 6, "failed": 4}
    return usual | {"bytes_in": 7_000, "bytes_wire": 9_000, "outcomes": {"duplicate": 3}} | counts


def side(*rates: Rate, allowed: str = "0", since: date = date(2026, 1, 1)) -> OurSide:
    return OurSide(B, A, [day("out"), day("in")], [tariff(*rates, since=since)], Fraction(allowed))


def line(role: str, quantity: int, amount: int, counted: Counted = "delivered", **members: Any) -> dict[str, Any]:
    price = {"in": "0.5", "out": "0.10"}[role]
    usual = {"currency": "EUR", "role": role, "tariff": "theirs", "counted": counted, "price": price, "per": 1}
    return usual | {"quantity": quantity, "amount": amount} | members


def document(*lines: dict[str, Any], number: str = "1", **members: Any) -> dict[str, Any]:
    """Of a for b: what b has sent is `in` there, and b pays."""
    pays = {"payer": B if lines[0]["role"] == "in" else A}
    return {"number": number, "issued_us": 1, "corrects": "", "lines": lines} | pays | members


def reasons(found: list[Objection]) -> list[tuple[str, int | None, int | None]]:
    return [(one.reason, one.quantity, one.ours) for one in found]


def test_a_bill_that_says_what_we_count_is_accepted_whatever_the_tariff_is_called() -> None:
    bill = [document(line("in", 90, 4500)), document(line("out", 97, 970), number="2")]
    assert objections(bill, side(SENT, CAME)) == []


@pytest.mark.parametrize(
    ("one", "allowed", "found"),
    [
        (line("in", 91, 4550), "0", [("quantity", 91, 90)]),
        (line("in", 91, 4550), "1/50", []),
        (line("in", 89, 4450), "0", []),  # it asks for less than it might
        (line("out", 96, 960), "0", [("quantity", 96, 97)]),  # it pays for less than it has sent
        (line("out", 96, 960), "1/90", []),
        (line("out", 98, 980), "0", []),
        (line("in", 90, 4502), "0", [("amount", None, None)]),
        (line("in", 90, 4501), "0", []),  # rounded otherwise
        (line("in", 90, 4500, price="0.51"), "0", [("tariff", 90, None)]),
        (line("in", 90, 4500, currency="USD"), "0", [("tariff", 90, None)]),
        (line("in", 0, 0, price="0.51"), "0", []),
        (line("in", 90, 4500, price="0.500"), "0", []),
    ],
)
def test_a_line_is_objected_to_where_it_is_wrong_to_the_advantage_of_its_author(
    one: dict[str, Any], allowed: str, found: list[tuple[str, int | None, int | None]]
) -> None:
    rate = SENT if one["role"] == "in" else CAME
    assert reasons(objections([document(one)], side(rate, allowed=allowed))) == found


@pytest.mark.parametrize(
    ("role", "counted", "ours"),
    [("in", "messages", 94), ("in", "bytes_wire", 9_000), ("out", "messages", 100), ("out", "bytes_wire", 9_000)],
)
def test_each_count_of_a_bill_is_held_against_what_both_can_know(role: str, counted: Counted, ours: int) -> None:
    mine = "out" if role == "in" else "in"
    rate = Rate(mine, counted, "1")  # type: ignore[arg-type]
    wrong = 1 if role == "in" else -1
    for quantity, found in ((ours, []), (ours + wrong, [("quantity", ours + wrong, ours)])):
        bill = [document(line(role, quantity, quantity * 100, counted, price="1"))]
        assert reasons(objections(bill, side(rate))) == found


def test_bytes_on_the_partners_own_bus_are_left_to_it() -> None:
    bill = [document(line("in", 10**9, 10**11, "bytes_in", price="1"))]
    assert objections(bill, side(Rate("out", "bytes_in", "1"))) == []
    assert unchecked(bill) == 1


def test_what_the_partner_owes_and_leaves_out_is_named_and_what_we_owe_is_not() -> None:
    found = objections([document(line("in", 90, 4500))], side(SENT, CAME))
    assert reasons(found) == [("left-out", 0, 97)]
    assert objections([document(line("out", 97, 970))], side(SENT, CAME)) == []


def test_a_bill_and_the_note_that_corrects_it_count_together() -> None:
    invoice = document(line("in", 95, 4750))
    note = document(line("in", -5, -250), number="2", corrects="1", issued_us=2)
    assert reasons(objections([invoice], side(SENT))) == [("quantity", 95, 90)]
    assert objections([note, invoice], side(SENT)) == []
    assert (uncorrected([note]), uncorrected([note, invoice])) == (["1"], [])
    more = document(line("in", 9, 450), number="10", corrects="1", issued_us=3)
    [one] = objections([more, note, invoice], side(SENT))
    assert (one.number, one.quantity) == ("10", 99), "the newest document is named"


def test_a_line_in_the_document_of_the_wrong_payer_and_a_number_of_two_documents_are_named() -> None:
    found = objections([document(line("in", 90, 4500), payer=A)], side(SENT))
    assert [one.reason for one in found] == ["direction"]
    bill = [document(line("in", 45, 2250)), document(line("in", 45, 2250), issued_us=2)]
    assert [one.reason for one in objections(bill, side(SENT))] == ["twice"]


def test_a_day_without_a_tariff_of_ours_is_said() -> None:
    with pytest.raises(SettingsError, match=r"no tariff with a\.example"):
        objections([document(line("in", 90, 4500))], side(SENT, since=date(2026, 4, 1)))
