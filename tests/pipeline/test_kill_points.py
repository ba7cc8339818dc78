from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.kill_points import run_rounds
from tests.pipeline.object_store import ObjectStore


@pytest.mark.endurance
@pytest.mark.spark
def test_ingest_that_is_killed_twenty_times_loses_and_doubles_nothing(tmp_path: Path) -> None:
    assert run_rounds(tmp_path, 20) == []


@pytest.mark.endurance
@pytest.mark.spark
def test_ingest_into_an_object_store_that_is_killed_twenty_times_loses_and_doubles_nothing(
    tmp_path: Path, store: ObjectStore
) -> None:
    assert run_rounds(tmp_path, 20, store=store) == []
