"""Encryption of the state file at rest, under keys of a file that lies elsewhere.

Rows are sealed one by one, and logs a commit at a time, with AES-256-GCM. Each opening of a file draws a salt, from
which a key of its own is derived; its nonces count up from 0. So no nonce repeats under one key, however many rows a
node writes or however often it starts, and a copy of the file that is restored and goes on draws another salt. Rows are
found by a keyed hash of their key, which is in the sealed text: keys are addresses. Table and hash are authenticated,
so a sealed row is good in its own place only. See docs/adr/0038.

    sealed = version, id of the key (8 bytes), salt (16), number (8), ciphertext with tag
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from secrets import token_bytes
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from msg_node.storage.file_checks import FileError, read_private
from stubs_cache.store import write_whole

KEY_BYTES: Final = 32
MOST_KEYS: Final = 16
_VERSION: Final = b"\x01"
_ID_BYTES: Final = 8
_SALT_BYTES: Final = 16
_NUMBER_BYTES: Final = 8
_HEAD_BYTES: Final = len(_VERSION) + _ID_BYTES + _SALT_BYTES + _NUMBER_BYTES
_NONCE_BYTES: Final = 12
_REMEMBERED: Final = 64
"""Salts whose keys are remembered: each start of the node leaves one."""


class UnsealedError(Exception):
    """A text was not sealed under a key that is here, or for another place, or was changed."""


@dataclass(frozen=True, slots=True)
class StateKeys:
    """Keys of a state file. The first one seals, all of them open.

    Attributes:
        file: Where they were read.
        secrets: The keys, 32 bytes each.
    """

    file: Path
    secrets: tuple[bytes, ...]

    @property
    def ids(self) -> list[str]:
        """Names of the keys, in their order; they say nothing about the keys."""
        return [key_id(secret).hex() for secret in self.secrets]


def key_id(secret: bytes) -> bytes:
    """The name of a key."""
    return hashlib.blake2b(b"id", key=secret, digest_size=_ID_BYTES, person=b"trapezoid state").digest()


def read_state_keys(path: Path) -> StateKeys:
    """Read a key file: a key per line, base64 of 32 bytes; lines that begin with `#` are comments.

    Raises:
        FileError: `key-open`, `missing`, `unreadable` or `state-key-malformed`.
    """
    lines = [line.strip() for line in read_private(path).splitlines()]
    secrets = [_secret(path, line) for line in lines if line and not line.startswith(b"#")]
    if not 0 < len(secrets) <= MOST_KEYS or len(set(secrets)) < len(secrets):
        what = f"holds {len(secrets)} keys" if len(secrets) == len(set(secrets)) else "holds a key twice"
        raise FileError("state-key-malformed", path, what, f"1 to {MOST_KEYS} keys, the newest first")
    return StateKeys(path, tuple(secrets))


def add_state_key(path: Path) -> StateKeys:
    """Put a fresh key in front of those of a key file, which may not exist yet.

    Raises:
        FileError: The file cannot be used, or not be written.
    """
    known = read_state_keys(path).secrets if path.exists() else ()
    secrets = (token_bytes(KEY_BYTES), *known)
    if len(secrets) > MOST_KEYS:
        raise FileError("state-key-malformed", path, f"has {MOST_KEYS} keys already", "remove the last ones")
    try:
        write_whole(path, b"".join(base64.b64encode(one) + b"\n" for one in secrets))
    except OSError as exc:
        raise FileError.unreadable(path, exc) from exc
    return StateKeys(path, secrets)


def _secret(path: Path, line: bytes) -> bytes:
    try:
        secret = base64.b64decode(line, validate=True)
    except binascii.Error:
        secret = b""
    if len(secret) != KEY_BYTES:
        action = "make it by `trapezoid keys state FILE`"
        raise FileError("state-key-malformed", path, f"a line is not the base64 of {KEY_BYTES} bytes", action)
    return secret


class Sealer:
    """Seals and opens texts of one state file. For one thread at a time.

    Args:
        keys: The first one seals.
    """

    def __init__(self, keys: StateKeys) -> None:
        self._by_id = {key_id(secret): secret for secret in keys.secrets}
        secret, salt = keys.secrets[0], token_bytes(_SALT_BYTES)
        self.id = key_id(secret).hex()
        self._head = _VERSION + key_id(secret) + salt
        self._cipher = _cipher(secret, salt)
        self._numbers = count()
        self._place_key = _derived(secret, b"places", b"")
        self._ciphers = lru_cache(_REMEMBERED)(self._cipher_of)

    def place(self, table: str, key: str) -> str:
        """The name under which a row is kept: the same for the same key, and nobody else knows which."""
        text = f"{table}\0{key}".encode()
        return hashlib.blake2b(text, key=self._place_key, digest_size=32).hexdigest()

    def seal(self, text: bytes, place: str) -> bytes:
        """Seal a text for one place."""
        number = next(self._numbers).to_bytes(_NUMBER_BYTES, "big")
        return self._head + number + self._cipher.encrypt(_nonce(number), text, place.encode())

    def open(self, sealed: bytes, place: str) -> bytes:
        """Open what was sealed for a place. Raises UnsealedError."""
        if len(sealed) < _HEAD_BYTES or sealed[:1] != _VERSION:
            raise UnsealedError("it is not sealed")
        head = sealed[1 : _HEAD_BYTES - _NUMBER_BYTES]
        number = sealed[_HEAD_BYTES - _NUMBER_BYTES : _HEAD_BYTES]
        try:
            cipher = self._ciphers(head[:_ID_BYTES], head[_ID_BYTES:])
            return cipher.decrypt(_nonce(number), sealed[_HEAD_BYTES:], place.encode())
        except KeyError:
            raise UnsealedError(f"its key {head[:_ID_BYTES].hex()} is not here") from None
        except InvalidTag:
            raise UnsealedError("it was changed, or belongs elsewhere") from None

    def _cipher_of(self, key: bytes, salt: bytes) -> AESGCM:
        return _cipher(self._by_id[key], salt)


def _derived(secret: bytes, purpose: bytes, salt: bytes) -> bytes:
    return hashlib.blake2b(purpose, key=secret, salt=salt, digest_size=KEY_BYTES, person=b"trapezoid state").digest()


def _cipher(secret: bytes, salt: bytes) -> AESGCM:
    return AESGCM(_derived(secret, b"rows", salt))


def _nonce(number: bytes) -> bytes:
    return number.rjust(_NONCE_BYTES, b"\0")
