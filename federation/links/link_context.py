"""What links and guests of a node get from the rest of it: names, rules at the border, bus, observer, clock."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import NamedTuple

from federation.core.border import HopBound
from federation.core.interworking import Interworking
from federation.core.message_ids import MessageIds
from federation.core.outbound_queue import OutboundMessage, QueueLimits
from federation.core.peer_terms import PeerTerms
from federation.core.stub_status import StubStatus
from federation.links.flow_table import FlowMode
from federation.links.link_records import Recording
from federation.links.traces import Traces
from policy.core.gate import Gate
from policy.core.model import Recipients
from policy.core.obligations import Instead
from protofly.errors import Code, PeerError
from protofly.limits import REQUEST_TTL_SECONDS
from protofly.message import Message


class Refusal(NamedTuple):
    """The reason why a message was not taken, with the facts that its sender may know.

    `instead`: what a policy wants to happen in place of a refusal. `detail`: for the description of the answer.
    """

    code: Code
    value: dict[str, object] | None = None
    instead: Instead | None = None
    detail: str = ""


def refused_by(error: PeerError) -> Refusal:
    """The refusal that an error is; its sender may know the id of the record, if there is one."""
    return Refusal(error.code, {"msgId": error.msg_id} if error.msg_id else None)


class Identified(NamedTuple):
    """The user who sends a message, as this node itself has verified it; in the order of `Facts`."""

    is_verified: bool = False
    user: str = ""
    issuer: str = ""
    groups: frozenset[str] | None = None


UNIDENTIFIED = Identified()

Identify = Callable[[Message, str, float], Identified]
"""Says who sends a message, by the assertion in it, the sender's domain and the time; raises PeerError where that has
to be known and is not. Source: message specification, section 13.3."""

Deliver = Callable[[str, list[Message]], list[Code | None]]
"""Hands messages of a foreign domain to our bus; answers for each why it was refused, or None."""


@dataclass(frozen=True, slots=True)
class OurNames:
    """Our side of every link.

    Attributes:
        domain: Our main domain.
        node: Address of our node, in whose name it answers.
        aliases: Further domains of ours.
    """

    domain: str
    node: str
    aliases: frozenset[str] = frozenset()

    @property
    def domains(self) -> frozenset[str]:
        """All domains of ours."""
        return self.aliases | {self.domain}


@dataclass(slots=True)
class BorderRules:
    """The rules for every message between our domain and another one.

    Attributes:
        ours: Our names.
        gate: Judges.
        identify: Checks assertions; None without identity providers. Another one counts from the next message on, if
            the era of the gate changes as well.
        interworking: Knows legacy addresses, and the stubs behind them.
        listed_aliases: Aliases of a domain that the operator lists.
        max_hops: Bounds the nodes that a message may pass.
        ids: Makes the ids by which both sides record a message.
        flows: Whether what messages of links have in common is decided once.
        recipients: Knows about recipients of ours; None: nothing.
    """

    ours: OurNames
    gate: Gate
    identify: Identify | None = None
    interworking: Interworking = field(default_factory=Interworking)
    listed_aliases: Callable[[str], frozenset[str]] = lambda _: frozenset()
    max_hops: HopBound = field(default_factory=HopBound)
    ids: MessageIds = field(default_factory=lambda: MessageIds(token_bytes(8)))
    flows: FlowMode = "on"
    recipients: Recipients | None = None


@dataclass(frozen=True, slots=True)
class LocalBus:
    """The bus of our domain, as links use it.

    Attributes:
        deliver: Takes messages of a foreign domain.
        answer: Takes a reply of ours for a local sender.
        wait_for_room: Waits while local receivers are congested.
        is_wanted: True while runtimes here listen to a domain, so that its link is kept.
        wake: Has everything flushed in this scheduler round.
    """

    deliver: Deliver
    answer: Callable[[Message], None]
    wait_for_room: Callable[[], Awaitable[None]]
    is_wanted: Callable[[str], bool]
    wake: Callable[[], None]


@dataclass(frozen=True, slots=True)
class LinkObserver:
    """Follows what happens to links.

    Attributes:
        on_live: Called when a domain has got a carrier.
        on_lost: Called when it has none any more.
        on_stub_state: Called when a stub that runs here, or was to, is in another state.
        quarantine: Keeps a message that killed the stub of a domain, for the operator.
    """

    on_live: Callable[[str], None]
    on_lost: Callable[[str], None]
    on_stub_state: Callable[[StubStatus], None]
    quarantine: Callable[[str, OutboundMessage], None]


@dataclass(frozen=True, slots=True)
class LinkClock:
    """The clock of links: seconds that never go back.

    Attributes:
        monotonic: Reads it.
        started_seconds: When this process started by it; minus infinity if there are no open requests from before.
    """

    monotonic: Callable[[], float] = time.monotonic
    started_seconds: float = field(default_factory=time.monotonic)

    @property
    def doubt_until(self) -> float:
        """Until then a reply to an unknown request may answer one of the process before this one."""
        return self.started_seconds + REQUEST_TTL_SECONDS


@dataclass(frozen=True, slots=True)
class LinkContext:
    """The dependencies of links; each part of a link gets the ones that it uses.

    `limits` bound what waits for one domain, `terms` hold for single domains.
    """

    rules: BorderRules
    recording: Recording
    bus: LocalBus
    observer: LinkObserver
    traces: Traces = field(default_factory=Traces)
    limits: QueueLimits = field(default_factory=QueueLimits)
    terms: PeerTerms = field(default_factory=PeerTerms)
    clock: LinkClock = field(default_factory=LinkClock)
