from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from interop.scene import Scene, load_scene

SCENE_FILE = Path(__file__).parents[2] / "examples" / "two_domains" / "group_chat.toml"


@pytest.fixture
def scene() -> Scene:
    """The scene of the demo, with few messages."""
    full = load_scene(SCENE_FILE)
    return msgspec.structs.replace(
        full,
        chat=msgspec.structs.replace(full.chat, messages_each=20, messages_per_second=10_000.0),
        changes=msgspec.structs.replace(full.changes, updates=5),
    )
