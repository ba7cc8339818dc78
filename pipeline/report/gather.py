"""From the lake to the facts of the report. All heavy work is Spark's; what comes back is bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from pipeline import histogram
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
    SEGMENTS,
    STATEMENT_DAILY,
    STUB_HOURLY,
    STUB_REGRESSION,
    TRAFFIC_HOURLY,
    Table,
)
from pipeline.usual import HOUR_US, HOURS_PER_WEEK, alarm_level, hour_of_week

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
            statements=statements,
            statement_count=statement_count,
            versions=self._versions,
        )

    def _table(self, table: Table) -> DataFrame | None:
        if not self._lake.has(table):
            return None
        self._versions[table.name] = self._lake.version(table)
        return self._lake.read(table)

    def _segments(self) -> tuple[SegmentGroup, ...]:
        table = self._table(SEGMENTS)
        if table is None:
            return ()
        rows = (
            table.withColumn("found", F.array_join("findings", ", "))
            .groupBy("node", "kind", "verdict", "severity", "found")
            .agg(
                F.count("*").alias("segments"),
                F.sum("records").alias("records"),
                F.sum("lost_records").alias("lost_records"),
                F.min("detail").alias("detail"),
            )
        )
        groups = [
            SegmentGroup(
                node=row["node"] or "",
                kind=row["kind"] or "",
                verdict=row["verdict"],
                severity=row["severity"] or "",
                findings=row["found"] or "",
                segments=row["segments"],
                records=row["records"] or 0,
                lost_records=row["lost_records"] or 0,
                detail=row["detail"] or "",
            )
            for row in rows.collect()
        ]
        groups.sort(key=lambda one: (one.severity == "fine", one.verdict, one.node, one.kind, one.findings))
        return tuple(groups)

    def _traffic(self) -> tuple[PairTraffic, ...]:
        """The sender's book counts; where there is none, the receiver's."""
        table = self._table(TRAFFIC_HOURLY)
        if table is None:
            return ()
        pairs = table.groupBy("src_domain", "dst_domain", "role").agg(
            F.sum("messages").alias("messages"), F.sum("denied").alias("denied")
        )
        first = Window.partitionBy("src_domain", "dst_domain").orderBy(F.desc("role"))
        rows = (
            pairs.withColumn("rank", F.row_number().over(first))
            .where(F.col("rank") == 1)
            .orderBy(F.desc("messages"), "src_domain", "dst_domain")
            .limit(PAIRS)
        )
        return tuple(
            PairTraffic(
                src_domain=row["src_domain"],
                dst_domain=row["dst_domain"],
                messages=row["messages"],
                denied=row["denied"],
            )
            for row in rows.collect()
        )

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
        table = self._table(STATEMENT_DAILY)
        if table is None:
            return (), 0, None
        newest = Window.partitionBy("our_domain", "src_domain", "dst_domain", "role", "dt").orderBy(F.desc("version"))
        current = table.withColumn("rank", F.row_number().over(newest)).where(F.col("rank") == 1)
        total = current.agg(F.count("*").alias("count"), F.min("complete_until_us").alias("complete")).first()
        assert total is not None
        rows = current.orderBy(F.desc("messages"), "dt", "our_domain", "src_domain", "dst_domain", "role")
        lines = tuple(
            StatementLine(
                dt=row["dt"],
                our_domain=row["our_domain"],
                src_domain=row["src_domain"],
                dst_domain=row["dst_domain"],
                role=row["role"],
                messages=row["messages"],
                delivered=row["delivered"],
                denied=row["denied"],
                bytes_wire=row["bytes_wire"] or 0,
                p50_us=row["p50_us"],
                p99_us=row["p99_us"],
                status=row["status"],
                version=row["version"],
            )
            for row in rows.limit(ROWS_SHOWN).collect()
        )
        return lines, total["count"], total["complete"]

    def _reconciled(self) -> tuple[Reconciled | None, tuple[PairCases, ...]]:
        table = self._table(RECON_PAIR)
        if table is None:
            return None, ()
        names = ("sent", "received", "matched", "pending", "lost", "orphan", "duplicated", "altered")
        rest = ("size", "outcome", "skewed")
        total = table.agg(
            *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in (*names, *rest)),
            F.countDistinct("src_domain", "dst_domain").alias("pairs"),
            F.min("complete_until_us").alias("complete_until_us"),
        ).first()
        assert total is not None
        summed = table.groupBy("src_domain", "dst_domain").agg(*(F.sum(name).alias(name) for name in (*names, *rest)))
        other = F.col("size") + F.col("outcome") + F.col("skewed")
        differing = F.col("lost") + F.col("orphan") + F.col("duplicated") + F.col("altered") + other
        rows = (
            summed.withColumn("other", other)
            .where((differing > 0) | (F.col("pending") > 0))
            .orderBy(differing.desc(), F.desc("pending"), "src_domain", "dst_domain")
            .limit(ROWS_SHOWN)
        )
        pairs = tuple(
            PairCases(
                src_domain=row["src_domain"],
                dst_domain=row["dst_domain"],
                other=row["other"],
                **{name: row[name] for name in names},
            )
            for row in rows.collect()
        )
        return Reconciled(**total.asDict()), pairs

    def _offsets(self) -> tuple[ClockOffset, ...]:
        table = self._table(CLOCK_OFFSET)
        if table is None:
            return ()
        newest = Window.partitionBy("domain").orderBy(F.desc("dt"), F.desc("messages"), "component")
        rows = table.withColumn("rank", F.row_number().over(newest)).where(F.col("rank") == 1).orderBy("domain")
        return tuple(
            ClockOffset(
                domain=row["domain"],
                offset_us=row["offset_us"],
                error_us=row["error_us"] or 0,
                messages=row["messages"] or 0,
            )
            for row in rows.limit(PAIRS).collect()
        )

    def _replay(self) -> tuple[ReplayHeader | None, tuple[RuleFlips, ...]]:
        runs, flips = self._table(REPLAY_RUN), self._table(REPLAY_FLIP)
        newest = None if runs is None else runs.orderBy(F.desc("run")).first()
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
        if flips is None:
            return header, ()
        named = F.when(F.length("new_rule") > 0, F.col("new_rule")).otherwise(F.col("old_rule"))
        rows = (
            flips.where((F.col("run") == newest["run"]) & (F.col("old_decision") != F.col("new_decision")))
            .groupBy(F.coalesce(named, F.lit("")).alias("rule"))
            .agg(
                F.sum(F.when(F.col("new_decision") == "deny", F.col("messages")).otherwise(0)).alias("denied"),
                F.sum(F.when(F.col("new_decision") == "permit", F.col("messages")).otherwise(0)).alias("permitted"),
            )
            .orderBy("rule")
            .limit(PAIRS)
        )
        lines = (
            RuleFlips(rule_id=row["rule"], denied_now=row["denied"], permitted_now=row["permitted"])
            for row in rows.collect()
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
        table = self._table(STUB_REGRESSION)
        if table is None:
            return ()
        rows = table.orderBy(F.col("verdict") != "worse", "peer_domain", "baseline", "candidate", "measure")
        names = ("peer_domain", "baseline", "candidate", "measure", "ratio", "low", "high", "messages", "verdict")
        return tuple(
            StubVerdict(**{name: row[name] for name in names})
            for row in rows.select(*names).limit(ROWS_SHOWN).collect()
        )

    def _alerts(self) -> tuple[tuple[AlertLine, ...], int]:
        table = self._table(ALERT)
        if table is None:
            return (), 0
        rows = table.orderBy(
            F.col("severity") != _SEVERITIES[0],
            (F.col("observed") / F.greatest(F.col("threshold"), F.lit(1e-9))).desc(),
            "our_domain",
            "peer_domain",
            "pattern",
            "hour_us",
            "subject",
        ).limit(ROWS_SHOWN)
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
            for row in rows.collect()
        )
        return lines, table.count()

    def _band(self, alerts: Iterable[AlertLine]) -> Band | None:
        """The peer of the gravest flood, else of the gravest alert, hour by hour against its baseline."""
        traffic, baseline = self._table(TRAFFIC_HOURLY), self._table(DOMAIN_BASELINE)
        known = sorted(alerts, key=lambda alert: alert.pattern != "flood")
        if traffic is None or baseline is None or not known:
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
            for row in baseline.where((F.col("our_domain") == our_domain) & (F.col("peer_domain") == peer_domain))
            .where(F.col("measure") == "messages")
            .limit(HOURS_PER_WEEK)
            .collect()
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
