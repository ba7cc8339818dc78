from __future__ import annotations

from pathlib import Path

from pipeline.lake.store_path import Location


def on_disk(location: Location) -> Path:
    """The path of what is known to be on a disk."""
    assert isinstance(location, Path)
    return location
