"""Settings of recordings of conversations: off unless the operator of the machine names a key."""

from __future__ import annotations

from pathlib import Path

from msg_node.settings.model import Settings
from msg_node.settings.tables.recording import RecordingSettings
from msg_node.storage.sealing import read_state_keys


def recordings_folder(settings: Settings) -> Path:
    """The folder of the recordings of a node."""
    named = settings.recording.folder if settings.recording is not None else None
    return named or settings.node.data_dir / "conversations"


def recording_key(chosen: RecordingSettings) -> bytes:
    """The key that seals recordings. Raises FileError: the file with the keys cannot be used."""
    return read_state_keys(chosen.key_file).secrets[0]
