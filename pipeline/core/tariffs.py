"""What partners pay each other: tariffs as data, and the lines of a bill that they make of counted days.

All arithmetic is exact; an amount is rounded once, by line, half to even, to the smallest unit of its currency.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from hashlib import sha256
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from protofly.errors import SettingsError

ANYBODY: Final = "*"
_WITHOUT_CENTS: Final = frozenset(
    {
        *("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG"),
        *("RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF"),
    }
)
_THREE_DIGITS: Final = frozenset({"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"})
_FOUR_DIGITS: Final = frozenset({"CLF", "UYW"})
_DIGITS: Final = {
    **dict.fromkeys(_WITHOUT_CENTS, 0),
    **dict.fromkeys(_THREE_DIGITS, 3),
    **dict.fromkeys(_FOUR_DIGITS, 4),
}

Counted = Literal["messages", "delivered", "bytes_in", "bytes_wire"]
Price = Annotated[str, Meta(pattern=r"^[0-9]{1,12}(\.[0-9]{1,12})?\Z")]


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A price: of what the partner sends (`in`; the partner pays us) or of what we send (`out`; we pay)."""

    role: Literal["in", "out"]
    counted: Counted
    price: Price
    per: Annotated[int, Meta(ge=1, le=1_000_000_000_000)] = 1


class Tariff(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The prices agreed with a partner, from one business day to another, both included."""

    id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")]
    peer: Annotated[str, Meta(min_length=1, max_length=253)]
    valid_from: date
    currency: Annotated[str, Meta(pattern=r"^[A-Z]{3}\Z")]
    rate: Annotated[tuple[Rate, ...], Meta(min_length=1, max_length=32)]
    valid_until: date | None = None

    def is_valid(self, day: str) -> bool:
        """True if it is in force on a day, `YYYY-MM-DD`."""
        return self.valid_from.isoformat() <= day and (self.valid_until is None or day <= self.valid_until.isoformat())

    @property
    def sha256(self) -> str:
        """A hash of all that it says."""
        return sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


class _Tariffs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tariff: Annotated[tuple[Tariff, ...], Meta(min_length=1, max_length=10_000)]


def read_tariffs(values: Mapping[str, Any]) -> tuple[Tariff, ...]:
    """The tariffs of a TOML file.

    Raises:
        SettingsError: Other members, other values, one name twice, or two tariffs with a partner on the same day.
    """
    try:
        tariffs = msgspec.convert(values, _Tariffs).tariff
    except msgspec.ValidationError as exc:
        raise SettingsError(f"{exc}; see docs/settlement.md") from exc
    names = [one.id for one in tariffs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SettingsError(f"tariff {twice[0]} is there twice: give each an id of its own")
    last: dict[str, Tariff] = {}
    for one in sorted(tariffs, key=lambda one: one.valid_from):
        if one.valid_until is not None and one.valid_until < one.valid_from:
            raise SettingsError(f"tariff {one.id} ends before it begins: exchange the days")
        before = last.get(one.peer)
        if before is not None and (before.valid_until is None or one.valid_from <= before.valid_until):
            raise SettingsError(
                f"tariffs {before.id} and {one.id} with {one.peer} are valid on the same day: end one before the "
                "other begins"
            )
        last[one.peer] = one
    return tariffs


def tariff_of(tariffs: Iterable[Tariff], peer: str, day: str) -> Tariff | None:
    """The tariff with a partner on a day: its own one, or that of everybody."""
    valid = [one for one in tariffs if one.peer in {peer, ANYBODY} and one.is_valid(day)]
    return min(valid, key=lambda one: one.peer == ANYBODY, default=None)


def minor_digits(currency: str) -> int:
    """Digits behind the point of amounts in a currency. Source: ISO 4217."""
    return _DIGITS.get(currency, 2)


class Item(NamedTuple):
    """The subject of a line of a bill."""

    currency: str
    role: str
    tariff: str
    counted: str
    price: str
    per: int


@dataclass(frozen=True, slots=True)
class Charge:
    """Quantity of an item, and its price in the smallest unit of the currency."""

    quantity: int = 0
    amount: int = 0

    def less(self, other: Charge) -> Charge:
        """This charge minus another one."""
        return Charge(self.quantity - other.quantity, self.amount - other.amount)


def charges(days: Iterable[Mapping[str, Any]], tariffs: Sequence[Tariff], peer: str) -> dict[Item, Charge]:
    """Compute the charges of some days with a partner, by item; items with quantity 0 are included.

    Args:
        days: With `dt`, `role` and what is counted.
        tariffs: As agreed; each of these days has one.
        peer: The partner.

    Raises:
        SettingsError: A day without a tariff.
    """
    quantities: dict[Item, int] = defaultdict(int)
    for row in days:
        tariff = tariff_of(tariffs, peer, row["dt"])
        if tariff is None:
            raise SettingsError(f"no tariff with {peer} is valid on {row['dt']}: add one to the file")
        for rate in tariff.rate:
            if rate.role == row["role"]:
                item = Item(tariff.currency, rate.role, tariff.id, rate.counted, rate.price, rate.per)
                quantities[item] += row[rate.counted] or 0
    return {item: Charge(quantity, amount_of(item, quantity)) for item, quantity in sorted(quantities.items())}


def amount_of(item: Item, quantity: int) -> int:
    """The cost of a quantity, in the smallest unit of the currency, rounded half to even."""
    units: int = 10 ** minor_digits(item.currency)
    return round(Fraction(item.price) * quantity * units / item.per)


def amount_text(amount: int, currency: str) -> str:
    """For people: `-12.30 EUR`."""
    digits = minor_digits(currency)
    whole, rest = divmod(abs(amount), 10**digits)
    return f"{'-' if amount < 0 else ''}{whole:,}{f'.{rest:0{digits}}' if digits else ''} {currency}"
