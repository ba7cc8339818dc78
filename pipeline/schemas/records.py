"""The record types of `protofly.records`, member by member; a test pins each to its class."""

from __future__ import annotations

from pipeline.schemas.columns import FLAG, INT, LONG, PAIRS, SHORT, TEXT, TEXTS, columns, extended

_IDENTITY = columns(v=SHORT, node=TEXT, boot=LONG, seq=LONG, ts_us=LONG)

MESSAGE_RECORD = extended(
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

DECISION_RECORD = extended(
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
    left_out=LONG,
)

STUB_EVENT = extended(
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

LINK_EVENT = extended(
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

POLICY_EVENT = extended(
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

ADMIN_EVENT = extended(
    _IDENTITY,
    operation=TEXT,
    actor=TEXT,
    way=TEXT,
    arguments=TEXT,
    before=TEXT,
    after=TEXT,
    code=TEXT,
    detail=TEXT,
)

SESSION_EVENT = extended(
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
