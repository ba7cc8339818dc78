"""Checks of the files and folders that the settings name, and their errors.

An error names the file, carries a stable word for programs, and says what to do. Blocks for the disk.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from protofly.errors import SettingsError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class FileError(SettingsError):
    """One file or folder cannot be used as it is.

    `word` is the stable code of the finding, `what` what is wrong, `action` what to do, "" when nobody can say.
    """

    def __init__(self, word: str, file: Path | str, what: str, action: str = "") -> None:
        super().__init__(f"{file}: {what}{'; ' if action else ''}{action}")
        self.word = word
        self.what = what
        self.file = str(file)
        self.action = action

    @classmethod
    def unreadable(cls, file: Path, exc: OSError) -> FileError:
        """The system refused to open or read a file."""
        word = "missing" if isinstance(exc, FileNotFoundError) else "unreadable"
        return cls(word, exc.filename or file, exc.strerror or str(exc))


def read_file(path: Path) -> bytes:
    """The content of a file. Raises FileError."""
    try:
        return path.read_bytes()
    except OSError as exc:
        raise FileError.unreadable(path, exc) from exc


def read_private(path: Path) -> bytes:
    """The content of a file that only its owner may touch. Raises FileError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if mode & _OTHERS:
                raise FileError("key-open", path, f"is open to others (mode {mode:04o})", f"run: chmod 600 {path}")
            return file.read()
    except OSError as exc:
        raise FileError.unreadable(path, exc) from exc


def check_private_folder(folder: Path) -> str:
    """Refuse a folder into which others may put files of theirs.

    Returns:
        A warning about a folder whose content others may list, "" when there is none, or no folder.

    Raises:
        FileError: `folder-open`.
    """
    try:
        mode = stat.S_IMODE(folder.stat().st_mode)
    except FileNotFoundError:
        return ""
    except OSError as exc:
        raise FileError.unreadable(folder, exc) from exc
    if mode & _OTHERS_WRITE:
        raise FileError(
            "folder-open", folder, f"others may write into this folder (mode {mode:04o})", f"run: chmod 700 {folder}"
        )
    return f"others may look into {folder} (mode {mode:04o}); run: chmod 700 {folder}" if mode & _OTHERS else ""


def check_key_place(key: Path) -> None:
    """Refuse a private key that somebody else can put another one in the place of.

    Raises:
        FileError: `folder-open`. A folder in which only the owner of a file may replace it (sticky) will do.
    """
    folder = key.absolute().parent
    try:
        mode = folder.stat().st_mode
    except OSError as exc:
        raise FileError.unreadable(folder, exc) from exc
    if mode & _OTHERS_WRITE and not mode & stat.S_ISVTX:
        raise FileError(
            "folder-open",
            folder,
            f"others may put another key in the place of {key.name} (mode {stat.S_IMODE(mode):04o})",
            f"run: chmod go-w {folder}",
        )


def check_writable_folder(folder: Path) -> bool:
    """True if a folder exists; one that does not must be one that can be made.

    Raises:
        FileError: `not-a-folder` or `not-writable`.
    """
    there = folder
    while not (there.exists() or there.is_symlink()) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise FileError("not-a-folder", there, "is not a folder", "name another one, or move the file away")
    try:
        with tempfile.TemporaryFile(dir=there):  # what access() says is not true of read-only mounts and full disks
            pass
    except OSError as exc:
        raise FileError(
            "not-writable",
            there,
            f"cannot be written to: {exc.strerror}",
            "run the node as its owner, or change the owner",
        ) from exc
    return there == folder


def check_state_file(path: Path) -> None:
    """Refuse what stands in the place of a file of the node's own state; none at all is all right.

    Raises:
        FileError: `not-a-file`, `unreadable` (another user made it) or `key-open` (others may read it).
    """
    if not (path.exists() or path.is_symlink()):
        return
    if not path.is_file():
        raise FileError("not-a-file", path, "is not a file", "move it away")
    if not os.access(path, os.R_OK | os.W_OK):
        raise FileError("unreadable", path, "cannot be read and written", "give it to the user that runs the node")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        raise FileError("key-open", path, f"is open to others (mode {mode:04o})", f"run: chmod 600 {path}")
