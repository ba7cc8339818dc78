"""From the lake to the facts of the report. Tables by the hour are added up by Spark; what comes back is bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pipeline.columns import histogram
from pipeline.columns.groups import column, group_numbers, numbers, starts_of, words
from pipeline.columns.usual import HOUR_US, alarm_level, hour_of_week
from pipeline.core.completeness import completeness_of_nodes
from pipeline.core.stretches import in_order, stretch_of
from pipeline.core.utc_days import moment
from pipeline.report.facts import (
    ROWS_SHOWN,
    AlertLine,
    Band,
    BandHour,
    ClockOffset,
    LatencyHour,
    PairCases,
    PairTraffic,
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
from protofly.records import Kind

PAIRS: Final = 20_000
HOURS: Final = 24 * 31
STUB_PEERS: Final = 2
VERSIONS_PER_PEER: Final = 3
_SEVERITIES: Final = ("severe", "warning")


class ReadableLake(Protocol):
    """What the report needs of a lake."""

    def has(self, table: Table) -> bool:
        """Whether a table has ever been written."""

    def read(self, table: Table) -> DataFrame:
        """Its newest version."""

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
        traffic = self._traffic()
        statements, statement_count, complete_until_us = self._statements()
        alerts, alert_count = self._alerts()
        replay, flips = self._replay()
        hours = self._table(TRAFFIC_HOURLY)
        span = (
            None if hours is None else hours.agg(F.min("hour_us").alias("low"), F.max("hour_us").alias("high")).first()
        )
        accepted = [group for group in segments if group.verdict == "accepted" and group.kind == "mdr"]
        reconciled, pairs = self._reconciled()
        return ReportFacts(
            records=sum(group.records for group in accepted),
            nodes=len({group.node for group in segments}),
            domains=len({name for pair in traffic for name in (pair.src_domain, pair.dst_domain)}),
            from_us=None if span is None else span["low"],
            until_us=None if span is None or span["high"] is None else span["high"] + HOUR_US,
            complete_until_us=complete_until_us,
            lost_records=sum(group.lost_records for group in segments if group.verdict == "accepted"),
            traffic=traffic,
            latency=self._latency(),
            reconciled=reconciled,
            pairs=pairs,
            offsets=self._offsets(),
            replay=replay,
            flips=flips,
            stubs=self._stubs(),
            verdicts=self._verdicts(),
            band=self._band(alerts),
            alerts=alerts,
            alert_count=alert_count,
            segments=segments[:ROWS_SHOWN],
            held_by=self._held_by(),
            statements=statements,
            statement_count=statement_count,
            versions=self._versions,
        )

    def _held_by(self) -> str:
        """Which node's proof ends first."""
        rows = [row for row in self._rows(SEGMENT_STRETCH) if row["kind"] == Kind.MESSAGE.value]
        proved = completeness_of_nodes(sorted(map(stretch_of, rows), key=in_order), declared_until(self._lake))
        if not proved:
            return ""
        known = min(proved.values(), key=lambda one: one.until_us)
        return f"{known.proof}, proved complete until {moment(known.until_us)}"

    def _table(self, table: Table) -> DataFrame | None:
        if not self._lake.has(table):
            return None
        self._versions[table.name] = self._lake.version(table)
        return self._lake.read(table)

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

    def _traffic(self) -> tuple[PairTraffic, ...]:
        """The sender's count of messages, where there is one, else the receiver's; denials of both gates."""
        table = self._table(TRAFFIC_HOURLY)
        if table is None:
            return ()
        is_out = F.col("role") == "out"
        sent, received = (F.sum(F.when(role, F.col("messages"))) for role in (is_out, ~is_out))
        denied, refused = (F.sum(F.when(role, F.col("denied")).otherwise(0)) for role in (is_out, ~is_out))
        pairs = table.groupBy("src_domain", "dst_domain").agg(
            F.coalesce(sent, received).alias("messages"), denied.alias("denied"), refused.alias("refused")
        )
        rows = pairs.orderBy(F.desc("messages"), "src_domain", "dst_domain").limit(PAIRS)
        return tuple(PairTraffic(**row.asDict()) for row in rows.collect())

    def _latency(self) -> tuple[LatencyHour, ...]:
        table = self._table(TRAFFIC_HOURLY)
        if table is None:
            return ()
        role = "out" if table.where(F.col("role") == "out").limit(1).count() else "in"
        rows = _merged(table.where(F.col("role") == role), "latency", "hour_us").collect()
        by_hour = _histograms(rows, "hour_us")
        shown = sorted(by_hour)[-HOURS:]
        return tuple(
            LatencyHour(
                hour_us=hour,
                messages=sum(by_hour[hour].values()),
                p50_us=_percentile(by_hour[hour], 500),
                p95_us=_percentile(by_hour[hour], 950),
                p99_us=_percentile(by_hour[hour], 990),
            )
            for hour in shown
        )

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
            differing = other + sum(row[name] for name in ("lost", "orphan", "duplicated", "altered"))
            if differing or row["pending"]:
                order = (-differing, -row["pending"], row["src_domain"], row["dst_domain"])
                pairs.append((order, PairCases(other=other, **row)))
        shown = tuple(pair for _, pair in sorted(pairs, key=lambda one: one[0])[:ROWS_SHOWN])
        return Reconciled(**total, pairs=len(by_pair), complete_until_us=until_us), shown

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
        """Versions of the peers that run more than one, the busiest first; without such a peer, the busiest peer."""
        table = self._table(STUB_HOURLY)
        if table is None:
            return ()
        versions = (
            table.where(F.col("stub_ver").isNotNull())
            .groupBy("peer_domain", "stub_ver")
            .agg(F.sum("messages").alias("messages"))
            .orderBy("peer_domain", F.desc("messages"), "stub_ver")
            .limit(PAIRS)
            .collect()
        )
        shown = [pair for peer in _peers_to_show(versions) for pair in peer]
        of_shown = table.where(F.col("peer_domain").isin(sorted({peer for peer, _ in shown})))
        measured: dict[tuple[str, str], dict[str, dict[int, int]]] = {}
        for measure in ("latency", "fuel"):
            for row in _merged(of_shown, measure, "peer_domain", "stub_ver").collect():
                counts = measured.setdefault((row["peer_domain"], row["stub_ver"]), {}).setdefault(measure, {})
                counts[row["bucket"]] = row["count"]
        found: list[StubVersion] = []
        for peer_domain, stub_ver in shown:
            for measure in ("latency", "fuel"):
                counts = measured.get((peer_domain, stub_ver), {}).get(measure, {})
                if counts:
                    found.append(
                        StubVersion(
                            peer_domain=peer_domain,
                            stub_ver=stub_ver,
                            measure=measure,
                            messages=sum(counts.values()),
                            points=_distribution(counts),
                        )
                    )
        return tuple(found)

    def _verdicts(self) -> tuple[StubVerdict, ...]:
        names = ("peer_domain", "baseline", "candidate", "measure", "ratio", "low", "high", "messages", "verdict")
        rows = sorted(
            self._rows(STUB_REGRESSION, names),
            key=lambda row: (row["verdict"] != "worse", *(row[name] for name in names[:4])),
        )
        return tuple(StubVerdict(**row) for row in rows[:ROWS_SHOWN])

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

    def _band(self, alerts: Iterable[AlertLine]) -> Band | None:
        """The peer of the gravest flood, else of the gravest alert, hour by hour against its baseline."""
        traffic, baseline = self._table(TRAFFIC_HOURLY), self._rows(DOMAIN_BASELINE)
        known = sorted(alerts, key=lambda alert: alert.pattern != "flood")
        if traffic is None or not self._lake.has(DOMAIN_BASELINE) or not known:
            return None
        our_domain, peer_domain = known[0].our_domain, known[0].peer_domain
        observed = (
            traffic.where((F.col("our_domain") == our_domain) & (F.col("role") == "in"))
            .where(F.col("src_domain") == peer_domain)
            .groupBy("hour_us")
            .agg(F.sum("messages").alias("messages"))
            .orderBy(F.desc("hour_us"))
            .limit(HOURS)
        )
        usual = {
            row["hour_of_week"]: (row["median"], row["mad"])
            for row in baseline
            if (row["our_domain"], row["peer_domain"], row["measure"]) == (our_domain, peer_domain, "messages")
        }
        alarming = {
            alert.hour_us for alert in known if (alert.our_domain, alert.peer_domain) == (our_domain, peer_domain)
        }
        rows = sorted(observed.collect(), key=lambda row: row["hour_us"])
        hours = tuple(_band_hour(row, usual, is_alert=row["hour_us"] in alarming) for row in rows)
        return Band(our_domain=our_domain, peer_domain=peer_domain, hours=hours)


