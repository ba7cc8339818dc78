"""Tables of what was taken in, as nodes wrote it and as it is good: records, segments, and what was wrong."""

from __future__ import annotations

from pipeline.schemas.columns import BYTES, FLAG, INT, LONG, PAIRS, TEXT, TEXTS, Table, columns, extended, retyped
from pipeline.schemas.records import (
    ADMIN_EVENT,
    DECISION_RECORD,
    LINK_EVENT,
    MESSAGE_RECORD,
    POLICY_EVENT,
    SESSION_EVENT,
    STUB_EVENT,
)

_ORIGIN = {"kind": TEXT, "segno": LONG}
"""Which segment a row came from, together with `node` and `boot`."""
_ADDED = {"segno": LONG, "errors": TEXTS, "batch": LONG, "dt": TEXT}
"""What a row of bronze has besides its record; `batch` is the ingest that it came with."""

BRONZE_MDR = Table(
    "bronze_mdr",
    extended(
        retyped(MESSAGE_RECORD, msg_id=BYTES, digest=BYTES),
        our_domain=TEXT,
        peer_domain=TEXT,
        **_ADDED,
    ),
    ("dt",),
    ("node", "boot", "seq"),
)
"""Has every column of `SILVER_MDR`, so that its files can be those of that table as well."""
BRONZE_DECISION = Table(
    "bronze_decision",
    extended(DECISION_RECORD, **_ADDED),
    ("dt",),
    ("node", "boot", "seq"),
)
BRONZE_STUB_EVENT = Table(
    "bronze_stub_event",
    extended(STUB_EVENT, **_ADDED),
    ("dt",),
    ("node", "boot", "seq"),
)
BRONZE_LINK_EVENT = Table(
    "bronze_link_event",
    extended(LINK_EVENT, **_ADDED),
    ("dt",),
    ("node", "boot", "seq"),
)

BRONZE_POLICY_EVENT = Table(
    "bronze_policy_event",
    extended(POLICY_EVENT, **_ADDED),
    ("dt",),
    ("node", "boot", "seq"),
)
BRONZE_ADMIN_EVENT = Table(
    "bronze_admin_event",
    extended(ADMIN_EVENT, **_ADDED),
    ("dt",),
    ("node", "boot", "seq"),
)
BRONZE_SESSION_EVENT = Table(
    "bronze_session_event",
    extended(SESSION_EVENT, **_ADDED),
    ("dt",),
    ("node", "boot", "seq"),
)

QUARANTINE = Table(
    "quarantine",
    columns(node=TEXT, **_ORIGIN, boot=LONG, seq=LONG, line=TEXT, errors=TEXTS, severity=TEXT, batch=LONG, dt=TEXT),
    ("dt",),
)
"""Lines that are not valid records, as they were written. `dt` is the day of the segment's last record."""

SEGMENTS = Table(
    "segments",
    columns(
        node=TEXT,
        kind=TEXT,
        boot=LONG,
        segno=LONG,
        first_seq=LONG,
        last_seq=LONG,
        records=LONG,
        lost_records=LONG,
        size_bytes=LONG,
        sha256=TEXT,
        prev_sha256=TEXT,
        min_ts_us=LONG,
        max_ts_us=LONG,
        opened_us=LONG,
        closed_us=LONG,
        closure=TEXT,
        schema_version=INT,
        policy_revs=TEXTS,
        stub_vers=TEXTS,
        key_id=TEXT,
        spool=TEXT,
        path=TEXT,  # relative to its spool
        manifest_sha256=TEXT,
        manifest_mtime_us=LONG,
        verdict=TEXT,  # accepted, copy, rejected
        severity=TEXT,  # fine, warning, severe, fatal
        findings=TEXTS,  # codes, worst first
        detail=TEXT,  # what to do next, for people
        rows_good=LONG,
        rows_quarantined=LONG,
        batch=LONG,
        uncertain_from_us=LONG,  # of a recovered segment: from here until there a crash may have taken records
        uncertain_until_us=LONG,
        entered=TEXT,  # UTC day on which the row was entered; `rejected` while the segment may be accepted yet
    ),
    ("entered",),
    ("node", "kind", "boot", "segno", "spool", "path", "manifest_sha256"),
)
"""One row for every manifest ever seen, and what became of it; the codes are those of `pipeline.core.findings`."""

