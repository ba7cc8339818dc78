"""The table `[records]`: what is written down."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from msg_node.settings.tables.values import PositiveInt, Rate
from protofly import limits

KindWord = Literal["mdr", "decision", "stub_event", "link_event", "session_event", "policy_event", "admin_event"]
"""The kinds of records."""


class RecordSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Audit records about messages, decisions, stubs, links and sessions."""

    spool_dir: Annotated[
        Path | None, Meta(description="Folder for record segments; absent: `records` in the data folder.")
    ] = None
    durability: Annotated[
        Literal["counted", "strict"],
        Meta(description="Queue full: `counted` loses records and counts them, `strict` takes no more messages."),
    ] = "counted"
    segment_format: Annotated[
        Literal["columns", "lines"],
        Meta(
            description="How messages are written: in `columns` (schema version 2), or in JSON `lines` (version 1), "
            "which pipelines from before version 2 read, too."
        ),
    ] = "columns"
    hash_addresses: Annotated[
        bool, Meta(description="Write keyed hashes in place of addresses, and no words of others.")
    ] = True
    keep_days: Annotated[
        dict[KindWord, Annotated[float, Meta(gt=0.0, le=36_600.0)]],
        Meta(
            description="For how many days sealed segments are kept, by kind, for example `mdr = 90`; those of other "
            "kinds are kept until somebody removes them."
        ),
    ] = {}
    queue_records: Annotated[PositiveInt, Meta(description="Records waiting for the writer.")] = (
        limits.RECORD_QUEUE_RECORDS
    )
    segment_bytes: Annotated[PositiveInt, Meta(description="Raw bytes after which a segment is sealed.")] = (
        limits.SEGMENT_BYTES
    )
    segment_seconds: Annotated[Rate, Meta(description="Age at which a segment is sealed.")] = limits.SEGMENT_SECONDS
    sync_seconds: Annotated[Rate, Meta(description="Longest time a record waits for the disk.")] = (
        limits.RECORD_SYNC_SECONDS
    )
