"""Tables of statements and of reconciliation."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import ArrayType

from pipeline.schemas.columns import BYTES, COUNTS, FLAG, HISTOGRAM, INT, LONG, TEXT, Table, columns, extended

# Settled.

_TRAFFIC = {
    "our_domain": TEXT,
    "src_domain": TEXT,
    "dst_domain": TEXT,
    "role": TEXT,
    "messages": LONG,
    "delivered": LONG,
    "denied": LONG,
    "failed": LONG,  # every other outcome
    "bytes_in": LONG,
    "bytes_wire": LONG,
    "outcomes": COUNTS,
    "denials": COUNTS,  # by rule, "" for those without a rule
    "latency": HISTOGRAM,  # of d_total_us of delivered messages
}

TRAFFIC_HOURLY = Table(
    "traffic_hourly",
    columns(hour_us=LONG, msg_type=TEXT, **_TRAFFIC, set_xor=LONG, set_sum=LONG, dt=TEXT),
    ("dt",),
    ("our_domain", "src_domain", "dst_domain", "role", "msg_type", "hour_us"),
)
"""`set_xor` and `set_sum` fold `xxhash64(msg_id, digest)` of delivered messages: equal sets have equal folds."""

TRAFFIC_QUARTER_HOURLY = Table(
    "traffic_quarter_hourly",
    columns(quarter_us=LONG, msg_type=TEXT, **_TRAFFIC, set_xor=LONG, set_sum=LONG, dt=TEXT),
    ("dt",),
    ("our_domain", "src_domain", "dst_domain", "role", "msg_type", "quarter_us"),
)
"""The same by quarters of an hour, for those who settle in a zone whose midnight is within an hour of UTC."""

STATEMENT = columns(**_TRAFFIC, p50_us=LONG, p95_us=LONG, p99_us=LONG, dt=TEXT)
"""What a daily statement says; `statement_daily` adds which version of it this is, and what proves it."""

STATEMENT_DAILY = Table(
    "statement_daily",
    columns(
        **_TRAFFIC,
        p50_us=LONG,
        p95_us=LONG,
        p99_us=LONG,
        status=TEXT,  # draft, final, restated
        version=INT,
        complete_until_us=LONG,  # our manifests prove completeness up to here
        input_version=LONG,  # of silver_mdr
        set_digest=TEXT,  # SHA-256 over the sorted (msg_id, digest); final statements only
        dt=TEXT,
    ),
    ("dt",),
    ("our_domain", "src_domain", "dst_domain", "role", "version"),
)

INVOICE = Table(
    "invoice",
    columns(
        number=TEXT,
        item=INT,
        kind=TEXT,  # invoice, credit-note, debit-note
        corrects=TEXT,  # number of the invoice, of a note
        our_domain=TEXT,
        peer_domain=TEXT,
        issuer=TEXT,  # who is owed
        payer=TEXT,
        month=TEXT,
        zone=TEXT,  # whose midnights cut the month
        tariff=TEXT,
        tariff_sha256=TEXT,
        role=TEXT,
        counted=TEXT,  # messages, delivered, bytes_in, bytes_wire
        quantity=LONG,  # of a note: the difference
        price=TEXT,
        per=LONG,
        currency=TEXT,
        amount=LONG,  # in the smallest unit of the currency
        statements=COUNTS,  # by UTC day, which version of its statements was billed
        issued_us=LONG,
    ),
    (),
    ("number", "item"),
)
"""Lines of what was billed; never changed, only corrected by further ones."""

CONCESSION = Table(
    "concession",
    columns(
        our_domain=TEXT,
        peer_domain=TEXT,
        month=TEXT,
        number=TEXT,  # of the document that the partner does not accept
        reason=TEXT,  # of its objection
        return_us=LONG,  # when the partner made the return
        currency=TEXT,
        role=TEXT,
        tariff=TEXT,
        counted=TEXT,
        price=TEXT,
        per=LONG,
        billed=LONG,  # of that item, in all documents and with all concessions before
        less=LONG,  # so much less is billed; below zero: so much more is paid
        who=TEXT,
        why=TEXT,
        entered_us=LONG,
    ),
    (),
    ("our_domain", "peer_domain", "month", "entered_us", "role", "tariff", "counted", "price"),
)
"""What was conceded to partners of the bills that they returned, by whom and why; never changed."""

# Reconciled.

RECONCILIATION: Final = "reconciliation"
"""The log of all tables that one reconciliation writes: readers see all of it, or nothing."""

SIDE_RECORD = columns(
    src_domain=TEXT,
    dst_domain=TEXT,
    msg_id=BYTES,
    sent_us=LONG,  # time of the message by its own id, the same on both sides; see pipeline.columns.side_records
    bucket_us=LONG,  # the 5 minutes in which it is compared
    ts_us=LONG,
    digest=BYTES,
    size=LONG,  # size_wire, or size_in where that is not known
    outcome=TEXT,
    span_us=LONG,  # d_total_us
    node=TEXT,
    boot=LONG,
    seq=LONG,
)
"""One side's record of a message, ours or out of a partner's file: no addresses, no bodies."""

SIDE_TOTAL = columns(
    src_domain=TEXT,
    dst_domain=TEXT,
    bucket_us=LONG,
    messages=LONG,
    delivered=LONG,
    bytes=LONG,
    set_xor=LONG,
    set_sum=LONG,
    undelivered=LONG,  # records of the sender's that claim no delivery
    repeats=LONG,  # the sender's beyond the first of a message; ignored copies of the receiver's
    lag_min_us=LONG,  # ts_us less the message's own time, where the id has one
    lag_max_us=LONG,
)
"""One side's total of a domain pair over 5 minutes, in one row."""

