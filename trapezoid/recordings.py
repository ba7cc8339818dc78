"""Recordings of conversations, opened with the keys of an operator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from protofly.conversation import Conversation, open_conversation
from protofly.errors import Code, PeerError, SettingsError


def open_recording(path: Path, keys: Sequence[bytes]) -> Conversation:
    """Open a recording with the one of the keys that sealed it.

    Raises:
        SettingsError: The file cannot be read.
        PeerError: DOCUMENT_MALFORMED; RECORDING_KEY: none of the keys sealed it; RECORDING_CHANGED: one did, and it was
            changed.
    """
    try:
        raw = path.read_bytes()
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    for key in keys:
        try:
            return open_conversation(raw, key)
        except PeerError as exc:
            if exc.code is not Code.RECORDING_KEY:
                raise PeerError(exc.code, f"{path}: {exc.detail}") from exc
    raise PeerError(
        Code.RECORDING_KEY,
        f"{path}: none of these keys sealed it; use the file that `key_file` in [recording] of its node named",
    )
