"""The ledger: table `segments`, as ingest reads and writes it. A row per manifest ever seen; no Spark.

It is written last, from what was verified in this very run, never from the fact that a transaction has been seen. A
segment that was rejected may come to be accepted later, when its file has come or the program has been updated; its
row is then replaced.

It grows by a row for each segment, so nobody reads it whole. Rows of rejected segments are a partition of their own,
because each of them may be looked at again; the others are cut by the day on which they were entered, and files whose
bounds say that they cannot have what is sought are not opened. What accepted segments add up to is in
`segment_stretch`, which is written behind the ledger and carries its batch: if a run ended in between, the rows of
later batches are added the next time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.findings import SegmentVerdict
from pipeline.core.stretches import ENTRY, Accepted, Stretches, stretch_of
from pipeline.lake.lake_files import LakeFiles
from pipeline.lake.table_log import DataFile
from pipeline.lake.tables import Change, Commit, Lake
from pipeline.schemas import SEGMENT_STRETCH, SEGMENTS
from pipeline.segments.chains import SegmentChains
from pipeline.segments.spool import Place, Segment
from protofly.record_segments import SegmentName

APP_ID: Final = "ingest"
REJECTED: Final = "rejected"
"""Partition of segments that may be accepted yet."""
_ACCEPTED: Final = tuple(Accepted.__dataclass_fields__)
_CHAIN_COLUMNS: Final = ("node", "kind", "verdict", *_ACCEPTED)
_PLACE_COLUMNS: Final = ("spool", "path", "manifest_sha256", "manifest_mtime_us", "verdict", "findings")
_PLACE: Final = ("spool", "path")
_SMALL_FILES: Final = 16
_SMALL_BYTES: Final = 4 << 20
"""So many smaller files of a day become one with the next batch."""

_Number: TypeAlias = tuple[str, str, int, int]
"""Node, kind, boot, number."""


@dataclass(frozen=True, slots=True)
class Known:
    """The last row of the ledger about the manifest at one place."""

    manifest_sha256: str
    mtime_us: int
    verdict: str
    findings: tuple[str, ...]
    file: str
    """The file of the ledger that says it."""

    @property
    def is_settled(self) -> bool:
        """True if nothing can change any more, as long as the manifest stays what it is."""
        return self.verdict != SegmentVerdict.REJECTED.value

    def says_the_same_as(self, segment: Segment) -> bool:
        """True if a new row would say nothing new."""
        return (
            self.manifest_sha256 == segment.manifest_sha256
            and self.verdict == segment.verdict.value
            and set(self.findings) == {finding.code for finding in segment.findings}
        )


class Ledger:
    """The ledger of a lake at its newest version, which is read at the first question."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._files = lake.files(SEGMENTS)
        self._stretches: Stretches | None = None
        self._known: dict[tuple[str, str], list[Known]] = {}

    @property
    def last_batch(self) -> int:
        """Number of the last batch that is in it; 0 for none."""
        return self._lake.transaction_version(SEGMENTS, APP_ID) or 0

    def stretches(self) -> Stretches:
        """The stretches that the accepted segments add up to."""
        if self._stretches is None:
            self._stretches = read_stretches(self._lake)
        return self._stretches

    def news(self, places: Sequence[Place]) -> list[Place]:
        """Places that have to be looked at: new ones, changed ones, and those of rejected segments."""
        if not places:
            return []
        times = np.array([place.mtime_us for place in places], np.int64)
        sorted_times = np.sort(times)
        settled = self._lake.read_files_small(
            SEGMENTS,
            [file for file in self._settled_files() if _has_any(file, "manifest_mtime_us", sorted_times)],
            (*_PLACE, "manifest_mtime_us"),
        )
        found = pa.table(
            {
                "spool": pa.array([place.spool for place in places], pa.string()),
                "path": pa.array([place.path for place in places], pa.string()),
                "manifest_mtime_us": pa.array(times),
                "number": pa.array(np.arange(len(places))),
            }
        )
        news = found.join(settled, [*_PLACE, "manifest_mtime_us"], join_type="left anti")
        return [places[number] for number in sorted(news.column("number").to_pylist())]

    def known(self, places: Iterable[Place]) -> Mapping[tuple[str, str], Sequence[Known]]:
        """Look up the known segments at these places, oldest first; meant for one batch of places."""
        places = [place for place in places if (place.spool, place.path) not in self._known]
        if places:
            for place in places:
                self._known[place.spool, place.path] = []
            times = np.sort(np.array([place.mtime_us for place in places], np.int64))
            numbers = {number for place in places if (number := _number_of(place)) is not None}
            held = [number for number in numbers if self.stretches().holder(*number) is not None]
            paths = pa.array(sorted({place.path for place in places}), pa.string())
            for file in self._files:
                if _is_rejected(file) or _has_any(file, "manifest_mtime_us", times) or _has_number(file, held):
                    self._take_known(file, paths)
        return self._known

    def _take_known(self, file: DataFile, paths: pa.Array) -> None:
        rows = self._lake.read_files_small(SEGMENTS, [file], _PLACE_COLUMNS)
        rows = rows.filter(pc.is_in(rows.column("path"), paths))
        for spool, path, sha256, mtime_us, verdict, findings in zip(*rows.to_pydict().values(), strict=True):
            if (spool, path) in self._known:
                self._known[spool, path].append(Known(sha256, mtime_us, verdict, tuple(findings or ()), file.path))

    def chains_for(self, segments: Iterable[Segment]) -> SegmentChains:
        """The chains that these segments continue: the ends of their stretches, and what has a number of theirs."""
        numbers = {
            (name.node, name.kind.value, name.boot, name.segno)
            for segment in segments
            if (name := segment.name) is not None
        }
        stretches = self.stretches()
        entries = {
            (one.node, one.kind, end)
            for node, kind in {number[:2] for number in numbers}
            for one in stretches.of(node, kind)
            for end in (one.first, one.last)
        }
        again = [number for number in numbers if stretches.holder(*number) is not None]
        return SegmentChains(entries | set(self._entries(again)))

    def _entries(self, numbers: Collection[_Number]) -> list[tuple[str, str, Accepted]]:
        """Accepted segments with these numbers."""
        if not numbers:
            return []
        wanted = set(numbers)
        segnos = pa.array(sorted({number[3] for number in numbers}), pa.int64())
        files = [file for file in self._settled_files() if _has_number(file, numbers)]
        rows = self._lake.read_files_small(SEGMENTS, files, _CHAIN_COLUMNS)
        rows = rows.filter(pc.is_in(rows.column("segno"), segnos))
        rows = rows.filter(pc.equal(rows.column("verdict"), SegmentVerdict.ACCEPTED.value))
        return [
            (row["node"], row["kind"], Accepted(*(row[name] for name in _ACCEPTED)))
            for row in rows.to_pylist()
            if (row["node"], row["kind"], row["boot"], row["segno"]) in wanted
        ]

    def write(self, segments: Sequence[Segment], batch: int, day: str) -> Commit:
        """Enter what became of these segments; rows that said otherwise about the same manifests are replaced.

        Args:
            segments: At least one.
            batch: Their batch.
            day: UTC day of today.

        Raises:
            LakeError: As `Lake.commit` does.
        """
        schema = to_arrow_schema(SEGMENTS.schema)
        rows = [
            segment.row(batch) | {"entered": REJECTED if segment.verdict is SegmentVerdict.REJECTED else day}
            for segment in segments
        ]
        added = [pa.Table.from_pylist(rows, schema)]
        known = self.known(segment.place for segment in segments)
        replaced = {
            (segment.place.spool, segment.place.path, segment.manifest_sha256): one.file
            for segment in segments
            for one in known[segment.place.spool, segment.place.path]
            if one.manifest_sha256 == segment.manifest_sha256
        }
        small = [file for file in self._files if file.partition["entered"] == day and file.size_bytes < _SMALL_BYTES]
        merged = small if len(small) >= _SMALL_FILES else []
        rewritten = {file.path: file for file in merged}
        rewritten |= {file.path: file for file in self._files if file.path in set(replaced.values())}
        for file in rewritten.values():
            content = self._lake.read_files_small(SEGMENTS, [file])
            if file.path in replaced.values():
                is_kept = [_identity(row) not in replaced for row in _heads(content)]
                content = content.filter(pa.array(is_kept, pa.bool_()))
            added.append(content)
        commit = self._lake.commit(
            pa.concat_tables(added),
            SEGMENTS,
            Change("replace_files", files=tuple(rewritten), txn=(APP_ID, batch), meta={"batch": batch}),
        )
        stretches = self.stretches()
        stretches.enter(row for row in rows if row["verdict"] != SegmentVerdict.COPY.value)
        _write_stretches(self._lake, stretches, batch)
        return commit

    def _settled_files(self) -> list[DataFile]:
        return [file for file in self._files if not _is_rejected(file)]


