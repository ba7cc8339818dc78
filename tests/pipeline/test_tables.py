from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType
from pyspark.testing import assertDataFrameEqual

from pipeline.lake import storage
from pipeline.lake.delta_log import CHECKPOINT_COMMITS, DeltaLog
from pipeline.lake.lake_files import LakeFiles
from pipeline.lake.lake_mark import LAKE_FORMAT, MARK_NAME
from pipeline.lake.local_rows import local_frame
from pipeline.lake.stages import STAGE_NAME, StagedFile
from pipeline.lake.table_log import ConflictError, LakeError
from pipeline.lake.tables import Change, Lake
from pipeline.lake.worker_rows import rows_of as in_workers
from pipeline.schemas import Table
from tests.pipeline.on_disk import on_disk

pytestmark = pytest.mark.spark

COUNTS = Table(
    "counts",
    StructType([StructField("name", StringType()), StructField("n", LongType()), StructField("dt", StringType())]),
    ("dt",),
    ("name",),
)
PLAIN = Table("plain", StructType([StructField("name", StringType()), StructField("n", LongType())]))
DAY, NEXT_DAY = "2026-03-01", "2026-03-02"


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", spark)


def rows_of(spark: SparkSession, *rows: tuple[str, int, str]) -> DataFrame:
    return local_frame(spark, rows, COUNTS.schema)


def few(*rows: tuple[str, int, str]) -> pa.Table:
    """The same for what is the same however rows are written: without Spark it takes a tenth."""
    schema = to_arrow_schema(COUNTS.schema)
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def stored(lake: Lake) -> list[tuple[object, ...]]:
    return sorted(tuple(row[name] for name in COUNTS.schema.names) for row in lake.read_small(COUNTS).to_pylist())


