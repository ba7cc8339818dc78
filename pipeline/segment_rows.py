"""The lines of a verified segment become rows of bronze and of quarantine: every line one or the other. No Spark.

Lines are decoded a piece at a time and judged some thousands at a time, whatever the size of the segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.findings import Finding, Severity
from pipeline.core.words import coded, codes_of, same_words, texts_where, without
from pipeline.line_members import IDS, id_bytes, ids_column
from pipeline.quality import Judge, Judgement
from pipeline.record_lines import Columns, LineDecoder, Piece
from pipeline.schemas import QUARANTINE, Table, bronze_table
from pipeline.segment_content import SEGMENT_DAYS_MAX, RefusedError, pieces_of
from protofly.records import Kind, SegmentManifest

UNIT_PIECES: Final = 32
UNIT_LINES: Final = 1 << 15
"""What is judged together at most: short lines become a hundred times as large as columns, long ones are long."""
DAY: Final = "dt"
DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a segment: `good` ones of its bronze table, `bad` ones of quarantine, both without their day.

    Texts may have a dictionary, in one part and not in another.
    """

    good: pa.Table
    bad: pa.Table


@dataclass(slots=True)
class _Unit:
    """Lines that are judged together, and what they say."""

    texts: list[bytes] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    count: int = 0

    @property
    def is_full(self) -> bool:
        return self.count >= UNIT_LINES or len(self.texts) >= UNIT_PIECES


def stored_schema(table: Table) -> pa.Schema:
    """Columns that files of a table have; the day is in the name of their folder."""
    schema = to_arrow_schema(table.schema)
    return pa.schema([column for column in schema if column.name != DAY])


class SegmentReader:
    """Makes rows of segments of one kind.

    Args:
        kind: Of all segments.
        manifests: Of segments that will be read: lines have words of their manifests.
    """

    def __init__(self, kind: Kind, manifests: Sequence[SegmentManifest] = ()) -> None:
        self._kind = kind
        self._decoder = LineDecoder(kind)
        self._decoder.expect({"node": {manifest.node for manifest in manifests}})
        self._good = stored_schema(bronze_table(kind))
        self._bad = stored_schema(QUARANTINE)

    def rows(self, content: bytes, manifest: SegmentManifest) -> Iterator[Rows]:
        """All rows of a segment, in the order of its lines.

        Raises:
            ContentError: The content is not what the manifest says; rows that came before are worth nothing.
            RefusedError: The same, when records are of more days than those of a segment can be.
        """
        judge = Judge(manifest)
        days: set[int] = set()
        for rows in self._judged_rows(content, manifest, judge):
            days |= _days(rows.good)
            if len(days) > SEGMENT_DAYS_MAX:
                raise RefusedError(Finding.DAYS, f"more than {SEGMENT_DAYS_MAX}")
            yield rows

    def _judged_rows(self, content: bytes, manifest: SegmentManifest, judge: Judge) -> Iterator[Rows]:
        unit = _Unit()
        for text in pieces_of(content, manifest):
            piece = self._decoder.read(text)
            unit.texts.append(text)
            unit.pieces.append(piece)
            unit.count += piece.lines
            if unit.is_full:
                yield self._judged(unit, judge, manifest)
                unit = _Unit()
        if unit.texts:
            yield self._judged(unit, judge, manifest)

    def _judged(self, unit: _Unit, judge: Judge, manifest: SegmentManifest) -> Rows:
        columns = self._decoder.columns(unit.pieces)
        members = dict(columns.arrays)
        judgement = judge.judge(members)
        bad = self._bad_rows(unit, columns, judgement, manifest)
        return Rows(self._good_rows(members, judgement, manifest), bad)

    def _good_rows(self, members: dict[str, pa.Array], judgement: Judgement, manifest: SegmentManifest) -> pa.Table:
        columns = members | {"errors": self._warnings(judgement, len(members["seq"]))}
        if judgement.bad:
            kept = np.ones(len(members["seq"]), np.bool_)
            kept[list(judgement.bad)] = False
            columns = {name: without(column, pa.array(kept)) for name, column in columns.items()}
        columns["segno"] = pa.repeat(pa.scalar(manifest.segno, pa.int64()), len(columns["seq"]))
        if self._kind is Kind.MESSAGE:
            columns["our_domain"], columns["peer_domain"] = _whose(columns)
            columns |= {name: _ids(columns[name]) for name in IDS}
        return pa.table({name: columns[name] for name in self._good.names})

    def _warnings(self, judgement: Judgement, count: int) -> pa.Array:
        type_ = self._good.field("errors").type
        if judgement.errors:
            return pa.array([judgement.errors.get(place, ()) for place in range(count)], type_)
        none = pa.array(np.zeros(count + 1, np.int32))
        return pa.ListArray.from_arrays(none, pa.array([], pa.string()), type=type_)

    def _bad_rows(self, unit: _Unit, columns: Columns, judgement: Judgement, manifest: SegmentManifest) -> pa.Table:
        if not judgement.bad and not columns.spoilt:
            return self._bad.empty_table()
        rows: list[dict[str, Any]] = []
        read = 0
        for place, line in enumerate(chain.from_iterable(text.split(b"\n")[:-1] for text in unit.texts)):
            reason = columns.spoilt.get(place)
            if reason is not None:
                rows.append({"line": line, "errors": [reason], "severity": Severity.SEVERE, "seq": None})
                continue
            severity = judgement.bad.get(read)
            if severity is not None:
                number = columns.arrays["seq"][read].as_py()
                rows.append({"line": line, "errors": judgement.errors[read], "severity": severity, "seq": number})
            read += 1
        for row in rows:
            row |= {"line": row["line"].decode("utf-8", "replace"), "severity": row["severity"].word}
            row |= {"node": manifest.node, "kind": self._kind.value, "boot": manifest.boot, "segno": manifest.segno}
        return pa.Table.from_pylist(rows, self._bad)


def _days(rows: pa.Table) -> set[int]:
    """Numbers of the days of rows, from 1970-01-01."""
    days = np.asarray(rows["ts_us"]) // DAY_US
    return set(np.unique(days).tolist()) if len(days) and days.min() != days.max() else set(days[:1].tolist())


def _ids(column: pa.Array) -> pa.Array:
    """Bytes of ids that were found to be some."""
    return column if pa.types.is_binary(column.type) else ids_column(id_bytes(column.to_pylist()) or b"")


def _whose(columns: Mapping[str, pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Our domain and the other one: the originating side writes role `out`, so the source is ours; the other `in`."""
    src, dst = same_words([columns["src_domain"], columns["dst_domain"]])
    is_ours = texts_where(columns["role"], lambda roles: pc.equal(roles, "out"))
    if is_ours is None:
        return dst, src
    of_src, of_dst = codes_of(src), codes_of(dst)
    ours, theirs = np.where(is_ours, of_src, of_dst), np.where(is_ours, of_dst, of_src)
    return coded(ours, src.dictionary), coded(theirs, src.dictionary)
