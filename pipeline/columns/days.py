"""Daily statements added up in a worker: hours to days, and days as they are written.

As with hours (`pipeline.columns.hours`), a worker adds up what it reads, and parts that have met are added up once
more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.columns.count_maps import bucket_counts, bucket_entries, quantiles, word_counts, word_entries
from pipeline.columns.groups import (
    Numbers,
    column,
    from_zero,
    group_numbers,
    numbers,
    run_of_rows,
    runs,
    sums,
    sums_modulo,
    words,
    xors,
)
from pipeline.columns.hashing import xxhash64
from pipeline.columns.packed import hashes_of
from pipeline.columns.set_digests import STATEMENT_KEY

_SUMS: Final = ("messages", "delivered", "denied", "failed", "bytes_in", "bytes_wire")
HOUR: Final = (*STATEMENT_KEY, *_SUMS, "outcomes", "denials", "latency")
"""Columns of `traffic_hourly` that days are made of."""
_PER_MILLE: Final = (500, 950, 990)
_OF_NOTHING: Final = sha256(b"").hexdigest()
_WRITTEN: Final = pa.schema(
    {
        "status": pa.string(),
        "version": pa.int32(),
        "complete_until_us": pa.int64(),
        "input_version": pa.int64(),
        "set_digest": pa.string(),
    }
)


def days_added_up(hours: pa.Table) -> pa.Table:
    """Hours, or parts of days, added up by domain pair, role and day, ascending by key; with the columns `HOUR`."""
    rows, order, starts, index = _groups(hours, STATEMENT_KEY)
    many = len(starts)
    of_row, bucket, counts = bucket_entries(index, column(hours, "latency"))
    return pa.table(
        {
            **{name: column(hours, name).take(pa.array(rows)) for name in STATEMENT_KEY},
            **{name: sums(numbers(hours, name)[order], starts) for name in _SUMS},
            **{
                name: word_counts(*word_entries(index, column(hours, name)), rows=many)
                for name in ("outcomes", "denials")
            },
            "latency": bucket_counts(of_row, bucket, counts, rows=many),
        }
    )


def with_quantiles(days: pa.Table) -> pa.Table:
    """Days with p50, p95 and p99 of their latency; rows of `schemas.STATEMENT`."""
    for per_mille in _PER_MILLE:
        days = days.append_column(f"p{per_mille // 10}_us", quantiles(column(days, "latency"), per_mille))
    return days


class Version(NamedTuple):
    """Version under which one domain's statements of one day are written."""

    number: int
    status: str
    complete_until_us: int


def written_down(
    days: pa.Table, versions: Mapping[tuple[str, str], Version], digests: pa.Table | None, *, input_version: int
) -> pa.Table:
    """Days as they are written; rows of `statement_daily`.

    Args:
        days: Of `with_quantiles`.
        versions: What is to be written, by domain and day; other days are left out.
        digests: Of `set_digests`; there is none of a day without delivered messages.
        input_version: Of `silver_mdr`.
    """
    whose = [versions.get((row["our_domain"], row["dt"])) for row in days.select(["our_domain", "dt"]).to_pylist()]
    days = days.filter(pa.array([one is not None for one in whose], pa.bool_()))
    known = {_key(row): row["set_digest"] for row in digests.to_pylist()} if digests else {}
    rows = [
        {
            "status": one.status,
            "version": one.number,
            "complete_until_us": one.complete_until_us,
            "input_version": input_version,
            "set_digest": None if one.status == "draft" else known.get(_key(row), _OF_NOTHING),
        }
        for one, row in zip(filter(None, whose), days.select(list(STATEMENT_KEY)).to_pylist(), strict=True)
    ]
    more = pa.Table.from_pylist(rows, _WRITTEN)
    return pa.table({name: part.column(name) for part in (days, more) for name in part.column_names})


def folds_of(statements: pa.Table, by: Collection[str]) -> pa.Table:
    """Two folds over everything that statements say, one row for each different value of the columns `by`.

    A statement's sums are a member of the set that is folded, and so is every entry of its maps.

    Args:
        statements: Rows of `schemas.STATEMENT`.
        by: Columns of texts or whole numbers.
    """
    rows, _, _, index = _groups(statements, by)
    own = hashes_of(statements, STATEMENT_KEY)
    quantiles_us = (f"p{per_mille // 10}_us" for per_mille in _PER_MILLE)
    groups = [index]
    members = [xxhash64(own, *(numbers(statements, name, null=-1) for name in (*_SUMS, *quantiles_us)))]
    every_row = np.arange(statements.num_rows)
    for name in ("outcomes", "denials"):
        row, found, place, counts = word_entries(every_row, column(statements, name))
        named = pa.array([f"{name} {word}" for word in found], pa.string())
        groups.append(index[row])
        members.append(xxhash64(own[row], xxhash64(named.cast(pa.binary()))[place], counts))
    row, bucket, counts = bucket_entries(every_row, column(statements, "latency"))
    groups.append(index[row])
    members.append(xxhash64(own[row], bucket, counts))
    group, member = np.concatenate(groups), np.concatenate(members)
    order, starts = runs(group)
    found_rows = statements.select(list(by)).take(pa.array(rows))
    folds = {"set_xor": xors(member[order], starts), "set_sum": sums_modulo(member[order], starts)}
    return pa.table({**{name: column(found_rows, name) for name in by}, **folds})


def _groups(table: pa.Table, key: Collection[str]) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """The first row of each group, all rows in the order of groups, where in it each begins, and the group of each row.

    Returns:
        `rows`, `order`, `starts`, `index`.
    """
    keys = [
        from_zero(numbers(table, name)) if pa.types.is_integer(table.schema.field(name).type) else _coded(table, name)
        for name in key
    ]
    group, _ = group_numbers(keys)
    order, starts = runs(group)
    return order[starts], order, starts, run_of_rows(order, starts)


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in STATEMENT_KEY)


def _coded(table: pa.Table, name: str) -> tuple[Numbers, int]:
    found, places = words(column(table, name))
    return places, len(found)