PEER_EXTRACT = Table(
    "peer_extract",
    columns(
        domain=TEXT,  # the author
        peer=TEXT,  # the reader
        step=TEXT,  # totals, details
        entered_us=LONG,
        books_version=LONG,
        from_us=LONG,
        until_us=LONG,
        holes=ArrayType(columns(from_us=LONG, until_us=LONG), containsNull=False),
        proof=TEXT,
        rows=LONG,
        sha256=TEXT,  # of the header that the partner signed; of the body in our own
        day=TEXT,
        created_us=LONG,  # by the clock of the author
    ),
    (),
    ("domain", "peer", "day", "step", "entered_us"),
)
"""One row for every extract that we wrote for a partner or took from one, in order."""

PEER_TOTAL = Table(
    "peer_total", extended(SIDE_TOTAL, role=TEXT, extract=TEXT), ("extract",), ("extract", "role", "bucket_us")
)
"""Totals out of partners' extracts; `role` is the author's role, `extract` is `<author>_<day>`."""

PEER_RECORD = Table(
    "peer_book", extended(SIDE_RECORD, role=TEXT, extract=TEXT), ("extract",), ("extract", "node", "boot", "seq")
)
"""Records out of partners' extracts, likewise."""

PEER_RETURN = Table(
    "peer_return",
    columns(
        domain=TEXT,  # the author, who does not accept something
        peer=TEXT,  # the reader, whose it is
        entered_us=LONG,
        file=TEXT,  # name of a file that was refused as a whole
        sha256=TEXT,
        role=TEXT,  # of a record that is not accepted: the reader sent it (out), or received it (in)
        msg_id=BYTES,
        reason=TEXT,  # verdict on the file, or class of the message
        detail=TEXT,
        made_us=LONG,  # by the clock of the author; no two of its returns have the same
        dt=TEXT,
    ),
    ("dt",),
    ("domain", "peer", "entered_us", "file", "role", "msg_id"),
)
"""What we returned to partners and they to us: refused files, records that are not accepted, bills of ours."""

USAGE_NAMED = Table(
    "usage_named",
    columns(
        domain=TEXT,  # the author, who received the messages
        peer=TEXT,  # the reader, whose sender it is
        made_us=LONG,
        src_key=TEXT,  # as our records have the sender; absent: of a report to us, and we have no record
        messages=LONG,
        bytes=LONG,
        from_us=LONG,
        until_us=LONG,
        dt=TEXT,
    ),
    ("dt",),
    ("domain", "peer", "made_us", "src_key"),
)
"""Senders that reports of high usage have named: ours to partners, and those of partners to us."""

