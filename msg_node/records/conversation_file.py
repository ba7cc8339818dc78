"""The sealed file of one recorded conversation, and the folder of them. Blocks for the disk."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from secrets import token_bytes
from typing import Final

from protofly.conversation import SALT_BYTES, ConversationSealer
from protofly.errors import Code, HostError, PeerError

SUFFIX: Final = ".conversation"
_NO_NAME: Final = re.compile(r"[^\w.-]")


class ConversationFile:
    """A file that grows by sealed chunks. Only its owner can read it, and only with the key.

    Args:
        path: It must not exist.
        key: The operator's, 32 bytes.

    Raises:
        HostError: STORAGE.
    """

    def __init__(self, path: Path, key: bytes) -> None:
        self.path = path
        self._sealer = ConversationSealer(key, token_bytes(SALT_BYTES))
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            self._file = os.fdopen(descriptor, "wb", buffering=0)
            self._file.write(self._sealer.head)
        except OSError as exc:
            raise HostError(Code.STORAGE, f"recording {path}: {exc.strerror}") from exc

    def append(self, text: bytes, *, is_last: bool) -> None:
        """Write lines; with the last ones, the file is closed.

        Raises:
            HostError: STORAGE.
        """
        try:
            self._file.write(self._sealer.seal(text, is_last=is_last))
            if is_last:
                os.fsync(self._file.fileno())
                self._file.close()
        except OSError as exc:
            raise HostError(Code.STORAGE, f"recording {self.path}: {exc.strerror}") from exc

    def discard(self) -> None:
        """Close the file as it is."""
        self._file.close()


def recordings_in(folder: Path) -> Iterator[Path]:
    """The recordings of a folder, oldest first."""
    yield from sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else ()


def fresh_path(folder: Path, name: str, *, most: int) -> Path:
    """Choose the path of a new recording.

    Args:
        folder: Of the recordings.
        name: Letters, digits, `.`, `_` and `-`.
        most: How many recordings the folder may hold.

    Raises:
        PeerError: BAD_BODY for another name, or one that is taken; QUOTA for a full folder.
    """
    if not name or _NO_NAME.search(name) or name.startswith("."):
        raise PeerError(Code.BAD_BODY, "the name of a recording has letters, digits, `.`, `_` and `-`")
    path = folder / f"{name}{SUFFIX}"
    if path.exists():
        raise PeerError(Code.BAD_BODY, f"{path} exists; give another name")
    if sum(1 for _ in recordings_in(folder)) >= most:
        raise PeerError(Code.QUOTA, f"{folder} holds {most} recordings, as many as may be; move one away or delete it")
    return path
