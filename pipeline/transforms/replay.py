"""A proposed policy over recorded traffic: every decision again, by the node's own engine, inside `mapInArrow`.

Workers return a few rows per part, not one per message: cells of the flips matrix and the sums of the self-check.
Order matters only where rates are limited; then all records of a node meet in one part, sorted by time, as the node
met them. Source: pipeline study, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from pipeline.replaying import COLUMNS, GATE_REFUSALS, REPETITIVE, Cell, GateSettings, Replayer
from pipeline.schemas import LONG, REPLAY_FLIP, TEXT, TEXTS

_CHECKS: Final = ("agreed", "differed", "other_revision", "unchecked", "not_replayable")
CELLS_BEFORE_FLUSH: Final = 50_000

PARTS: Final = StructType(
    [
        *(StructField(name, TEXT) for name in Cell._fields),
        *(StructField(name, LONG) for name in ("messages", "bytes")),
        StructField("samples", TEXTS),
        *(StructField(name, LONG) for name in _CHECKS),
        StructField("differing", TEXTS),
    ]
)
"""What workers return: rows of cells, in which the checks are null, and one row of checks per part."""


def judged(silver: DataFrame) -> DataFrame:
    """Records of messages about which a gate decided, with the columns that a replay reads."""
    by_gate = (F.col("decision") == "permit") | F.col("outcome_code").isin(*sorted(GATE_REFUSALS))
    return silver.where(F.col("decision").isNotNull() & by_gate).select(*COLUMNS)


def replayed(records: DataFrame, old: GateSettings, new: GateSettings, *, count_from_us: int = 0) -> DataFrame:
    """Parts of the answer, from `judged`; what is older than `count_from_us` only fills the rates' buckets."""
    in_order = records
    if old.has_rates or new.has_rates:
        in_order = records.repartition("node").sortWithinPartitions("node", "boot", "ts_us", "msg_id")
    return in_order.mapInArrow(_worker(old, new, count_from_us), PARTS)


def flips(parts: DataFrame) -> DataFrame:
    """Cells of the flips matrix; unchanged decisions are among them."""
    samples = F.slice(F.array_sort(F.array_distinct(F.flatten(F.collect_list("samples")))), 1, 20)
    return (
        parts.where(F.col("messages").isNotNull())
        .groupBy(*Cell._fields)
        .agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"), samples.alias("samples"))
        .withColumn("run", F.lit(None).cast("string"))
        .select(*REPLAY_FLIP.schema.names)
    )


def checks(parts: DataFrame) -> DataFrame:
    """One row: the sums of the self-check, and the first ids on which it differed."""
    differing = F.slice(F.array_sort(F.array_distinct(F.flatten(F.collect_list("differing")))), 1, 20)
    return parts.where(F.col("messages").isNull()).agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _CHECKS), differing.alias("differing")
    )


def _worker(
    old: GateSettings, new: GateSettings, count_from_us: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        replayer = Replayer(old, new, count_from_us=count_from_us)
        for batch in batches:
            replayer.replay({name: _values(batch.column(name), name in REPETITIVE) for name in COLUMNS})
            if len(replayer.cells) >= CELLS_BEFORE_FLUSH:
                yield _cells(replayer)
        yield _cells(replayer)
        yield _checks(replayer)

    return work


def _values(column: pa.Array, is_repetitive: bool) -> list[Any]:
    if not is_repetitive:
        values: list[Any] = column.to_pylist()
        return values
    encoded = column.dictionary_encode()
    words = [*encoded.dictionary.to_pylist(), None]
    return [words[index] for index in encoded.indices.fill_null(-1).to_pylist()]


def _cells(replayer: Replayer) -> pa.RecordBatch:
    rows = [
        {
            **cell._asdict(),
            "messages": tally.messages,
            "bytes": tally.size_bytes,
            "samples": [msg_id.hex() for msg_id in tally.samples],
        }
        for cell, tally in replayer.take_cells().items()
    ]
    return _batch(rows)


def _checks(replayer: Replayer) -> pa.RecordBatch:
    checked = replayer.checked
    return _batch([{name: getattr(checked, name) for name in (*_CHECKS, "differing")}])


def _batch(rows: list[dict[str, object]]) -> pa.RecordBatch:
    types = {TEXT: pa.string(), LONG: pa.int64(), TEXTS: pa.list_(pa.string())}
    schema = pa.schema([pa.field(one.name, types[one.dataType]) for one in PARTS.fields])
    return pa.RecordBatch.from_pylist(rows, schema=schema)