SEGMENT_STRETCH = Table(
    "segment_stretch",
    columns(
        node=TEXT,
        kind=TEXT,
        boot=LONG,
        first_segno=LONG,
        first_seq=LONG,
        first_last_seq=LONG,
        first_sha256=TEXT,
        first_prev_sha256=TEXT,
        first_opened_us=LONG,
        first_closed_us=LONG,
        last_segno=LONG,
        last_first_seq=LONG,
        last_seq=LONG,
        last_sha256=TEXT,
        last_prev_sha256=TEXT,
        last_opened_us=LONG,
        last_closed_us=LONG,
        before_last_closed_us=LONG,
        segments=LONG,
        is_disputed=FLAG,  # other content came under the number of the last segment
        lost_records=LONG,
        quarantined_rows=LONG,
        unaccounted_records=LONG,  # numbers of records between these segments that are in none of them
        unchecked_segments=LONG,  # without a signature that was found to be good
        newest_closed_us=LONG,
        first_uncertain_from_us=LONG,  # as the first segment says it; see `crashes`
        first_uncertain_until_us=LONG,
        holes=PAIRS,  # opened and closed, of segments of which records are missing
        crashes=PAIRS,  # from when until when a crash may have taken records
    ),
    (),
    ("node", "kind", "boot", "first_segno"),
)
"""Accepted segments of one start of a node that follow each other, by number and by hash: what the ledger adds up to.

Its transaction `ingest` is the last batch that is in it; it can be made from `segments` at any time."""

ERASURE = Table(
    "erasure",
    columns(entered_us=LONG, who=TEXT, why=TEXT, rows=LONG, segments=LONG),
    (),
    ("entered_us",),
)
"""Who erased a person when and why, and how much changed; not whom."""

INGEST_PLAN = Table("ingest_plan", columns(batch=LONG, plan=TEXT), (), ("batch",))
"""The batch that is being taken in, or was the last one: its segments as they were before their rows were stored."""

NODE_OWNER = Table("node_owner", columns(our_domain=TEXT, node=TEXT), (), ("our_domain", "node"))
"""Whose records each node has written."""

DAY_STATE = Table(
    "day_state",
    columns(job=TEXT, day=TEXT, input=TEXT),
    ("job",),
    ("job", "day"),
)
"""From which records of a day a job has made its tables: `input` is the same as long as these records are."""

NODE_DECLARATION = Table(
    "node_declaration",
    columns(
        node=TEXT,
        declaration=TEXT,  # vouched, retired, withdrawn
        until_us=LONG,  # the node wrote nothing more up to here; null: withdrawn
        who=TEXT,
        why=TEXT,
        entered_us=LONG,
        seen_us=LONG,  # end of the newest segment that was there then
    ),
    (),
    ("node", "entered_us"),
)
"""What operators say about nodes that are silent; the newest declaration about a node counts."""

# Refined.

SILVER_MDR = Table(
    "silver_mdr",
    columns(
        node=TEXT,
        boot=LONG,
        seq=LONG,
        ts_us=LONG,
        role=TEXT,
        msg_id=BYTES,
        attempt=INT,
        src_domain=TEXT,
        dst_domain=TEXT,
        our_domain=TEXT,
        peer_domain=TEXT,
        peer_node=TEXT,
        src_key=TEXT,
        dst_key=TEXT,
        msg_type=TEXT,
        channel=TEXT,
        size_in=LONG,
        size_wire=LONG,
        digest=BYTES,
        outcome=TEXT,
        outcome_code=TEXT,
        decision=TEXT,
        reason=TEXT,
        policy_rev=TEXT,
        rule_id=TEXT,
        facts=TEXT,
        d_policy_us=LONG,
        d_stub_us=LONG,
        d_peer_us=LONG,
        d_total_us=LONG,
        clock_err_us=LONG,
        stub_id=TEXT,
        stub_ver=TEXT,
        fuel=LONG,
        mem_peak_kib=LONG,
        host_calls=LONG,
        trap=TEXT,
        trace_id=TEXT,
        batch=LONG,  # with which ingest brought it; what is newer than a batch has a higher one
        dt=TEXT,
    ),
    ("dt",),
    ("node", "boot", "seq"),
)
"""Good message records, each once."""
