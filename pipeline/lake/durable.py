"""Files that are there whole or not at all, also after a power cut."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

FILE_MODE = 0o640
PUBLIC_MODE = 0o644


def sync_file(path: Path) -> None:
    """Put a file's content on the disk. Raises OSError."""
    _sync(path, os.O_RDONLY | os.O_CLOEXEC)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable. Raises OSError."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def publish_once(path: Path, content: bytes) -> bool:
    """Write a file under a name that nobody has taken; False when somebody has. Raises OSError."""
    temporary = _write_beside(path, content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync_folder(path.parent)
    return True


def replace(path: Path, content: bytes, *, is_public: bool = False) -> None:
    """Write a file so that readers see the old one or the new one. Raises OSError.

    Args:
        path: The file.
        content: All of it.
        is_public: Every user of this machine may read it, whatever the umask says: it is there for others.
    """
    temporary = _write_beside(path, content)
    if is_public:
        temporary.chmod(PUBLIC_MODE)
    temporary.rename(path)
    sync_folder(path.parent)


def _write_beside(path: Path, content: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
