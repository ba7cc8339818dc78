"""Every table of the lake, column by column: the contract between the jobs.

The raw tables mirror the record types of `protofly.records`; a test pins each to its class, so that a member added to
a record cannot be dropped silently here. All times are µs since the Unix epoch, UTC; all durations µs; all sizes
bytes. `dt` is the UTC day of `ts_us` as `YYYY-MM-DD`, and the partition of every table that grows.

A domain pair is written (`src_domain`, `dst_domain`): from whom to whom messages went. Who wrote the record is
`our_domain`, the other one is `peer_domain`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

SHORT, INT, LONG, DOUBLE = ShortType(), IntegerType(), LongType(), DoubleType()
TEXT, FLAG, BYTES = StringType(), BooleanType(), BinaryType()
TEXTS = ArrayType(TEXT, containsNull=False)
PAIRS = ArrayType(ArrayType(LONG, containsNull=False), containsNull=False)
"""Buckets and their counts, as stub events have them."""
HISTOGRAM = MapType(INT, LONG, valueContainsNull=False)
"""Counts by bucket; see `pipeline.histogram`."""
COUNTS = MapType(TEXT, LONG, valueContainsNull=False)


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the lake: its name, columns, partition columns, and the columns that name a row."""

    name: str
    schema: StructType
    partition: tuple[str, ...] = ()
    key: tuple[str, ...] = ()


def _columns(**columns: DataType) -> StructType:
    """A schema whose columns may all be null; what may not be is checked by quality rules, with a reason."""
    return StructType([StructField(name, type_, nullable=True) for name, type_ in columns.items()])


def _with(schema: StructType, **more: DataType) -> StructType:
    return StructType([*schema.fields, *_columns(**more).fields])


# What nodes write: the record types of protofly.records, member by member.

_IDENTITY = _columns(v=SHORT, node=TEXT, boot=LONG, seq=LONG, ts_us=LONG)

MESSAGE_RECORD = _with(
    _IDENTITY,
    role=TEXT,
    msg_id=TEXT,
    attempt=INT,
    src_domain=TEXT,
    dst_domain=TEXT,
    src_key=TEXT,
    dst_key=TEXT,
    msg_type=TEXT,
    size_in=LONG,
    digest=TEXT,
    outcome=TEXT,
    peer_node=TEXT,
    channel=TEXT,
    d_policy_us=LONG,
    d_stub_us=LONG,
    d_peer_us=LONG,
    d_total_us=LONG,
    clock_err_us=LONG,
    size_wire=LONG,
    policy_rev=TEXT,
    rule_id=TEXT,
    decision=TEXT,
    reason=TEXT,
    facts=TEXT,  # a JSON object, kept as it was written
    outcome_code=TEXT,
    stub_id=TEXT,
    stub_ver=TEXT,
    fuel=LONG,
    mem_peak_kib=LONG,
    host_calls=LONG,
    trap=TEXT,
    trace_id=TEXT,
)

DECISION_RECORD = _with(
    _IDENTITY,
    hook=TEXT,
    effect=TEXT,
    permitted=FLAG,
    policy_rev=TEXT,
    src_domain=TEXT,
    dst_domain=TEXT,
    link_domain=TEXT,
    msg_id=TEXT,
    msg_type=TEXT,
    src_key=TEXT,
    dst_key=TEXT,
    size_in=LONG,
    rule_id=TEXT,
    reason=TEXT,
    retry_after_us=LONG,
    shadow=TEXTS,
    obligations=TEXTS,
    facts=TEXT,
    trace_id=TEXT,
)

STUB_EVENT = _with(
    _IDENTITY,
    domain=TEXT,
    event=TEXT,
    stub_id=TEXT,
    stub_ver=TEXT,
    state=TEXT,
    code=TEXT,
    detail=TEXT,
    trap=TEXT,
    pid=LONG,
    duration_us=LONG,
    calls=LONG,
    fuel=LONG,
    cpu_us=LONG,
    mem_peak_kib=LONG,
    msg_id=TEXT,
    messages=LONG,
    traps=LONG,
    exchange_us=PAIRS,
    exchange_fuel=PAIRS,
)

