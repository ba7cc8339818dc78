"""What operators have forbidden until further notice: domains, runtimes, stubs, modules; and gates for a time.

It survives a restart.

A restriction stands above settings and policies, and ends at its time or when it is lifted. Each subject has at most
one; a newer one replaces it.

Nodes of one domain share their rows (`shared`). The key of a row has the moment since when it holds: so a node that
ends a restriction never removes a newer one, which another node has put in its place meanwhile, and of two the newer
one is the same everywhere. Source: message specification, section 15.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from msg_node.kernel.changes import Journal, Rows, Table, decode_row

_REMOVED_KEPT: Final = 1_000
_DIGEST_CHARS: Final = 64


class Restricted(StrEnum):
    """The kinds of things that a restriction can be about."""

    PEER = "peer"
    """A domain, or `*.` and a domain for all its sub-domains: no message comes from there or goes there."""
    RUNTIME = "runtime"
    """The canonical key of a runtime: it opens no session."""
    STUB = "stub"
    """A domain: its stub does not run here. Or the SHA-256 of a module, which is no domain: it runs here for none.

    Modules have no word of their own: nodes of older versions read these rows, too.
    """
    GATE = "gate"
    """What a domain sends to another: the name of a gate for a time, which has an effect."""


def is_module(subject: str) -> bool:
    """True if a restriction of stubs is about a module, by its digest, and not about a domain."""
    return len(subject) == _DIGEST_CHARS and "." not in subject


class Restriction(msgspec.Struct, frozen=True, kw_only=True):
    """One restriction. Times are seconds since the Unix epoch; `until` None: until it is lifted.

    `aliases` are further names of a blocked domain that were known when it was blocked: they are blocked with it.
    `effect` is that of a gate for a time, which may permit as well.
    """

    what: Restricted
    subject: str
    reason: str
    by: str
    since: float
    until: float | None = None
    aliases: tuple[str, ...] = ()
    effect: str = ""

    def covers(self, domain: str) -> bool:
        """True for a domain that it is about: by its name, by a pattern that fits it, or as an alias."""
        subject = self.subject
        is_meant = domain.endswith(subject[1:]) if subject.startswith("*.") else domain == subject
        return is_meant or domain in self.aliases


class SharedNews(NamedTuple):
    """Restrictions that came into force, and that ended, at other nodes."""

    came: list[Restriction]
    ended: list[Restriction]


class Restrictions:
    """All restrictions in force."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[tuple[Restricted, str], Restriction] = {}
        self._shared: frozenset[str] = frozenset()  # keys of rows, as they were read last
        self._removed: dict[str, None] = {}  # keys that we removed lately, and may read once more

    def __iter__(self) -> Iterator[Restriction]:
        return iter(sorted(self._known.values(), key=lambda one: (one.what, one.subject)))

    def find(self, what: Restricted, subject: str) -> Restriction | None:
        """The restriction of exactly this subject."""
        return self._known.get((what, subject))

    def of(self, what: Restricted) -> list[Restriction]:
        """All restrictions of one kind."""
        return [one for one in self if one.what is what]

    def set(self, restriction: Restriction) -> None:
        """Put a restriction in force, in place of one that its subject has."""
        subject = restriction.what, restriction.subject
        older = self._known.get(subject)
        if older is not None and _key(older) != _key(restriction):
            self._delete(_key(older))
        self._known[subject] = restriction
        self._journal.put(Table.RESTRICTIONS, _key(restriction), restriction)

    def lift(self, what: Restricted, subject: str) -> Restriction | None:
        """End a restriction; returns it, None if there was none."""
        found = self._known.pop((what, subject), None)
        if found is not None:
            self._delete(_key(found))
        return found

    def ended(self, now: float) -> list[Restriction]:
        """Those whose time is over, each for `lift`."""
        return [one for one in self if one.until is not None and one.until <= now]

    def restore(self, rows: Rows, *, now: float) -> None:
        """Take in what was stored; what has ended meanwhile is deleted.

        Raises:
            HostError: STORAGE.
        """
        for key, row in rows.items():
            one = decode_row(row, Restriction, table=Table.RESTRICTIONS, key=key)
            if key != _key(one):  # COMPAT: version 0.1 had another key
                self._journal.delete(Table.RESTRICTIONS, key)
                self._journal.put(Table.RESTRICTIONS, _key(one), one)
            if self._is_newer(one):
                self._known[one.what, one.subject] = one
        self._shared = frozenset(rows)
        for one in self.ended(now):
            self.lift(one.what, one.subject)

    def shared(self, rows: Rows, *, now: float) -> SharedNews:
        """Take over what all nodes have stored by now; what we have not stored yet stays.

        Raises:
            HostError: STORAGE.
        """
        gone = self._shared - rows.keys()
        self._shared = frozenset(rows)
        ended = {subject: one for subject, one in self._known.items() if _key(one) in gone}
        for subject in ended:
            del self._known[subject]
        came = []
        for key in sorted(rows.keys() - self._removed.keys()):
            one = decode_row(rows[key], Restriction, table=Table.RESTRICTIONS, key=key)
            if self._is_newer(one) and (one.until is None or one.until > now):
                self._known[one.what, one.subject] = one
                came.append(one)
        return SharedNews(came, [one for subject, one in ended.items() if subject not in self._known])

    def _is_newer(self, one: Restriction) -> bool:
        known = self._known.get((one.what, one.subject))
        return known is None or (one.since, one.by) > (known.since, known.by)

    def _delete(self, key: str) -> None:
        self._journal.delete(Table.RESTRICTIONS, key)
        self._removed[key] = None
        if len(self._removed) > _REMOVED_KEPT:
            del self._removed[next(iter(self._removed))]


def _key(restriction: Restriction) -> str:
    return f"{restriction.what} {restriction.subject} {restriction.since!r}"
