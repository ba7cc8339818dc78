"""Certificates, keys and authorities from the files of the settings; every error names setting and file."""

from __future__ import annotations

import ssl
from pathlib import Path

from protofly.errors import SettingsError

Stamp = tuple[int, int, int]


def believe(context: ssl.SSLContext, file: Path, setting: str) -> None:
    """Have a context believe the authorities in a PEM file. Raises SettingsError."""
    _check_readable(file, setting)
    try:
        context.load_verify_locations(file)
    except ssl.SSLError as exc:
        raise SettingsError(f"{setting}: {file}: holds no certificate in PEM form") from exc


def show(context: ssl.SSLContext, certificate: Path, key: Path | None, table: str) -> None:
    """Have a context show a certificate; `key` is None where it stands in the same file. Raises SettingsError."""
    _check_readable(certificate, f"{table}.certificate")
    if key is not None:
        _check_readable(key, f"{table}.key")
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as exc:
        reason = getattr(exc, "reason", "") or "a key that has a password cannot be used"
        files = f"{certificate} and {key}" if key is not None else str(certificate)
        raise SettingsError(f"{table}.certificate, {table}.key: {files} do not fit together: {reason}") from exc


def stamp_of(file: Path) -> Stamp | None:
    """Return what changes when a file is replaced or written; None for one that is not there."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _check_readable(file: Path, setting: str) -> None:
    try:
        with file.open("rb"):
            pass
    except OSError as exc:
        raise SettingsError(f"{setting}: {file}: {exc.strerror}") from exc


def _no_password() -> bytes:
    """A key with a password would make OpenSSL ask the terminal."""
    return b""
