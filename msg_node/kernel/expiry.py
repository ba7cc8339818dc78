"""When documents and certificates expire, and what follows from it.

One judgement for all that show it: `check`, `/readyz`, `/status`, the log, `keys expiry`, and `publish --renew`. A term
is `due` when it should be renewed, `expiring` when nobody has renewed it and somebody should look, and then `expired`.
A life that is shorter than four of these periods has shorter ones, so that a certificate of six days is not always
`expiring`: it is due in the second half of its life, and `expiring` in the last quarter.

Source: trust and hosts, sections 3.4 and 3.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from protofly import limits

_DAY_SECONDS = 86_400.0
_HOUR_SECONDS = 3_600.0


class TermKind(Enum):
    """Kinds of things that expire. The value is the first word of its codes."""

    ROOT = "root"
    MANIFEST = "manifest"
    LIVE = "live"
    CERTIFICATE = "certificate"


class ExpiryState(Enum):
    """States of a term. The value ends its codes."""

    VALID = "valid"
    DUE = "due"
    EXPIRING = "expiring"
    EXPIRED = "expired"
    EARLY = "not-yet-valid"


_FAILING = frozenset({ExpiryState.EXPIRED, ExpiryState.EARLY})
_ACTIONS = {
    TermKind.ROOT: "run `trapezoid publish --renew` where the root key is",
    TermKind.MANIFEST: "run `trapezoid publish --renew` where the pkg key is",
    TermKind.LIVE: "the log says why the node cannot sign a new one",
    TermKind.CERTIFICATE: "put a new certificate into its place and restart the node",
}


@dataclass(frozen=True, slots=True)
class Term:
    """From when to when something is valid, Unix seconds. `name` distinguishes it from others of its kind.

    `file` is for people on the node's own machine; an `Expiry` leaves it out of its sentences: strangers read them.
    """

    kind: TermKind
    name: str
    begins_at: float
    ends_at: float
    file: str = ""

    @property
    def title(self) -> str:
        """Its name for operators: `manifest trapezoid-link`."""
        return f"{self.kind.value} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class Expiry:
    """A term, judged at one moment."""

    term: Term
    state: ExpiryState
    left_seconds: float

    @property
    def code(self) -> str:
        """Stable word, such as `manifest-expired`."""
        return f"{self.term.kind.value}-{self.state.value}"

    @property
    def days_left(self) -> int:
        """Whole days until the end; negative once it is over."""
        return int(self.left_seconds // _DAY_SECONDS)

    @property
    def is_failing(self) -> bool:
        """True if others refuse it now."""
        return self.state in _FAILING

    @property
    def is_warning(self) -> bool:
        """True if somebody should look before it fails."""
        return self.state is ExpiryState.EXPIRING

    @property
    def is_due(self) -> bool:
        """True if it should be renewed: due, or later than that."""
        return self.state in {ExpiryState.DUE, ExpiryState.EXPIRING, ExpiryState.EXPIRED}

    @property
    def action(self) -> str:
        """Advice for operators, "" if nothing is to be done."""
        return "" if self.state is ExpiryState.VALID else _ACTIONS[self.term.kind]

    @property
    def text(self) -> str:
        """One sentence: what ends when."""
        title = self.term.title
        if self.state is ExpiryState.EARLY:
            return f"{title} is not valid before {_date(self.term.begins_at)}; is our clock right?"
        if self.state is ExpiryState.EXPIRED:
            return f"{title} expired on {_date(self.term.ends_at)}, {_length(-self.left_seconds)} ago"
        return f"{title} expires in {_length(self.left_seconds)}, on {_date(self.term.ends_at)}"

    @property
    def advice(self) -> str:
        """`text`, and what to do."""
        return f"{self.text}; {self.action}" if self.action else self.text


def judge(term: Term, now: float) -> Expiry:
    """Return the state of a term at `now`, Unix seconds. At its last second it has expired."""
    left = term.ends_at - now
    life = max(0.0, term.ends_at - term.begins_at)
    if left <= 0:
        state = ExpiryState.EXPIRED
    elif now < term.begins_at - limits.CLOCK_SKEW_SECONDS:
        state = ExpiryState.EARLY
    elif left <= min(limits.EXPIRY_WARNING_SECONDS, life * limits.EXPIRY_WARNING_SHARE):
        state = ExpiryState.EXPIRING
    elif left <= min(limits.EXPIRY_RENEW_SECONDS, life / 2):
        state = ExpiryState.DUE
    else:
        state = ExpiryState.VALID
    return Expiry(term, state, left)


def judge_all(terms: Iterable[Term], now: float) -> list[Expiry]:
    """All of them, what ends first first."""
    return sorted((judge(term, now) for term in terms), key=lambda one: (one.left_seconds, one.term.title))


def news(before: Sequence[Expiry], after: Sequence[Expiry], *, is_reminder: bool) -> list[Expiry]:
    """Return the terms to log: those whose state changed, and with `is_reminder` all that warn or fail.

    A term that was not there before counts as valid before: a good start is no news.
    """
    known = {one.term.title: one.state for one in before}
    return [
        one
        for one in after
        if known.get(one.term.title, ExpiryState.VALID) is not one.state
        or (is_reminder and (one.is_failing or one.is_warning))
    ]


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"


def _length(seconds: float) -> str:
    """A time left, in the unit that people plan with."""
    if seconds >= 2 * _DAY_SECONDS:
        return f"{int(seconds // _DAY_SECONDS)} days"
    hours = int(seconds // _HOUR_SECONDS)
    return f"{hours} hours" if hours != 1 else "1 hour"