def read_stretches(lake: LakeFiles) -> Stretches:
    """Read the stretches of consecutive accepted segments of a lake. Raises LakeError."""
    batch = lake.transaction_version(SEGMENT_STRETCH, APP_ID) or 0
    stretches = Stretches(map(stretch_of, lake.read_small(SEGMENT_STRETCH).to_pylist()))
    later = [file for file in lake.files(SEGMENTS) if file.may_have("batch", batch + 1, 1 << 62)]
    if later:
        rows = lake.read_files_small(SEGMENTS, later, (*ENTRY, "batch"))
        rows = rows.filter(pc.greater(rows.column("batch"), batch))
        stretches.enter(rows.sort_by([("boot", "ascending"), ("segno", "ascending")]).to_pylist())
    return stretches


def _write_stretches(lake: Lake, stretches: Stretches, batch: int) -> None:
    rows = pa.Table.from_pylist([one.row() for one in stretches], to_arrow_schema(SEGMENT_STRETCH.schema))
    lake.commit(rows, SEGMENT_STRETCH, Change("overwrite", txn=(APP_ID, batch)))


def _is_rejected(file: DataFile) -> bool:
    return file.partition["entered"] == REJECTED


def _has_any(file: DataFile, column: str, ascending: np.ndarray[Any, np.dtype[np.int64]]) -> bool:
    """True if the file may have one of these numbers."""
    known = file.bounds.get(column)
    if known is None:
        return True
    low, high = np.searchsorted(ascending, known[0]), np.searchsorted(ascending, known[1], side="right")
    return bool(low < high)


def _has_number(file: DataFile, numbers: Collection[_Number]) -> bool:
    return any(file.may_have("boot", boot, boot) and file.may_have("segno", no, no) for _, _, boot, no in numbers)


def _number_of(place: Place) -> _Number | None:
    name = SegmentName.parse(place.stem)
    return None if name is None else (name.node, name.kind.value, name.boot, name.segno)


def _heads(rows: pa.Table) -> list[dict[str, Any]]:
    heads: list[dict[str, Any]] = rows.select(["spool", "path", "manifest_sha256"]).to_pylist()
    return heads


def _identity(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["spool"], row["path"], row["manifest_sha256"]
