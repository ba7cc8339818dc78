"""Erase: one person's addresses go from every table, and the segments that name the person from the spools.

What stays is what proves and counts: each record with its number, times, sizes, ids and digest, without the address of
the person and without what else might name somebody. So statements, reconciliation and audits say what they said. A
segment is signed as a whole and cannot be changed, so its file goes; its signed manifest stays and says by hash what
there was.

Old versions of the tables have the rows as they were, so their files are removed from the disk as well.

Only the rows say which segments name the person. So segments go before the table's rows: when a run was ended in
between, the next one finds them all again.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.harmless import harmless
from pipeline.core.mentions import mention_of
from pipeline.jobs.operator_word import OperatorWord
from pipeline.jobs.result import JobResult
from pipeline.jobs.retention import WRITERS_SECONDS
from pipeline.lake import storage
from pipeline.lake.stages import StagedFile
from pipeline.lake.store_path import REPORT_NAME, Location
from pipeline.lake.table_log import DataFile
from pipeline.lake.tables import Change, Lake
from pipeline.schemas import ERASURE, QUARANTINE, TABLES, Table
from pipeline.segments.part_files import record_writer
from pipeline.segments.spool import Place, find_manifests
from protofly.address import canonical_key
from protofly.errors import PeerError, SettingsError
from protofly.record_segments import SegmentName
from protofly.records import RecordKind

KEYS: Final = ("src_key", "dst_key", "runtime_key", "subject", "actor")
"""Columns with an address or its hash."""
TEXTS: Final = ("detail", "remote", "arguments", "before", "after", "line", "explanation", "proposed_policy")
"""Columns with texts in which an address may be."""
LISTS_OF_ADDRESSES: Final = frozenset({"evidence"})
"""Columns with lists in which addresses may be."""
FACTS: Final = "facts"
NO_FACTS: Final = '{"partial":true}'
"""What stays of the facts of a decision about the person: they are not complete any more, and replay says so."""
_HASH: Final = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?[0-9a-f]{24}")
_BRONZE: Final = "bronze_"
_BATCH_ROWS: Final = 1 << 17
_SHOWN: Final = 5


_Number: TypeAlias = tuple[str, str, int, int]
"""Kind, node, boot and number of a segment."""


@dataclass(slots=True)
class _Found:
    rows: int = 0
    segments: set[_Number] = field(default_factory=set)


class _Spools:
    """The segments of some folders."""

    def __init__(self, folders: Collection[Location]) -> None:
        self.removed = 0
        self.elsewhere: set[_Number] = set()
        """Segments that were to be removed and are in none of the folders."""
        self._places: dict[_Number, list[Place]] = defaultdict(list)
        for place in find_manifests(folders):
            name = SegmentName.parse(place.stem)
            if name is not None:
                self._places[name.kind.value, name.node, name.boot, name.segno].append(place)

    def remove(self, segments: Collection[_Number]) -> None:
        """Remove the files of these segments; their manifests stay, with a note beside them."""
        self.elsewhere |= set(segments) - self._places.keys()
        for place in (one for segment in sorted(segments) for one in self._places.get(segment, ())):
            there = [path for path in place.segment_paths if storage.exists(path)]
            if there:
                storage.write_bytes(place.erased_path, b"")
            for path in there:
                storage.remove(path)
            self.removed += bool(there)


def run(
    lake: Lake,
    words: Sequence[str],
    *,
    why: str,
    spools: Collection[Location] = (),
    vacuum_after_s: float = WRITERS_SECONDS,
) -> JobResult:
    """Erase a person; run it again when files were too young to be removed.

    Args:
        lake: All tables with addresses; gets a row in `erasure`, without the address.
        words: Addresses of the person, or hashes of them as tables have them.
        why: The reason, for those who read it later.
        spools: Folders whose segments with the person's records are removed.
        vacuum_after_s: Replaced files are removed once they are so old, in seconds.

    Raises:
        SettingsError: Not an address or a hash, or no reason.
        ConflictError: Somebody wrote to a table at the same moment; run it again.
        LakeError: The lake cannot be written.
    """
    result = JobResult("erase")
    meant = frozenset(one for word in words for one in _forms(word))
    if not meant or not why.strip():
        raise SettingsError("name at least one address, and the reason with --why")
    word = OperatorWord.now(why)
    segments = _Spools(spools)
    rows = left = 0
    for page in (lake.folder / REPORT_NAME, lake.folder / f"{REPORT_NAME}.tmp"):  # it shows subjects of alerts
        storage.remove(page)
    for table in TABLES.values():
        if not {*KEYS, *TEXTS, *LISTS_OF_ADDRESSES} & {*table.schema.names} or not lake.has(table):
            continue
        with result.timed(table.name):
            rows += _erase(lake, table, meant, result, segments)
            lake.vacuum(table, older_than_s=vacuum_after_s)
            left += _unnamed(lake, table)
    row = {
        "entered_us": time.time_ns() // 1000,
        "who": word.who,
        "why": word.why,
        "rows": rows,
        "segments": segments.removed,
    }
    done = lake.commit(pa.Table.from_pylist([row], to_arrow_schema(ERASURE.schema)), ERASURE)
    result.wrote(done.table, done.rows, done.version)
    result.outcome = f"{rows:,} rows without the address; {segments.removed:,} segments removed"
    result.details = {"rows": rows, "segments": segments.removed, "files_left": left}
    result.details["segments_elsewhere"] = [str(_name(one)) for one in sorted(segments.elsewhere)]
    result.warnings += _elsewhere_lines(result.details["segments_elsewhere"])
    if not rows:
        result.warnings += _hashed_lines(words)
    if left:
        result.warnings.append(
            f"{left:,} replaced files are younger than {vacuum_after_s / 60:.0f} minutes and may be read or written by "
            "somebody: run this again later, and they are removed"
        )
    return result


def _hashed_lines(words: Sequence[str]) -> list[str]:
    """Why addresses are perhaps nowhere, and what to name instead."""
    return [
        f"no row names {harmless(word)}: tables have keyed hashes of addresses, unless nodes do not hash; "
        "name the hash that `trapezoid records hash ADDRESS --config node.toml` prints"
        for word in words
        if "://" in word
    ]


def _elsewhere_lines(names: Sequence[str]) -> list[str]:
    """Which segments were in none of the spools."""
    if not names:
        return []
    shown = ", ".join(names[:_SHOWN]) + (" …" if names[_SHOWN:] else "")
    return [
        f"{len(names):,} segments with these rows are in no spool that --spool names: {shown}; remove their files "
        "wherever there are some: no later run knows them"
    ]


def _name(segment: _Number) -> SegmentName:
    kind, node, boot, segno = segment
    return SegmentName(RecordKind(kind), node, boot, segno)


def _forms(word: str) -> set[str]:
    """An address as records may have it. Raises SettingsError."""
    if _HASH.fullmatch(word):
        return {word}
    try:
        if "://" in word:
            return {word, canonical_key(word)}
    except PeerError:
        pass
    raise SettingsError(f"{word!a} is no address, and no hash as `trapezoid records hash` prints it")


def _erase(lake: Lake, table: Table, meant: frozenset[str], result: JobResult, spools: _Spools) -> int:
    found = _Found()
    files: list[DataFile] = []
    with lake.stage() as stage:
        staged = []
        for file in lake.files(table):
            path = stage.new_file(table, file.partition)
            rows = _rewritten(lake, table, file, meant, path, found)
            if rows:
                files.append(file)
                found.rows += rows
                staged.append(StagedFile(path, file.rows, file.partition))
        if files:
            spools.remove(found.segments)
            meta = {"erased_rows": found.rows}
            change = Change("replace_files", files=[file.path for file in files], meta=meta)
            done = lake.adopt(staged, table, change)
            result.wrote(table.name, found.rows, done.version)
    return found.rows


def _rewritten(lake: Lake, table: Table, file: DataFile, meant: frozenset[str], path: Location, found: _Found) -> int:
    """Write a file anew without the person; how many of its rows change. Nothing is written when none does."""
    schema = to_arrow_schema(table.schema)
    schema = pa.schema([column for column in schema if column.name not in file.partition])
    source = lake.path_of(table, file)
    named = [name for name in (*KEYS, *TEXTS, *LISTS_OF_ADDRESSES) if name in schema.names]
    with storage.open_parquet(source) as parquet:
        there = set(parquet.schema_arrow.names)
        sought = [name for name in named if name in there]
        batches = parquet.iter_batches(_BATCH_ROWS, columns=sought)
        if not any(_is_named(pa.table(batch), meant).any() for batch in batches):
            return 0
    changed = 0
    with storage.open_parquet(source) as parquet, record_writer(path, schema) as writer:
        columns = [name for name in schema.names if name in there]
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=columns):
            rows = _completed(pa.table(batch), schema)
            is_named = _is_named(rows, meant)
            changed += int(is_named.sum())
            found.segments |= _segments(table, rows, is_named)
            writer.write_table(_without(rows, is_named, meant))
    return changed


def _completed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """These columns; null where the file has none."""
    for column in schema:
        if column.name not in rows.column_names:
            rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
    return rows.select(schema.names).cast(schema)


def _is_named(rows: pa.Table, meant: frozenset[str]) -> NDArray[np.bool_]:
    """Which rows name the person."""
    named = np.zeros(rows.num_rows, np.bool_)
    for name in rows.column_names:
        if name in KEYS:
            named |= _has_key(rows.column(name), meant)
        elif name in TEXTS:
            named |= _has_text(rows.column(name), meant)
        elif name in LISTS_OF_ADDRESSES:
            named |= _has_item(rows.column(name), meant)
    return named


def _has_key(column: pa.ChunkedArray, meant: frozenset[str]) -> NDArray[np.bool_]:
    packed = column.combine_chunks().dictionary_encode()
    words = packed.dictionary.to_pylist()
    is_meant = np.array([*(_is_meant(word, meant) for word in words), False], np.bool_)
    found: NDArray[np.bool_] = is_meant[np.asarray(packed.indices.fill_null(len(words)))]
    return found


def _has_item(column: pa.ChunkedArray, meant: frozenset[str]) -> NDArray[np.bool_]:
    has = np.zeros(len(column), np.bool_)
    items = pc.list_flatten(column)
    if len(items):
        has[np.asarray(pc.list_parent_indices(column))[_has_key(items, meant)]] = True
    return has


def _without_items(column: pa.ChunkedArray, meant: frozenset[str]) -> pa.Array:
    kept = [None if row is None else [one for one in row if not _is_meant(one, meant)] for row in column.to_pylist()]
    return pa.array(kept, column.type)


def _is_meant(word: str, meant: frozenset[str]) -> bool:
    if word in meant:
        return True
    with suppress(PeerError):  # nodes that do not hash write addresses as their senders did
        return canonical_key(word) in meant
    return False


def _has_text(column: pa.ChunkedArray, meant: frozenset[str]) -> NDArray[np.bool_]:
    has = np.zeros(len(column), np.bool_)
    for word in meant:
        has |= np.asarray(pc.match_substring_regex(column, mention_of(word)).fill_null(False))
    return has


def _without(rows: pa.Table, is_named: NDArray[np.bool_], meant: frozenset[str]) -> pa.Table:
    """The rows without the person: what is theirs among addresses, and texts and facts of such rows, go."""
    for place, name in enumerate(rows.column_names):
        column = rows.column(name)
        if name in KEYS:
            column = pc.if_else(pa.array(_has_key(column, meant)), pa.scalar(None, column.type), column)
        elif name in TEXTS:
            column = pc.if_else(pa.array(is_named), pa.scalar(None, column.type), column)
        elif name in LISTS_OF_ADDRESSES:
            column = _without_items(column, meant)
        elif name == FACTS:
            column = pc.if_else(pa.array(is_named), pa.scalar(NO_FACTS, column.type), column)
        else:
            continue
        rows = rows.set_column(place, rows.schema.field(name), column)
    return rows


def _segments(table: Table, rows: pa.Table, is_named: NDArray[np.bool_]) -> set[_Number]:
    """The segments that these rows came from, where the table says it."""
    names = ["node", "boot", "segno"]
    if table is not QUARANTINE and not table.name.startswith(_BRONZE):
        return set()
    if table is not QUARANTINE:
        kind = pa.repeat(table.name.removeprefix(_BRONZE), rows.num_rows)
        rows = rows.append_column("kind", kind)
    groups = rows.select(["kind", *names]).filter(pa.array(is_named)).group_by(["kind", *names]).aggregate([])
    return {(row["kind"], row["node"], row["boot"], row["segno"]) for row in groups.to_pylist()}


def _unnamed(lake: Lake, table: Table) -> int:
    """How many files of a table its newest version does not name."""
    return sum(1 for _ in lake.unnamed(table))
