"""Fixtures for tests of the node over each of its bindings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from msg_node.connectors import mqtt
from tests.support.bindings import Binding, MakeRuntime, runtimes_over
from tests.support.runtime_rig import RuntimeRig


@pytest.fixture(params=list(Binding), ids=lambda one: one.value)
async def make(
    request: pytest.FixtureRequest, rig: RuntimeRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[MakeRuntime]:
    """Makes runtimes of the rig of a module, over one binding after the other."""
    monkeypatch.setattr(mqtt, "MQTT_GONE_SECONDS", 0.05)
    folder = tmp_path / "broker"
    folder.mkdir()
    async with runtimes_over(request.param, rig, folder) as made:
        yield made
