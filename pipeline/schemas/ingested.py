"""Tables of what was taken in, as nodes wrote it and as it is good: records, segments, and what was wrong."""

from __future__ import annotations

from pipeline.schemas.columns import BYTES, INT, LONG, TEXT, TEXTS, Table, columns, extended, retyped
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

BRONZE_MDR = Table(
    "bronze_mdr",
    extended(
        retyped(MESSAGE_RECORD, msg_id=BYTES, digest=BYTES),
        segno=LONG,
        errors=TEXTS,
        our_domain=TEXT,
        peer_domain=TEXT,
        dt=TEXT,
    ),
    ("dt",),
    ("node", "boot", "seq"),
)
"""Has every column of `SILVER_MDR`, so that its files can be those of that table as well."""
BRONZE_DECISION = Table(
    "bronze_decision", extended(DECISION_RECORD, segno=LONG, errors=TEXTS, dt=TEXT), ("dt",), ("node", "boot", "seq")
)
BRONZE_STUB_EVENT = Table(
    "bronze_stub_event", extended(STUB_EVENT, segno=LONG, errors=TEXTS, dt=TEXT), ("dt",), ("node", "boot", "seq")
)
BRONZE_LINK_EVENT = Table(
    "bronze_link_event", extended(LINK_EVENT, segno=LONG, errors=TEXTS, dt=TEXT), ("dt",), ("node", "boot", "seq")
)

BRONZE_POLICY_EVENT = Table(
    "bronze_policy_event", extended(POLICY_EVENT, segno=LONG, errors=TEXTS, dt=TEXT), ("dt",), ("node", "boot", "seq")
)
BRONZE_ADMIN_EVENT = Table(
    "bronze_admin_event", extended(ADMIN_EVENT, segno=LONG, errors=TEXTS, dt=TEXT), ("dt",), ("node", "boot", "seq")
)
BRONZE_SESSION_EVENT = Table(
    "bronze_session_event", extended(SESSION_EVENT, segno=LONG, errors=TEXTS, dt=TEXT), ("dt",), ("node", "boot", "seq")
)

QUARANTINE = Table(
    "quarantine",
    columns(node=TEXT, **_ORIGIN, boot=LONG, seq=LONG, line=TEXT, errors=TEXTS, severity=TEXT, dt=TEXT),
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
    ),
    (),
    ("node", "kind", "boot", "segno", "spool", "path", "manifest_sha256"),
)
"""One row for every manifest ever seen, and what became of it; the codes are those of `pipeline.core.findings`."""

NODE_DECLARATION = Table(
    "node_declaration",
    columns(
        node=TEXT,
        declaration=TEXT,  # vouched, retired, withdrawn
        until_us=LONG,  # the node wrote nothing more up to here; null: withdrawn
        who=TEXT,
        why=TEXT,
        entered_us=LONG,
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
        dt=TEXT,
    ),
    ("dt",),
    ("node", "boot", "seq"),
)
"""Good message records, each once."""