PAIR_DELAY = columns(src_domain=TEXT, dst_domain=TEXT, hour_us=LONG, low_us=LONG, drift_ppb=LONG, messages=LONG)
"""What the times of an ordered pair's records differ by in an hour: the shortest way, and the clocks' difference."""

RECON_BUCKET = Table(
    "recon_bucket",
    columns(
        src_domain=TEXT,
        dst_domain=TEXT,
        bucket_us=LONG,
        out_messages=LONG,
        in_messages=LONG,
        in_delivered=LONG,
        out_bytes=LONG,
        in_bytes=LONG,
        out_xor=LONG,
        in_xor=LONG,
        out_sum=LONG,
        in_sum=LONG,
        undelivered=LONG,  # of the sender's
        repeats=LONG,  # of either side
        lag_min_us=LONG,  # at the receiver: ts_us less the message's own time
        lag_max_us=LONG,
        is_equal=FLAG,
        dt=TEXT,
    ),
    ("dt",),
    ("src_domain", "dst_domain", "bucket_us"),
    RECONCILIATION,
)

RECON_CASE = Table(
    "recon_case",
    columns(
        src_domain=TEXT,
        dst_domain=TEXT,
        msg_id=BYTES,
        case_class=TEXT,  # pending, unprovable, lost, orphan, duplicated, altered, size, outcome, skewed
        copies_out=INT,
        copies_in=INT,
        out_ts_us=LONG,
        in_ts_us=LONG,
        out_node=TEXT,
        in_node=TEXT,
        out_digest=BYTES,
        in_digest=BYTES,
        out_size=LONG,
        in_size=LONG,
        out_outcome=TEXT,
        in_outcome=TEXT,
        evidence=TEXT,  # which segments prove it, for people
        dt=TEXT,
    ),
    ("dt",),
    ("src_domain", "dst_domain", "msg_id", "case_class"),
    RECONCILIATION,
)
"""One row per message on which the sides differ. Matched messages are counted in `recon_pair`, not listed."""

RECON_PAIR = Table(
    "recon_pair",
    columns(
        src_domain=TEXT,
        dst_domain=TEXT,
        sent=LONG,
        received=LONG,
        matched=LONG,
        refused=LONG,  # part of matched: the receiver took it and did not deliver it
        pending=LONG,
        unprovable=LONG,
        lost=LONG,
        orphan=LONG,
        duplicated=LONG,
        altered=LONG,
        size=LONG,
        outcome=LONG,
        skewed=LONG,
        undelivered=LONG,  # both sides agree that it was not delivered; not in `sent` or `received`
        complete_until_us=LONG,  # up to here the records of both sides are complete
        dt=TEXT,
    ),
    ("dt",),
    ("src_domain", "dst_domain"),
    RECONCILIATION,
)

CLOCK_OFFSET = Table(
    "clock_offset",
    columns(
        domain=TEXT,
        hour_us=LONG,
        offset_us=LONG,  # in the middle of the hour
        drift_ppb=LONG,
        error_us=LONG,
        reference=TEXT,
        pairs=INT,
        messages=LONG,
        component=INT,
        dt=TEXT,
    ),
    ("dt",),
    ("domain", "hour_us"),
    RECONCILIATION,
)
"""How far a domain's clock is ahead of the reference's, by hour; the error is half the path asymmetry at worst."""

CLOCK_FINDING = Table(
    "clock_finding",
    columns(
        domain=TEXT,
        kind=TEXT,  # drift, step, jump
        hour_us=LONG,
        change_us=LONG,  # gained in a day, or at once, or at least
        error_us=LONG,
        against=TEXT,  # for people
        dt=TEXT,
    ),
    ("dt",),
    ("domain", "kind", "hour_us"),
    RECONCILIATION,
)
"""Clocks that drift, or were set."""
