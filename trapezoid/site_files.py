"""The files of a site folder: read whole, and replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from protofly.errors import SettingsError


def read_file(path: Path) -> bytes:
    """The bytes of a file. Raises SettingsError."""
    try:
        return path.read_bytes()
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc


def replace_published(path: Path, content: bytes) -> None:
    """Replace a file atomically; do not touch one that has the content already. Raises SettingsError."""
    try:
        if path.exists() and path.read_bytes() == content:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
