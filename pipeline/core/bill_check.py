"""Whether what a partner bills agrees with our own counts and tariffs. Pure.

Both operators have the same tariffs, each from its own side: what the partner calls `in` we call `out`. A side is
bound by what it says to its own cost, so only what is to the partner's advantage is objected to.

No two operators count quite the same things. What is held against each count of a bill:

    the bill counts             our records
    in, delivered               out: delivered, which the partner's node has accepted
    in, messages                out: delivered and failed: all that may have come
    out, delivered              in: messages but duplicates
    out, messages               in: messages
    bytes_wire                  bytes_wire of the other role
    bytes_in                    nothing: they are bytes on the partner's own bus
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, NamedTuple

from pipeline.core.tariffs import Charge, Item, Tariff, amount_of, amount_text, charges

_UNCHECKED: Final = "bytes_in"
_AGREED: Final = ("currency", "role", "counted", "price", "per")
_FLIPPED: Final = {"in": "out", "out": "in"}


class Objection(NamedTuple):
    """One error in a bill.

    Attributes:
        number: Of the document; the newest one that has such a line.
        reason: `tariff`, a price that no tariff of ours has; `quantity`, counted to the author's advantage; `left-out`,
            what the partner owes and has no line about; `amount`, not quantity times price; `direction`, a line in the
            document of the wrong payer; `twice`, one number of two documents; `disputed`, for a reason in words.
        detail: What exactly, for people.
        quantity: What the partner bills, in all documents together.
        ours: What our records have.
        item: Of a `quantity`: of what; `currency`, `role` as the author of the document has it, `counted`, `price`,
            `per`.
    """

    number: str
    reason: str
    detail: str
    quantity: int | None = None
    ours: int | None = None
    item: Mapping[str, Any] | None = None


class _Priced(NamedTuple):
    """An item by what was agreed on, without the name that one side has given it; `role` is ours."""

    currency: str
    role: str
    counted: str
    price: Fraction
    per: int

    @classmethod
    def of(cls, line: Mapping[str, Any], role: str) -> _Priced:
        return cls(line["currency"], role, line["counted"], Fraction(line["price"]), line["per"])

    def __str__(self) -> str:
        what = "what they sent" if self.role == "in" else "what we sent"
        return f"{self.counted} of {what}, {float(self.price):g} {self.currency} for {self.per:,}"


@dataclass(slots=True)
class _Billed:
    """All lines about one item."""

    charge: Charge = field(default_factory=Charge)
    numbers: list[str] = field(default_factory=list)
    item: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OurSide:
    """Our side of a month.

    Attributes:
        domain: We.
        peer: The partner.
        days: What we have exchanged on its days, with `dt`, `role`, `outcomes`, and what is counted.
        tariffs: As agreed, from our side.
        allowed: So large a part of our count is no reason to object.
    """

    domain: str
    peer: str
    days: Sequence[Mapping[str, Any]]
    tariffs: Sequence[Tariff]
    allowed: Fraction = Fraction(0)

    def charges(self) -> dict[_Priced, Charge]:
        """Compute the charges that the partner may bill, by item.

        Raises:
            SettingsError: A day has no tariff.
        """
        found: dict[_Priced, Charge] = {}
        for item, one in charges(map(_as_partner_counts, self.days), self.tariffs, self.peer).items():
            key = _Priced.of(item._asdict(), item.role)
            before = found.get(key, Charge())
            found[key] = Charge(before.quantity + one.quantity, before.amount + one.amount)
        return found

    def is_beyond(self, more: int, ours: int) -> bool:
        """True if a difference to the partner's advantage is more than was agreed on."""
        return more > self.allowed * ours


