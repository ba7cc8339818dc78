"""Health of stub versions by hour, added up in a worker: records to hours, and parts of hours to whole ones.

As with hours of traffic (`pipeline.columns.hours`), a worker adds up what it reads, and parts that have met are added
up once more: everything is a count or a histogram.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns.count_maps import bucket_counts, bucket_entries, texts_of
from pipeline.columns.groups import (
    Numbers,
    column,
    from_zero,
    group_numbers,
    is_word,
    numbers,
    run_of_rows,
    runs,
    sums,
    words,
)
from pipeline.columns.histogram import PARTS, buckets_of
from pipeline.columns.hours import DAY_US, HOUR_US, days_of
from pipeline.columns.packed import places_of
from protofly.log_linear import NEGATIVE

WORDS: Final = ("our_domain", "peer_domain", "stub_ver", "msg_type")
KEY: Final = (*WORDS, "hour_us", "size_class")
RECORD: Final = (*WORDS, "role", "ts_us", "size_in", "outcome", "trap", "d_stub_us", "d_total_us", "fuel")
"""Columns of `silver_mdr` that hours are made of."""
_COUNTS: Final = ("messages", "failed", "traps")
_HISTOGRAMS: Final = ("latency", "fuel")
_NO_FAILURE: Final = ("delivered", "denied")
_TRAPPED: Final = "trapped"


def stub_hours_of(records: pa.Table) -> pa.Table:
    """Messages that a stub of known version carried, added up by hour, type and size class; the columns of `whole`.

    Args:
        records: The columns `RECORD` of `silver_mdr`.
    """
    is_carried = is_word(column(records, "role"), "out") & ~np.asarray(column(records, "stub_ver").is_null())
    carried = records.filter(pa.array(is_carried))
    ts_us = numbers(carried, "ts_us")
    size = column(carried, "size_in")
    classes = np.maximum(buckets_of(np.asarray(size.fill_null(0))), 0) // PARTS
    is_failed = ~(
        is_word(column(carried, "outcome"), _NO_FAILURE[0]) | is_word(column(carried, "outcome"), _NO_FAILURE[1])
    )
    is_trapped = is_word(column(carried, "outcome"), _TRAPPED) | ~np.asarray(column(carried, "trap").is_null())
    rows = carried.select(list(WORDS))
    rows = rows.append_column("hour_us", pa.array(ts_us - ts_us % HOUR_US))
    rows = rows.append_column("size_class", pa.array(classes.astype(np.int32), mask=np.asarray(size.is_null())))
    latency_us = pc.coalesce(column(carried, "d_stub_us"), column(carried, "d_total_us"))
    return _added_up(
        rows,
        counts={
            "messages": np.ones(rows.num_rows, np.int64),
            "failed": is_failed.astype(np.int64),
            "traps": is_trapped.astype(np.int64),
        },
        entries={"latency": _buckets(latency_us), "fuel": _buckets(column(carried, "fuel"))},
    )


def whole_stub_hours(parts: pa.Table) -> pa.Table:
    """Parts of hours added up; rows of `schemas.STUB_HOURLY`, ascending by key."""
    every_part = np.arange(parts.num_rows)
    hours = _added_up(
        parts,
        counts={name: numbers(parts, name) for name in _COUNTS},
        entries={name: bucket_entries(every_part, column(parts, name)) for name in _HISTOGRAMS},
    )
    return hours.append_column("dt", days_of(numbers(hours, "hour_us")))


def places_of_stub_hours(hours: pa.Table, places: int) -> Numbers:
    """Partition hours, or parts of them, for adding up: equal keys share one of the `places` of their day."""
    return places_of(hours, WORDS, numbers(hours, "hour_us") // DAY_US, places)


def _added_up(
    rows: pa.Table, *, counts: dict[str, Numbers], entries: dict[str, tuple[Numbers, Numbers, Numbers]]
) -> pa.Table:
    """Rows with equal keys as one, with the sums of counts, and of entries of histograms: row, bucket, count."""
    texts = [words(column(rows, name)) for name in WORDS]
    size_class = numbers(rows, "size_class", null=-1)
    keys = [(places, len(found)) for found, places in texts]
    group, _ = group_numbers([*keys, from_zero(numbers(rows, "hour_us")), from_zero(size_class)])
    order, starts = runs(group)
    first, index = order[starts], run_of_rows(order, starts)
    return pa.table(
        {
            **{name: texts_of(found, places[first]) for name, (found, places) in zip(WORDS, texts, strict=True)},
            "hour_us": numbers(rows, "hour_us")[first],
            "size_class": pa.array(size_class[first].astype(np.int32), mask=size_class[first] < 0),
            **{name: sums(values[order], starts) for name, values in counts.items()},
            **{
                name: bucket_counts(index[row], bucket, count, rows=len(starts))
                for name, (row, bucket, count) in entries.items()
            },
        }
    )


def _buckets(values: pa.Array) -> tuple[Numbers, Numbers, Numbers]:
    """Rows, buckets and a count of one for whatever is known."""
    row = np.flatnonzero(~np.asarray(values.is_null()))
    known = np.asarray(values.fill_null(0)).astype(np.int64, copy=False)
    return row, buckets_of(known)[row] - NEGATIVE, np.ones(len(row), np.int64)
