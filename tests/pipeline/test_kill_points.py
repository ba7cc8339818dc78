from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.kill_points import run_rounds


@pytest.mark.endurance
@pytest.mark.spark
def test_ingest_that_is_killed_twenty_times_loses_and_doubles_nothing(tmp_path: Path) -> None:
    assert run_rounds(tmp_path, 20) == []
