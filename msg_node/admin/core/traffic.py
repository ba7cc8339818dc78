"""What the audit records say about the last hour with each foreign domain: latencies, failures, denials.

Records are observed in batches, in the thread that writes them: the path of messages does nothing for this. Domains
that the settings name in full have figures of their own, all others share those of `other`, so that strangers can fill
neither memory nor the figures of partners. Times of messages that were delivered are counted into histograms with fixed
bounds: for each link class since the start, for each domain by minute.

Reading goes on in another thread while this is filled; a reader may see a batch half counted, and never a broken state.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from msg_node.admin.core.recent_decisions import GATES_WITHOUT_LINK, RecentDecisions
from msg_node.kernel.histograms import Histogram
from protofly.record_runs import MessageRun, Recorded
from protofly.records import DecisionRecord, MessageRecord

OTHER: Final = "other"
"""Stands for every domain that the settings do not name in full."""
LOCAL: Final = "local"
"""Stands for our own bus, in the place of a domain."""
MINUTES: Final = 60
DENIALS: Final = 50
"""So many of the last denials are kept for each domain."""
_MINUTE_SECONDS: Final = 60.0
_FAILURES: Final = frozenset({"trapped", "timeout", "undeliverable", "rejected", "expired"})


class Stage(IntEnum):
    """Parts of the time of a message on its way to another domain."""

    QUEUE = 0
    """From the gate until a carrier takes it."""
    STUB = 1
    """The exchange with the stub that it was part of."""
    ACKNOWLEDGEMENT = 2
    """From the queue until the far end has acknowledged it, the exchange included."""


def _stages() -> tuple[Histogram, Histogram, Histogram]:
    return Histogram(), Histogram(), Histogram()


class Minute:
    """One minute with one domain: messages that arrived there and that did not, and their times."""

    __slots__ = ("failed", "minute", "passed", "stages")

    def __init__(self, minute: int) -> None:
        self.minute = minute
        self.passed = self.failed = 0
        self.stages = _stages()


@dataclass(frozen=True, slots=True)
class Denial:
    """One message that a gate did not let pass. Seconds since the Unix epoch."""

    at: float
    gate: str
    sender: str
    recipient: str
    type: str
    code: str
    rule: str
    msg_id: str
    """That of the audit records."""


@dataclass(slots=True)
class Partner:
    """Figures of one domain, or of all others.

    Attributes:
        link_class: Its class, as the settings say.
        minutes: Those with traffic, oldest first.
        denials: The last ones.
        arrived: Messages that arrived there since the start.
        failed: Those that did not.
    """

    link_class: str
    minutes: deque[Minute] = field(default_factory=lambda: deque([Minute(0)], MINUTES))
    denials: deque[Denial] = field(default_factory=lambda: deque(maxlen=DENIALS))
    arrived: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """Some minutes with one domain, added up."""

    passed: int
    failed: int
    stages: tuple[Histogram, Histogram, Histogram]


class Traffic:
    """The figures of all domains.

    Args:
        classes: Link class of each domain that the settings name in full.
    """

    def __init__(self, classes: Mapping[str, str]) -> None:
        self.by_class: dict[str, tuple[Histogram, Histogram, Histogram]] = {}
        """Times since the start, by link class."""
        self.decisions = RecentDecisions()
        """The last ones, with what is needed to make them again."""
        self._partners: dict[str, Partner] = {}
        self.follow(classes)

    def follow(self, classes: Mapping[str, str]) -> None:
        """From now on these domains have figures of their own; those of the others are forgotten."""
        known = self._partners
        partners = {OTHER: known.get(OTHER) or Partner("node"), LOCAL: known.get(LOCAL) or Partner(LOCAL)}
        for domain, link_class in classes.items():
            partner = partners[domain] = known.get(domain) or Partner(link_class)
            partner.link_class = link_class
        for link_class in {"node", *classes.values()}:
            self.by_class.setdefault(link_class, _stages())
        self._partners = partners

    def observe(self, recorded: Sequence[Recorded], now: float) -> None:
        """Count a batch of records; `now` is in seconds since the Unix epoch."""
        self.decisions.observe(recorded)
        minute = int(now // _MINUTE_SECONDS)
        delivered: defaultdict[str, list[MessageRecord]] = defaultdict(list)
        for record in recorded:
            if isinstance(record, MessageRun):
                self._run_passed(record, minute)
            elif record.__class__ is MessageRecord and record.role == "out" and record.outcome == "delivered":
                delivered[record.dst_domain].append(record)
            elif isinstance(record, MessageRecord):
                self._not_delivered(record, minute)
            elif isinstance(record, DecisionRecord) and not record.permitted and record.hook in GATES_WITHOUT_LINK:
                self._partner(record.link_domain or LOCAL).denials.append(_denial(record))
        for domain, some in delivered.items():
            self._passed(domain, minute, len(some), _times_of(some))

    def _run_passed(self, run: MessageRun, minute: int) -> None:
        """Count messages of one flow: all of them were delivered."""
        if run.role == "out":
            peer_us, stub_us = run.column("d_peer_us"), [one for one in run.column("d_stub_us") if one is not None]
            queue_us = [total - peer for total, peer in zip(run.column("d_total_us"), peer_us, strict=True)]
            self._passed(run.like.dst_domain, minute, len(run), (queue_us, stub_us, list(peer_us)))

    def _passed(self, domain: str, minute: int, count: int, times_us: tuple[list[int], list[int], list[int]]) -> None:
        """Count messages that arrived, and their times by stage."""
        partner = self._partner(domain)
        current = _minute_of(partner, minute)
        current.passed += count
        partner.arrived += count
        for stage in Stage:
            batch = Histogram()
            batch.observe_all(times_us[stage])
            for stages in (current.stages, self.by_class[partner.link_class]):
                stages[stage].add(batch)

    def _not_delivered(self, record: MessageRecord, minute: int) -> None:
        is_out = record.role == "out"
        partner = self._partner(record.dst_domain if is_out else record.src_domain)
        if record.outcome == "denied":
            partner.denials.append(_denial_of_message(record))
        elif is_out and record.outcome in _FAILURES:
            _minute_of(partner, minute).failed += 1
            partner.failed += 1

    def window(self, domain: str, minutes: int, now: float) -> Window:
        """Add up the last minutes with a domain, the one that goes on included."""
        since = int(now // _MINUTE_SECONDS) - minutes
        passed = failed = 0
        stages = _stages()
        for one in list(self._partner(domain).minutes):
            if one.minute > since:
                passed, failed = passed + one.passed, failed + one.failed
                for stage in Stage:
                    stages[stage].add(one.stages[stage])
        return Window(passed, failed, stages)

    def denials(self, domain: str = "") -> list[Denial]:
        """The last denials of a domain, or of all; newest first."""
        partners: Iterable[Partner] = [self._partner(domain)] if domain else list(self._partners.values())
        return sorted((one for partner in partners for one in list(partner.denials)), key=lambda one: -one.at)

    def domains(self) -> Iterator[str]:
        """Domains with figures of their own."""
        return (name for name in list(self._partners) if name not in (OTHER, LOCAL))

    def totals(self, domain: str) -> tuple[int, int]:
        """Messages to a domain since the start: those that arrived, and those that did not."""
        partner = self._partner(domain)
        return partner.arrived, partner.failed

    def _partner(self, domain: str) -> Partner:
        return self._partners.get(domain) or self._partners[OTHER]


def _minute_of(partner: Partner, minute: int) -> Minute:
    """The minute that goes on, begun if it is a new one."""
    current = partner.minutes[-1]
    if current.minute != minute:
        current = Minute(minute)
        partner.minutes.append(current)
    return current


def _times_of(records: Sequence[MessageRecord]) -> tuple[list[int], list[int], list[int]]:
    """Times of messages that were delivered, by stage; of those that guests were handed there are none."""
    timed = [
        (one.d_total_us - one.d_peer_us, one.d_stub_us, one.d_peer_us)
        for one in records
        if one.d_total_us is not None and one.d_peer_us is not None
    ]
    queue_us = [queue for queue, _, _ in timed]
    return queue_us, [stub for _, stub, _ in timed if stub is not None], [peer for _, _, peer in timed]


def _denial_of_message(record: MessageRecord) -> Denial:
    return Denial(
        record.ts_us / 1e6,
        record.role,
        record.src_key,
        record.dst_key,
        record.msg_type,
        record.outcome_code or record.reason or "",
        record.rule_id or record.reason or "",
        record.msg_id,
    )


def _denial(record: DecisionRecord) -> Denial:
    return Denial(
        record.ts_us / 1e6,
        record.hook,
        record.src_key or "",
        record.dst_key or "",
        record.msg_type or "",
        record.reason or "",
        record.rule_id or "",
        record.msg_id or "",
    )
