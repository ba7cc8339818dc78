"""The condition that senders wait for when a receiver does not keep up. Source: message specification, section 20.9."""

from __future__ import annotations

from typing import Protocol


class Congestible(Protocol):
    """Something that a sender may have to wait for."""

    is_slow: bool

    @property
    def patience_seconds(self) -> float:
        """Seconds that a sender pauses for it."""

    @property
    def is_congested(self) -> bool:
        """True if senders should pause."""

    async def wait_relief(self) -> None:
        """Wait until it takes more."""