def content(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_what_was_appended_is_read_again_at_every_version(lake: Lake, spark: SparkSession) -> None:
    assert not lake.has(COUNTS)
    assert lake.version(COUNTS) == -1
    assert lake.read(COUNTS).count() == 0
    first = lake.commit(rows_of(spark, ("a", 1, DAY), ("b", 2, NEXT_DAY)), COUNTS, Change(meta={"why": {"x": [1]}}))
    second = lake.commit(rows_of(spark, ("c", 3, DAY)), COUNTS)

    assert (first.rows, first.partitions) == (2, (DAY, NEXT_DAY))
    assert second.version == lake.version(COUNTS) == first.version + 1
    assert content(lake.read(COUNTS)) == [("a", 1, DAY), ("b", 2, NEXT_DAY), ("c", 3, DAY)]
    assert content(lake.read(COUNTS, first.version)) == [("a", 1, DAY), ("b", 2, NEXT_DAY)]
    assert lake.read(COUNTS).schema == COUNTS.schema
    assert [note.meta for note in lake.history(COUNTS) if note.version == first.version] == [{"why": {"x": [1]}}]


def test_one_day_is_replaced_and_the_others_stay(lake: Lake) -> None:
    lake.commit(few(("a", 1, DAY), ("b", 2, NEXT_DAY)), COUNTS)
    lake.commit(few(("a", 10, DAY)), COUNTS, Change("replace_partitions"))
    assert stored(lake) == [("a", 10, DAY), ("b", 2, NEXT_DAY)]
    lake.commit(few(), COUNTS, Change("replace_partitions", partitions=[DAY]))
    assert stored(lake) == [("b", 2, NEXT_DAY)]
    lake.commit(few(("z", 0, DAY)), COUNTS, Change("overwrite"))
    assert stored(lake) == [("z", 0, DAY)]


def test_rows_outside_of_the_days_to_be_replaced_are_refused(lake: Lake) -> None:
    lake.commit(few(("a", 1, DAY)), COUNTS)
    with pytest.raises(LakeError, match="not meant to be replaced"):
        lake.commit(few(("a", 1, NEXT_DAY)), COUNTS, Change("replace_partitions", partitions=[DAY]))
    assert stored(lake) == [("a", 1, DAY)]
    assert len(list((on_disk(lake.folder) / "counts").rglob("*.parquet"))) == 1


def test_a_transaction_happens_once(lake: Lake) -> None:
    first = lake.commit(few(("a", 1, DAY)), COUNTS, Change(txn=("job", 7)))
    again = lake.commit(few(("a", 1, DAY)), COUNTS, Change(txn=("job", 7)))
    earlier = lake.commit(few(("a", 1, DAY)), COUNTS, Change(txn=("job", 6)))
    other = lake.commit(few(("a", 1, DAY)), COUNTS, Change(txn=("another", 1)))
    assert (again.is_repeated, again.rows, again.version) == (True, 0, first.version)
    assert (earlier.is_repeated, other.is_repeated) == (True, False)
    assert lake.transaction_version(COUNTS, "job") == 7
    assert lake.transaction_version(COUNTS, "none") is None
    assert len(stored(lake)) == 2


def test_of_two_who_replace_from_the_same_version_one_fails(lake: Lake) -> None:
    lake.commit(few(("a", 1, DAY)), COUNTS)
    version = lake.version(COUNTS)
    lake.commit(few(("a", 2, DAY)), COUNTS, Change("replace_partitions", base_version=version))
    with pytest.raises(ConflictError):
        lake.commit(few(("a", 3, DAY)), COUNTS, Change("replace_partitions", base_version=version))
    assert stored(lake) == [("a", 2, DAY)]


def test_a_replacement_fails_when_another_commit_slips_in_while_it_writes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.commit(few(("a", 1, DAY)), COUNTS)
    other = Lake(lake.folder, lake.spark)
    write = lake.write

    def slow_write(rows: pa.Table, folder: Path, table: Table) -> list[StagedFile]:
        written = write(rows, folder, table)
        other.commit(few(("late", 9, DAY)), COUNTS)
        return written

    monkeypatch.setattr(lake, "write", slow_write)
    with pytest.raises(ConflictError):
        lake.commit(few(("a", 2, DAY)), COUNTS, Change("replace_partitions"))
    assert stored(lake) == [("a", 1, DAY), ("late", 9, DAY)]
    lake.commit(few(("b", 2, DAY)), COUNTS)  # an append starts over instead
    assert stored(other) == [("a", 1, DAY), ("b", 2, DAY), ("late", 9, DAY), ("late", 9, DAY)]
    assert len(list((on_disk(lake.folder) / "counts").rglob("*.parquet"))) == len(lake.files(COUNTS))


def test_files_that_no_commit_names_are_invisible_and_vacuumed(lake: Lake) -> None:
    lake.commit(few(("a", 1, DAY)), COUNTS)
    lake.commit(few(("a", 2, DAY)), COUNTS, Change("overwrite"))
    [live] = lake.files(COUNTS)
    litter = on_disk(lake.folder) / "counts" / f"dt={DAY}" / "part-litter.parquet"
    litter.write_bytes((litter.parents[1] / live.path).read_bytes())

    assert stored(lake) == [("a", 2, DAY)]
    assert lake.vacuum(COUNTS, older_than_s=3600) == 0
    assert lake.vacuum(COUNTS, older_than_s=0, keep_versions=2) == 1
    assert lake.vacuum(COUNTS, older_than_s=0) == 1
    assert stored(lake) == [("a", 2, DAY)]


def test_files_of_recent_versions_outlive_a_vacuum_and_those_of_older_ones_do_not(lake: Lake) -> None:
    for number in range(5):
        lake.commit(few(("a", number, DAY)), COUNTS, Change("overwrite"))
    assert lake.vacuum(COUNTS, older_than_s=0, keep_versions=3) == 2
    newest = lake.version(COUNTS)
    for version, number in ((newest, 4), (newest - 1, 3), (newest - 2, 2)):
        assert [row["n"] for row in lake.read_small(COUNTS, version=version).to_pylist()] == [number]
    with pytest.raises(LakeError):
        lake.read_small(COUNTS, version=newest - 3)


def test_a_reader_sees_what_others_commit_after_it_has_read(lake: Lake) -> None:
    lake.commit(few(("a", 1, DAY)), COUNTS)
    reader = LakeFiles.of(lake.folder)
    assert reader.version(COUNTS) == lake.version(COUNTS)
    old = reader.files(COUNTS)
    lake.commit(few(("b", 2, NEXT_DAY)), COUNTS)
    assert len(reader.files(COUNTS)) == 2
    assert reader.files(COUNTS, lake.version(COUNTS) - 1) == old


def test_a_log_is_opened_once_however_often_its_newest_version_is_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        lake.commit(few(("a", number, DAY)), COUNTS)
    opened: list[int | None] = []
    original = DeltaLog._open

    def counted(self: DeltaLog, version: int | None = None) -> Any:
        opened.append(version)
        return original(self, version)

    monkeypatch.setattr(DeltaLog, "_open", counted)
    reader = LakeFiles.of(lake.folder)
    version = reader.version(COUNTS)
    assert [reader.files(COUNTS, version), reader.files(COUNTS)] == [reader.files(COUNTS, version)] * 2
    assert opened == [None]
    reader.files(COUNTS, version - 1)
    assert opened == [None, version - 1]


def test_logs_have_checkpoints_so_that_opening_them_does_not_grow(lake: Lake) -> None:
    for number in range(CHECKPOINT_COMMITS + 2):
        lake.commit(few(("a", number, DAY)), COUNTS, Change("overwrite"))
    log = on_disk(lake.folder) / COUNTS.name / "_delta_log"
    assert len(list(log.glob("*.checkpoint.parquet"))) == 1
    assert [row["n"] for row in LakeFiles.of(lake.folder).read_small(COUNTS).to_pylist()] == [CHECKPOINT_COMMITS + 1]


def test_stages_of_dead_writers_are_cleared_and_those_of_living_ones_are_not(lake: Lake) -> None:
    with lake.stage() as alive:
        dead = on_disk(lake.folder) / STAGE_NAME / "1-dead"
        dead.mkdir()
        (dead / ".lock").touch()
        lake.clear_stages()
        assert storage.exists(alive.folder)
        assert not dead.exists()
    assert not storage.exists(alive.folder)


def test_few_rows_go_in_and_out_without_spark(lake: Lake) -> None:
    rows = pa.table({"n": [1, 2], "name": ["a", None]})
    assert lake.commit(rows, PLAIN).rows == 2
    assert lake.read_small(PLAIN, ["name"]).to_pylist() == [{"name": "a"}, {"name": None}]
    assertDataFrameEqual(lake.read(PLAIN), lake.spark.createDataFrame([("a", 1), (None, 2)], PLAIN.schema))


def test_workers_read_what_spark_reads_and_what_they_write_is_committed_like_anything(
    lake: Lake, spark: SparkSession
) -> None:
    lake.commit(rows_of(spark, ("a", 1, DAY), ("b", 2, DAY), ("c", 3, NEXT_DAY)), COUNTS)
    wider = Table(COUNTS.name, StructType([*COUNTS.schema.fields, StructField("more", StringType())]), ("dt",))
    read = lake.read_in_workers(wider, columns=wider.schema.names)
    assert read.records == 2
    assertDataFrameEqual(read.frame(wider.schema), lake.read(wider))
    late = lake.read_in_workers(COUNTS, columns=["n", "name", "dt"], partitions=[DAY], where=[[("n", ">", 1)]])
    done = lake.commit(late, COUNTS, Change("replace_partitions", partitions=[DAY]))
    assert (done.rows, done.partitions) == (1, (DAY,))
    assert content(lake.read(COUNTS)) == [("b", 2, DAY), ("c", 3, NEXT_DAY)]
    assert content(lake.read_in_workers(COUNTS, 0, columns=COUNTS.schema.names).frame(COUNTS.schema)) == []
    assert not list((on_disk(lake.folder) / STAGE_NAME).iterdir())


@pytest.mark.parametrize("day", [None, "../up", "a/b", ""])
def test_a_day_that_is_no_folder_name_is_refused(lake: Lake, spark: SparkSession, day: str | None) -> None:
    with pytest.raises(LakeError, match="cannot be the name of a partition"):
        lake.commit(local_frame(spark, [("a", 1, day)], COUNTS.schema), COUNTS)
    with pytest.raises(LakeError, match="cannot be the name of a partition"):
        lake.commit(in_workers(local_frame(spark, [("a", 1, day)], COUNTS.schema), COUNTS.schema.names), COUNTS)
    assert not list((on_disk(lake.folder) / "counts").rglob("*.parquet"))


def test_rows_that_do_not_fit_are_a_mistake(lake: Lake, spark: SparkSession) -> None:
    with pytest.raises(TypeError, match="n: int instead of bigint"):
        lake.commit(rows_of(spark, ("a", 1, DAY)).withColumn("n", F.col("n").cast("int")), COUNTS)


def test_new_columns_are_taken_in_and_strange_ones_are_refused(lake: Lake, spark: SparkSession) -> None:
    lake.commit(rows_of(spark, ("a", 1, DAY)), COUNTS)
    wider = Table(COUNTS.name, StructType([*COUNTS.schema.fields, StructField("more", StringType())]), ("dt",))
    assert lake.read(wider).collect()[0]["more"] is None
    lake.commit(rows_of(spark, ("b", 2, DAY)).withColumn("more", F.lit("x")), wider)
    assert sorted(row["more"] or "" for row in lake.read(wider).collect()) == ["", "x"]
    assert lake.read_small(wider, ["name", "more", "dt"]).sort_by("name").to_pylist()[0]["dt"] == DAY

    with pytest.raises(LakeError, match="another version of this program"):
        lake.read(COUNTS)


def test_a_lake_of_another_version_is_refused_with_advice(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / MARK_NAME).write_text(json.dumps({"format": 0, "tables": "delta"}))
    with pytest.raises(LakeError, match=r"an older lake \(format 0.*ingest the spools into an empty folder"):
        Lake(tmp_path, spark)
    (tmp_path / MARK_NAME).write_text("{")
    with pytest.raises(LakeError, match="spoilt"):
        Lake(tmp_path, spark)
    (tmp_path / MARK_NAME).write_text(json.dumps({"format": LAKE_FORMAT, "tables": "parquet"}))
    with pytest.raises(LakeError, match=r"has parquet tables.*ingest the spools into an empty folder"):
        Lake(tmp_path, spark)


def test_a_folder_with_something_else_is_no_lake(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(LakeError, match=r"holiday\.jpg"):
        Lake(tmp_path, spark)
