"""Which rules can matter to a message at all, found by its domains.

A rule that must have `linkDomain` in a set of names needs no look when the link goes elsewhere. Each rule is filed
under the domain condition with the fewest names; rules without one are always asked. A list of 5 000 names is one
rule, ten thousand rules for ten thousand partners are one look-up. A domain that is missing selects every rule filed
under it, since each is indeterminate then.
Source: trust and hosts, section 5.3, rule 3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from policy.core.attributes import ATTRIBUTES, AttributeKind
from policy.core.closures import domain_patterns
from policy.core.model import AllOf, Condition, Facts, Operator, Test
from policy.core.patterns import DomainPattern, parents


class Guard(NamedTuple):
    """A domain attribute, and the patterns of which one has to fit it."""

    attribute: str
    patterns: tuple[DomainPattern, ...]


def conjuncts(condition: Condition) -> list[Condition]:
    """The parts of a condition that have to hold every one."""
    if isinstance(condition, AllOf):
        return [inner for part in condition.parts for inner in conjuncts(part)]
    return [condition]


def find_guard(conditions: Iterable[Condition]) -> Guard | None:
    """The narrowest domain condition among those that all have to hold.

    Raises:
        SettingsError: A name that is not a domain pattern.
    """
    narrowest: Guard | None = None
    for part in (inner for condition in conditions for inner in conjuncts(condition)):
        if not isinstance(part, Test) or part.operator is Operator.PRESENT or part.attribute not in _FILED_BY:
            continue
        patterns = domain_patterns(part)
        if "*" not in patterns and (narrowest is None or len(patterns) < len(narrowest.patterns)):
            narrowest = Guard(part.attribute, patterns)
    return narrowest


_FILED_BY = frozenset(
    attribute.name for attribute in ATTRIBUTES.values() if attribute.is_fixed and attribute.kind is AttributeKind.DOMAIN
)


class _Drawer:
    """The rules filed under one attribute."""

    __slots__ = ("below", "every", "exact", "read")

    def __init__(self, attribute: str) -> None:
        self.read = ATTRIBUTES[attribute].read
        self.exact: dict[str, list[int]] = defaultdict(list)
        self.below: dict[str, list[int]] = defaultdict(list)
        self.every: list[int] = []

    def file(self, number: int, patterns: tuple[DomainPattern, ...]) -> None:
        self.every.append(number)
        for pattern in dict.fromkeys(patterns):
            (self.exact if pattern.is_exact else self.below)[pattern.base].append(number)

    def find(self, domain: str) -> list[int]:
        found = list(self.exact.get(domain, ()))
        for parent in parents(domain):
            found.extend(self.below.get(parent, ()))
        return found

    def most(self) -> int:
        """Rules that the busiest domain selects."""
        busiest = max((len(self.find(domain)) for domain in self.exact), default=0)
        return max(busiest, max((len(self.find(f"x.{domain}")) for domain in self.below), default=0))


class RuleIndex:
    """Numbers of rules, filed by the guard of each."""

    def __init__(self, guards: Sequence[Guard | None]) -> None:
        self._unfiled: list[int] = []
        self._drawers: dict[str, _Drawer] = {}
        for number, guard in enumerate(guards):
            if guard is None:
                self._unfiled.append(number)
                continue
            if guard.attribute not in self._drawers:
                self._drawers[guard.attribute] = _Drawer(guard.attribute)
            self._drawers[guard.attribute].file(number, guard.patterns)

    def candidates(self, facts: Facts) -> list[int]:
        """Numbers of the rules that may apply, each once, in order."""
        found = set(self._unfiled)
        for drawer in self._drawers.values():
            domain = drawer.read(facts)
            found.update(drawer.find(domain) if isinstance(domain, str) else drawer.every)
        return sorted(found)

    def most_candidates(self) -> int:
        """Upper bound of the rules that one message with known domains can select."""
        return len(self._unfiled) + sum(drawer.most() for drawer in self._drawers.values())
