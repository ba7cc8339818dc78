"""The folders of one partner: what it has handed in, what waits for it, and what became of both.

    in/<partner>/       what its node has handed to ours; `taken` and `refused` below have what was looked at
    out/<partner>/      what waits for it; `sent` below has what it has taken

Files that were looked at are kept because they are signed: they are evidence. The oldest go when there are too many, or
they are too large together.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.lake import durable
from pipeline.partners.settings import Exchange

KEPT_MAX: Final = 500
"""So many files are kept in each folder of old ones."""
KEPT_BYTES: Final = 1 << 30
"""So many bytes are kept there: what a partner hands in must not fill the disk, whatever becomes of it."""
_DAY_FILE: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})\.(?:(totals|details)|(return)-[0-9]{1,17})")
USAGE_FILE: Final = re.compile(r"usage-[0-9]{1,17}\.report")
_ORDER: Final = {"totals": 0, "details": 1, "return": 2}


@dataclass(frozen=True, slots=True)
class PartnerFolders:
    """The folders of one partner."""

    inbox: Path
    outbox: Path

    @classmethod
    def of(cls, exchange: Exchange, partner: str) -> PartnerFolders:
        """Those of a partner, by the settings; made when they are missing. Raises OSError."""
        found = cls(Path(exchange.inbox) / partner, Path(exchange.folder) / "out" / partner)
        for folder in (found.inbox, found.outbox):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return found

    def came(self, most: int) -> list[Path]:
        """Files that wait for us, totals before what depends on them; so many at most. Raises OSError."""
        files = (path for path in self.inbox.iterdir() if path.is_file() and not path.name.startswith("."))
        return sorted(files, key=_place)[:most]

    def waiting(self) -> list[Path]:
        """Files that wait for the partner, the oldest first. Raises OSError."""
        files = (path for path in self.outbox.iterdir() if path.is_file() and not path.name.startswith("."))
        return sorted(files, key=lambda path: path.stat().st_mtime_ns)

    def put(self, name: str, write: Callable[[Path], object]) -> None:
        """Let a file be written, then let it wait for the partner in place of an older one. Raises OSError."""
        hidden = self.outbox / f".{name}"
        hidden.unlink(missing_ok=True)
        write(hidden)
        hidden.rename(self.outbox / name)
        durable.sync_folder(self.outbox)

    def put_content(self, name: str, content: bytes) -> None:
        """Let a small file wait for the partner. Raises OSError."""
        durable.replace(self.outbox / name, content)


def keep(path: Path, fate: str) -> None:
    """Keep a file that is done with, in the folder `fate` beside it. Raises OSError."""
    folder = path.parent / fate
    folder.mkdir(mode=0o700, exist_ok=True)
    path.rename(folder / f"{path.stat().st_mtime_ns}-{path.name}")
    left_bytes = KEPT_BYTES
    for number, old in enumerate(sorted(folder.iterdir(), key=lambda one: one.name, reverse=True)):
        left_bytes -= old.stat().st_size
        if number >= KEPT_MAX or (number and left_bytes < 0):
            old.unlink(missing_ok=True)


def day_and_step(name: str) -> tuple[str, str] | None:
    """Parse the name of an exchanged file: its day, and `totals`, `details` or `return`; None for any other name."""
    found = _DAY_FILE.fullmatch(name)
    return (found[1], found[2] or found[3]) if found else None


def _place(path: Path) -> tuple[int, str]:
    found = day_and_step(path.name)
    return (_ORDER[found[1]] if found else len(_ORDER)), path.name
