"""Tariffs as data: what is refused, and what they make of counted days."""

from __future__ import annotations

import tomllib
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.tariffs import Charge, Item, amount_of, amount_text, charges, read_tariffs, tariff_of
from pipeline.partners.tariff_file import TARIFFS_BYTES, load_tariffs
from protofly.errors import SettingsError

TARIFFS = """
[[tariff]]
id = "b-2026"
peer = "b.example"
valid_from = 2026-01-01
valid_until = 2026-03-15
currency = "EUR"
rate = [
  { role = "in", counted = "delivered", price = "0.40", per = 1000 },
  { role = "in", counted = "bytes_wire", price = "1.5", per = 1048576 },
  { role = "out", counted = "messages", price = "0.001" },
]

[[tariff]]
id = "b-later"
peer = "b.example"
valid_from = 2026-03-16
currency = "EUR"
rate = [{ role = "in", counted = "delivered", price = "0.50", per = 1000 }]

[[tariff]]
id = "others"
peer = "*"
valid_from = 2020-01-01
currency = "JPY"
rate = [{ role = "in", counted = "delivered", price = "2", per = 3 }]
"""


def read(text: str = TARIFFS) -> Any:
    return read_tariffs(tomllib.loads(text))


def day(dt: str, role: str, **counted: int) -> dict[str, Any]:
    return {"dt": dt, "role": role, "messages": 0, "delivered": 0, "bytes_wire": 0} | counted


@pytest.mark.parametrize(
    ("peer", "on", "name"),
    [
        ("b.example", "2026-01-01", "b-2026"),
        ("b.example", "2026-03-15", "b-2026"),
        ("b.example", "2026-03-16", "b-later"),
        ("b.example", "2025-12-31", "others"),
        ("c.example", "2026-03-16", "others"),
        ("c.example", "2019-12-31", None),
    ],
)
def test_the_tariff_of_a_day_is_the_partners_own_or_that_of_everybody(peer: str, on: str, name: str | None) -> None:
    found = tariff_of(read(), peer, on)
    assert (found.id if found else None) == name


def test_days_are_charged_by_the_tariff_of_each() -> None:
    days = [
        day("2026-03-15", "in", messages=1200, delivered=1000, bytes_wire=1 << 20),
        day("2026-03-16", "in", messages=1200, delivered=1000, bytes_wire=1 << 20),
        day("2026-03-15", "out", messages=7, delivered=5),
        day("2026-03-16", "out", messages=7, delivered=5),
    ]
    found = {
        (item.tariff, item.role, item.counted): charge for item, charge in charges(days, read(), "b.example").items()
    }
    assert found == {
        ("b-2026", "in", "delivered"): Charge(1000, 40),
        ("b-2026", "in", "bytes_wire"): Charge(1 << 20, 150),
        ("b-2026", "out", "messages"): Charge(7, 1),
        ("b-later", "in", "delivered"): Charge(1000, 50),
    }


def test_a_day_without_a_tariff_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"no tariff with c\.example is valid on 2019-12-31"):
        charges([day("2019-12-31", "in", delivered=1)], read(), "c.example")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('id = "b-later"', 'id = "b-2026"', "is there twice"),
        ("2026-03-16", "2026-03-15", "valid on the same day"),
        ("valid_until = 2026-03-15", "", "valid on the same day"),
        ("valid_until = 2026-03-15", "valid_until = 2025-03-15", "ends before it begins"),
        ('price = "0.001"', "price = 0.001", "str"),
        ('price = "0.001"', 'price = "-1"', "regex"),
        ('price = "0.001"', 'price = "1e9"', "regex"),
        ('"JPY"', '"yen"', "regex"),
        ("per = 1000 }", "per = 0 }", "int"),
        ('counted = "messages"', 'counted = "minutes"', "enum"),
        ("[[tariff]]", "[[tarif]]", "field"),
        ('currency = "JPY"', 'currency = "JPY"\nrebate = 1', "rebate"),
    ],
)
def test_files_that_say_something_else_are_refused_and_name_it(tmp_path: Path, old: str, new: str, reason: str) -> None:
    path = tmp_path / "tariffs.toml"
    path.write_text(TARIFFS.replace(old, new), encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load_tariffs(path)
    assert reason in caught.value.detail
    assert caught.value.detail.startswith(str(path))


def test_a_tariff_may_be_valid_for_one_day() -> None:
    text = TARIFFS.replace("valid_until = 2026-03-15", "valid_until = 2026-01-01")
    tariffs = read_tariffs(tomllib.loads(text))
    found = [tariff_of(tariffs, "b.example", on) for on in ("2026-01-01", "2026-01-02")]
    assert [one.id if one else None for one in found] == ["b-2026", "others"]


@pytest.mark.parametrize("content", [b"\xff", b"[[tariff", b"a = " + b"[" * 100_000, b"#" * (TARIFFS_BYTES + 1)])
def test_what_is_no_file_of_tariffs_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    for name in ("x", "missing"):
        with pytest.raises(SettingsError):
            load_tariffs(tmp_path / name)


@given(
    st.integers(0, 10**15),
    st.decimals(0, 10**6, places=6, allow_nan=False, allow_infinity=False),
    st.integers(1, 10**9),
    st.sampled_from([("EUR", 2), ("JPY", 0), ("UYI", 0), ("KWD", 3), ("CLF", 4), ("UYW", 4)]),
)
def test_amounts_are_those_of_exact_decimals_rounded_once(
    quantity: int, price: Decimal, per: int, currency: tuple[str, int]
) -> None:
    name, digits = currency
    with localcontext() as context:
        context.prec = 80
        exact = Decimal(quantity) * price * 10**digits / per
        rounded = int(exact.quantize(Decimal(1), ROUND_HALF_EVEN))
    assert amount_of(Item(name, "in", "t", "messages", f"{price:f}", per), quantity) == rounded


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        (123456, "EUR", "1,234.56 EUR"),
        (-5, "EUR", "-0.05 EUR"),
        (7, "JPY", "7 JPY"),
        (7, "KWD", "0.007 KWD"),
        (7, "CLF", "0.0007 CLF"),
        (12_345, "UYW", "1.2345 UYW"),
        (7, "UYI", "7 UYI"),
    ],
)
def test_amounts_for_people_have_the_digits_of_the_currency(amount: int, currency: str, text: str) -> None:
    assert amount_text(amount, currency) == text


@pytest.mark.parametrize(("rates", "is_read"), [(0, False), (1, True), (32, True), (33, False)])
def test_a_tariff_has_a_rate_and_at_most_32(rates: int, *, is_read: bool) -> None:
    one = '{ role = "in", counted = "delivered", price = "2" },'
    text = TARIFFS.partition('[[tariff]]\nid = "b-later"')[0].partition("rate = [")[0] + f"rate = [{one * rates}]"
    if is_read:
        read(text)
        return
    with pytest.raises(SettingsError):
        read(text)


def test_what_one_charge_is_more_than_another_may_be_negative() -> None:
    assert Charge(5, 250).less(Charge(3, 400)) == Charge(2, -150)
    assert Charge().less(Charge(3, 400)) == Charge(-3, -400)