def objections(documents: Sequence[Mapping[str, Any]], side: OurSide) -> list[Objection]:
    """Check all documents of a month with a partner, invoices and the notes that correct them; returns every error.

    Args:
        documents: Of one month, each once.
        side: Ours, of that month.

    Raises:
        SettingsError: A day without a tariff.
    """
    documents = sorted(documents, key=lambda one: int(one["issued_us"]))
    found = [*_twice(documents), *_misplaced(documents, side)]
    ours = side.charges()
    theirs = _lines_by_item(documents)
    for key, billed in theirs.items():
        if key.counted != _UNCHECKED:
            found += _about(key, billed, ours.get(key), side)
    newest = documents[-1]["number"] if documents else ""
    for key in ours.keys() - theirs.keys():
        quantity = ours[key].quantity
        if key.role == "in" and key.counted != _UNCHECKED and side.is_beyond(quantity, quantity):
            found.append(Objection(newest, "left-out", f"no line about {key}", 0, quantity))
    return sorted(found, key=lambda one: one[:3])


def unchecked(documents: Iterable[Mapping[str, Any]]) -> int:
    """Count the lines about quantities that only the partner can count."""
    return sum(line["counted"] == _UNCHECKED for one in documents for line in one["lines"])


def uncorrected(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Numbers of invoices that are corrected by these documents and are not among them."""
    return sorted({one["corrects"] for one in documents if one["corrects"]} - {one["number"] for one in documents})


def _as_partner_counts(row: Mapping[str, Any]) -> dict[str, Any]:
    """A day of ours with what the partner may count of it."""
    if row["role"] == "out":
        counts = {"delivered": row["delivered"], "messages": row["delivered"] + row["failed"]}
    else:
        counts = {"delivered": row["messages"] - dict(row["outcomes"] or {}).get("duplicate", 0)}
    return {**row, **counts}


def _lines_by_item(documents: Iterable[Mapping[str, Any]]) -> dict[_Priced, _Billed]:
    found: dict[_Priced, _Billed] = defaultdict(_Billed)
    for document in documents:
        for line in document["lines"]:
            one = found[_Priced.of(line, _FLIPPED[line["role"]])]
            one.charge = Charge(one.charge.quantity + line["quantity"], one.charge.amount + line["amount"])
            one.numbers.append(document["number"])
            one.item = {name: line[name] for name in _AGREED}
    return found


def _about(key: _Priced, billed: _Billed, ours: Charge | None, side: OurSide) -> list[Objection]:
    number, theirs = billed.numbers[-1], billed.charge
    if ours is None:
        return (
            [Objection(number, "tariff", f"no tariff of ours has {key}", theirs.quantity)] if theirs != Charge() else []
        )
    found = []
    more = theirs.quantity - ours.quantity if key.role == "out" else ours.quantity - theirs.quantity
    if side.is_beyond(more, ours.quantity):
        found.append(Objection(number, "quantity", str(key), theirs.quantity, ours.quantity, billed.item))
    right = amount_of(Item(key.currency, key.role, "", key.counted, str(key.price), key.per), theirs.quantity)
    # Each line was rounded once.
    if abs(theirs.amount - right) > len(billed.numbers):
        said = f"{theirs.quantity:,} {key} are {amount_text(right, key.currency)}"
        found.append(Objection(number, "amount", f"{said}, not {amount_text(theirs.amount, key.currency)}"))
    return found


def _twice(documents: Iterable[Mapping[str, Any]]) -> list[Objection]:
    numbers = [one["number"] for one in documents]
    return [
        Objection(number, "twice", f"{numbers.count(number)} documents have this number")
        for number in sorted(set(numbers))
        if numbers.count(number) > 1
    ]


def _misplaced(documents: Iterable[Mapping[str, Any]], side: OurSide) -> list[Objection]:
    """Lines about what the other one would have to pay."""
    payers = {"in": side.domain, "out": side.peer}
    return [
        Objection(one["number"], "direction", f"a line about role {line['role']!r}, and {one['payer']} is to pay")
        for one in documents
        for line in one["lines"]
        if payers[line["role"]] != one["payer"]
    ]
