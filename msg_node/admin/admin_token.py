"""The token of the admin site: a file that only the user of the node may read, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
from pathlib import Path
from typing import Final

from msg_node.storage.file_checks import FileError, read_private
from protofly.errors import SettingsError

logger = logging.getLogger("msg_node")

TOKEN_CHARS: Final = 24
"""So many at least, of letters and digits: nobody guesses one of them."""
_RANDOM_BYTES: Final = 32
_UNREAD: Final = (-1, -1, -1)
_MISSING: Final = (0, 0, 0)


class AdminToken:
    """The token in a file. What is written there later counts at once; a file that cannot be used opens nothing.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp = _UNREAD
        self._digest = b""

    def prepare(self) -> None:
        """Make the file if there is none, and read it.

        Raises:
            SettingsError: It cannot be made or read, others may read it, or the token is short.
        """
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            pass
        except OSError as exc:
            raise SettingsError(f"{self.path}: {exc.strerror}") from exc
        else:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(f"{secrets.token_urlsafe(_RANDOM_BYTES)}\n")
        read_token(self.path)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the token of now; b"" while the file cannot be used."""
        stamp = _stamp(self.path)
        if stamp != self._stamp:
            self._stamp, self._digest = stamp, self._read()
        return self._digest

    def is_right(self, given: str) -> bool:
        """True if somebody gives the token; takes as long for every other text."""
        digest = self.digest
        return hmac.compare_digest(_digest(given), digest) and bool(digest)

    def _read(self) -> bytes:
        try:
            return _digest(read_token(self.path))
        except SettingsError as exc:
            logger.error("the admin site is closed: %s", exc.detail)
            return b""


def read_token(path: Path) -> str:
    """Read a token. Raises SettingsError: no file, one that others may read, or a short token."""
    token = read_private(path).decode("utf-8", "replace").strip()
    if len(token) < TOKEN_CHARS:
        action = "remove the file, and start the node: it makes another one"
        raise FileError("token-short", path, f"holds a token of less than {TOKEN_CHARS} characters", action)
    return token


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return _MISSING
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino
