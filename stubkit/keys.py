"""The private keys of a domain: making them, keeping them in files, finding them again.

A key ring is a folder of PEM files named `<role>-<12 hex digits>.pem`, mode 0600; the file's stem is the key's id in
every document, and its digits come from the public key, so that an id never means two keys. The roles are those of
the root document (`root`, `live`, `pkg`), `node`, and `token` for a node that signs session tokens. A node needs only
`live`, `node` and `token`: the files of the other two belong on a machine without a network.

Source: trust and hosts, sections 3.4 and 2.7.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Literal

from protofly.documents import SigningKey, domain_of_pem
from protofly.errors import SettingsError

ROLES: Final = ("root", "live", "pkg", "node")
"""Those that every domain has."""
ALL_ROLES: Final = (*ROLES, "token", "policy")
SEED_BYTES: Final = 32
KEY_ID_DIGITS: Final = 12
SECRET_FILE_MODE: Final = 0o600
SECRET_FOLDER_MODE: Final = 0o700


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRing:
    """The private keys at hand, by role; a role whose keys are elsewhere is empty."""

    root: tuple[SigningKey, ...] = ()
    live: tuple[SigningKey, ...] = ()
    pkg: tuple[SigningKey, ...] = ()
    node: tuple[SigningKey, ...] = ()
    token: tuple[SigningKey, ...] = ()
    policy: tuple[SigningKey, ...] = ()

    def all_keys(self) -> list[SigningKey]:
        """Every key, in the order of the roles."""
        return [key for role in fields(self) for key in getattr(self, role.name)]


def make_key(
    role: str, *, alg: Literal["ed25519", "p256"] = "ed25519", entropy: Callable[[int], bytes] = secrets.token_bytes
) -> SigningKey:
    """A new private key with an id of its own."""
    key = SigningKey.from_seed(role, entropy(SEED_BYTES), alg=alg)
    digits = hashlib.sha256(key.record().pub.encode()).hexdigest()[:KEY_ID_DIGITS]
    return SigningKey(f"{role}-{digits}", key.private)


def make_keys(
    *, alg: Literal["ed25519", "p256"] = "ed25519", entropy: Callable[[int], bytes] = secrets.token_bytes
) -> KeyRing:
    """A new domain's keys: one for each role.

    Args:
        alg: Algorithm of all of them; P-256 for those who keep keys in hardware.
        entropy: Gives that many random bytes; tests give something else.
    """
    return KeyRing(**{role: (make_key(role, alg=alg, entropy=entropy),) for role in ROLES})


def save_keys(keys: KeyRing, folder: Path, *, domain: str = "") -> list[Path]:
    """Write every key into a file of its own; nothing that exists is ever overwritten.

    A folder that this makes is closed to others, and git ignores what is in it. `domain` is whose keys they are: the
    files say so, and `load_keys` refuses them for another one.

    Returns:
        The files, in the order of the roles.

    Raises:
        SettingsError: a file exists, or the folder cannot be written to.
    """
    written: list[Path] = []
    try:
        if not folder.exists():
            folder.mkdir(mode=SECRET_FOLDER_MODE, parents=True)
            (folder / ".gitignore").write_text("*\n", encoding="ascii")
        for key in keys.all_keys():
            path = folder / f"{key.key_id}.pem"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, SECRET_FILE_MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(key.to_pem(domain))
                file.flush()
                os.fsync(file.fileno())
            written.append(path)
    except OSError as exc:
        raise SettingsError(f"{exc.filename or folder}: key not written: {exc.strerror}") from exc
    return written


def load_keys(folder: Path, *, domain: str = "") -> KeyRing:
    """Every key in the folder; with `domain`, only of that one. Files of older versions do not say whose they are.

    Raises:
        SettingsError: no such folder, no key in it, a file that is not a key, or one that others may read; a folder
            that others may write into; a key of another domain.
    """
    _check_folder(folder)
    rings: dict[str, list[SigningKey]] = {role: [] for role in ALL_ROLES}
    for path in sorted(folder.glob("*.pem")):
        role = path.stem.partition("-")[0]
        if role not in rings:
            raise SettingsError(f"{path}: the name of a key file begins with {', '.join(ALL_ROLES)} and a hyphen")
        rings[role].append(_load_key(path, domain))
    if not any(rings.values()):
        raise SettingsError(f"{folder}: no keys here; make them with `trapezoid keys init`")
    return KeyRing(**{role: tuple(keys) for role, keys in rings.items()})


def domain_of_keys(folder: Path) -> str:
    """Read from the key files of a folder which domain they belong to; "" if none names one.

    Raises:
        SettingsError: A file cannot be read, or the files name several domains.
    """
    try:
        domains = {domain_of_pem(path.read_bytes()) for path in folder.glob("*.pem")} - {""}
    except OSError as exc:
        raise SettingsError(f"{exc.filename or folder}: {exc.strerror}") from exc
    if len(domains) > 1:
        raise SettingsError(
            f"{folder} holds keys of several domains ({', '.join(sorted(domains))}): keep those of each in a folder "
            "of its own"
        )
    return domains.pop() if domains else ""


def _check_folder(folder: Path) -> None:
    """Refuse a folder into which others may put a key of theirs beside ours, or in the place of one."""
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError:
        return  # there are no keys in it: the caller says so
    except OSError as exc:
        raise SettingsError(f"{folder}: {exc.strerror}") from exc
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SettingsError(f"{folder}: others may write into this folder of keys; run: chmod 700 {folder}")


def _load_key(path: Path, domain: str) -> SigningKey:
    try:
        if path.stat().st_mode & 0o077:
            raise SettingsError(f"{path}: others may read this key; run: chmod 600 {path}")
        pem = path.read_bytes()
        owner = domain_of_pem(pem)
        if domain and owner and owner != domain:
            raise SettingsError(f"{path} is a key of {owner}, not of {domain}; name the folder of {domain}'s keys")
        return SigningKey.from_pem(path.stem, pem)
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    except ValueError as exc:
        raise SettingsError(f"{path}: {exc}") from exc
