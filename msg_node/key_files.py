"""The online private keys of a node, from folders of `trapezoid keys`: `live-….pem`, `node-….pem`, `token-….pem`.

`root` and `pkg` keys sign rarely and belong on a machine that is not connected; a node never looks for them.

Source: trust and hosts, sections 2.7 and 3.4.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Literal

from protofly.documents import SigningKey
from protofly.errors import SettingsError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def load_online_keys(folder: Path, role: Literal["live", "node", "token"]) -> list[SigningKey]:
    """The keys of one role, the one made last first. The stem of a file is the key's id.

    Raises:
        SettingsError: There is none, one is no private key, or others may read it.
    """
    try:
        paths = sorted(
            folder.glob(f"{role}-*.pem"), key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True
        )
    except OSError as exc:
        raise SettingsError(f"{folder}: {exc.strerror}") from exc
    if not paths:
        command = "token" if role == "token" else "init"
        raise SettingsError(f"{folder}: no {role} key here; make keys with `trapezoid keys {command}`")
    return [_load(path) for path in paths]


def _load(path: Path) -> SigningKey:
    try:
        return SigningKey.from_pem(path.stem, read_private(path))
    except ValueError as exc:
        raise SettingsError(f"{path}: {exc}") from exc


def read_private(path: Path) -> bytes:
    """The content of a file that only its owner may touch. Raises SettingsError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if mode & _OTHERS:
                raise SettingsError(f"{path} is open to others (mode {mode:04o}); run: chmod 600 {path}")
            return file.read()
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
