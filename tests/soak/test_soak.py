"""The short form of `./run endurance soak`: every part of it works, and a world in good order has no findings."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio

from tests.soak.soak import soak


@pytest.mark.long
async def test_a_short_soak_with_faults_has_no_findings(tmp_path: Path) -> None:
    with trio.fail_after(150):
        outcome = await soak(tmp_path, 20.0, random.Random(5), lambda _seconds, _text: None, quiet_seconds=3.0)
    assert outcome.findings == []
    assert outcome.faults
    assert outcome.heard > 500
    assert outcome.acknowledged == outcome.ended
