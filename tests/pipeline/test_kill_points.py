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
@pytest.mark.parametrize("kind", ["store", "azure"])
def test_ingest_into_an_object_store_that_is_killed_twenty_times_loses_and_doubles_nothing(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    store: ObjectStore = request.getfixturevalue(kind)
    assert run_rounds(tmp_path, 20, store=store) == []
