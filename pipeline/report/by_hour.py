"""What the report shows of tables by the hour: one scan of each, added up by workers, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pyarrow as pa

from pipeline.columns import histogram
from pipeline.columns.groups import column, is_word
from pipeline.columns.report_sums import (
    HOUR,
    PAIR,
    PEER,
    messages_of_pairs,
    places_of_sums,
    places_of_versions,
    stub_sums,
    traffic_sums,
    whole_traffic,
    whole_versions,
)
from pipeline.lake.worker_rows import WorkerRows
from pipeline.report.facts import LatencyHour, PairTraffic, StubVersion
from pipeline.schemas.columns import HISTOGRAM, LONG, TEXT, columns

PAIRS: Final = 20_000
HOURS: Final = 24 * 31
STUB_PEERS: Final = 2
VERSIONS_PER_PEER: Final = 3
_PLACES: Final = 16
_ROWS_AT_ONCE: Final = 1 << 18
_MEASURES: Final = ("latency", "fuel")

_TRAFFIC = columns(
    **dict.fromkeys(("what", "src_domain", "dst_domain", "role"), TEXT),
    **dict.fromkeys(("hour_us", "sent", "received", "denied", "refused", "senders"), LONG),
    latency=HISTOGRAM,
)
_VERSIONS = columns(peer_domain=TEXT, stub_ver=TEXT, messages=LONG, latency=HISTOGRAM, fuel=HISTOGRAM)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Extract of `traffic_hourly` that the report shows.

    Attributes:
        pairs: The busiest first, at most `PAIRS`.
        latency: By hour, the newest ones; as senders saw it, where there are any.
        first_us: Begin of the first hour; None: there is none.
        last_us: Begin of the last hour.
        of_peer: Messages that one peer sent, by hour, the newest ones.
    """

    pairs: tuple[PairTraffic, ...] = ()
    latency: tuple[LatencyHour, ...] = ()
    first_us: int | None = None
    last_us: int | None = None
    of_peer: Mapping[int, int] = field(default_factory=dict)


def traffic_of(rows: WorkerRows, shown: tuple[str, str] | None) -> Traffic:
    """Read hours of traffic, once.

    Args:
        rows: The columns `report_sums.TRAFFIC` of `traffic_hourly`.
        shown: The domain and its peer that `of_peer` is about.
    """
    parts = rows.to_places(places_of_sums, _PLACES, of=partial(traffic_sums, shown), rows=_ROWS_AT_ONCE)
    found = parts.of_places(partial(whole_traffic, PAIRS)).frame(_TRAFFIC).toArrow()
    pairs, hours, of_peer = (found.filter(pa.array(is_word(column(found, "what"), one))) for one in (PAIR, HOUR, PEER))
    received = dict(zip(*(of_peer.column(name).to_pylist() for name in ("hour_us", "received")), strict=True))
    begins = hours.column("hour_us").to_pylist()
    return Traffic(
        pairs=_pairs(pairs),
        latency=_latency(hours),
        first_us=min(begins, default=None),
        last_us=max(begins, default=None),
        of_peer={hour: received[hour] for hour in sorted(received)[-HOURS:]},
    )


def stub_versions(rows: WorkerRows) -> tuple[StubVersion, ...]:
    """Versions of the peers that run more than one, the busiest first; without such a peer, the busiest peer.

    Args:
        rows: The columns `report_sums.STUBS` of `stub_hourly`.
    """
    parts = rows.to_places(places_of_versions, _PLACES, of=stub_sums, rows=_ROWS_AT_ONCE)
    versions = parts.of_places(whole_versions).frame(_VERSIONS).toArrow()
    places = _versions_to_show(versions.select(["peer_domain", "stub_ver", "messages"]).to_pylist())
    shown = versions.take(pa.array(places, pa.int64()))
    return tuple(
        StubVersion(
            peer_domain=row["peer_domain"],
            stub_ver=row["stub_ver"],
            measure=measure,
            messages=sum(row[measure].values()),
            points=_distribution(row[measure]),
        )
        for row in shown.to_pylist(maps_as_pydicts="strict")
        for measure in _MEASURES
        if row[measure]
    )


def _pairs(found: pa.Table) -> tuple[PairTraffic, ...]:
    names = ("src_domain", "dst_domain", "denied", "refused")
    rows = found.select(names).to_pylist()
    pairs = [
        PairTraffic(**row, messages=messages)
        for row, messages in zip(rows, messages_of_pairs(found).tolist(), strict=True)
    ]
    pairs.sort(key=lambda one: (-one.messages, one.src_domain, one.dst_domain))
    return tuple(pairs[:PAIRS])


def _latency(hours: pa.Table) -> tuple[LatencyHour, ...]:
    has_senders = is_word(column(hours, "role"), "out")
    of_role = hours.filter(pa.array(has_senders if has_senders.any() else ~has_senders))
    rows = of_role.select(["hour_us", "latency"]).to_pylist(maps_as_pydicts="strict")
    known = {row["hour_us"]: row["latency"] for row in rows if row["latency"]}
    return tuple(
        LatencyHour(
            hour_us=hour,
            messages=sum(known[hour].values()),
            p50_us=_percentile(known[hour], 500),
            p95_us=_percentile(known[hour], 950),
            p99_us=_percentile(known[hour], 990),
        )
        for hour in sorted(known)[-HOURS:]
    )


def _versions_to_show(versions: Sequence[Mapping[str, Any]]) -> list[int]:
    """Which rows, in which order."""
    by_peer: dict[str, list[int]] = {}
    order = sorted(range(len(versions)), key=lambda row: (-versions[row]["messages"], versions[row]["stub_ver"]))
    for row in order:
        by_peer.setdefault(versions[row]["peer_domain"], []).append(row)
    ranked = sorted(
        by_peer.items(),
        key=lambda of: (len(of[1]) < 2, -sum(versions[row]["messages"] for row in of[1]), of[0]),
    )
    several = [rows for _, rows in ranked if len(rows) > 1][:STUB_PEERS] or [rows for _, rows in ranked[:1]]
    return [row for rows in several for row in rows[:VERSIONS_PER_PEER]]


def _percentile(counts: Mapping[int, int], per_mille: int) -> int:
    return histogram.quantile(counts, per_mille) or 0


def _distribution(counts: Mapping[int, int]) -> tuple[tuple[int, float], ...]:
    total, below = sum(counts.values()), 0
    points = []
    for bucket in sorted(counts):
        below += counts[bucket]
        points.append((max(histogram.upper_bound(bucket), 1), below / total))
    return tuple(points)
