"""Every table of the lake, column by column: the contract between the jobs.

The raw tables mirror the record types of `protofly.records`; a test pins each to its class, so that a member added to
a record cannot be dropped silently here. All times are µs since the Unix epoch, UTC; all durations µs; all sizes
bytes. `dt` is the UTC day of `ts_us` as `YYYY-MM-DD`, and the partition of every table that grows.

A domain pair is written (`src_domain`, `dst_domain`): from whom to whom messages went. Who wrote the record is
`our_domain`, the other one is `peer_domain`.
"""

from __future__ import annotations

from functools import cache

from pyspark.sql.types import StructField, StructType

from pipeline.schemas.columns import (
    BYTES,
    COUNTS,
    DOUBLE,
    FLAG,
    HISTOGRAM,
    INT,
    LONG,
    PAIRS,
    SHORT,
    TEXT,
    TEXTS,
    WHICH,
    Table,
)
from pipeline.schemas.ingested import (
    BRONZE_ADMIN_EVENT,
    BRONZE_DECISION,
    BRONZE_LINK_EVENT,
    BRONZE_MDR,
    BRONZE_POLICY_EVENT,
    BRONZE_SESSION_EVENT,
    BRONZE_STUB_EVENT,
    DAY_STATE,
    ERASURE,
    INGEST_PLAN,
    NODE_DECLARATION,
    NODE_OWNER,
    QUARANTINE,
    SEGMENT_STRETCH,
    SEGMENTS,
    SILVER_MDR,
)
from pipeline.schemas.records import (
    ADMIN_EVENT,
    DECISION_RECORD,
    LINK_EVENT,
    MESSAGE_RECORD,
    POLICY_EVENT,
    SESSION_EVENT,
    STUB_EVENT,
)
from pipeline.schemas.scores import (
    ALERT,
    ALERT_SENT,
    DOMAIN_BASELINE,
    LEASE,
    REPLAY_FLIP,
    REPLAY_RUN,
    STUB_HOURLY,
    STUB_LIFE,
    STUB_REGRESSION,
)
from pipeline.schemas.settlement import (
    CLOCK_FINDING,
    CLOCK_OFFSET,
    CONCESSION,
    INVOICE,
    PAIR_DELAY,
    PEER_EXTRACT,
    PEER_RECORD,
    PEER_RETURN,
    PEER_TOTAL,
    RECON_BUCKET,
    RECON_CASE,
    RECON_PAIR,
    SIDE_RECORD,
    SIDE_TOTAL,
    STATEMENT,
    STATEMENT_DAILY,
    TRAFFIC_HOURLY,
    TRAFFIC_QUARTER_HOURLY,
    USAGE_NAMED,
)
from protofly.records import RecordKind

__all__ = [
    "ADMIN_EVENT",
    "ALERT",
    "ALERT_SENT",
    "BRONZE_ADMIN_EVENT",
    "BRONZE_DECISION",
    "BRONZE_LINK_EVENT",
    "BRONZE_MDR",
    "BRONZE_POLICY_EVENT",
    "BRONZE_SESSION_EVENT",
    "BRONZE_STUB_EVENT",
    "BYTES",
    "CLOCK_FINDING",
    "CLOCK_OFFSET",
    "CONCESSION",
    "COUNTS",
    "DAY_STATE",
    "DECISION_RECORD",
    "DOMAIN_BASELINE",
    "DOUBLE",
    "ERASURE",
    "FLAG",
    "HISTOGRAM",
    "INGEST_PLAN",
    "INT",
    "INVOICE",
    "LEASE",
    "LINK_EVENT",
    "LONG",
    "MESSAGE_RECORD",
    "NODE_DECLARATION",
    "NODE_OWNER",
    "PAIRS",
    "PAIR_DELAY",
    "PEER_EXTRACT",
    "PEER_RECORD",
    "PEER_RETURN",
    "PEER_TOTAL",
    "POLICY_EVENT",
    "QUARANTINE",
    "RECON_BUCKET",
    "RECON_CASE",
    "RECON_PAIR",
    "RECORD_SCHEMAS",
    "REPLAY_FLIP",
    "REPLAY_RUN",
    "SEGMENTS",
    "SEGMENT_STRETCH",
    "SESSION_EVENT",
    "SHORT",
    "SIDE_RECORD",
    "SIDE_TOTAL",
    "SILVER_MDR",
    "STATEMENT",
    "STATEMENT_DAILY",
    "STUB_EVENT",
    "STUB_HOURLY",
    "STUB_LIFE",
    "STUB_REGRESSION",
    "TABLES",
    "TEXT",
    "TEXTS",
    "TRAFFIC_HOURLY",
    "TRAFFIC_QUARTER_HOURLY",
    "USAGE_NAMED",
    "Table",
    "bronze_table",
    "whole_log",
]

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        BRONZE_MDR,
        BRONZE_DECISION,
        BRONZE_STUB_EVENT,
        BRONZE_LINK_EVENT,
        BRONZE_SESSION_EVENT,
        BRONZE_POLICY_EVENT,
        BRONZE_ADMIN_EVENT,
        QUARANTINE,
        INGEST_PLAN,
        SEGMENTS,
        SEGMENT_STRETCH,
        NODE_DECLARATION,
        NODE_OWNER,
        DAY_STATE,
        ERASURE,
        SILVER_MDR,
        TRAFFIC_HOURLY,
        TRAFFIC_QUARTER_HOURLY,
        STATEMENT_DAILY,
        INVOICE,
        CONCESSION,
        RECON_BUCKET,
        RECON_CASE,
        RECON_PAIR,
        CLOCK_OFFSET,
        CLOCK_FINDING,
        PEER_EXTRACT,
        PEER_TOTAL,
        PEER_RECORD,
        PEER_RETURN,
        USAGE_NAMED,
        REPLAY_RUN,
        REPLAY_FLIP,
        STUB_HOURLY,
        STUB_LIFE,
        STUB_REGRESSION,
        DOMAIN_BASELINE,
        ALERT,
        ALERT_SENT,
        LEASE,
    )
}


def whole_log(table: Table) -> Table:
    """A table with all columns of its log: its own, and those of the tables that share it."""
    return _all_in(table.shared_log) if table.shared_log else table


@cache
def _all_in(log: str) -> Table:
    sharing = [table for table in TABLES.values() if table.shared_log == log]
    fields = {field.name: field for table in sharing for field in table.schema}
    return Table(log, StructType([StructField(WHICH, TEXT), *fields.values()]), (WHICH, *sharing[0].partition))


RECORD_SCHEMAS: dict[RecordKind, StructType] = {
    RecordKind.MESSAGE: MESSAGE_RECORD,
    RecordKind.DECISION: DECISION_RECORD,
    RecordKind.STUB: STUB_EVENT,
    RecordKind.LINK: LINK_EVENT,
    RecordKind.SESSION: SESSION_EVENT,
    RecordKind.POLICY: POLICY_EVENT,
    RecordKind.ADMIN: ADMIN_EVENT,
}
"""Members of the lines of each kind."""


def bronze_table(kind: RecordKind) -> Table:
    """Bronze table for good records of a kind."""
    return TABLES[f"bronze_{kind.value}"]
