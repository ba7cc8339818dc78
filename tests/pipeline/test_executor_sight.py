"""Executors show that they see spool and lake before anything is read or written."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.lake.table_log import LakeError
from pipeline.spark.executor_sight import Proof, check_sight, proofs_of, unseen
from tests.pipeline.spools import SegmentWriter, message


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A lake, and a spool with a segment."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "lake.json").write_text("{}")
    writer = SegmentWriter(tmp_path / "spool")
    writer.seal([message(1)])
    return tmp_path / "lake", writer.spool


def test_the_same_folders_are_seen_as_they_are(folders: tuple[Path, Path], tmp_path: Path) -> None:
    lake, spool = folders
    (tmp_path / "empty").mkdir()
    proofs = proofs_of(lake, [spool, tmp_path / "empty"])
    assert [Path(proof.path).name for proof in proofs][:1] == ["lake.json"]
    assert proofs[2].content == "folder"
    assert unseen(proofs) == []


def test_a_folder_that_is_away_or_another_one_is_not_seen(folders: tuple[Path, Path]) -> None:
    lake, spool = folders
    proofs = proofs_of(lake, [spool])
    (lake / "lake.json").write_text("another")
    assert [path for _, path in unseen(proofs)] == [str(lake / "lake.json")]
    for path in spool.iterdir():
        path.unlink()
    assert len(unseen(proofs)) == 2


@pytest.mark.spark
def test_an_executor_that_is_blind_ends_the_command_before_it_begins(
    spark: SparkSession, folders: tuple[Path, Path]
) -> None:
    lake, spool = folders
    check_sight(spark, proofs_of(lake, [spool]))
    with pytest.raises(LakeError, match=r"the executor on .* does not see /nowhere/lake.json"):
        check_sight(spark, [Proof("/nowhere/lake.json", "folder")])