LINK_EVENT = _with(
    _IDENTITY,
    domain=TEXT,
    event=TEXT,
    direction=TEXT,
    step=TEXT,
    state=TEXT,
    level=TEXT,
    code=TEXT,
    detail=TEXT,
    peer_node=TEXT,
    endpoint=TEXT,
    duration_us=LONG,
    attempt=INT,
    waiting=LONG,
    src_key=TEXT,
)

POLICY_EVENT = _with(
    _IDENTITY,
    event=TEXT,
    cause=TEXT,
    actor=TEXT,
    mode=TEXT,
    files=TEXTS,
    before=TEXT,
    after=TEXT,
    diff_sha256=TEXT,
    rules=LONG,
    reads=TEXTS,
    code=TEXT,
    detail=TEXT,
)

SESSION_EVENT = _with(
    _IDENTITY,
    event=TEXT,
    runtime_key=TEXT,
    session=LONG,
    code=TEXT,
    detail=TEXT,
    remote=TEXT,
    duration_us=LONG,
    addresses=LONG,
    subscriptions=LONG,
)

# Ingested.

_ORIGIN = {"kind": TEXT, "segno": LONG}
"""Which segment a row came from, together with `node` and `boot`."""

BRONZE_MDR = Table(
    "bronze_mdr", _with(MESSAGE_RECORD, segno=LONG, errors=TEXTS, dt=TEXT), ("dt",), ("node", "boot", "seq")
)
BRONZE_DECISION = Table(
    "bronze_decision", _with(DECISION_RECORD, segno=LONG, errors=TEXTS, dt=TEXT), ("dt",), ("node", "boot", "seq")
)
BRONZE_STUB_EVENT = Table(
    "bronze_stub_event", _with(STUB_EVENT, segno=LONG, errors=TEXTS, dt=TEXT), ("dt",), ("node", "boot", "seq")
)
BRONZE_LINK_EVENT = Table(
    "bronze_link_event", _with(LINK_EVENT, segno=LONG, errors=TEXTS, dt=TEXT), ("dt",), ("node", "boot", "seq")
)

BRONZE_POLICY_EVENT = Table(
    "bronze_policy_event", _with(POLICY_EVENT, segno=LONG, errors=TEXTS, dt=TEXT), ("dt",), ("node", "boot", "seq")
)
BRONZE_SESSION_EVENT = Table(
    "bronze_session_event", _with(SESSION_EVENT, segno=LONG, errors=TEXTS, dt=TEXT), ("dt",), ("node", "boot", "seq")
)

QUARANTINE = Table(
    "quarantine",
    _columns(node=TEXT, **_ORIGIN, boot=LONG, seq=LONG, line=TEXT, errors=TEXTS, severity=TEXT, dt=TEXT),
    ("dt",),
)
"""Lines that are no good records, as they were written. `dt` is the day of the segment's last record."""

SEGMENTS = Table(
    "segments",
    _columns(
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
    ),
    (),
    ("node", "kind", "boot", "segno", "spool", "path", "manifest_sha256"),
)
"""One row for every manifest ever seen, and what became of it; the codes are those of `pipeline.findings`."""

# Refined.

