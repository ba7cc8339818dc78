from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.lake import durable
from pipeline.lake.delta_log import DeltaLog
from pipeline.lake.stages import Stages
from pipeline.lake.table_log import LakeError
from pipeline.lake.tables import Lake
from pipeline.schemas import REPLAY_RUN, STUB_REGRESSION
from tests.pipeline.full_disk import RECORDS
from tests.pipeline.on_disk import on_disk

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("owner", "name"),
    [(Stages, "make"), (durable, "sync_file"), (durable, "sync_folder"), (DeltaLog, "create"), (DeltaLog, "commit")],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_commit_without_room_says_so_and_leaves_nothing(
    lake: Lake, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    row = pa.table({column: pa.nulls(1) for column in REPLAY_RUN.schema.names})
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, full)
        with pytest.raises(LakeError, match="nothing was committed; make room and repeat"):
            lake.commit(row, REPLAY_RUN)
    assert lake.read_small(REPLAY_RUN).num_rows == 0
    assert not list(on_disk(lake.folder).rglob("*.parquet"))
    lake.commit(row, REPLAY_RUN)
    assert lake.read_small(REPLAY_RUN).num_rows == 1
    assert not lake.has(STUB_REGRESSION)


@pytest.mark.endurance
@pytest.mark.spark
def test_ingest_on_a_disk_that_is_full_commits_nothing_and_goes_on_once_there_is_room(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs a mount namespace of its own")
    command = [unshare, "-rm", sys.executable, "-m", "tests.pipeline.full_disk", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    shown = json.loads(done.stdout.splitlines()[-1])
    assert "no room left" in shown.pop("error")
    assert shown == {"visible": 0, "left": [], "rows": RECORDS, "ledger": 1}
