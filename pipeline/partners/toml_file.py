"""Reads a TOML file of settings or agreements that an operator has written."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from protofly.errors import SettingsError
from protofly.toml_lines import read_toml

_Value = TypeVar("_Value")


def read_toml_file(path: Path, kind: type[_Value], max_bytes: int) -> _Value:
    """Read a file of at most `max_bytes` and convert it to `kind`.

    Raises:
        SettingsError: It cannot be read, is too large, is no TOML, or holds something else; see `read_toml`.
    """
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    if len(content) > max_bytes:
        raise SettingsError(f"{path}: larger than {max_bytes:,} bytes")
    return read_toml(content, kind, str(path))[0]
