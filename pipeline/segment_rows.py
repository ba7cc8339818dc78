"""The lines of a verified segment become rows of bronze and of quarantine: every line one or the other. No Spark.

Lines are decoded a piece at a time and judged some thousands at a time, whatever the size of the segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.findings import Severity
from pipeline.quality import IDS, Judge, Judgement, id_bytes
from pipeline.record_lines import Columns, LineDecoder
from pipeline.schemas import QUARANTINE, Table, bronze_table
from pipeline.segment_content import pieces_of
from protofly.records import Kind, SegmentManifest

UNIT_PIECES: Final = 32
UNIT_LINES: Final = 1 << 15
"""What is judged together at most: short lines become a hundred times as large as columns, long ones are long."""
DAY: Final = "dt"


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a segment: `good` ones of its bronze table, `bad` ones of quarantine, both without their day."""

    good: pa.Table
    bad: pa.Table


@dataclass(slots=True)
class _Unit:
    """Lines that are judged together, and what they say."""

    lines: list[list[bytes]] = field(default_factory=list)
    columns: list[Columns] = field(default_factory=list)
    count: int = 0

    @property
    def is_full(self) -> bool:
        return self.count >= UNIT_LINES or len(self.lines) >= UNIT_PIECES


def stored_schema(table: Table) -> pa.Schema:
    """Columns that files of a table have; the day is in the name of their folder."""
    schema = to_arrow_schema(table.schema)
    return pa.schema([column for column in schema if column.name != DAY])


class SegmentReader:
    """Makes rows of segments of one kind."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._decoder = LineDecoder(kind)
        self._good = stored_schema(bronze_table(kind))
        self._bad = stored_schema(QUARANTINE)

    def rows(self, content: bytes, manifest: SegmentManifest) -> Iterator[Rows]:
        """All rows of a segment, in the order of its lines.

        Raises:
            ContentError: The content is not what the manifest says; rows that came before are worth nothing.
        """
        judge = Judge(manifest)
        unit = _Unit()
        for lines in pieces_of(content, manifest):
            unit.lines.append(lines)
            unit.columns.append(self._decoder.columns(lines))
            unit.count += len(lines)
            if unit.is_full:
                yield self._judged(unit, judge, manifest)
                unit = _Unit()
        if unit.lines:
            yield self._judged(unit, judge, manifest)

    def _judged(self, unit: _Unit, judge: Judge, manifest: SegmentManifest) -> Rows:
        names = unit.columns[0].arrays
        members = {name: pa.concat_arrays([columns.arrays[name] for columns in unit.columns]) for name in names}
        judgement = judge.judge(members)
        bad = self._bad_rows(unit, members, judgement, manifest)
        return Rows(self._good_rows(members, judgement, manifest), bad)

    def _good_rows(self, members: dict[str, pa.Array], judgement: Judgement, manifest: SegmentManifest) -> pa.Table:
        columns = dict(members)
        columns["errors"] = self._warnings(judgement, len(members["seq"]))
        if judgement.bad:
            kept = np.ones(len(members["seq"]), np.bool_)
            kept[list(judgement.bad)] = False
            columns = {name: column.filter(pa.array(kept)) for name, column in columns.items()}
        columns["segno"] = pa.repeat(pa.scalar(manifest.segno, pa.int64()), len(columns["seq"]))
        if self._kind is Kind.MESSAGE:
            # The originating side writes role `out`, so the source is ours; the receiving side writes `in`.
            is_ours = pc.equal(columns["role"], "out")
            columns["our_domain"] = pc.if_else(is_ours, columns["src_domain"], columns["dst_domain"])
            columns["peer_domain"] = pc.if_else(is_ours, columns["dst_domain"], columns["src_domain"])
            columns |= {name: id_bytes(columns[name]) for name in IDS}
        return pa.table([columns[name] for name in self._good.names], schema=self._good)

    def _warnings(self, judgement: Judgement, count: int) -> pa.Array:
        type_ = self._good.field("errors").type
        if judgement.errors:
            return pa.array([judgement.errors.get(place, ()) for place in range(count)], type_)
        none = pa.array(np.zeros(count + 1, np.int32))
        return pa.ListArray.from_arrays(none, pa.array([], pa.string()), type=type_)

    def _bad_rows(
        self, unit: _Unit, members: dict[str, pa.Array], judgement: Judgement, manifest: SegmentManifest
    ) -> pa.Table:
        if not judgement.bad and not any(columns.spoilt for columns in unit.columns):
            return self._bad.empty_table()
        rows: list[dict[str, Any]] = []
        read = 0
        spoilt = chain.from_iterable(
            (columns.spoilt.get(place) for place in range(len(lines)))
            for lines, columns in zip(unit.lines, unit.columns, strict=True)
        )
        for line, reason in zip(chain.from_iterable(unit.lines), spoilt, strict=True):
            if reason is not None:
                rows.append({"line": line, "errors": [reason], "severity": Severity.SEVERE, "seq": None})
                continue
            severity = judgement.bad.get(read)
            if severity is not None:
                number = members["seq"][read].as_py()
                rows.append({"line": line, "errors": judgement.errors[read], "severity": severity, "seq": number})
            read += 1
        for row in rows:
            row |= {"line": row["line"].decode("utf-8", "replace"), "severity": row["severity"].word}
            row |= {"node": manifest.node, "kind": self._kind.value, "boot": manifest.boot, "segno": manifest.segno}
        return pa.Table.from_pylist(rows, self._bad)
