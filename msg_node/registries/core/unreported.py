"""Entries that were disconnected here and that another registry, which keeps them alive, does not know of yet."""

from __future__ import annotations

from itertools import islice


class UnreportedDisconnects:
    """Keys of such entries, oldest first; empty for ever unless `is_kept`.

    Attributes:
        is_kept: True where another registry is to be notified.
    """

    def __init__(self) -> None:
        self.is_kept = False
        self._keys: dict[str, None] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, key: str) -> None:
        """The end of a session has disconnected an entry."""
        if self.is_kept:
            self._keys[key] = None

    def discard(self, key: str) -> None:
        """The other registry knows, or need not know any more; no effect on an unknown key."""
        self._keys.pop(key, None)

    def oldest(self, limit: int) -> list[str]:
        """At most `limit` keys."""
        return list(islice(self._keys, limit))
