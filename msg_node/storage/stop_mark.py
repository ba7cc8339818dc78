"""A node's word that it answered every request before it stopped, for its next start.

A reply to a request from before then comes after that answer: it is late. Without the word, as after a crash, nobody
knows. Source: message specification, section 3, rule 3.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

_NAME: Final = "answered-all"


class StopMark:
    """An empty file in the data directory of a node, there from its stop to its next start."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / _NAME

    def put(self) -> None:
        """Give the word. If the disk refuses, nobody knows."""
        with suppress(OSError):
            self._path.touch(mode=0o600)

    def take(self) -> bool:
        """True if the word was given; it holds once. Where it cannot be taken back, it does not count."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True
