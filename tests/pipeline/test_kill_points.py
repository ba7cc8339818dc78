from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.kill_points import run_rounds


@pytest.mark.long
@pytest.mark.spark
def test_ingest_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Three kills; `python -m tests.pipeline.kill_points` does twenty."""
    assert run_rounds(tmp_path, 3) == []
