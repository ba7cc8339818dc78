"""Reads the messages that `records.quarantine` keeps, and removes them. Everything here blocks.

A name is `<folder>/<file>` below the quarantine. Names that requests give are looked up among those that there are, and
never become paths. A file that was cut off by a crash is shown with what is known of it: its name, size and folder.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from msg_node.records.quarantine import COPIES
from protofly.errors import Code, HostError, PeerError
from protofly.limits import QUARANTINE_BYTES

FOLDER: Final = "quarantine"
_BOUND: Final = r"(?![A-Za-z0-9._~%@-])"
"""Behind an address in a text: what would make another address of it does not follow."""


class Kept(msgspec.Struct, frozen=True):
    """One message that is kept.

    Attributes:
        name: Its name.
        path: Its file.
        entry: What the file has; empty if it cannot be read.
        size: Of the file, in bytes.
    """

    name: str
    path: Path
    entry: dict[str, Any]
    size: int

    @property
    def is_copy(self) -> bool:
        """True for a copy that a rule wanted; else it killed a stub."""
        return self.name.startswith(f"{COPIES}/")

    @property
    def message(self) -> dict[str, Any]:
        """The whole message; empty if only its header is kept."""
        found = self.entry.get("message")
        return found if isinstance(found, dict) else {}

    def header(self, name: str) -> str:
        """A text of its header, "" if there is none."""
        value = self.entry.get(name, self.message.get(name))
        return value if isinstance(value, str) else ""


def kept_messages(data_dir: Path) -> Iterator[Kept]:
    """All of them, folder by folder, the oldest first. Files that vanish meanwhile are left out."""
    root = data_dir / FOLDER
    for path in sorted([*root.glob("*/*.json"), *root.glob(f"{COPIES}/*/*.json")]):
        with contextlib.suppress(FileNotFoundError):
            size = path.stat().st_size
            raw = path.read_bytes() if size <= QUARANTINE_BYTES else b""
            yield Kept(path.relative_to(root).as_posix(), path, _entry(raw), size)


def find_kept(data_dir: Path, name: str) -> Kept:
    """The one of a name. Raises PeerError NOT_REGISTERED."""
    for one in kept_messages(data_dir):
        if one.name == name:
            return one
    raise PeerError(Code.NOT_REGISTERED, "nothing is kept under this name; `quarantine` lists what is")


def find_all(data_dir: Path, name: str) -> list[Kept]:
    """The one of a name, or with `/*` at its end all of a folder. Raises PeerError NOT_REGISTERED."""
    if not name.endswith("/*"):
        return [find_kept(data_dir, name)]
    found = [one for one in kept_messages(data_dir) if one.name.rpartition("/")[0] == name[:-2]]
    if not found:
        raise PeerError(Code.NOT_REGISTERED, "nothing is kept in this folder; `quarantine` lists what is")
    return found


def about(data_dir: Path, names: frozenset[str]) -> list[Kept]:
    """Those in which one of some names stands, in the header or in the body; files that cannot be read as well.

    Args:
        data_dir: Of the node.
        names: Canonical keys of addresses, or accounts; what is below an address counts as well.
    """
    if not names:
        return []
    either = "|".join(re.escape(name) for name in sorted(names))
    pattern = re.compile(f"(?<![A-Za-z0-9._~%@-])(?:{either}){_BOUND}", re.IGNORECASE)
    return [one for one in kept_messages(data_dir) if not one.entry or pattern.search(_text(one.entry))]


def remove_kept(kept: list[Kept]) -> None:
    """Remove files; one that is gone is no error. Raises HostError STORAGE."""
    try:
        for one in kept:
            one.path.unlink(missing_ok=True)
    except OSError as exc:
        raise HostError(Code.STORAGE, f"{exc.filename}: {exc.strerror}") from exc


def _entry(raw: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _text(entry: dict[str, Any]) -> str:
    """All of an entry as one text without escapes, in which addresses stand as they are."""
    return msgspec.json.encode(entry).decode()
