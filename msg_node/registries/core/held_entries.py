"""Which registry entries each session holds, and the room that they take.

Each session has bounds of its own. What no session holds any more (0) has one for all together: who registers, leaves
and comes again under another name fills no more than that, and those that were left first go first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice

from protofly.errors import Code, PeerError
from protofly.limits import (
    REGISTRY_ABSENT_CHARS,
    REGISTRY_ABSENT_ENTRIES,
    REGISTRY_CHARS_PER_SESSION,
    REGISTRY_SWEPT_AT_ONCE,
)

_NOBODY = 0
_NOTHING: Mapping[str, None] = {}


class HeldEntries:
    """Keys and characters by holder.

    Args:
        per_session: Entries that one session may have.
    """

    def __init__(self, per_session: int) -> None:
        self._per_session = per_session
        self._keys: dict[int, dict[str, None]] = {}
        self._chars: Counter[int] = Counter()

    def of(self, sid: int) -> Mapping[str, None]:
        """Keys of a holder, oldest first."""
        return self._keys.get(sid, _NOTHING)

    def check_number(self, sid: int, key: str) -> None:
        """Refuse when a session would have too many entries. Raises PeerError: QUOTA."""
        keys = self.of(sid)
        if key not in keys and len(keys) >= self._per_session:
            raise PeerError(Code.QUOTA, f"a session may register {self._per_session} entries")

    def check_chars(self, sid: int, growth: int) -> None:
        """Refuse when the entries of a session would be too large. Raises PeerError: QUOTA."""
        if growth > 0 and self._chars[sid] + growth > REGISTRY_CHARS_PER_SESSION:
            raise PeerError(Code.QUOTA, f"entries of a session may have {REGISTRY_CHARS_PER_SESSION} characters")

    def add(self, sid: int, key: str, chars: int) -> None:
        """A session holds an entry."""
        self._keys.setdefault(sid, {})[key] = None
        self._chars[sid] += chars

    def grow(self, sid: int, growth: int) -> None:
        """An entry of a session has so many characters more."""
        self._chars[sid] += growth

    def discard(self, sid: int, key: str, chars: int) -> None:
        """A session holds an entry no more."""
        keys = self._keys[sid]
        del keys[key]
        self._chars[sid] -= chars
        if not keys:
            del self._keys[sid], self._chars[sid]

    def too_many(self) -> list[str]:
        """Some of those that no session holds, while there are too many: ask again when they are gone."""
        keys = self.of(_NOBODY)
        surplus = len(keys) - REGISTRY_ABSENT_ENTRIES
        if self._chars[_NOBODY] > REGISTRY_ABSENT_CHARS:
            surplus = max(surplus, 1)
        return list(islice(keys, max(min(surplus, REGISTRY_SWEPT_AT_ONCE), 0)))
