"""The records of a verified segment become rows of bronze and of quarantine: every line one or the other. No Spark.

Lines are decoded a piece at a time and judged some thousands at a time, whatever the size of the segments: those of
many small ones together, those of a large one in parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns.words import coded, codes_of, same_words, texts_where, without
from pipeline.core.findings import Severity
from pipeline.schemas import QUARANTINE, Table, bronze_table
from pipeline.segments.claims import Claims, Source
from pipeline.segments.content import PIECE_BYTES, SEGMENT_DAYS_MAX, contents_of
from pipeline.segments.line_members import IDS, id_bytes, ids_column
from pipeline.segments.quality import Judgement, judge
from pipeline.segments.record_lines import Columns, LineDecoder, Piece
from protofly.record_blocks import Block
from protofly.records import RecordKind, SegmentManifest

UNIT_BYTES: Final = 8 << 20
UNIT_LINES: Final = 1 << 15
"""What is judged together at most: short lines become a hundred times as large as columns, long ones are long."""
DAY: Final = "dt"
DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows, all without their day.

    Texts may have a dictionary, in one part and not in another.

    Attributes:
        good: Those of the bronze table.
        bad: Those of quarantine, and of which segment they are.
    """

    good: pa.Table
    bad: Sequence[tuple[Source, pa.Table]]


@dataclass(slots=True)
class _Unit:
    """Lines that are judged together, and what they say."""

    sources: list[Source] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    """Of each source."""
    contents: list[bytes | Block] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    waiting: list[bytes] = field(default_factory=list)
    """The last of the contents, which no piece was made of yet."""
    waiting_bytes: int = 0
    all_bytes: int = 0
    all_lines: int = 0

    @property
    def is_full(self) -> bool:
        return self.all_lines >= UNIT_LINES or self.all_bytes >= UNIT_BYTES

    def add(self, text: bytes, source: Source) -> None:
        self._note(text, text.count(b"\n"), source)
        self.waiting.append(text)
        self.waiting_bytes += len(text)
        self.all_bytes += len(text)

    def add_block(self, block: Block, piece: Piece, source: Source) -> None:
        self._note(block, piece.lines, source)
        self.pieces.append(piece)

    def _note(self, content: bytes | Block, lines: int, source: Source) -> None:
        if not self.sources or self.sources[-1] is not source:
            self.sources.append(source)
            self.lines.append(0)
        self.lines[-1] += lines
        self.all_lines += lines
        self.contents.append(content)

    def decode(self, decoder: LineDecoder) -> None:
        if self.waiting:
            self.pieces.append(decoder.read(b"".join(self.waiting)))
            self.waiting, self.waiting_bytes = [], 0


def stored_schema(table: Table) -> pa.Schema:
    """Columns that files of a table have; the day is in the name of their folder."""
    schema = to_arrow_schema(table.schema)
    return pa.schema([column for column in schema if column.name != DAY])


