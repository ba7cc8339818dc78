"""Tables of what is concluded: policy replays, health of stubs, abuse."""

from __future__ import annotations

from pipeline.schemas.columns import DOUBLE, FLAG, HISTOGRAM, INT, LONG, TEXT, TEXTS, Table, columns

# Replayed.

REPLAY_RUN = Table(
    "replay_run",
    columns(
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
    columns(
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
    columns(
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
    columns(
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
    columns(
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
    (),
    ("peer_domain", "baseline", "candidate", "measure"),
)

# Abuse.

DOMAIN_BASELINE = Table(
    "domain_baseline",
    columns(our_domain=TEXT, peer_domain=TEXT, hour_of_week=INT, measure=TEXT, median=DOUBLE, mad=DOUBLE, hours=INT),
    (),
    ("our_domain", "peer_domain", "hour_of_week", "measure"),
)

ALERT = Table(
    "alert",
    columns(
        our_domain=TEXT,
        peer_domain=TEXT,
        pattern=TEXT,  # fan-out, scanning, spoofing, flood
        hour_us=LONG,
        subject=TEXT,  # the sender's key, or the peer's domain
        observed=DOUBLE,
        expected=DOUBLE,
        threshold=DOUBLE,
        severity=TEXT,
        evidence=TEXTS,  # up to 20 message ids; of spoofing: claimed senders
        explanation=TEXT,
        proposed_policy=TEXT,  # in the policy format of the node
        dt=TEXT,
    ),
    ("dt",),
    ("our_domain", "peer_domain", "pattern", "hour_us", "subject"),
)

ALERT_SENT = Table("alert_sent", columns(alert=TEXT, sink=TEXT, sent_us=LONG), (), ("alert", "sink"))
"""Which alerts were sent where."""

LEASE = Table("lease", columns(holder=TEXT, who=TEXT, until_us=LONG), (), ("holder",))
"""Which process serves the lake, until when by its clock; at most one row."""