SILVER_MDR = Table(
    "silver_mdr",
    _columns(
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
"""Good message records, each once, sorted by `msg_id` within a file."""

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
    _columns(hour_us=LONG, msg_type=TEXT, **_TRAFFIC, set_xor=LONG, set_sum=LONG, dt=TEXT),
    ("dt",),
    ("our_domain", "src_domain", "dst_domain", "role", "msg_type", "hour_us"),
)
"""`set_xor` and `set_sum` fold `xxhash64(msg_id, digest)` of delivered messages: equal sets have equal folds."""

STATEMENT_BOOK = _columns(**_TRAFFIC, p50_us=LONG, p95_us=LONG, p99_us=LONG, dt=TEXT)
"""What a daily statement says; `statement_daily` adds which version of it this is, and what proves it."""

STATEMENT_DAILY = Table(
    "statement_daily",
    _columns(
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

# Reconciled.

BOOK = _columns(
    src_domain=TEXT,
    dst_domain=TEXT,
    msg_id=BYTES,
    sent_us=LONG,  # time of the message by its own id, the same in both books; see transforms.books
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

BOOK_TOTAL = _columns(
    src_domain=TEXT,
    dst_domain=TEXT,
    bucket_us=LONG,
    messages=LONG,
    delivered=LONG,
    bytes=LONG,
    set_xor=LONG,
    set_sum=LONG,
    lag_min_us=LONG,  # ts_us less the message's own time
    lag_max_us=LONG,
)
"""One side's book of a domain pair over 5 minutes, in one row."""

COMPLETENESS = _columns(
    domain=TEXT,
    from_us=LONG,
    until_us=LONG,
    holes=ArrayType(_columns(from_us=LONG, until_us=LONG), containsNull=False),
    proof=TEXT,  # which segments prove it, for people
)
"""From when until when a domain's manifests prove its book complete, and the times in between for which they do not."""

PEER_EXTRACT = Table(
    "peer_extract",
    _columns(
        domain=TEXT,  # the author
        peer=TEXT,  # the reader
        step=TEXT,  # totals, details
        entered_us=LONG,
        books_version=LONG,
        from_us=LONG,
        until_us=LONG,
        holes=ArrayType(_columns(from_us=LONG, until_us=LONG), containsNull=False),
        proof=TEXT,
        rows=LONG,
        sha256=TEXT,  # of the header that the partner signed; of the body in our own
        day=TEXT,
    ),
    (),
    ("domain", "peer", "day", "step", "entered_us"),
)
"""One row for every extract that we wrote for a partner or took from one, in order."""

PEER_TOTAL = Table(
    "peer_total", _with(BOOK_TOTAL, role=TEXT, extract=TEXT), ("extract",), ("extract", "role", "bucket_us")
)
"""Totals out of partners' extracts; `role` is the author's book, `extract` is `<author>_<day>`."""

PEER_BOOK = Table("peer_book", _with(BOOK, role=TEXT, extract=TEXT), ("extract",), ("extract", "node", "boot", "seq"))
"""Records out of partners' extracts, likewise."""

PAIR_DELAY = _columns(src_domain=TEXT, dst_domain=TEXT, dt=TEXT, low_us=LONG, messages=LONG)
"""What the times of an ordered pair's records differ by on a day: the shortest way, and the difference of the clocks."""

RECON_BUCKET = Table(
    "recon_bucket",
    _columns(
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
        lag_min_us=LONG,  # in the in-book: ts_us less the message's own time
        lag_max_us=LONG,
        is_equal=FLAG,
        dt=TEXT,
    ),
    ("dt",),
    ("src_domain", "dst_domain", "bucket_us"),
)

RECON_CASE = Table(
    "recon_case",
    _columns(
        src_domain=TEXT,
        dst_domain=TEXT,
        msg_id=BYTES,
        case_class=TEXT,  # pending, lost, orphan, duplicated, altered, size, outcome, skewed
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
)
"""One row per message on which the books differ. Matched messages are counted in `recon_pair`, not listed."""

RECON_PAIR = Table(
    "recon_pair",
    _columns(
        src_domain=TEXT,
        dst_domain=TEXT,
        sent=LONG,
        received=LONG,
        matched=LONG,
        refused=LONG,  # part of matched: the receiver took it and did not deliver it
        pending=LONG,
        lost=LONG,
        orphan=LONG,
        duplicated=LONG,
        altered=LONG,
        size=LONG,
        outcome=LONG,
        skewed=LONG,
        undelivered=LONG,  # both books agree that it was not delivered; not in `sent` or `received`
        complete_until_us=LONG,  # up to here both books are complete
        dt=TEXT,
    ),
    ("dt",),
    ("src_domain", "dst_domain"),
)

CLOCK_OFFSET = Table(
    "clock_offset",
    _columns(domain=TEXT, offset_us=LONG, error_us=LONG, pairs=INT, messages=LONG, component=INT, dt=TEXT),
    ("dt",),
    ("domain", "component"),
)
"""How far a domain's clock is ahead of the median of its component; the error is half the path asymmetry at worst."""

# Replayed.

REPLAY_RUN = Table(
    "replay_run",
    _columns(
        run=TEXT,
        old_rev=TEXT,
        new_rev=TEXT,
        from_us=LONG,
        until_us=LONG,
        messages=LONG,
        self_check_agreed=LONG,
        self_check_differed=LONG,
        not_replayable=LONG,
        unreplayable_rules=TEXTS,
        is_valid=FLAG,
        input_version=LONG,
    ),
    (),
    ("run",),
)

REPLAY_FLIP = Table(
    "replay_flip",
    _columns(
        run=TEXT,
        src_domain=TEXT,
        dst_domain=TEXT,
        role=TEXT,
        old_decision=TEXT,
        new_decision=TEXT,
        old_rule=TEXT,
        new_rule=TEXT,
        messages=LONG,
        bytes=LONG,
        samples=TEXTS,  # up to 20 message ids
    ),
    (),
    ("run", "src_domain", "dst_domain", "role", "old_decision", "new_decision", "old_rule", "new_rule"),
)
"""Cells of the flips matrix; unchanged decisions are in it too, so that it adds up."""

# Stubs.

STUB_HOURLY = Table(
    "stub_hourly",
    _columns(
        our_domain=TEXT,
        peer_domain=TEXT,
        stub_ver=TEXT,
        hour_us=LONG,
        msg_type=TEXT,
        size_class=INT,  # floor(log2 of size_in)
        messages=LONG,
        failed=LONG,
        traps=LONG,
        latency=HISTOGRAM,  # of d_stub_us where known, else of d_total_us
        fuel=HISTOGRAM,
        dt=TEXT,
    ),
    ("dt",),
    ("our_domain", "peer_domain", "stub_ver", "hour_us", "msg_type", "size_class"),
)

STUB_LIFE = Table(
    "stub_life",
    _columns(
        node=TEXT,
        peer_domain=TEXT,
        stub_ver=TEXT,
        hour_us=LONG,
        starts=LONG,
        faults=LONG,
        kills=LONG,
        quarantines=LONG,
        circuits=LONG,
        dt=TEXT,
    ),
    ("dt",),
    ("node", "peer_domain", "stub_ver", "hour_us"),
)
"""What happened to the stubs themselves: more than one start in an hour is a restart."""

STUB_REGRESSION = Table(
    "stub_regression",
    _columns(
        peer_domain=TEXT,
        baseline=TEXT,
        candidate=TEXT,
        measure=TEXT,  # traps, failures, latency_p50, latency_p99, fuel_p50
        baseline_value=DOUBLE,
        candidate_value=DOUBLE,
        ratio=DOUBLE,
        low=DOUBLE,
        high=DOUBLE,
        strata=INT,
        messages=LONG,
        verdict=TEXT,  # worse, better, same, too-little
        dt=TEXT,
    ),
    ("dt",),
    ("peer_domain", "baseline", "candidate", "measure"),
)

# Abuse.

DOMAIN_BASELINE = Table(
    "domain_baseline",
    _columns(our_domain=TEXT, peer_domain=TEXT, hour_of_week=INT, measure=TEXT, median=DOUBLE, mad=DOUBLE, hours=INT),
    (),
    ("our_domain", "peer_domain", "hour_of_week", "measure"),
)

ALERT = Table(
    "alert",
    _columns(
        our_domain=TEXT,
        peer_domain=TEXT,
        pattern=TEXT,  # fan-out, scanning, spoofing, flood
        hour_us=LONG,
        subject=TEXT,  # the sender's key, or the peer's domain
        observed=DOUBLE,
        expected=DOUBLE,
        threshold=DOUBLE,
        severity=TEXT,
        evidence=TEXTS,  # up to 20 message ids
        explanation=TEXT,
        proposed_policy=TEXT,  # in the policy format of the node
        dt=TEXT,
    ),
    ("dt",),
    ("our_domain", "peer_domain", "pattern", "hour_us", "subject"),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        BRONZE_MDR,
        BRONZE_DECISION,
        BRONZE_STUB_EVENT,
        BRONZE_LINK_EVENT,
        BRONZE_SESSION_EVENT,
        BRONZE_POLICY_EVENT,
        QUARANTINE,
        SEGMENTS,
        SILVER_MDR,
        TRAFFIC_HOURLY,
        STATEMENT_DAILY,
        RECON_BUCKET,
        RECON_CASE,
        RECON_PAIR,
        CLOCK_OFFSET,
        PEER_EXTRACT,
        PEER_TOTAL,
        PEER_BOOK,
        REPLAY_RUN,
        REPLAY_FLIP,
        STUB_HOURLY,
        STUB_LIFE,
        STUB_REGRESSION,
        DOMAIN_BASELINE,
        ALERT,
    )
}
