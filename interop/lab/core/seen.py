"""What was seen while a scene ran: the material of the verdict. Times are seconds since the scene began."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from msgspec import Struct

from interop.lab.core.scene import Fault

Pair = tuple[str, str]
"""Names of two runtimes: who sends, who is to hear."""
Key = tuple[str, str, int]
"""A message of a load: its pair, and its number within the pair, from 1."""
UNDER_WAY_SECONDS: Final = 2.0
"""What was sent so long before a change is not expected to meet it."""


class Sent(Struct, frozen=True, kw_only=True):
    """A message that a runtime handed to its node. `trace` is in the message, `record_id` in the records of nodes.

    Without a trace, `record_id` is the digest that records have of the message.
    """

    key: Key
    kind: Literal["event", "request"]
    at: float
    digest: str
    trace: str
    record_id: str


class Arrived(Struct, frozen=True, kw_only=True):
    """A message that a runtime got. `sender` is the address that it bears; `key` is what it claims to be."""

    runtime: str
    sender: str
    key: Key | None
    at: float
    digest: str


class Answered(Struct, frozen=True, kw_only=True):
    """The end of one request. Code 0: the session ended before, or, with reason `no-answer`, nobody answered."""

    key: Key
    at: float
    code: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpan:
    """A fault as it happened. `domains` are those that it hits, two for a line; `problem`: it could not be done."""

    number: int
    fault: Fault
    began: float
    ended: float
    domains: tuple[str, ...]
    problem: str = ""

    @property
    def title(self) -> str:
        """The fault and its target, in a few words."""
        return self.fault.title

    def hits(self, source: str, target: str) -> bool:
        """True if messages between two domains were affected."""
        return bool({source, target} & {*self.domains}) if self.fault.domain else {source, target} == {*self.domains}


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """A time in which a runtime had no connection to its node."""

    runtime: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A record of a node about one message: what became of it at that border. `role` is `out` or `in`."""

    node: str
    role: str
    outcome: str
    code: str = ""
    rule: str = ""
    ts_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """A message at one place inside a node, as the node reported it."""

    node: str
    place: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lure:
    """Something false that was shown to a node: a flawed document, or the address of an impostor.

    `reader` is the domain of the node. `is_believed`: it went where nobody goes who has checked.
    """

    reader: str
    what: str
    at: float
    is_believed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Observation that a node ran a module for another domain, by SHA-256; "" for none."""

    node: str
    domain: str
    sha256: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Publication of a domain, and the module that other nodes have to run from then on, by SHA-256.

    With `revoked`, this one is not to run any more.
    """

    domain: str
    what: str
    at: float
    wanted: str
    revoked: str = ""

    def is_followed(self, one: Running) -> bool:
        """True if a node runs what it should."""
        return one.sha256 != self.revoked if self.revoked else one.sha256 == self.wanted


class Denial(Struct, frozen=True, kw_only=True):
    """A time in which a domain had a policy that keeps what some runtimes send to others from crossing.

    It was `asked` to take the policy, had it `since` then, was asked to take the former one back at `until`, and had
    that again when it `ended`.
    """

    domain: str
    pairs: frozenset[Pair]
    asked: float
    since: float
    until: float
    ended: float

    def holds_for(self, sent: Sent) -> bool:
        """True if the policy was in force when a message was sent, and has to keep it out until it is taken back."""
        return sent.key[:2] in self.pairs and self.since <= sent.at < self.until

    def may_hit(self, sent: Sent) -> bool:
        """True if a message may have met the policy: also if it was under way when that came, or sent as it went."""
        return sent.key[:2] in self.pairs and self.asked - UNDER_WAY_SECONDS <= sent.at < self.ended


@dataclass(slots=True, kw_only=True)
class Seen:
    """Everything that was seen. `addresses` gives the domain and name of each runtime by its address.

    `lures` are false things that nodes were shown, `denials` policies that kept some out, `releases` stubs that were
    published, `running` those that ran.
    `forged` counts forged messages that hostile domains sent, and `misdeeds` how often each domain did what. The nodes
    of `silent` domains acknowledge nothing: what is on its way to or from them is lost with the line, unnoticed.
    """

    domains: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    arrived: list[Arrived] = field(default_factory=list)
    answered: list[Answered] = field(default_factory=list)
    faults: list[FaultSpan] = field(default_factory=list)
    away: list[Away] = field(default_factory=list)
    forged: int = 0
    lures: list[Lure] = field(default_factory=list)
    denials: list[Denial] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    misdeeds: dict[str, dict[str, int]] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()
    passages: dict[str, list[Passage]] = field(default_factory=dict)
    hops: dict[str, list[Hop]] = field(default_factory=dict)
    log_lines: dict[str, list[str]] = field(default_factory=dict)
    ended: float = 0.0

    def outstanding(self) -> list[Sent]:
        """Messages of which nobody has seen an end: they did not arrive, nobody answered, and no policy met them."""
        ended = {one.key for one in self.arrived} | {one.key for one in self.answered}
        waiting = [one for one in self.sent if one.key not in ended]
        return [one for one in waiting if not any(denial.may_hit(one) for denial in self.denials)]

    def denials_of(self, sent: Sent) -> list[Denial]:
        """The policies that have to keep a message out."""
        return [one for one in self.denials if one.holds_for(sent)]

    def may_wait_until(self, sent: Sent, recovery_seconds: float) -> float:
        """Until when faults that hit its pair, one after the other, may have kept a message at its sender's node."""
        source, target, until = self.domains[sent.key[0]], self.domains[sent.key[1]], sent.at
        for fault in sorted(self.faults, key=lambda one: one.began):
            if fault.hits(source, target) and fault.began <= until:
                until = max(until, fault.ended + recovery_seconds)
        return until
