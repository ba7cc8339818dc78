"""The recordings of stubs that the settings ask for."""

from __future__ import annotations

from federation.stubs.flight_recorder import Recordings
from msg_node.settings.model import Settings
from stubs_cache.store import load_secret


def recordings_of(settings: Settings) -> Recordings:
    """The folder of recordings of a node.

    Raises:
        SettingsError: The node's secret cannot be read.
    """
    data_dir = settings.node.data_dir
    return Recordings(data_dir / "stub_recordings", secret=load_secret(data_dir / "secret"))


def recorded_bytes(settings: Settings) -> dict[str, int]:
    """Bytes to keep of the stub of each domain that is recorded."""
    return {peer.domain: peer.record_bytes for peer in settings.peer if peer.record_bytes}
