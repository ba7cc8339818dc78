"""The files of a site folder, replaced whole or not at all."""

from __future__ import annotations

from pathlib import Path

from protofly.errors import SettingsError
from stubkit.files import replace_file


def replace_published(path: Path, content: bytes) -> None:
    """Replace a file atomically; do not touch one that has the content already. Raises SettingsError."""
    try:
        if path.exists() and path.read_bytes() == content:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    replace_file(path, content)
