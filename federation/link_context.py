"""What all links of a node share, and the small values that pass between a link and its callers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from federation.core.interworking import Interworking
from federation.core.message_ids import MessageIds
from federation.core.outbound_queue import OutboundMessage, QueueLimits
from federation.core.peer_terms import PeerTerms
from federation.core.stub_status import StubAddresses, StubStatus
from federation.traces import Traces
from policy.core.gate import Gate
from protofly.errors import Code
from protofly.limits import MAX_HOPS
from protofly.message import Message
from protofly.records import Record


class Refusal(NamedTuple):
    """Why a message was not taken, and what its sender may know besides."""

    code: Code
    value: dict[str, object] | None = None


class Identified(NamedTuple):
    """What this node itself has verified about the person who sends a message, in the order of `Facts`."""

    is_verified: bool = False
    user: str = ""
    issuer: str = ""


UNIDENTIFIED = Identified()

Identify = Callable[[Message, str, float], Identified]
"""Says who sends a message, by the assertion in it, the sender's domain and the time; raises PeerError where that has
to be known and is not. Source: message specification, section 13.3."""

Deliver = Callable[[str, list[Message]], list[Code | None]]
"""Hands messages of a foreign domain to our bus; answers for each why it was refused, or None."""


@dataclass(frozen=True, slots=True)
class LinkContext:
    """What every link of this node shares.

    `stub_addresses` says which address a domain's stub has here. `deliver` and `answer` lead to the bus (`answer` takes
    a reply for a local sender), `record` writes audit records. `on_live` and `on_lost` are called when a domain has got
    a carrier, and when it has none any more. `quarantine` keeps a deadly message for the operator. `is_wanted` is true
    while runtimes here listen to a domain, so that its link is kept. `wake` has everything flushed in this scheduler
    round. `wait_for_room` lets a reader pause while local receivers are congested. `identify` checks assertions, where
    there are identity providers. `hides_addresses` says that records hash addresses. `on_stub_state` is called when a
    stub that runs here, or was to, is in another state. `interworking` knows legacy addresses, and the stubs behind
    them. `terms` hold for single domains. `listed_aliases` gives the aliases of a domain that the operator lists.
    `started_seconds` is when this process started, by the clock `monotonic`.
    """

    our_domain: str
    node: str
    stub_addresses: StubAddresses
    gate: Gate
    ids: MessageIds
    traces: Traces
    deliver: Deliver
    answer: Callable[[Message], None]
    record: Callable[[Record], None]
    quarantine: Callable[[str, OutboundMessage], None]
    wait_for_room: Callable[[], Awaitable[None]]
    on_live: Callable[[str], None]
    on_lost: Callable[[str], None]
    is_wanted: Callable[[str], bool]
    wake: Callable[[], None]
    limits: QueueLimits
    identify: Identify | None = None
    our_aliases: frozenset[str] = frozenset()
    hides_addresses: bool = False
    max_hops: int = MAX_HOPS
    interworking: Interworking = field(default_factory=Interworking)
    terms: PeerTerms = field(default_factory=PeerTerms)
    on_stub_state: Callable[[StubStatus], None] = lambda _: None
    listed_aliases: Callable[[str], frozenset[str]] = lambda _: frozenset()
    started_seconds: float = field(default_factory=time.monotonic)
    monotonic: Callable[[], float] = time.monotonic
