"""What the report says of what is concluded: the newest of everything, the gravest first."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.utc_days import end_us
from pipeline.lake.tables import Lake
from pipeline.lake.worker_rows import WorkerRows
from pipeline.report.facts import ROWS_SHOWN
from pipeline.report.gather import gather
from pipeline.report.recent import RecentDays
from pipeline.schemas import (
    ALERT,
    CLOCK_FINDING,
    CLOCK_OFFSET,
    RECON_PAIR,
    REPLAY_FLIP,
    REPLAY_RUN,
    SEGMENTS,
    STATEMENT_DAILY,
    STUB_REGRESSION,
    TRAFFIC_HOURLY,
    Table,
)
from tests.pipeline.rows import HOUR_US, MONDAY_US


@dataclass
class FewRows:
    """A lake of which nothing is large."""

    rows: Mapping[str, Sequence[Mapping[str, Any]]]

    def has(self, table: Table) -> bool:
        return table.name in self.rows

    def version(self, table: Table) -> int:
        return len(self.rows[table.name])

    def read_in_workers(self, table: Table, *, columns: Collection[str]) -> WorkerRows:
        raise AssertionError(f"{columns} of {table.name} are read by Spark")

    def read_small(self, table: Table, columns: Collection[str] | None = None) -> pa.Table:
        schema = to_arrow_schema(table.schema)
        names = schema.names
        rows = [{name: row.get(name) for name in names} for row in self.rows.get(table.name, ())]
        return pa.Table.from_pylist(rows, schema).select(list(columns or names))


PAIR = {"src_domain": "a.example", "dst_domain": "b.example"}


def statement(version: int, **members: Any) -> dict[str, Any]:
    figures = dict.fromkeys(("messages", "delivered", "denied", "bytes_wire", "p50_us", "p99_us"), version)
    row = PAIR | {"our_domain": "a.example", "role": "out", "dt": "2026-03-02", "status": "final", "version": version}
    return row | figures | {"complete_until_us": 10 + version} | members


def pair(**members: Any) -> dict[str, Any]:
    names = ("sent", "received", "matched", "pending", "lost", "orphan", "duplicated", "altered")
    zeros = dict.fromkeys((*names, "size", "outcome", "skewed"), 0)
    return PAIR | zeros | {"complete_until_us": 5, "dt": "2026-03-02"} | members


def test_a_lake_without_anything_gives_an_empty_report() -> None:
    facts = gather(FewRows({}))
    assert (facts.records, facts.statement_count, facts.alert_count, facts.versions) == (0, 0, 0, {})
    assert (facts.reconciled, facts.replay, facts.band) == (None, None, None)


def test_of_a_statement_the_newest_version_counts_and_the_busiest_come_first() -> None:
    rows = [statement(2), statement(1), statement(1, role="in", messages=9), statement(1, dt="2026-03-01")]
    facts = gather(FewRows({STATEMENT_DAILY.name: rows}))
    shown = [(line.dt, line.role, line.version, line.messages) for line in facts.statements]
    assert shown == [("2026-03-02", "in", 1, 9), ("2026-03-02", "out", 2, 2), ("2026-03-01", "out", 1, 1)]
    assert (facts.statement_count, facts.complete_until_us) == (3, 11)
    assert facts.versions == {STATEMENT_DAILY.name: 4}


def test_pairs_are_added_up_over_days_and_those_that_differ_most_come_first() -> None:
    rows = [
        pair(sent=10, matched=9, lost=1),
        pair(sent=10, matched=9, size=1, dt="2026-03-03", complete_until_us=4),
        pair(src_domain="c.example", sent=1, matched=1),
        pair(src_domain="d.example", sent=9, lost=9),
        pair(src_domain="e.example", sent=2, pending=2),
    ]
    facts = gather(FewRows({RECON_PAIR.name: rows}))
    assert facts.reconciled is not None
    total = facts.reconciled
    assert (total.sent, total.matched, total.lost, total.size, total.pending) == (32, 19, 10, 1, 2)
    assert (total.pairs, total.complete_until_us) == (4, 4)
    shown = [(one.src_domain, one.sent, one.lost, one.other, one.pending) for one in facts.pairs]
    assert shown == [("d.example", 9, 9, 0, 0), ("a.example", 20, 1, 1, 0), ("e.example", 2, 0, 0, 2)]


def test_of_a_clock_the_newest_hour_counts_and_the_messages_of_all() -> None:
    def offset(domain: str, hour_us: int, messages: int, offset_us: int) -> dict[str, Any]:
        return {"domain": domain, "hour_us": hour_us, "messages": messages, "offset_us": offset_us, "error_us": 3}

    rows = [offset("b.example", 7, 2, 3), offset("b.example", 6, 5, 1), offset("a.example", 5, 9, 4)]
    rows.append(offset("b.example", 0, 99, 99) | {"hour_us": None})  # of a lake that knew days only
    facts = gather(FewRows({CLOCK_OFFSET.name: rows}))
    found = [(one.domain, one.offset_us, one.messages) for one in facts.offsets]
    assert found == [("a.example", 4, 9), ("b.example", 3, 7)]


def test_clocks_that_go_wrong_are_listed_the_newest_first() -> None:
    def finding(domain: str, dt: str, hour_us: int) -> dict[str, Any]:
        words = {"domain": domain, "dt": dt, "hour_us": hour_us, "kind": "step", "against": "the clock of x"}
        return words | {"change_us": 2_000_000, "error_us": 9_000}

    rows = [finding("a.example", "2026-03-01", 5), finding("b.example", "2026-03-02", 7)]
    rows += [finding("c.example", "2026-03-02", 9)] + [finding("d.example", "2026-02-01", 1)] * ROWS_SHOWN
    facts = gather(FewRows({CLOCK_FINDING.name: rows}))
    first = [" ".join(line.split()[2:5]) for line in facts.clock_findings[:3]]
    assert first == ["c.example on 2026-03-02:", "b.example on 2026-03-02:", "a.example on 2026-03-01:"]
    assert (facts.clock_finding_count, len(facts.clock_findings)) == (ROWS_SHOWN + 3, ROWS_SHOWN)


def test_flips_are_those_of_the_newest_replay_and_named_after_the_rule_that_decides_now() -> None:
    def cell(run: str, old: str, new: str, old_rule: str, new_rule: str, messages: int) -> dict[str, Any]:
        words = {"old_decision": old, "new_decision": new, "old_rule": old_rule, "new_rule": new_rule}
        return words | {"run": run, "messages": messages}

    runs = [
        {"run": name, "messages": 9, "self_check_differed": 0, "not_replayable": 1, "is_valid": True}
        for name in ("00000002-a", "00000001-z")
    ]
    flips = [
        cell("00000001-z", "permit", "deny", "", "old/run", 50),
        cell("00000002-a", "permit", "permit", "", "same/still", 50),
        cell("00000002-a", "permit", "deny", "", "too/big", 2),
        cell("00000002-a", "permit", "deny", "was/this", "too/big", 3),
        cell("00000002-a", "deny", "permit", "was/closed", "", 4),
        cell("00000002-a", "deny", "permit", "", "", 5),
    ]
    facts = gather(FewRows({REPLAY_RUN.name: runs, REPLAY_FLIP.name: flips}))
    assert facts.replay is not None
    assert facts.replay.run == "00000002-a"
    assert [(one.rule_id, one.denied_now, one.permitted_now) for one in facts.flips] == [
        ("", 0, 5),
        ("too/big", 5, 0),
        ("was/closed", 0, 4),
    ]


def test_severe_alerts_come_first_and_then_those_farthest_beyond_their_threshold() -> None:
    def alert(subject: str, severity: str, observed: float) -> dict[str, Any]:
        words = {"our_domain": "a.example", "peer_domain": "b.example", "pattern": "fan-out", "subject": subject}
        return words | {"severity": severity, "observed": observed, "threshold": 2.0, "hour_us": MONDAY_US}

    rows = [alert("third", "warning", 90.0), alert("second", "severe", 3.0), alert("first", "severe", 8.0)]
    facts = gather(FewRows({ALERT.name: rows}))
    assert [one.subject for one in facts.alerts] == ["first", "second", "third"]
    assert facts.alert_count == 3


def test_worse_stubs_come_first() -> None:
    names = ("peer_domain", "baseline", "candidate", "measure")
    rows = [dict.fromkeys(names, peer) | {"verdict": verdict} for peer, verdict in (("a", "same"), ("b", "worse"))]
    facts = gather(FewRows({STUB_REGRESSION.name: rows}))
    assert [(one.peer_domain, one.verdict) for one in facts.verdicts] == [("b", "worse"), ("a", "same")]


def test_segments_are_grouped_by_what_became_of_them_and_the_fine_ones_come_last() -> None:
    def segment(verdict: str, severity: str, findings: list[str], detail: str | None) -> dict[str, Any]:
        facts = {"node": "mn-1.a.example", "kind": "mdr", "records": 5, "lost_records": 1, "opened_us": HOUR_US}
        return facts | {"verdict": verdict, "severity": severity, "findings": findings, "detail": detail}

    rows = [
        segment("accepted", "fine", [], None),
        segment("accepted", "fine", [], ""),
        segment("rejected", "severe", ["torn", "count"], "b"),
        segment("rejected", "severe", ["torn", "count"], "a"),
    ]
    facts = gather(FewRows({SEGMENTS.name: rows}))
    shown = [(one.verdict, one.findings, one.segments, one.records, one.detail) for one in facts.segments]
    assert shown == [("rejected", "torn, count", 2, 10, "a"), ("accepted", "", 2, 10, "")]
    assert (facts.records, facts.lost_records, facts.nodes) == (10, 2, 1)
    assert (facts.segment_group_count, facts.refused_segments) == (2, 2)


def test_of_long_lists_the_gravest_are_shown_and_all_are_counted() -> None:
    number = ROWS_SHOWN + 5
    refused = {"kind": "mdr", "verdict": "rejected", "severity": "severe", "findings": [], "records": 1}
    names = ("peer_domain", "baseline", "candidate", "measure")
    facts = gather(
        FewRows(
            {
                SEGMENTS.name: [refused | {"node": f"mn-{one}"} for one in range(number)],
                RECON_PAIR.name: [pair(src_domain=f"d{one}.example", lost=1) for one in range(number)],
                STUB_REGRESSION.name: [dict.fromkeys(names, str(one)) | {"verdict": "worse"} for one in range(number)],
            }
        )
    )
    assert [len(shown) for shown in (facts.segments, facts.pairs, facts.verdicts)] == [ROWS_SHOWN] * 3
    assert [facts.segment_group_count, facts.pair_count, facts.verdict_count] == [number] * 3
    assert facts.refused_segments == number


@pytest.mark.spark
def test_a_report_has_the_newest_days_and_a_clock_that_is_years_ahead_hides_none_of_them(lake: Lake) -> None:
    days = ("2026-01-30", "2026-03-01", "2026-03-02", "2099-01-01")
    for table in (TRAFFIC_HOURLY, STATEMENT_DAILY):
        rows = [{name: day if name == "dt" else None for name in table.schema.names} for day in days]
        lake.commit(pa.Table.from_pylist(rows, to_arrow_schema(table.schema)), table)
    closed = [{"node": "n", "closed_us": end_us(day) - 1, "entered": day} for day in days]
    for row in closed:
        lake.commit(pa.Table.from_pylist([row], to_arrow_schema(SEGMENTS.schema)), SEGMENTS)
    recent = RecentDays(lake, 31)
    assert recent.first_day == "2026-01-31"
    found = [recent.read_small(STATEMENT_DAILY, ["dt"]), recent.read_small(SEGMENTS, ["entered"])]
    assert [sorted(rows.column(0).to_pylist()) for rows in found] == [list(days[1:]), list(days[1:])]
    assert RecentDays(lake, 32).first_day == days[0]
