"""Settlement: what we exchanged with whom, by hour and by day, to the message and to the byte.

Everything in a statement is a sum of whole numbers, a set fold or a histogram with fixed buckets, so the same records
give the same statement whatever their order, split or partitioning.

Hours and days are added up by `columns.hours` and `columns.days` in Python workers, in numpy: once where rows are read,
so that only sums are shuffled, and once where their parts have met. Source: pipeline study, sections 1.2 and 8.2;
ADR 0016 and 0018.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from pipeline.columns.days import Version, days_added_up, folds_of, with_quantiles, written_down
from pipeline.columns.groups import Rows
from pipeline.columns.hours import hours_of, places_of_hours, whole_hours, whole_quarters
from pipeline.columns.packed import in_one, places_for, unpacked
from pipeline.columns.set_digests import bucket_hashes, members_of, places_of_days, places_of_members, set_digests
from pipeline.core.business_time import QUARTER_US
from pipeline.lake.worker_rows import Batches, WorkerRows, pieces_by_place
from pipeline.schemas import INT, LONG, STATEMENT, TEXT
from pipeline.schemas.columns import columns

SAID: Final = (*STATEMENT.names, "version", "status", "complete_until_us")
"""Columns of `statement_daily` that show whether anything has changed."""
FOLDS_NOW: Final = columns(our_domain=TEXT, dt=TEXT, set_xor=LONG, set_sum=LONG)
"""Everything that statements of a domain and day say, folded; parts of it are added up as folds are."""
FOLDS: Final = columns(
    our_domain=TEXT, dt=TEXT, version=INT, status=TEXT, complete_until_us=LONG, set_xor=LONG, set_sum=LONG
)
"""The same of each version that is written."""
HOURS_AT_ONCE: Final = 1 << 16
"""What a worker adds up before it passes days on: an hour has some 30 entries of maps."""


def settle_hourly(silver: WorkerRows) -> WorkerRows:
    """Statements per hour, domain pair, role and message type; rows of `traffic_hourly`.

    Args:
        silver: The columns `RECORD` of `silver_mdr`.
    """
    hours = silver.to_places(places_of_hours, places_for(silver.records), of=hours_of)
    return hours.of_places(whole_hours)


def settle_quarters(silver: WorkerRows) -> WorkerRows:
    """The same for quarters of an hour; rows of `traffic_quarter_hourly`."""
    of_quarters = partial(hours_of, unit_us=QUARTER_US)
    parts = silver.to_places(places_of_hours, places_for(silver.records), of=of_quarters)
    return parts.of_places(whole_quarters)


def daily_parts(hourly: WorkerRows, places: int) -> WorkerRows:
    """Hours added up to days where they are read, on their way to these places of each day; pieces of them.

    Args:
        hourly: The columns `HOUR` of `traffic_hourly`.
        places: How many.
    """
    return hourly.packed(places_of_days, places, of=days_added_up, rows=HOURS_AT_ONCE)


def settle_daily(parts: DataFrame) -> WorkerRows:
    """Statements per day, domain pair and role, out of `daily_parts`; rows of `schemas.STATEMENT`."""
    return pieces_by_place(parts).of_places(_whole_days)


def _whole_days(parts: pa.Table) -> pa.Table:
    return with_quantiles(days_added_up(parts))


def folds(statements: WorkerRows) -> WorkerRows:
    """Fold the statements that each worker holds by domain, day and version; rows of `FOLDS`.

    Args:
        statements: The columns `SAID` of `statement_daily`.
    """
    return statements.in_tables(partial(folds_of, by=FOLDS.names[:-2]), HOURS_AT_ONCE)


def folds_now(statements: WorkerRows) -> WorkerRows:
    """The same of `settle_daily`, of which there is one version; rows of `FOLDS_NOW`."""
    return statements.in_tables(partial(folds_of, by=FOLDS_NOW.names[:-2]), HOURS_AT_ONCE)


def hashes_of_members(silver: WorkerRows, signed_off: Collection[tuple[str, str]], places: int) -> WorkerRows:
    """Build the input of the SHA-256 of each pair, role and day, at the place of its day; pieces for `statements`.

    See `columns.set_digests`. A worker holds the messages of some pairs in 5 minutes: of one with 1,000 a second
    that is some 20 MB.

    Args:
        silver: The columns `MEMBER` of `silver_mdr`.
        signed_off: Domains and days that are meant.
        places: As many as `daily_parts` has.
    """
    whose = Rows(*(pa.array(names, pa.string()) for names in zip(*signed_off, strict=True)))
    members = partial(members_of, signed_off=whose)
    buckets = silver.to_places(places_of_members, places_for(silver.records), of=members).of_places(bucket_hashes)
    return buckets.packed(places_of_days, places)


def statements(pieces: DataFrame, versions: Mapping[tuple[str, str], Version], *, input_version: int) -> WorkerRows:
    """Statements as they are written; rows of `statement_daily`.

    Args:
        pieces: Of `daily_parts`, and of `hashes_of_members` for whatever is signed off.
        versions: What is to be written, by domain and day; statements of others are left out.
        input_version: Of `silver_mdr`.
    """
    return pieces_by_place(pieces).then(partial(_write_down, versions, input_version))


def _write_down(versions: Mapping[tuple[str, str], Version], input_version: int, batches: Batches) -> Batches:
    pieces = list(unpacked(batches))
    parts = [piece for piece in pieces if "messages" in piece.column_names]
    hashes = [piece for piece in pieces if "messages" not in piece.column_names]
    if parts:
        days = with_quantiles(days_added_up(in_one(parts)))
        digests = set_digests(in_one(hashes)) if hashes else None
        yield from written_down(days, versions, digests, input_version=input_version).to_batches()
