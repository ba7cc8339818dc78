"""How far each of a peer's message streams was seen through, so that what comes again is known.

Source: docs/abi.md (message numbers).
"""

from __future__ import annotations

STREAMS_REMEMBERED = 64
"""A peer names a new stream when it restarts; older ones come no more."""


class PeerStreams:
    """The highest number heard of each stream; the one that was heard last is the last one."""

    def __init__(self) -> None:
        self._heard: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._heard)

    def processed(self, stream: str) -> int:
        """Highest number of `stream` that was seen through to the end, 0 for an unknown one."""
        return self._heard.get(stream, 0)

    def heard(self, stream: str, number: int) -> None:
        """Everything of `stream` up to `number` was seen through; "" names no stream."""
        if not stream:
            return
        self._heard.pop(stream, None)
        self._heard[stream] = number
        if len(self._heard) > STREAMS_REMEMBERED:
            del self._heard[next(iter(self._heard))]

    def all(self) -> dict[str, int]:
        """Return the last accepted number of each known stream."""
        return dict(self._heard)

    def newest(self) -> tuple[str, int]:
        """The stream that was heard last, and how far: what a new stub instance has to know to resume it."""
        return next(reversed(self._heard.items()), ("", 0))
