"""What the report shows, as small plain values: gathered by `gather`, drawn by `charts`, written by `page`.

Everything is bounded: the page of a thousand domains is as long as that of fifty.
"""

from __future__ import annotations

from dataclasses import dataclass, field

DOMAINS_SHOWN = 30
ROWS_SHOWN = 50
REST = "all others"
"""Stands for the domains that do not fit on a chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTraffic:
    """Messages from one domain to another over the whole time of the report, as the sender's node counted them.

    `denied` are those that the sender's gate denied, `refused` those that the receiver's gate did.
    """

    src_domain: str
    dst_domain: str
    messages: int
    denied: int
    refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyHour:
    """Latency of delivered messages in one hour, µs; `low_us … high_us` bounds the error of the buckets."""

    hour_us: int
    messages: int
    p50_us: int
    p95_us: int
    p99_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """Totals over all pairs that were compared."""

    sent: int = 0
    matched: int = 0
    pending: int = 0
    unprovable: int = 0
    lost: int = 0
    duplicated: int = 0
    altered: int = 0
    size: int = 0
    outcome: int = 0
    skewed: int = 0
    orphan: int = 0
    received: int = 0
    pairs: int = 0
    complete_until_us: int | None = None

    @property
    def differing(self) -> int:
        """Messages on which the sides differ for good."""
        return self.lost + self.duplicated + self.altered + self.size + self.outcome + self.skewed + self.orphan

    @property
    def known(self) -> int:
        """Messages of which either side has a record that counts; an open one may be missing on either side."""
        return self.matched + self.open + self.differing

    @property
    def open(self) -> int:
        """Messages of which it is not known, or will never be, if the other side has a record."""
        return self.pending + self.unprovable


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockOffset:
    """Offset of one domain's clock from the others', in µs (positive: ahead), and its error bound."""

    domain: str
    offset_us: int
    error_us: int
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFlips:
    """The decisions that a proposed policy would have made otherwise, by the rule that makes them."""

    rule_id: str
    denied_now: int
    """Messages that passed and would be denied."""
    permitted_now: int
    """Messages that were denied and would pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayHeader:
    """One replay: which revisions, over how many messages, and whether the self-check lets it be believed."""

    run: str
    old_rev: str
    new_rev: str
    messages: int
    self_check_differed: int
    not_replayable: int
    is_valid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StubVersion:
    """One stub version of one peer: distribution of a measure as (value, share of messages up to it)."""

    peer_domain: str
    stub_ver: str
    measure: str
    messages: int
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StubVerdict:
    """Comparison of two versions in one measure; `low … high` is the interval of the ratio."""

    peer_domain: str
    baseline: str
    candidate: str
    measure: str
    ratio: float | None
    low: float | None
    high: float | None
    messages: int
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BandHour:
    """The traffic of one peer in one hour, beside the usual traffic at that hour of the week."""

    hour_us: int
    observed: float
    expected: float
    threshold: float
    is_alert: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The hours of the peer that is shown, and whose they are."""

    our_domain: str
    peer_domain: str
    hours: tuple[BandHour, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertLine:
    """One alert."""

    hour_us: int
    our_domain: str
    peer_domain: str
    pattern: str
    subject: str
    severity: str
    observed: float
    threshold: float
    explanation: str
    proposed_policy: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentGroup:
    """Segments of one node with the same fate."""

    node: str
    kind: str
    verdict: str
    severity: str
    findings: str
    segments: int
    records: int
    lost_records: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementLine:
    """One statement, newest version of its day."""

    dt: str
    our_domain: str
    src_domain: str
    dst_domain: str
    role: str
    messages: int
    delivered: int
    denied: int
    bytes_wire: int
    p50_us: int | None
    p99_us: int | None
    status: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCases:
    """Reconciliation of one pair of domains."""

    src_domain: str
    dst_domain: str
    sent: int
    received: int
    matched: int
    pending: int
    lost: int
    orphan: int
    duplicated: int
    altered: int
    other: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFacts:
    """All of it. An empty part means that its job has not run or found nothing; the page says which.

    What is listed are the gravest or largest ones; `…_count` says how many there are.
    """

    records: int
    nodes: int
    domains: int
    from_us: int | None
    until_us: int | None
    complete_until_us: int | None
    lost_records: int
    held_by: str = ""
    """The node whose proof ends first, and where; empty when no node has one that ends."""
    traffic: tuple[PairTraffic, ...] = ()
    latency: tuple[LatencyHour, ...] = ()
    reconciled: Reconciled | None = None
    pairs: tuple[PairCases, ...] = ()
    pair_count: int = 0
    offsets: tuple[ClockOffset, ...] = ()
    clock_findings: tuple[str, ...] = ()
    """Clocks that drift or were set, the newest first, a line each."""
    clock_finding_count: int = 0
    replay: ReplayHeader | None = None
    flips: tuple[RuleFlips, ...] = ()
    stubs: tuple[StubVersion, ...] = ()
    verdicts: tuple[StubVerdict, ...] = ()
    verdict_count: int = 0
    band: Band | None = None
    alerts: tuple[AlertLine, ...] = ()
    alert_count: int = 0
    segments: tuple[SegmentGroup, ...] = ()
    segment_group_count: int = 0
    refused_segments: int = 0
    statements: tuple[StatementLine, ...] = ()
    statement_count: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    """Version of each table that was read: the same versions give the same page."""
