from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.jobs import ingest, refine
from pipeline.jobs.result import ExitCode
from pipeline.lake.local_rows import local_frame
from pipeline.lake.tables import Lake
from pipeline.schemas import BRONZE_MDR, SILVER_MDR
from pipeline.transforms.dedupe import first_of_each, without_known
from protofly.records import MessageRecord
from tests.pipeline.on_disk import on_disk
from tests.pipeline.spools import NODE, SegmentWriter, message

pytestmark = pytest.mark.spark


def bronze(spark: SparkSession, records: Sequence[MessageRecord], *, segno: int = 1) -> DataFrame:
    rows = []
    for number, record in enumerate(records, start=1):
        members = {name: getattr(record, name) for name in record.__struct_fields__}
        members |= {"v": 1, "node": NODE, "boot": 1, "seq": record.seq or number}
        members |= {name: bytes.fromhex(members[name]) for name in ("msg_id", "digest")}
        members |= {"segno": segno, "errors": [], "batch": segno, "dt": "2026-03-01"}
        rows.append([members.get(name) for name in BRONZE_MDR.schema.names])
    return local_frame(spark, rows, BRONZE_MDR.schema)


def test_records_get_ids_as_bytes_and_know_whose_they_are(lake: Lake, tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    writer.seal([message(1), message(2, role="in")])
    ingest.run(lake, [writer.spool])
    rows = lake.read(BRONZE_MDR).select(*SILVER_MDR.schema.names)
    out, in_ = rows.orderBy("seq").collect()
    assert rows.schema == SILVER_MDR.schema
    assert bytes(out["msg_id"]) == (1).to_bytes(16)
    assert bytes(in_["digest"]) == (14).to_bytes(16)
    assert (out["our_domain"], out["peer_domain"]) == ("a.example", "b.example")
    assert (in_["our_domain"], in_["peer_domain"]) == ("b.example", "a.example")


def test_of_a_number_that_comes_twice_the_same_row_stays_on_every_run(spark: SparkSession) -> None:
    twice = [message(1, seq=1), message(2, seq=1), message(3, seq=2)]
    kept = [first_of_each(bronze(spark, rows)).orderBy("seq").collect() for rows in (twice, twice[::-1])]
    assert [row["seq"] for row in kept[0]] == [1, 2]
    assert kept[0] == kept[1]
    later = bronze(spark, [message(0, seq=1)], segno=2)
    assert first_of_each(later.union(bronze(spark, twice))).where("seq = 1").collect() == kept[0][:1]


def test_what_is_known_is_left_out(spark: SparkSession) -> None:
    known = bronze(spark, [message(1, seq=1)])
    new = bronze(spark, [message(9, seq=1), message(2, seq=2)], segno=2)
    assert [row["seq"] for row in without_known(new, known).collect()] == [2]


def test_only_what_is_new_is_refined_and_only_once(lake: Lake, tmp_path: Path) -> None:
    assert refine.run(lake).exit_code is ExitCode.INCOMPLETE
    writer = SegmentWriter(tmp_path / "spool")
    writer.seal([message(2), message(1)])
    ingest.run(lake, [writer.spool])
    first = refine.run(lake)
    again = refine.run(lake)
    writer.seal([message(3)])
    ingest.run(lake, [writer.spool])
    second = refine.run(lake)

    assert (first.rows, again.rows, second.rows) == ({"silver_mdr": 2}, {}, {"silver_mdr": 1})
    assert (first.exit_code, second.details["bronze_rows"]) == (ExitCode.FINE, 1)
    assert lake.history(SILVER_MDR)[0].meta["bronze_version"] == lake.version(BRONZE_MDR)
    ids = [bytes(row["msg_id"]) for row in lake.read(SILVER_MDR).collect()]
    assert sorted(ids) == [number.to_bytes(16) for number in (1, 2, 3)]
    files = [
        [on_disk(lake.folder) / table.name / file.path for file in lake.files(table)]
        for table in (BRONZE_MDR, SILVER_MDR)
    ]
    contents = [{path.read_bytes() for path in of_table} for of_table in files]
    assert len(contents[0]) == 2
    assert contents[0] == contents[1]
    assert all(path.stat().st_nlink == 1 for of_table in files for path in of_table)


def test_a_row_that_two_segments_have_comes_once(lake: Lake, spark: SparkSession) -> None:
    lake.commit(bronze(spark, [message(1), message(2)]), BRONZE_MDR)
    lake.commit(bronze(spark, [message(9), message(2), message(3)], segno=2), BRONZE_MDR)
    result = refine.run(lake)
    assert (result.rows["silver_mdr"], result.findings) == (3, 2)
    rows = sorted((row["seq"], int.from_bytes(row["msg_id"])) for row in lake.read(SILVER_MDR).collect())
    assert rows == [(1, 1), (2, 2), (3, 3)]
    for file in lake.files(SILVER_MDR):
        in_file = [bytes(row["msg_id"]) for row in lake.read_files(SILVER_MDR, [file]).collect()]
        assert all(one <= other for one, other in pairwise(in_file))


def test_a_row_that_bronze_repeats_later_does_not_come_again(lake: Lake, spark: SparkSession) -> None:
    lake.commit(bronze(spark, [message(1)]), BRONZE_MDR)
    refine.run(lake)
    lake.commit(bronze(spark, [message(1), message(2)], segno=2), BRONZE_MDR)
    result = refine.run(lake)
    assert (result.rows["silver_mdr"], result.findings, result.exit_code) == (1, 1, ExitCode.FINDINGS)
    assert sorted(row["seq"] for row in lake.read(SILVER_MDR).collect()) == [1, 2]
