"""Which version of a peer's stub is held against which, and what comes out, in a worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns.groups import Numbers, column
from pipeline.columns.packed import places_of
from pipeline.columns.regression import HourOfStub, compare

HOUR: Final = (
    "our_domain",
    "peer_domain",
    "stub_ver",
    "hour_us",
    "msg_type",
    "size_class",
    "messages",
    "failed",
    "traps",
    "latency",
    "fuel",
    "dt",
)
"""Columns of `stub_hourly` that versions are judged by."""


@dataclass(frozen=True, slots=True)
class Versions:
    """Options of the comparison of stub versions.

    Attributes:
        baseline: Beginning of the version to compare with; empty: the version before the candidate.
        candidate: Beginning of the version to judge; empty: the one that was seen first most recently, of each peer.
        smallest_effect: Relative difference that matters.
    """

    baseline: str
    candidate: str
    smallest_effect: float

    def pair(self, versions: list[str]) -> tuple[str, str] | None:
        """Baseline and candidate among versions in the order in which they were first seen."""
        new = next((version for version in reversed(versions) if version.startswith(self.candidate)), None)
        if new is None:
            return None
        before = versions if self.baseline else versions[: versions.index(new)]
        older = [version for version in before if version != new and version.startswith(self.baseline)]
        return (older[-1], new) if older else None


def places_of_peers(hours: pa.Table, places: int) -> Numbers:
    """Partition so that all hours of a peer come to one place."""
    return places_of(hours, ("peer_domain",), np.zeros(hours.num_rows, np.int64), places)


def regressions(hours: pa.Table, wanted: Versions) -> Iterator[dict[str, object]]:
    """One row per peer and measure, `schemas.STUB_REGRESSION`, of peers that carried messages with both versions.

    Args:
        hours: The columns `HOUR`, all those of a peer.
        wanted: Which versions.
    """
    hours = pa.table({name: _in_full(column(hours, name)) for name in HOUR})
    for peer_domain in sorted(pc.unique(column(hours, "peer_domain")).to_pylist()):
        its = hours.filter(pc.equal(hours.column("peer_domain"), peer_domain))
        firsts = its.group_by("stub_ver").aggregate([("hour_us", "min")]).to_pylist()
        versions = [row["stub_ver"] for row in sorted(firsts, key=lambda row: (row["hour_us_min"], row["stub_ver"]))]
        pair = wanted.pair(versions)
        if pair is None:
            continue
        newest = pc.max(its.column("dt")).as_py()
        for found in compare(_hours(its, pair), *pair, smallest_effect=wanted.smallest_effect):
            yield {"peer_domain": peer_domain, "baseline": pair[0], "candidate": pair[1], **asdict(found), "dt": newest}


def _hours(hours: pa.Table, pair: tuple[str, str]) -> Iterator[HourOfStub]:
    """The hours of both versions, over all our nodes."""
    order = [(name, "ascending") for name in ("stub_ver", "hour_us", "msg_type", "size_class", "our_domain")]
    for row in hours.filter(pc.is_in(hours.column("stub_ver"), pa.array(pair))).sort_by(order).to_pylist():
        yield HourOfStub(
            stub_ver=row["stub_ver"],
            hour_us=row["hour_us"],
            stratum=(row["msg_type"] or "", row["size_class"] or 0),
            messages=row["messages"],
            failed=row["failed"],
            traps=row["traps"],
            latency=dict(row["latency"] or ()),
            fuel=dict(row["fuel"] or ()),
        )


def _in_full(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
