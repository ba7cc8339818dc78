"""The whole pipeline against traffic whose faults are known: what was planted is found, and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.synth.fault_table import SEGMENT_FINDINGS, as_markdown, fault_rows
from benchmarks.synth.run import synth
from benchmarks.synth.truth import Flip, SegmentFault, Truth
from benchmarks.synth.world import SynthOptions
from pipeline.cli.gate_settings import from_policy_files
from pipeline.jobs import reconcile
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.jobs.whole import WholeRun, combined, jobs
from pipeline.lake.tables import Lake
from pipeline.schemas import (
    ALERT,
    CLOCK_OFFSET,
    RECON_BUCKET,
    RECON_CASE,
    RECON_PAIR,
    REPLAY_FLIP,
    SEGMENTS,
    SILVER_MDR,
    STUB_REGRESSION,
    Table,
)
from pipeline.segments.node_keys import load_trust
from protofly.record_segments import SEALED_SUFFIXES

pytestmark = [pytest.mark.spark, pytest.mark.long]

HOUR_US = 3_600_000_000


@dataclass(frozen=True)
class Whole:
    """What was planted, and what all jobs made of it."""

    truth: Truth
    lake: Lake
    spool: Path
    report: Path
    results: dict[str, JobResult]


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    made = folder / "traffic"
    truth = synth(SynthOptions(rows=20_000, domains=8), made)
    deployed = from_policy_files([made / "policy/deployed.toml"], like=None)
    what = WholeRun(
        spools=[made / "spool"],
        trust=load_trust(made / "keys.json", requires_signatures=True),
        deployed=deployed,
        proposed=from_policy_files([made / "policy/proposed.toml"], like=deployed),
        out=folder / "report.html",
    )
    lake = Lake(folder / "lake", spark)
    results = {name: work() for name, work in jobs(lake, what)}
    return Whole(truth, lake, made / "spool", folder / "report.html", results)


def rows_of(whole: Whole, table: Table) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = whole.lake.read_small(table).to_pylist()
    return rows


def test_every_readable_record_is_refined_once_and_no_other(whole: Whole) -> None:
    silver = whole.lake.read(SILVER_MDR)
    counted = silver.groupBy("role", "outcome").agg(F.count("*").alias("rows")).collect()
    planted = {name: count for name, count in whole.truth.outcomes.items() if count}
    assert {f"{row['role']} {row['outcome']}": row["rows"] for row in counted} == planted
    assert sum(planted.values()) == whole.truth.records["mdr"] == whole.results["refine"].rows[SILVER_MDR.name]
    assert whole.results["refine"].findings == 0


def test_every_message_on_which_the_sides_differ_is_named_with_its_class_and_no_other(whole: Whole) -> None:
    found = Counter(
        (row["case_class"], row["msg_id"].hex(), row["src_domain"], row["dst_domain"])
        for row in whole.lake.read_small(RECON_CASE).to_pylist()
    )
    planted = Counter(
        (case.case_class, case.msg_id, case.src_domain, case.dst_domain) for case in whole.truth.case_list
    )
    assert found == planted
    assert set(whole.truth.cases) == {
        "altered",
        "duplicated",
        "lost",
        "orphan",
        "outcome",
        "pending",
        "size",
        "skewed",
    }
    details = whole.results["reconcile"].details
    assert {word: details[word] for word in whole.truth.cases} == whole.truth.cases
    assert details["matched"] == whole.truth.matched


def test_each_tampered_segment_gets_its_verdict_and_no_other_is_refused(whole: Whole) -> None:
    # A number that two places claim in the same words belongs to either of them: which one is the copy does not matter.
    ledger = rows_of(whole, SEGMENTS)
    by_number = {
        (row["node"], row["boot"], row["segno"], row["verdict"]): row for row in ledger if row["kind"] == "mdr"
    }
    by_path = {str(row["path"]).replace(".manifest.json", suffix): row for row in ledger for suffix in SEALED_SUFFIXES}
    refused = {str(row["path"]) for row in ledger if row["verdict"] == "rejected"}
    for fault in whole.truth.segments:
        if fault.fault in {"gap", "late"}:
            assert fault.path not in by_path, fault
            continue
        verdict, finding = SEGMENT_FINDINGS[fault.fault]
        is_copy = fault.fault == "copy"
        row = by_number[fault.node, fault.boot, fault.segno, verdict] if is_copy else by_path[fault.path]
        assert (row["verdict"], row["findings"]) == (verdict, [finding]), fault
        refused.discard(str(row["path"]))
    assert not refused
    assert {fault.fault for fault in whole.truth.segments} == {*SEGMENT_FINDINGS, "gap", "late"}


def test_what_is_missing_in_between_is_reported(whole: Whole) -> None:
    missing = {(fault.node, fault.boot, fault.segno) for fault in whole.truth.segments if not _is_stored(fault)}
    gaps = whole.results["ingest"].details["gaps"]
    shown = {(gap["node"], gap["boot"], number) for gap in gaps for number in range(gap["first"], gap["last"] + 1)}
    assert shown == missing
    assert whole.results["audit"].exit_code == ExitCode.INCOMPLETE


def _is_stored(fault: SegmentFault) -> bool:
    """Whether something is there under this number; of a node that is late, nobody knows that there is more."""
    return fault.is_readable or fault.fault == "late"


def test_the_deployed_policies_reproduce_every_decision_and_the_proposed_ones_flip_what_was_planted(
    whole: Whole,
) -> None:
    details = whole.results["replay"].details
    assert (details["self_check_agreed"], details["self_check_differed"]) == (whole.truth.decisions, 0)
    assert (details["old_rev"], details["new_rev"]) == (whole.truth.deployed_rev, whole.truth.proposed_rev)
    assert details["is_valid"]
    names = Flip.__dataclass_fields__
    found = [
        tuple(row[name] for name in names)
        for row in rows_of(whole, REPLAY_FLIP)
        if row["old_decision"] != row["new_decision"]
    ]
    assert sorted(map(repr, found)) == sorted(repr(astuple(flip)) for flip in whole.truth.flips)


def test_the_worse_stub_is_found_and_no_other(whole: Whole) -> None:
    worse = {
        (row["peer_domain"], row["baseline"], row["candidate"])
        for row in rows_of(whole, STUB_REGRESSION)
        if row["verdict"] == "worse"
    }
    planted = {(stub.peer_domain, stub.baseline, stub.candidate) for stub in whole.truth.stubs if stub.is_regression}
    assert worse == planted
    judged = {row["peer_domain"] for row in rows_of(whole, STUB_REGRESSION)}
    assert judged == {stub.peer_domain for stub in whole.truth.stubs}
    assert len(judged) > len(planted) == 1


def test_each_piece_of_abuse_is_found_and_no_other(whole: Whole) -> None:
    alerts = {
        (row["pattern"], row["our_domain"], row["peer_domain"], row["hour_us"]): row["subject"]
        for row in rows_of(whole, ALERT)
    }
    planted = {(one.pattern, one.our_domain, one.peer_domain, one.hour_us): one.subject for one in whole.truth.abuse}
    assert planted.keys() <= alerts.keys()
    assert {pattern for pattern, *_ in planted} == {"fan-out", "scanning", "flood", "spoofing"}
    for what, subject in planted.items():
        # A flood is a matter of the whole peer.
        assert alerts[what] == (subject if what[0] != "flood" else what[2])
    # A domain that scans another sends it more than usual in that very hour.
    busy = {(our, peer, hour) for _, our, peer, hour in planted}
    assert all(what[0] == "flood" and what[1:] in busy for what in alerts.keys() - planted.keys())


def test_more_differing_5_minutes_than_are_sent_to_every_worker_give_the_same_tables(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reconciled() -> list[list[str]]:
        return [sorted(map(repr, rows_of(whole, table))) for table in (RECON_BUCKET, RECON_CASE, RECON_PAIR)]

    before = reconciled()
    day = max(str(row["dt"]) for row in rows_of(whole, RECON_CASE))
    monkeypatch.setattr(reconcile, "FEW_BUCKETS", 0)
    again = reconcile.run(whole.lake, day=day)
    assert again.details["days"] == [day]
    assert again.findings > 0
    assert reconciled() == before


def test_every_clock_is_found_within_its_bound(whole: Whole) -> None:
    offsets = whole.lake.read_small(CLOCK_OFFSET).to_pylist()
    true_us = whole.truth.clock_offsets_us
    assert len({row["reference"] for row in offsets}) == 1
    for row in offsets:
        wrong_us = abs(row["offset_us"] - (true_us[row["domain"]] - true_us[row["reference"]]))
        assert wrong_us <= row["error_us"] + 1, row
    assert max(row["offset_us"] for row in offsets) - min(row["offset_us"] for row in offsets) > 2_000_000
    assert len({row["hour_us"] for row in offsets}) > 20
    # Nobody takes what that one sends, so nothing comes back from which its clock could be read.
    assert {row["domain"] for row in offsets} == set(true_us) - {"spam.example"}


def test_the_table_of_faults_in_the_documentation_is_that_of_this_run(whole: Whole) -> None:
    page = (Path(__file__).parents[2] / "docs/pipeline-faults.md").read_text(encoding="utf-8")
    assert as_markdown(fault_rows(whole.truth, whole.lake)) in page


def test_the_report_is_written_and_the_run_says_what_is_gravest(whole: Whole) -> None:
    assert combined(list(whole.results.values())) == ExitCode.INCOMPLETE
    page = whole.report.read_text(encoding="utf-8")
    assert page.count("<svg") >= 6
    assert "spam.example" in page
