"""What was conceded to a partner of a bill that it has returned, and what is billed then. Pure.

A concession is about counts: of so many that were billed, so many less are. Records that come later are billed as
always. A restatement that takes back what was conceded already is no second reason to take it back, so the same
message is credited once, whichever comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pipeline.core.tariffs import Charge, Item, amount_of


class Concession(NamedTuple):
    """One line that was conceded.

    Attributes:
        item: What was billed.
        billed: How much of it, at that time, with all that was conceded before.
        less: So much less is owed; below zero: so much more, where we pay.
    """

    item: Item
    billed: int
    less: int

    def applied(self, quantity: int) -> int:
        """The count to bill, from that of our records."""
        agreed = self.billed - self.less
        if self.less >= 0:
            return quantity - self.less if quantity >= self.billed else min(quantity, agreed)
        return quantity - self.less if quantity <= self.billed else max(quantity, agreed)


def after_concessions(now: Mapping[Item, Charge], made: Iterable[Concession]) -> dict[Item, Charge]:
    """Compute the charges of a month after concessions, by item.

    Args:
        now: By our records and the tariffs.
        made: In their order. One whose item has another price by now holds for that price; one whose tariff has no
            such line any more, for the lines of other tariffs that count the same.
    """
    quantities = {item: charge.quantity for item, charge in now.items()}
    for one in made:
        items = _priced_now(quantities, one.item)
        before = sum(quantities.get(item, 0) for item in items)
        _change(quantities, items, one.applied(before) - before)
    return {item: Charge(quantity, amount_of(item, quantity)) for item, quantity in sorted(quantities.items())}


def _priced_now(quantities: Mapping[Item, int], item: Item) -> list[Item]:
    """The items that stand for what an item was: itself, else those of its tariff, else those of any."""
    if item in quantities:
        return [item]
    same = [one for one in sorted(quantities) if (one.role, one.counted) == (item.role, item.counted)]
    return [one for one in same if one.tariff == item.tariff] or same or [item]


def _change(quantities: dict[Item, int], items: Iterable[Item], change: int) -> None:
    """Add to the first item, or take from each what it has."""
    for item in items:
        before = quantities.get(item, 0)
        part = max(change, -before)
        if part:
            quantities[item] = before + part
        change -= part
