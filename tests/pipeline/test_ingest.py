from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pipeline.jobs import ingest
from pipeline.jobs.result import ExitCode
from pipeline.lake.tables import Lake
from pipeline.schemas import BRONZE_DECISION, BRONZE_LINK_EVENT, BRONZE_MDR, BRONZE_STUB_EVENT, QUARANTINE, SEGMENTS
from pipeline.segments.node_keys import Trust
from pipeline.segments.spool import find_manifests
from protofly.record_segments import sign_manifest
from protofly.records import RecordKind, decode_manifest
from tests.pipeline.on_disk import on_disk
from tests.pipeline.spools import KEY, NODE, SIGNER, SegmentWriter, decision, link_event, message, stub_event

pytestmark = pytest.mark.spark
TRUST = Trust({(NODE, KEY.key_id): KEY.record()}, requires_signatures=True)


def test_records_of_every_kind_arrive_in_their_tables(lake: Lake, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    writer = SegmentWriter(spool)
    writer.seal([message(1), message(2, facts=None)])
    writer.seal([message(3)])
    SegmentWriter(spool, kind=RecordKind.DECISION).seal([decision(1)])
    SegmentWriter(spool, kind=RecordKind.LINK).seal([link_event(1)])
    SegmentWriter(spool, kind=RecordKind.STUB).seal([stub_event(1)])

    result = ingest.run(lake, [spool], trust=TRUST)

    assert result.exit_code is ExitCode.FINE, result
    assert result.rows == {
        "bronze_mdr": 3,
        "bronze_decision": 1,
        "bronze_link_event": 1,
        "bronze_stub_event": 1,
        "segments": 5,
    }
    rows = lake.read(BRONZE_MDR).orderBy("seq").collect()
    assert [(row["seq"], row["segno"], row["msg_id"], row["errors"], row["dt"]) for row in rows] == [
        (number, segno, number.to_bytes(16), [], "2026-03-01") for number, segno in ((1, 1), (2, 1), (3, 2))
    ]
    assert [lake.read(table).count() for table in (BRONZE_DECISION, BRONZE_LINK_EVENT, BRONZE_STUB_EVENT)] == [1, 1, 1]
    assert not lake.has(QUARANTINE)
    assert {row["verdict"] for row in lake.read_small(SEGMENTS).to_pylist()} == {"accepted"}

    again = ingest.run(lake, [spool], trust=TRUST)
    assert (again.rows, again.exit_code) == ({}, ExitCode.FINE)


def test_who_requires_signatures_later_is_reported_what_was_taken_without(lake: Lake, tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "spool", signer=None)
    writer.seal([message(1)])
    assert ingest.run(lake, [writer.spool]).exit_code is ExitCode.FINE
    writer.signer = SIGNER
    writer.seal([message(2)])
    later = ingest.run(lake, [writer.spool], trust=TRUST)
    assert (later.exit_code, later.findings, later.rows[BRONZE_MDR.name]) == (ExitCode.FINDINGS, 1, 1)
    assert "1 segments that are in the lake already were taken without a good signature" in later.warnings[0]


def test_what_only_the_lines_show_is_found_and_the_other_segments_are_stored(lake: Lake, tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    writer.seal([message(1), message(2)])
    writer.seal([message(3), message(4)])
    [_, second] = find_manifests([writer.spool])
    lie = msgspec.structs.replace(
        decode_manifest(on_disk(second.manifest_path).read_bytes()), records=1, lost_records=1
    )
    on_disk(second.manifest_path).write_bytes(msgspec.json.encode(sign_manifest(lie, SIGNER)))

    result = ingest.run(lake, [writer.spool], trust=TRUST)

    assert sorted(row["seq"] for row in lake.read(BRONZE_MDR).collect()) == [1, 2]
    found = [(row["verdict"], row["findings"]) for row in lake.read_small(SEGMENTS).to_pylist()]
    assert sorted(found) == [("accepted", []), ("rejected", ["count", "lost"])]
    assert result.details["verdicts"] == {"accepted": 1, "rejected": 1}
