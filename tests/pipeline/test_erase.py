"""One person goes, from tables, disk and spool; what was counted, settled and audited stays as it was."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.jobs import audit, erase, ingest, reconcile, refine, settle
from pipeline.jobs.erase import NO_FACTS
from pipeline.lake.tables import Lake
from pipeline.schemas import (
    ALERT,
    BRONZE_ADMIN_EVENT,
    BRONZE_DECISION,
    BRONZE_MDR,
    ERASURE,
    QUARANTINE,
    SILVER_MDR,
    STATEMENT_DAILY,
    TABLES,
    TEXTS,
)
from protofly.errors import SettingsError
from protofly.records import AdminEvent, MessageRecord, RecordKind
from tests.pipeline.on_disk import on_disk
from tests.pipeline.spools import START_US, SegmentWriter, decision, message

EVE, BOB, ANA = "hyperty://b.example/eve", "hyperty://a.example/bob", "hyperty:" + "a" * 24


def said(number: int, sender: str, recipient: str = BOB) -> MessageRecord:
    return message(number, src_key=sender, dst_key=recipient)


@pytest.mark.spark
def test_a_person_is_gone_everywhere_and_nothing_else_has_changed(lake: Lake, tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    writer.seal([said(1, EVE), said(2, "hyperty://B.example/eve"), said(3, EVE + "lyn")])
    writer.seal([said(4, ANA), said(5, BOB, EVE)])
    writer.seal([said(6, BOB)])
    writer.seal_lines(b'{"odd":"' + EVE.encode() + b'"}\n')
    SegmentWriter(tmp_path / "spool", kind=RecordKind.DECISION).seal([decision(1)])  # the same number, nothing of hers
    ingest.run(lake, [writer.spool])
    refine.run(lake)
    settle.run(lake)
    reconcile.run(lake)
    statement = lake.read_small(STATEMENT_DAILY).to_pylist()
    before = lake.read_small(SILVER_MDR).sort_by("seq").to_pylist()
    warnings = audit.run(lake).warnings

    done = erase.run(lake, [EVE, ANA], why="request 12", spools=[writer.spool], vacuum_after_s=0)

    assert done.rows == {"bronze_mdr": 4, "quarantine": 1, "silver_mdr": 4, "erasure": 1}
    assert (done.details["segments"], done.details["files_left"], done.warnings) == (3, 0, [])
    after = lake.read_small(SILVER_MDR).sort_by("seq").to_pylist()
    shown = [(row["src_key"], row["dst_key"], row["facts"]) for row in after]
    assert shown == [
        *[(None, BOB, NO_FACTS)] * 2,
        (EVE + "lyn", BOB, None),
        (None, BOB, NO_FACTS),
        (BOB, None, NO_FACTS),
        (BOB, BOB, None),
    ]
    hidden = {"src_key", "dst_key", "facts"}
    for old, new in zip(before, after, strict=True):
        assert {name: old[name] for name in old.keys() - hidden} == {name: new[name] for name in new.keys() - hidden}
    content = b"".join(path.read_bytes() for path in on_disk(lake.folder).rglob("*") if path.is_file())
    for name in (EVE + '"', ANA, "B.example/eve"):
        assert name.encode() not in content
    rows = [row for table in (BRONZE_MDR, QUARANTINE, BRONZE_DECISION) for row in lake.read_small(table).to_pylist()]
    assert not any(value in [EVE, ANA] for row in rows for value in row.values())
    assert [row["line"] for row in lake.read_small(QUARANTINE).to_pylist()] == [None]
    kept = sorted(path.name for path in writer.spool.glob("*.zst"))
    assert [name.split("-")[0] for name in kept] == ["decision", "mdr"]
    assert len(list(writer.spool.glob("*.manifest.json"))) == 5
    [entry] = lake.read_small(ERASURE).to_pylist()
    assert (entry["why"], entry["rows"], entry["segments"]) == ("request 12", 9, 3)
    # Who names an address where tables have hashes hears it, and whom nobody knows changes nothing.
    copied = shutil.copytree(writer.spool, tmp_path / "copied")
    known = ingest.run(lake, [copied])
    assert (known.details["verdicts"], known.findings, known.warnings[:-1], known.exit_code) == ({"copy": 5}, 0, [], 0)
    anew = ingest.run(Lake(tmp_path / "anew", lake.spark), [copied])
    assert (anew.details["verdicts"], anew.exit_code) == ({"accepted": 2, "rejected": 3}, 1)
    assert "3 mdr segments rejected, erased: its records were erased; nothing;" in "\n".join(anew.warnings)
    again = erase.run(lake, ["user://a.example/nobody"], why="request 13")
    assert (again.details["rows"], again.exit_code) == (0, 0)
    assert "trapezoid records hash ADDRESS" in again.warnings[0]
    assert "hash" not in str(erase.run(lake, ["hyperty:0123456789abcdef01234567"], why="request 14").warnings)
    # Nothing has to be done again, and nothing is reported that was not.
    assert [job.run(lake).rows for job in (refine, settle)] == [{}, {}]
    assert reconcile.run(lake).details["days"] == []
    assert ingest.run(lake, [writer.spool]).rows == {}
    assert lake.read_small(STATEMENT_DAILY).to_pylist() == statement
    assert audit.run(lake).warnings == warnings


@pytest.mark.spark
def test_texts_with_the_address_in_any_form_go_and_those_about_another_person_stay(lake: Lake, tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    of_another = f'{{"odd":"{EVE}lyn"}}'
    writer.seal_lines(of_another.encode() + b"\n")
    operator = SegmentWriter(tmp_path / "spool", kind=RecordKind.ADMIN)
    operator.seal([AdminEvent(ts_us=START_US, operation="peer block", actor=EVE, way="message", arguments="{}")])
    writer.seal_lines(b'{"odd":"HYPERTY:\\/\\/B.example\\/eve"}\n')
    ingest.run(lake, [writer.spool])
    claimed = {"pattern": "spoofing", "subject": "c.example", "dt": "2026-03-01"}
    alerts = [claimed | {"evidence": its} for its in ([EVE, BOB], [EVE + "lyn"], [], None)]
    lake.commit(pa.Table.from_pylist(alerts, to_arrow_schema(ALERT.schema)), ALERT)
    page = on_disk(lake.folder) / "report.html"
    page.write_text(f"fan-out by {EVE}")

    done = erase.run(lake, [EVE], why="request 16", spools=[writer.spool], vacuum_after_s=0)

    assert (done.details["rows"], done.details["segments"]) == (3, 2)
    assert lake.read_small(ALERT).column("evidence").to_pylist() == [[BOB], [EVE + "lyn"], [], None]
    [change] = lake.read_small(BRONZE_ADMIN_EVENT).to_pylist()
    assert (change["actor"], change["operation"]) == (None, "peer block")
    assert {row["line"] for row in lake.read_small(QUARANTINE).to_pylist()} == {None, of_another}
    assert len(list(writer.spool.glob("*.zst"))) == 1
    assert not page.exists(), "the report shows subjects of alerts"


@pytest.mark.spark
def test_segments_that_are_in_no_spool_that_was_named_are_named(lake: Lake, tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    for number in (1, 2, 3):
        writer.seal([said(number, EVE if number < 3 else BOB)])
    ingest.run(lake, [writer.spool])
    there = sorted(writer.spool.glob("*"))
    for path in there:
        if "-000001." in path.name:
            path.unlink()

    done = erase.run(lake, [EVE], why="request 15", spools=[writer.spool], vacuum_after_s=0)

    assert done.details["segments"] == 1
    assert done.details["segments_elsewhere"] == ["mdr-mn-1.a.example-1-000001"]
    assert "1 segments with these rows are in no spool that --spool names: mdr-mn-1" in "".join(done.warnings)


@pytest.mark.parametrize("word", ["", "a", "eve", "%", "://", "hyperty:12"])
def test_a_word_that_could_name_others_is_refused(word: str) -> None:
    with pytest.raises(SettingsError, match="no address"):
        erase.run(None, [word], why="x")  # type: ignore[arg-type]


def test_nothing_is_erased_without_a_reason() -> None:
    with pytest.raises(SettingsError, match="--why"):
        erase.run(None, [EVE], why=" ")  # type: ignore[arg-type]


def test_every_list_of_texts_is_known_to_name_nobody_or_is_looked_into() -> None:
    """Evidence of spoofing is a list of claimed senders: a new list has to be put into one of both."""
    lists = {field.name for table in TABLES.values() for field in table.schema if field.dataType == TEXTS}
    nobody = {"errors", "files", "findings", "obligations", "policy_revs", "reads", "samples", "shadow", "stub_vers"}
    assert lists - erase.LISTS_OF_ADDRESSES == nobody | {"unreplayable_rules"}