class SegmentReader:
    """Makes rows of segments of one kind.

    Args:
        kind: Of all segments.
        manifests: Of segments that will be read: lines have words of their manifests.
        batch: Number of the batch that the rows come with.
    """

    def __init__(self, kind: RecordKind, manifests: Sequence[SegmentManifest] = (), *, batch: int = 0) -> None:
        self._kind = kind
        self._batch = batch
        self._decoder = LineDecoder(kind)
        self._decoder.expect({"node": {manifest.node for manifest in manifests}})
        self._good = stored_schema(bronze_table(kind))
        self._bad = stored_schema(QUARANTINE)

        self._unit = _Unit()

    def read(self, content: bytes, source: Source) -> Iterator[Rows]:
        """Read the next segment. Rows come in the order of the lines, when there are enough; see `rest`.

        Args:
            content: Its file.
            source: What its manifest says; what became of its lines is noted there with the rows. When its good
                records are of more days than those of a segment can be, none of them come as rows any more.

        Raises:
            ContentError: The content is not what the manifest says. Its rows are worth nothing, whether they came
                before or are still to come.
        """
        for found in contents_of(content, source.manifest):
            if isinstance(found, Block):
                self._unit.decode(self._decoder)
                self._unit.add_block(found, self._decoder.read_block(found), source)
            else:
                if self._unit.waiting_bytes + len(found) > PIECE_BYTES:
                    self._unit.decode(self._decoder)
                self._unit.add(found, source)
            if self._unit.is_full:
                yield from self.rest()

    def rest(self) -> Iterator[Rows]:
        """The rows of all lines that were read and did not come yet."""
        unit, self._unit = self._unit, _Unit()
        if unit.contents:
            unit.decode(self._decoder)
            yield self._judged(unit)

    def _judged(self, unit: _Unit) -> Rows:
        columns = self._decoder.columns(unit.pieces)
        members = dict(columns.arrays)
        claims = Claims(unit.sources, _records(unit, columns))
        judgement = judge(self._kind, members, claims)
        bad = list(self._bad_rows(unit, columns, judgement))
        kept = np.ones(len(claims.owners), np.bool_)
        kept[list(judgement.bad)] = False
        _count(unit, claims, kept, members)
        kept &= ~np.array([len(source.days) > SEGMENT_DAYS_MAX for source in unit.sources])[claims.owners]
        return Rows(self._good_rows(members, judgement, claims, kept), bad)

    def _good_rows(
        self, members: dict[str, pa.Array], judgement: Judgement, claims: Claims, kept: NDArray[np.bool_]
    ) -> pa.Table:
        columns = members | {"errors": self._warnings(judgement, len(kept))}
        columns["segno"] = pa.array(claims.numbers(lambda manifest: manifest.segno))
        columns["batch"] = pa.array(np.full(len(kept), self._batch, np.int64))
        if not kept.all():
            columns = {name: without(column, pa.array(kept)) for name, column in columns.items()}
        if self._kind is RecordKind.MESSAGE:
            columns["our_domain"], columns["peer_domain"] = _whose(columns)
            columns |= {name: _ids(columns[name]) for name in IDS}
        return pa.table({name: columns[name] for name in self._good.names})

    def _warnings(self, judgement: Judgement, count: int) -> pa.Array:
        type_ = self._good.field("errors").type
        if judgement.errors:
            return pa.array([judgement.errors.get(place, ()) for place in range(count)], type_)
        none = pa.array(np.zeros(count + 1, np.int32))
        return pa.ListArray.from_arrays(none, pa.array([], pa.string()), type=type_)

    def _bad_rows(self, unit: _Unit, columns: Columns, judgement: Judgement) -> Iterator[tuple[Source, pa.Table]]:
        if not judgement.bad and not columns.spoilt:
            return
        lines = chain.from_iterable(map(_lines_of, unit.contents))
        first = read = 0
        for source, count in zip(unit.sources, unit.lines, strict=True):
            rows: list[dict[str, Any]] = []
            for place, line in enumerate(islice(lines, count), first):
                reason = columns.spoilt.get(place)
                if reason is not None:
                    rows.append({"line": line, "errors": [reason], "severity": Severity.SEVERE, "seq": None})
                    continue
                severity = judgement.bad.get(read)
                if severity is not None:
                    number = columns.arrays["seq"][read].as_py()
                    rows.append({"line": line, "errors": judgement.errors[read], "severity": severity, "seq": number})
                read += 1
            first += count
            manifest = source.manifest
            for row in rows:
                row |= {"line": row["line"].decode("utf-8", "replace"), "severity": row["severity"].word}
                row |= {"node": manifest.node, "kind": self._kind.value, "boot": manifest.boot, "segno": manifest.segno}
                row["batch"] = self._batch
            if rows:
                yield source, pa.Table.from_pylist(rows, self._bad)


def _lines_of(content: bytes | Block) -> Iterable[bytes]:
    return content.lines() if isinstance(content, Block) else content.split(b"\n")[:-1]


def _records(unit: _Unit, columns: Columns) -> list[int]:
    """How many lines of each source could be read."""
    if not columns.spoilt:
        return unit.lines
    spoilt = np.searchsorted(np.cumsum(unit.lines), sorted(columns.spoilt), side="right")
    counts: list[int] = (np.array(unit.lines) - np.bincount(spoilt, minlength=len(unit.lines))).tolist()
    return counts


def _count(unit: _Unit, claims: Claims, is_good: NDArray[np.bool_], members: Mapping[str, pa.Array]) -> None:
    """Note with each source what became of its lines."""
    days = np.asarray(members["ts_us"].fill_null(0)) // DAY_US
    for (source, span), lines in zip(claims.spans(), unit.lines, strict=True):
        good = days[span][is_good[span]]
        source.days.update(np.unique(good).tolist())
        source.good += len(good)
        source.bad += lines - len(good)


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
