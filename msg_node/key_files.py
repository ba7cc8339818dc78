"""The online private keys of a node, from folders of `trapezoid keys`: `live-….pem`, `node-….pem`, `token-….pem`.

`root` and `pkg` keys sign rarely and belong on a machine that is not connected; a node never looks for them.

Source: trust and hosts, sections 2.7 and 3.4.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Literal

from protofly.documents import SigningKey, domain_of_pem
from protofly.errors import SettingsError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def load_online_keys(folder: Path, role: Literal["live", "node", "token"], *, domain: str = "") -> list[SigningKey]:
    """The keys of one role, the one made last first. The stem of a file is the key's id.

    Args:
        folder: Folder of `trapezoid keys`.
        role: Whose keys.
        domain: Refuse keys whose files say that they are another domain's; "" takes any.

    Raises:
        SettingsError: There is none, one is no private key or of another domain, or others may read it or write into
            the folder.
    """
    check_key_folder(folder)
    try:
        paths = sorted(
            folder.glob(f"{role}-*.pem"), key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True
        )
    except OSError as exc:
        raise SettingsError(f"{folder}: {exc.strerror}") from exc
    if not paths:
        command = "token" if role == "token" else "init"
        raise SettingsError(f"{folder}: no {role} key here; make keys with `trapezoid keys {command}`")
    return [_load(path, domain) for path in paths]


def check_key_folder(folder: Path) -> None:
    """Refuse a folder into which others may put a key of theirs. Raises SettingsError."""
    try:
        mode = stat.S_IMODE(folder.stat().st_mode)
    except FileNotFoundError:
        return  # there are no keys in it: the caller says so
    except OSError as exc:
        raise SettingsError(f"{folder}: {exc.strerror}") from exc
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SettingsError(
            f"{folder}: others may write into this folder of keys (mode {mode:04o}); run: chmod 700 {folder}"
        )


def _load(path: Path, domain: str) -> SigningKey:
    try:
        pem = read_private(path)
        owner = domain_of_pem(pem)
        if domain and owner and owner != domain:
            raise SettingsError(f"{path} is a key of {owner}, and this node speaks for {domain}")
        return SigningKey.from_pem(path.stem, pem)
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
