"""From the lake to the facts of the report. Tables by the hour are added up by workers; what comes back is bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns.clock_findings import ClockFinding, finding_line
from pipeline.columns.groups import column, group_numbers, numbers, starts_of, words
from pipeline.columns.report_sums import STUBS, TRAFFIC
from pipeline.columns.usual import HOUR_US, alarm_level, hour_of_week
from pipeline.core.completeness import completeness_of_nodes
from pipeline.core.findings import SegmentVerdict
from pipeline.core.stretches import in_order, stretch_of
from pipeline.core.utc_days import moment
from pipeline.lake.worker_rows import WorkerRows
from pipeline.report.by_hour import PAIRS, Traffic, stub_versions, traffic_of
from pipeline.report.facts import (
    ROWS_SHOWN,
    AlertLine,
    Band,
    BandHour,
    ClockOffset,
    PairCases,
    Reconciled,
    ReplayHeader,
    ReportFacts,
    RuleFlips,
    SegmentGroup,
    StatementLine,
    StubVerdict,
    StubVersion,
)
from pipeline.schemas import (
    ALERT,
    CLOCK_FINDING,
    CLOCK_OFFSET,
    DOMAIN_BASELINE,
    RECON_PAIR,
    REPLAY_FLIP,
    REPLAY_RUN,
    SEGMENT_STRETCH,
    SEGMENTS,
    STATEMENT_DAILY,
    STUB_HOURLY,
    STUB_REGRESSION,
    TRAFFIC_HOURLY,
    Table,
)
from pipeline.segments.declarations import declared_until
from protofly.records import RecordKind

_SEVERITIES: Final = ("severe", "warning")
_TAKEN: Final = frozenset({SegmentVerdict.ACCEPTED.value, SegmentVerdict.COPY.value})


class ReadableLake(Protocol):
    """A lake, as the report reads it."""

    def has(self, table: Table) -> bool:
        """True if a table has ever been written."""

    def read_in_workers(self, table: Table, *, columns: Collection[str]) -> WorkerRows:
        """Columns of its newest version, in workers."""

    def read_small(self, table: Table, columns: Collection[str] | None = None) -> pa.Table:
        """Columns of its newest version, of which there is not much; empty when it was never written."""

    def version(self, table: Table) -> int:
        """The number of that version."""


def gather(lake: ReadableLake) -> ReportFacts:
    """Everything that the report shows. Parts whose job has not run stay empty."""
    return _Gathering(lake).facts()


class _Gathering:
    """One pass over the tables."""

    def __init__(self, lake: ReadableLake) -> None:
        self._lake = lake
        self._versions: dict[str, int] = {}

    def facts(self) -> ReportFacts:
        segments = self._segments()
        statements, statement_count, complete_until_us = self._statements()
        alerts, alert_count = self._alerts()
        replay, flips = self._replay()
        clock_findings = self._clock_findings()
        shown = self._peer_to_show(alerts)
        traffic = self._traffic(shown)
        accepted = [group for group in segments if group.verdict == "accepted" and group.kind == "mdr"]
        reconciled, pairs = self._reconciled()
        verdicts = self._verdicts()
        return ReportFacts(
            records=sum(group.records for group in accepted),
            nodes=len({group.node for group in segments}),
            domains=len({name for pair in traffic.pairs for name in (pair.src_domain, pair.dst_domain)}),
            from_us=traffic.first_us,
            until_us=None if traffic.last_us is None else traffic.last_us + HOUR_US,
            complete_until_us=complete_until_us,
            lost_records=sum(group.lost_records for group in segments if group.verdict == "accepted"),
            traffic=traffic.pairs,
            latency=traffic.latency,
            reconciled=reconciled,
            pairs=pairs[:ROWS_SHOWN],
            pair_count=len(pairs),
            offsets=self._offsets(),
            clock_findings=clock_findings[:ROWS_SHOWN],
            clock_finding_count=len(clock_findings),
            replay=replay,
            flips=flips,
            stubs=self._stubs(),
            verdicts=verdicts[:ROWS_SHOWN],
            verdict_count=len(verdicts),
            band=None if shown is None else self._band(shown, traffic, alerts),
            alerts=alerts,
            alert_count=alert_count,
            segments=segments[:ROWS_SHOWN],
            segment_group_count=len(segments),
            refused_segments=sum(group.segments for group in segments if group.verdict not in _TAKEN),
            held_by=self._held_by(),
            statements=statements,
            statement_count=statement_count,
            versions=self._versions,
        )

    def _held_by(self) -> str:
        """Which node's proof ends first."""
        stretches = sorted(map(stretch_of, self._rows(SEGMENT_STRETCH)), key=in_order)
        of_messages = [one for one in stretches if one.kind == RecordKind.MESSAGE.value]
        proved = completeness_of_nodes(of_messages, declared_until(self._lake, stretches))
        if not proved:
            return ""
        known = min(proved.values(), key=lambda one: one.until_us)
        return f"{known.proof}, proved complete until {moment(known.until_us)}"

    def _in_workers(self, table: Table, names: Collection[str]) -> WorkerRows | None:
        if not self._lake.has(table):
            return None
        self._versions[table.name] = self._lake.version(table)
        return self._lake.read_in_workers(table, columns=names)

    def _small(self, table: Table, names: Collection[str] | None = None) -> pa.Table:
        """What is concluded is small: it is read here, because a query of Spark's takes longer than all of it."""
        if self._lake.has(table):
            self._versions[table.name] = self._lake.version(table)
        return self._lake.read_small(table, names)

    def _rows(self, table: Table, names: Collection[str] | None = None) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._small(table, names).to_pylist()
        return rows

    def _segments(self) -> tuple[SegmentGroup, ...]:
        names = ["node", "kind", "verdict", "severity", "findings", "records", "lost_records", "detail"]
        rows = self._small(SEGMENTS, names)
        if not rows.num_rows:
            return ()
        findings = pc.binary_join(rows.column("findings").combine_chunks().cast(pa.list_(pa.string())), ", ")
        detail = pc.if_else(pc.equal(rows.column("detail"), ""), None, rows.column("detail"))
        rows = rows.set_column(4, "findings", findings).set_column(7, "detail", detail)
        sums = [([], "count_all"), ("records", "sum"), ("lost_records", "sum"), ("detail", "min")]
        groups = [
            SegmentGroup(
                node=row["node"] or "",
                kind=row["kind"] or "",
                verdict=row["verdict"],
                severity=row["severity"] or "",
                findings=row["findings"] or "",
                segments=row["count_all"],
                records=row["records_sum"] or 0,
                lost_records=row["lost_records_sum"] or 0,
                detail=row["detail_min"] or "",
            )
            for row in rows.group_by(names[:5]).aggregate(sums).to_pylist()
        ]
        groups.sort(key=lambda one: (one.severity == "fine", one.verdict, one.node, one.kind, one.findings))
        return tuple(groups)

    def _traffic(self, shown: tuple[str, str] | None) -> Traffic:
        rows = self._in_workers(TRAFFIC_HOURLY, TRAFFIC)
        return Traffic() if rows is None else traffic_of(rows, shown)

    def _statements(self) -> tuple[tuple[StatementLine, ...], int, int | None]:
        key = ("dt", "our_domain", "src_domain", "dst_domain", "role")
        figures = ("messages", "delivered", "denied", "bytes_wire", "p50_us", "p99_us", "status", "version")
        table = self._small(STATEMENT_DAILY, (*key, *figures, "complete_until_us"))
        if not table.num_rows:
            return (), 0, None
        keys = [words(column(table, name)) for name in key]
        statement, _ = group_numbers((places, len(found)) for found, places in keys)
        order = np.lexsort((-numbers(table, "version"), statement))
        newest = table.take(pa.array(order[starts_of(statement[order])]))
        busiest = newest.sort_by([("messages", "descending"), *((name, "ascending") for name in key)])
        lines = tuple(
            StatementLine(**{name: row[name] for name in (*key, *figures)} | {"bytes_wire": row["bytes_wire"] or 0})
            for row in busiest.slice(0, ROWS_SHOWN).to_pylist()
        )
        return lines, newest.num_rows, pc.min(newest.column("complete_until_us")).as_py()

    def _reconciled(self) -> tuple[Reconciled | None, tuple[PairCases, ...]]:
        if not self._lake.has(RECON_PAIR):
            return None, ()
        names = ("sent", "received", "matched", "pending", "lost", "orphan", "duplicated", "altered")
        rest, open_ = ("size", "outcome", "skewed"), ("unprovable",)
        counted = (*names, *rest, *open_)
        table = self._small(RECON_PAIR, (*counted, "src_domain", "dst_domain", "complete_until_us"))
        sums = table.group_by(["src_domain", "dst_domain"]).aggregate([(name, "sum") for name in counted])
        by_pair: list[dict[str, Any]] = [
            {name.removesuffix("_sum"): 0 if value is None else value for name, value in row.items()}
            for row in sums.to_pylist()
        ]
        total = {name: sum(row[name] for row in by_pair) for name in counted}
        until_us = pc.min(table.column("complete_until_us")).as_py()
        pairs = []
        for row in by_pair:
            other = sum(row.pop(name) for name in rest)
            row["pending"] += sum(row.pop(name) for name in open_)
            many = other + sum(row[name] for name in ("lost", "orphan", "duplicated", "altered"))
            if many or row["pending"]:
                order = (-many, -row["pending"], row["src_domain"], row["dst_domain"])
                pairs.append((order, PairCases(other=other, **row)))
        differing = tuple(pair for _, pair in sorted(pairs, key=lambda one: one[0]))
        return Reconciled(**total, pairs=len(by_pair), complete_until_us=until_us), differing

    def _offsets(self) -> tuple[ClockOffset, ...]:
        newest: dict[str, Mapping[str, Any]] = {}
        messages = Counter[str]()
        rows = self._rows(CLOCK_OFFSET, ("domain", "hour_us", "offset_us", "error_us", "messages"))
        known = [row for row in rows if row["hour_us"] is not None]  # there are rows of whole days in older lakes
        for row in sorted(known, key=lambda row: int(row["hour_us"])):
            newest[row["domain"]] = row
            messages[row["domain"]] += row["messages"] or 0
        return tuple(
            ClockOffset(
                domain=domain,
                offset_us=row["offset_us"],
                error_us=row["error_us"] or 0,
                messages=messages[domain],
            )
            for domain, row in sorted(newest.items())[:PAIRS]
        )

    def _clock_findings(self) -> tuple[str, ...]:
        names = [field.name for field in fields(ClockFinding)]
        rows = self._rows(CLOCK_FINDING, ("dt", *names))
        ordered = sorted(rows, key=lambda row: (row["dt"], row["hour_us"], row["domain"]), reverse=True)
        return tuple(finding_line(ClockFinding(**{name: row[name] for name in names}), row["dt"]) for row in ordered)

    def _replay(self) -> tuple[ReplayHeader | None, tuple[RuleFlips, ...]]:
        newest = max(self._rows(REPLAY_RUN), key=lambda row: str(row["run"]), default=None)
        flips = self._rows(REPLAY_FLIP, ("run", "old_decision", "new_decision", "old_rule", "new_rule", "messages"))
        if newest is None:
            return None, ()
        header = ReplayHeader(
            run=newest["run"],
            old_rev=newest["old_rev"] or "",
            new_rev=newest["new_rev"] or "",
            messages=newest["messages"],
            self_check_differed=newest["self_check_differed"],
            not_replayable=newest["not_replayable"],
            is_valid=newest["is_valid"],
        )
        by_rule: dict[str, Counter[str]] = {}
        for row in flips:
            if row["run"] == newest["run"] and row["old_decision"] != row["new_decision"]:
                by_rule.setdefault(row["new_rule"] or row["old_rule"] or "", Counter())[row["new_decision"]] += row[
                    "messages"
                ]
        lines = (
            RuleFlips(rule_id=rule, denied_now=counts["deny"], permitted_now=counts["permit"])
            for rule, counts in sorted(by_rule.items())[:PAIRS]
        )
        return header, tuple(lines)

    def _stubs(self) -> tuple[StubVersion, ...]:
        rows = self._in_workers(STUB_HOURLY, STUBS)
        return () if rows is None else stub_versions(rows)

    def _verdicts(self) -> tuple[StubVerdict, ...]:
        names = ("peer_domain", "baseline", "candidate", "measure", "ratio", "low", "high", "messages", "verdict")
        rows = sorted(
            self._rows(STUB_REGRESSION, names),
            key=lambda row: (row["verdict"] != "worse", *(row[name] for name in names[:4])),
        )
        return tuple(StubVerdict(**row) for row in rows)

    def _alerts(self) -> tuple[tuple[AlertLine, ...], int]:
        rows = sorted(
            self._rows(ALERT),
            key=lambda row: (
                row["severity"] != _SEVERITIES[0],
                -row["observed"] / max(row["threshold"], 1e-9),
                *(row[name] or "" for name in ("our_domain", "peer_domain", "pattern")),
                row["hour_us"],
                row["subject"] or "",
            ),
        )
        lines = tuple(
            AlertLine(
                hour_us=row["hour_us"],
                our_domain=row["our_domain"],
                peer_domain=row["peer_domain"],
                pattern=row["pattern"],
                subject=row["subject"] or "",
                severity=row["severity"],
                observed=row["observed"],
                threshold=row["threshold"],
                explanation=row["explanation"] or "",
                proposed_policy=row["proposed_policy"] or "",
                evidence=tuple(row["evidence"] or ()),
            )
            for row in rows[:ROWS_SHOWN]
        )
        return lines, len(rows)

    def _peer_to_show(self, alerts: Iterable[AlertLine]) -> tuple[str, str] | None:
        """The domain and its peer of the gravest flood, else of the gravest alert, if it is known what is usual."""
        known = min(alerts, key=lambda alert: alert.pattern != "flood", default=None)
        if known is None or not self._lake.has(DOMAIN_BASELINE) or not self._lake.has(TRAFFIC_HOURLY):
            return None
        return known.our_domain, known.peer_domain

    def _band(self, shown: tuple[str, str], traffic: Traffic, alerts: Iterable[AlertLine]) -> Band:
        """The traffic of this peer, hour by hour, against its baseline."""
        baseline = [
            row
            for row in self._rows(DOMAIN_BASELINE)
            if (row["our_domain"], row["peer_domain"], row["measure"]) == (*shown, "messages")
        ]
        usual = {row["hour_of_week"]: (row["median"], row["mad"]) for row in baseline}
        alarming = {alert.hour_us for alert in alerts if (alert.our_domain, alert.peer_domain) == shown}
        hours = tuple(
            _band_hour(hour_us, messages, usual, is_alert=hour_us in alarming)
            for hour_us, messages in traffic.of_peer.items()
        )
        return Band(our_domain=shown[0], peer_domain=shown[1], hours=hours)


def _band_hour(hour_us: int, messages: int, usual: Mapping[int, tuple[float, float]], *, is_alert: bool) -> BandHour:
    median, mad = usual.get(hour_of_week(hour_us), (0.0, 0.0))
    return BandHour(
        hour_us=hour_us,
        observed=float(messages),
        expected=median,
        threshold=alarm_level(median, mad),
        is_alert=is_alert,
    )
