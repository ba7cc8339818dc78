"""Records that all nodes of a domain share: each is replaced by compare-and-set, and what was replaced is announced.

They need no epoch of a node: a process that was paused writes nothing over what others have changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

RECORDS_CHANNEL: Final = "trapezoid_record"
"""Where kind and key of each record are announced that was replaced."""
ANNOUNCED_BYTES: Final = 7_000
"""Longest announcement; of a longer one only the kind is announced."""


class DomainRecords(Protocol):
    """Records by kind and key. Plain calls that wait for what stores them: for threads; each raises HostError."""

    def load(self, kind: str) -> dict[str, bytes]:
        """All records of a kind by key, in its order."""

    def read(self, kind: str, key: str) -> bytes | None:
        """A record as it is now, None when there is none."""

    def find(self, kind: str, keys: Collection[str]) -> dict[str, bytes]:
        """Those records of some keys that there are, as they are now."""

    def replace(self, kind: str, key: str, old: bytes | None, new: bytes | None) -> bool:
        """Put a record in place of the one that was read; None is no record, and one of both is one.

        Returns:
            False when `old` is not what is there: then nothing was changed.
        """

    def forget_oldest(self, kind: str, most: int) -> None:
        """Keep `most` records, those with `is_revoked` first, then those with the latest `seen_at`."""


def announcement(kind: str, key: str) -> str:
    """The text that nodes announce when a record was replaced."""
    text = f"{kind} {key}"
    return text if len(text.encode()) <= ANNOUNCED_BYTES else f"{kind} "


def keys_of(kind: str, payloads: Collection[str] | None) -> list[str] | None:
    """Keys of a kind that were announced; None when any may have been replaced."""
    if payloads is None:
        return None
    keys = [key for announced, _, key in (one.partition(" ") for one in payloads) if announced == kind]
    return None if "" in keys else keys
