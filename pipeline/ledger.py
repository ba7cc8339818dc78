"""The ledger: table `segments`, as ingest reads and writes it. A row per manifest ever seen; no Spark.

It is written last, from what was verified in this very run, never from the fact that a transaction has been seen. A
segment that was rejected may come to be accepted later, when its file has come or the program has been updated; its
row is then replaced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.findings import Verdict
from pipeline.schemas import SEGMENTS
from pipeline.segment_chains import Accepted, SegmentChains
from pipeline.segments import Place, Segment
from pipeline.tables import Change, Commit, Lake

APP_ID: Final = "ingest"
_ACCEPTED: Final = tuple(Accepted.__dataclass_fields__)
_CHAIN_COLUMNS: Final = ("node", "kind", "verdict", *_ACCEPTED)
_PLACE_COLUMNS: Final = ("spool", "path", "manifest_sha256", "manifest_mtime_us", "verdict", "findings")


@dataclass(frozen=True, slots=True)
class Known:
    """What the ledger says about the manifest at one place, last."""

    manifest_sha256: str
    mtime_us: int
    verdict: str
    findings: tuple[str, ...]

    @property
    def is_settled(self) -> bool:
        """Whether nothing can change any more, as long as the manifest stays what it is."""
        return self.verdict != Verdict.REJECTED.value

    def says_the_same_as(self, segment: Segment) -> bool:
        """True if a new row would say nothing new."""
        return (
            self.manifest_sha256 == segment.manifest_sha256
            and self.verdict == segment.verdict.value
            and set(self.findings) == {finding.code for finding in segment.findings}
        )


class Ledger:
    """The ledger of a lake, read when it is asked; what it says about places, once."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._places: dict[tuple[str, str], list[Known]] | None = None

    @property
    def last_batch(self) -> int:
        """Number of the last batch that is in it; 0 for none."""
        return self._lake.transaction_version(SEGMENTS, APP_ID) or 0

    def known_places(self) -> dict[tuple[str, str], list[Known]]:
        """What is known about each place, by spool and path, oldest first."""
        if self._places is None:
            self._places = defaultdict(list)
            columns = self._lake.read_small(SEGMENTS, _PLACE_COLUMNS).to_pydict()
            for spool, path, sha256, mtime_us, verdict, findings in zip(*columns.values(), strict=True):
                self._places[spool, path].append(Known(sha256, mtime_us, verdict, tuple(findings or ())))
        return self._places

    def chains_for(self, segments: Iterable[Segment]) -> SegmentChains:
        """The chains that these segments continue."""
        names = {(name.node, name.kind.value) for segment in segments if (name := segment.name) is not None}
        rows = self._lake.read_small(SEGMENTS, _CHAIN_COLUMNS)
        rows = rows.filter(pc.field("verdict") == Verdict.ACCEPTED.value)
        rows = rows.filter(pc.field("node").isin(pa.array(sorted({node for node, _ in names}), pa.string())))
        return SegmentChains(
            (row["node"], row["kind"], _accepted(row))
            for row in rows.to_pylist()
            if (row["node"], row["kind"]) in names
        )

    def accepted(self) -> dict[tuple[str, str], list[Accepted]]:
        """All accepted segments by node and kind, in their order."""
        found: dict[tuple[str, str], list[Accepted]] = defaultdict(list)
        rows = self._lake.read_small(SEGMENTS, _CHAIN_COLUMNS)
        for row in rows.filter(pc.field("verdict") == Verdict.ACCEPTED.value).to_pylist():
            found[row["node"], row["kind"]].append(_accepted(row))
        return {key: sorted(entries) for key, entries in sorted(found.items())}

    def write(self, segments: Sequence[Segment], batch: int) -> Commit:
        """Enter what became of these segments; rows that said otherwise about the same manifests are replaced.

        Raises:
            LakeError: As `Lake.commit` does.
        """
        schema = to_arrow_schema(SEGMENTS.schema)
        rows = pa.Table.from_pylist([segment.row(batch) for segment in segments], schema)
        known = self.known_places()
        replaced = {
            (segment.place.spool, segment.place.path, segment.manifest_sha256)
            for segment in segments
            if any(
                one.manifest_sha256 == segment.manifest_sha256
                for one in known.get((segment.place.spool, segment.place.path), ())
            )
        }
        transaction = (APP_ID, batch)
        if not replaced:
            return self._lake.commit(rows, SEGMENTS, Change(txn=transaction, meta={"batch": batch}))
        version = self._lake.version(SEGMENTS)
        kept = [row for row in self._lake.read_small(SEGMENTS).to_pylist() if _identity(row) not in replaced]
        everything = pa.concat_tables([pa.Table.from_pylist(kept, schema), rows])
        return self._lake.commit(
            everything, SEGMENTS, Change("overwrite", txn=transaction, meta={"batch": batch}, base_version=version)
        )


def is_news(place: Place, known: Sequence[Known]) -> bool:
    """Whether a place has to be looked at: it is new, was changed, or was rejected."""
    return not any(one.is_settled and one.mtime_us == place.mtime_us for one in known)


def _identity(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["spool"], row["path"], row["manifest_sha256"]


def _accepted(row: dict[str, Any]) -> Accepted:
    return Accepted(*(row[name] for name in _ACCEPTED))
