"""The folder in which a person keeps a GUID: the private key, the salt, and the record that was signed last.

    key.pem     private key (PKCS #8), mode 0600; losing it is losing the GUID
    salt        text, mode 0600; the GUID follows from key and salt
    record.jwt  the newest signed record

Source: data formats, section 4.4.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_bytes, token_hex

from cryptography.hazmat.primitives.asymmetric import ec

from protofly.errors import SettingsError
from protofly.guid import Encoding, derive_guid, load_private_key, private_key_pem, public_key_text
from protofly.guid_record import Draft, GuidRecord, RecordError, make_record, read_record

SECRET_MODE = 0o600
FOLDER_MODE = 0o700
SALT_BYTES = 10
"""As the original tool: 80 random bits, in base 32."""


@dataclass(frozen=True, slots=True)
class GuidFolder:
    """A GUID whose key we have."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    salt: str
    encoding: Encoding = "raw"

    @property
    def guid(self) -> str:
        """The GUID."""
        return derive_guid(public_key_text(self.key.public_key()), self.salt)

    @property
    def record_file(self) -> Path:
        """Where the record is that was signed last."""
        return self.folder / "record.jwt"

    def record(self) -> GuidRecord | None:
        """The record that was signed last, None before the first.

        Raises:
            SettingsError: The file is no record of this GUID.
        """
        if not self.record_file.exists():
            return None
        try:
            return read_record(self.record_file.read_text(encoding="ascii"), guid=self.guid)
        except (OSError, UnicodeDecodeError) as exc:
            raise SettingsError(f"{self.record_file}: {exc}") from exc
        except RecordError as exc:
            raise SettingsError(f"{self.record_file}: {exc.detail}") from exc

    def sign(self, draft: Draft) -> str:
        """Sign a record and keep it; it is on disk before this returns.

        Raises:
            SettingsError: It cannot be written.
        """
        jwt = make_record(draft, self.key, encoding=self.encoding)
        part = self.record_file.with_name(f"record-{token_hex(4)}.tmp")
        try:
            _write(part, jwt.encode("ascii") + b"\n", 0o644)
            part.replace(self.record_file)
        except OSError as exc:
            part.unlink(missing_ok=True)
            raise SettingsError(f"{self.record_file}: {exc.strerror}") from exc
        return jwt


def make_folder(folder: Path, *, salt: str = "") -> GuidFolder:
    """Make a key and, unless one is given, a salt. Nothing that exists is overwritten.

    Raises:
        SettingsError: There is a key already, or the folder cannot be written to.
    """
    key = ec.generate_private_key(ec.SECP256K1())
    salt = salt or base64.b32encode(token_bytes(SALT_BYTES)).decode().lower()
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        _write(folder / "key.pem", private_key_pem(key), SECRET_MODE)
        _write(folder / "salt", salt.encode() + b"\n", SECRET_MODE)
    except OSError as exc:
        raise SettingsError(f"{exc.filename or folder}: {exc.strerror}; nothing was overwritten") from exc
    return GuidFolder(folder, key, salt)


def load_folder(folder: Path, *, encoding: Encoding = "raw") -> GuidFolder:
    """The GUID of a folder.

    Raises:
        SettingsError: No such folder, a key that others may read, or something that is no key.
    """
    key_file = folder / "key.pem"
    try:
        if key_file.stat().st_mode & 0o077:
            raise SettingsError(f"{key_file}: others may read this key; say: chmod 600 {key_file}")
        key = load_private_key(key_file.read_bytes())
        salt = (folder / "salt").read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as exc:
        raise SettingsError(f"{exc.filename}: {exc.strerror}; make one with `trapezoid guid new`") from exc
    except ValueError as exc:
        raise SettingsError(f"{key_file}: {exc}") from exc
    return GuidFolder(folder, key, salt, encoding)


def moment(seconds: float) -> str:
    """A point in time as records write it: RFC 3339, whole seconds, numeric zone."""
    return datetime.fromtimestamp(int(seconds), UTC).isoformat()


def _write(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