def _band_hour(row: Row, usual: Mapping[int, tuple[float, float]], *, is_alert: bool) -> BandHour:
    median, mad = usual.get(hour_of_week(row["hour_us"]), (0.0, 0.0))
    return BandHour(
        hour_us=row["hour_us"],
        observed=float(row["messages"]),
        expected=median,
        threshold=alarm_level(median, mad),
        is_alert=is_alert,
    )


def _merged(table: DataFrame, column: str, *keys: str) -> DataFrame:
    """Sum of the histograms of a column, by bucket."""
    return (
        table.select(*keys, F.explode(column).alias("bucket", "part"))
        .groupBy(*keys, "bucket")
        .agg(F.sum("part").alias("count"))
    )


def _histograms(rows: Iterable[Row], key: str) -> dict[int, dict[int, int]]:
    found: dict[int, dict[int, int]] = {}
    for row in rows:
        found.setdefault(row[key], {})[row["bucket"]] = row["count"]
    return found


def _peers_to_show(versions: Iterable[Row]) -> list[list[tuple[str, str]]]:
    by_peer: dict[str, list[Any]] = {}
    for row in versions:
        by_peer.setdefault(row["peer_domain"], []).append(row)
    ranked = sorted(
        by_peer.values(),
        key=lambda rows: (len(rows) < 2, -sum(row["messages"] for row in rows), rows[0]["peer_domain"]),
    )
    several = [rows for rows in ranked if len(rows) > 1][:STUB_PEERS] or ranked[:1]
    return [[(row["peer_domain"], row["stub_ver"]) for row in rows[:VERSIONS_PER_PEER]] for rows in several]


def _percentile(counts: Mapping[int, int], per_mille: int) -> int:
    return histogram.quantile(counts, per_mille) or 0


def _distribution(counts: Mapping[int, int]) -> tuple[tuple[int, float], ...]:
    total, below = sum(counts.values()), 0
    points = []
    for bucket in sorted(counts):
        below += counts[bucket]
        points.append((max(histogram.upper_bound(bucket), 1), below / total))
    return tuple(points)
