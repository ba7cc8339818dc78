"""Which statements are meant: of each domain and day one version, drafts only when they are wanted.

What was asked for and is not there is reported: days without statements, versions that do not exist, drafts left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from typing import Final, NamedTuple

from pipeline.core.utc_days import checked_day
from protofly.errors import SettingsError

DRAFT: Final = "draft"


class Standing(NamedTuple):
    """One version of one domain's statements of one day."""

    our_domain: str
    day: str
    version: int
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Selection of statements.

    Attributes:
        from_day: First day, `YYYY-MM-DD`; empty: the first that there is.
        until_day: Last day, itself included; empty: the last that there is.
        domain: Whose statements; empty: of every domain.
        peer: With whom; empty: with everybody.
        version: Which one; None: the newest of each domain and day.
        drafts: Whether drafts are taken.
    """

    from_day: str = ""
    until_day: str = ""
    domain: str = ""
    peer: str = ""
    version: int | None = None
    drafts: bool = False

    def has_day(self, day: str) -> bool:
        """True if the day was asked for."""
        return self.from_day <= day and (not self.until_day or day <= self.until_day)

    @property
    def has_period(self) -> bool:
        """True if days were named; then each of them is expected."""
        return bool(self.from_day or self.until_day)

    def is_meant(self, one: Standing) -> bool:
        """True if the domain and the day were asked for."""
        return self.has_day(one.day) and self.domain in {"", one.our_domain}


@dataclass(frozen=True, slots=True)
class Known:
    """Domains and days of which there are statements, before any selection."""

    domains: frozenset[str] = frozenset()
    days: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Choice:
    """Statements that a selection found, and those that it left out or missed.

    Attributes:
        taken: Ascending by domain and day.
        drafts: Left out, because they are drafts.
        other_versions: Left out, because the wanted version does not exist; the newest that does.
        missing: By domain the first and the last day of each stretch of named days without any statement.
    """

    taken: tuple[Standing, ...] = ()
    drafts: tuple[Standing, ...] = ()
    other_versions: tuple[Standing, ...] = ()
    missing: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)


def wanted_days(day: str, first: str, last: str) -> tuple[str, str]:
    """The first and the last day that are wanted, of one day or of a period; empty: no bound.

    Raises:
        SettingsError: No day, both a day and a period, or a period that ends before it begins.
    """
    if day and (first or last):
        raise SettingsError("name either one --day, or a period by --from and --until")
    first, last = (checked_day(one) if one else "" for one in (day or first, day or last))
    if last and first > last:
        raise SettingsError(f"the period ends on {last}, before it begins on {first}")
    return first, last


def choose(standings: Collection[Standing], wanted: Wanted, known: Known | None = None) -> Choice:
    """Take of each domain and day the version that is wanted.

    Args:
        standings: Those of the wanted days at least.
        wanted: Which ones.
        known: Needed if standings of other days were left out; it says for whom and of which days some are missing.
    """
    versions: dict[tuple[str, str], dict[int, Standing]] = defaultdict(dict)
    for one in standings:
        if wanted.is_meant(one):
            versions[one.our_domain, one.day][one.version] = one
    taken, drafts, others = [], [], []
    for _, there in sorted(versions.items()):
        newest = there[max(there)]
        found = newest if wanted.version is None else there.get(wanted.version)
        if found is None:
            others.append(newest)
        elif found.status == DRAFT and not wanted.drafts:
            drafts.append(found)
        else:
            taken.append(found)
    return Choice(tuple(taken), tuple(drafts), tuple(others), _missing(standings, wanted, known or known_of(standings)))


def known_of(standings: Iterable[Standing]) -> Known:
    """The domains and days of all statements."""
    domains, days = [], []
    for one in standings:
        domains.append(one.our_domain)
        days.append(one.day)
    return Known(frozenset(domains), frozenset(days))


def _missing(standings: Collection[Standing], wanted: Wanted, known: Known) -> dict[str, tuple[tuple[str, str], ...]]:
    if not wanted.has_period or not known.days:
        return {}
    first = wanted.from_day or min(known.days)
    last = wanted.until_day or max(known.days)
    domains = {wanted.domain} if wanted.domain else known.domains
    of_domain = {name: [one.day for one in standings if one.our_domain == name] for name in sorted(domains)}
    missing = {name: tuple(_gaps(days, first, last)) for name, days in of_domain.items()}
    return {name: gaps for name, gaps in missing.items() if gaps}


def _gaps(days: Collection[str], first: str, last: str) -> Iterator[tuple[str, str]]:
    """Stretches of days from `first` to `last` that are not among `days`."""
    there = sorted({date.fromisoformat(day).toordinal() for day in days if first <= day <= last})
    bounds = [date.fromisoformat(first).toordinal() - 1, *there, date.fromisoformat(last).toordinal() + 1]
    for before, after in pairwise(bounds):
        if before + 1 < after:
            yield date.fromordinal(before + 1).isoformat(), date.fromordinal(after - 1).isoformat()
