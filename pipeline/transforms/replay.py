"""A proposed policy over recorded traffic: every decision again, by the node's own engine, in Spark's workers.

Workers return a few rows per part, not one per message: cells of the flips matrix and the sums of the self-check.
Order matters only where rates are limited; then all records of a node meet in one part, sorted by time, as the node
met them. Source: pipeline study, section 3.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from pipeline.columns.groups import in_pieces
from pipeline.columns.replaying import COLUMNS, GATE_REFUSALS, Cell, GateSettings, Replayer
from pipeline.lake.worker_rows import Batches, WorkerRows, rows_of
from pipeline.schemas import LONG, REPLAY_FLIP, SILVER_MDR, TEXT, TEXTS

_CHECKS: Final = ("agreed", "differed", "other_revision", "unchecked", "not_replayable")
_RECORDS_IN_ORDER: Final = 1 << 16
"""Each becomes a row of its own in Python."""
_RECORDS_BY_CLASS: Final = 1 << 18
"""The more there are, the more of them are alike."""
CELLS_BEFORE_FLUSH: Final = 50_000

READ: Final = (*COLUMNS, "outcome_code")
"""Columns of `silver_mdr` that are read: the code says whether a gate was asked at all."""
_RECORD: Final = StructType([SILVER_MDR.schema[name] for name in COLUMNS])

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


def judged(silver: WorkerRows) -> WorkerRows:
    """Records of messages about which a gate decided; of the columns `READ`, those that a replay reads."""
    return silver.then(_by_a_gate)


def replayed(records: WorkerRows, old: GateSettings, new: GateSettings) -> DataFrame:
    """Parts of the answer, from `judged`."""
    in_order = records
    if old.has_rates or new.has_rates:
        rows = records.frame(_RECORD).repartition("node")
        in_order = rows_of(rows.sortWithinPartitions("node", "boot", "ts_us", "msg_id"), COLUMNS)
    return in_order.then(partial(_decide_all, old, new)).frame(PARTS)


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


def _by_a_gate(batches: Batches) -> Batches:
    for batch in batches:
        decision, code = batch.column("decision"), batch.column("outcome_code")
        is_refused = pc.is_in(code, pa.array(sorted(GATE_REFUSALS), pa.string()))
        asked = pc.and_kleene(pc.is_valid(decision), pc.or_kleene(pc.equal(decision, "permit"), is_refused))
        yield batch.select(list(COLUMNS)).filter(asked)


def _decide_all(old: GateSettings, new: GateSettings, batches: Batches) -> Batches:
    replayer = Replayer(old, new)
    is_ordered = old.has_rates or new.has_rates
    for records in in_pieces(batches, _RECORDS_IN_ORDER if is_ordered else _RECORDS_BY_CLASS):
        replayer.replay(records)
        if len(replayer.cells) >= CELLS_BEFORE_FLUSH:
            yield _cells(replayer)
    yield _cells(replayer)
    yield _checks(replayer)


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
