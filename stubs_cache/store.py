"""Files of the cache: written whole or not at all, readable by their owner only.

A write goes to a temporary name in the same folder, is synced, and renamed. What is left of an interrupted write is
removed at the next start. Nothing here believes what it reads; `cache.py` does the checks.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from protofly.errors import Code, HostError, SettingsError
from stubs_cache.core.entry import CacheEntry, CacheKind, is_key

_TEMPORARY: Final = ".writing-"
_SECRET_BYTES: Final = 32


def load_secret(path: Path) -> bytes:
    """This node's secret for sealing, 32 bytes; made at the first call, readable by its owner only.

    Raises:
        SettingsError: The file is damaged, or others may read it.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            write_whole(path, secrets.token_bytes(_SECRET_BYTES))
        if path.stat().st_mode & 0o077:
            raise SettingsError(f"{path} may be read by others; chmod 600")
        secret = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    if len(secret) != _SECRET_BYTES:
        raise SettingsError(f"{path} does not hold {_SECRET_BYTES} bytes; remove it, and the caches fill again")
    return secret


def write_whole(path: Path, data: bytes) -> None:
    """Replace `path` by `data` atomically; on disk when this returns.

    Raises:
        OSError: As the system says; then `path` is as before.
    """
    temporary = path.with_name(_TEMPORARY + secrets.token_hex(8))
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileStore:
    """One folder per kind, one file per entry. Blocking; callers use a thread."""

    def __init__(self, folder: Path) -> None:
        """Make the folders if they are missing, and clear away interrupted writes.

        Raises:
            HostError: STORAGE.
        """
        self._folder = folder
        try:
            for kind in CacheKind:
                place = folder / kind.value
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                place.chmod(0o700)
                for leftover in place.glob(_TEMPORARY + "*"):
                    leftover.unlink(missing_ok=True)
            folder.chmod(0o700)
        except OSError as error:
            raise HostError(Code.STORAGE, f"stubs cache: {error}") from error

    def read(self, kind: CacheKind, key: str, *, max_bytes: int) -> bytes | None:
        """The bytes of an entry, or None. Marks it as used. A file that is too large or a link counts as b""."""
        path = self._path(kind, key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError:
            return b""
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return b""
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(max_bytes + 1)
            os.utime(descriptor)
        except OSError:
            return b""
        finally:
            os.close(descriptor)
        return data if len(data) <= max_bytes else b""

    def write(self, kind: CacheKind, key: str, data: bytes) -> None:
        """Write an entry.

        Raises:
            HostError: STORAGE; the entry is as before.
        """
        try:
            write_whole(self._path(kind, key), data)
        except OSError as error:
            raise HostError(Code.STORAGE, f"stubs cache: {error}") from error

    def remove(self, kind: CacheKind, key: str) -> None:
        """Remove an entry if it is there. What cannot be removed (a folder put there by hand) stays unreadable."""
        with contextlib.suppress(OSError):
            self._path(kind, key).unlink()

    def entries(self) -> list[CacheEntry]:
        """Every entry that is there now. What is no file of ours (put there by hand, or being written) is none.

        Raises:
            HostError: STORAGE.
        """
        found: list[CacheEntry] = []
        try:
            for kind in CacheKind:
                with os.scandir(self._folder / kind.value) as items:
                    found += [entry for item in items if (entry := _as_entry(kind, item)) is not None]
        except OSError as error:
            raise HostError(Code.STORAGE, f"stubs cache: {error}") from error
        return found

    def _path(self, kind: CacheKind, key: str) -> Path:
        if not is_key(key):
            raise ValueError("a cache key is the hex of a SHA-256")
        return self._folder / kind.value / key


def _as_entry(kind: CacheKind, item: os.DirEntry[str]) -> CacheEntry | None:
    try:
        status = item.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None  # somebody was faster
    if not is_key(item.name) or not stat.S_ISREG(status.st_mode):
        return None
    return CacheEntry(kind=kind, key=item.name, size_bytes=status.st_size, used_at=status.st_mtime)
