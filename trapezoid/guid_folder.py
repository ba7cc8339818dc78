"""A folder with the files of a GUID: the private key, the salt, and the newest record.

    key.pem     private key (PKCS #8), mode 0600; a lost key is a lost GUID
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
    """A GUID and its private key."""

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
        """File of the newest record."""
        return self.folder / "record.jwt"

    def record(self) -> GuidRecord | None:
        """The newest record; None before the first.

        Raises:
            SettingsError: The file is not a valid record of this GUID.
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
        """Sign a record and store it. It is on disk when this returns.

        Raises:
            SettingsError: The file cannot be written.
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
    """Create a key and, unless given, a random salt. Never overwrites files.

    Raises:
        SettingsError: A key exists already, or the folder cannot be written.
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
    """Load the GUID of a folder.

    Raises:
        SettingsError: The folder is missing, or its key is readable by others or invalid.
    """
    key_file = folder / "key.pem"
    try:
        if key_file.stat().st_mode & 0o077:
            raise SettingsError(f"{key_file}: this key is readable by others; run: chmod 600 {key_file}")
        key = load_private_key(key_file.read_bytes())
        salt = (folder / "salt").read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as exc:
        raise SettingsError(f"{exc.filename}: {exc.strerror}; create one with `trapezoid guid new`") from exc
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
