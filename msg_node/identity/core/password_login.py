"""Log-ins of local users with a password: the question, and how often somebody may try. Pure.

Each attempt counts for the user and for the runtime that tries, from the moment it is admitted, so that attempts
side by side win nothing. After five that failed, the next one has to wait, twice as long each time, five minutes at
most. A right password forgets the count of its user, and takes back its own of the runtime: who has one account cannot
so try others. Names that nobody has are counted and checked like others.
Source: feature row SC-14.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from msg_node.kernel.service import ConnectorName
from protofly.address import domain_of, parse
from protofly.errors import PeerError

FREE_ATTEMPTS: Final = 5
LONGEST_WAIT_SECONDS: Final = 300.0
FORGOTTEN_SECONDS: Final = 3600.0
COUNTED: Final = 10_000
PASSWORD_BYTES: Final = 1024
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")


class PasswordQuestion(msgspec.Struct, frozen=True):
    """Is this the password of that user? `user` is "" for a name that nobody can have."""

    user: str
    password: str
    runtime: str

    def __repr__(self) -> str:
        return f"PasswordQuestion({self.user!r})"  # it may come into a log


class PasswordVerdict(msgspec.Struct, frozen=True):
    """Whether it is. `retry_seconds` above 0: it was not looked at, since there were too many attempts."""

    is_right: bool
    roles: tuple[str, ...] = ()
    retry_seconds: float = 0.0


PASSWORDS: ConnectorName[PasswordQuestion, PasswordVerdict] = ConnectorName("passwords")
"""Checks the password of a local user."""


def is_user_name(name: str) -> bool:
    """True for a name that a local user can have: lower-case letters, digits, and `.`, `_`, `-` inside."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class LocalAccounts:
    """How local users are named.

    Attributes:
        domain: Our domain, whose users they are.
        domains: With its aliases.
    """

    domain: str
    domains: frozenset[str]

    def address(self, name: str) -> str:
        """The address of a user."""
        return f"user://{self.domain}/{name}"

    def name_in(self, text: str) -> str:
        """The name in `ana`, `ana@a.example` or `user://a.example/ana`; "" when no local user can have it."""
        text = text.strip()
        if "://" in text:
            try:
                scheme, _, path = parse(text)
                is_ours = scheme == "user" and domain_of(text) in self.domains
            except PeerError:
                return ""
            name = path.strip("/") if is_ours else ""
        else:
            name, _, domain = text.partition("@")
            if domain and domain.lower() not in self.domains:
                return ""
        name = name.lower()
        return name if is_user_name(name) else ""


class _Count(NamedTuple):
    failed: int
    last: float


class Attempts:
    """Attempts that have not been right, by user and by runtime. Bounded: the ones that are oldest are forgotten."""

    def __init__(self, *, most: int = COUNTED) -> None:
        self._most = most
        self._counts: OrderedDict[str, _Count] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def admit(self, keys: Sequence[str], now: float) -> float:
        """Count an attempt for each key, and return 0.0; or return the seconds to wait, and count nothing."""
        wait = max(self._wait(key, now) for key in keys)
        if wait > 0.0:
            return wait
        for key in keys:
            count = self._counts.pop(key, _Count(0, now))
            failed = 0 if now - count.last > FORGOTTEN_SECONDS else count.failed
            self._counts[key] = _Count(failed + 1, now)
        while len(self._counts) > self._most:
            self._counts.popitem(last=False)
        return 0.0

    def succeeded(self, key: str) -> None:
        """An attempt was right: forget those before it."""
        self._counts.pop(key, None)

    def not_failed(self, key: str) -> None:
        """An attempt was right: take it back, and leave those before it."""
        count = self._counts.get(key)
        if count is not None:
            self._counts[key] = _Count(count.failed - 1, count.last)

    def _wait(self, key: str, now: float) -> float:
        count = self._counts.get(key)
        if count is None or count.failed < FREE_ATTEMPTS:
            return 0.0
        pause = min(2.0 ** (count.failed - FREE_ATTEMPTS), LONGEST_WAIT_SECONDS)
        return max(0.0, min(count.last, now) + pause - now)
