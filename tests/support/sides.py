"""Both sides of one domain pair, without a node around them: real links, with lists in place of bus and records."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from federation.core.carrier import Accepted, Carrier, CarrierDown, CarrierUp, LinkPort
from federation.core.interworking import Interworking
from federation.core.message_ids import MessageIds
from federation.core.outbound_queue import OutboundMessage, QueueLimits
from federation.core.peer_terms import PeerTerms
from federation.links.domain_link import DomainLink
from federation.links.flow_table import FlowMode
from federation.links.link_context import (
    BorderRules,
    Deliver,
    Identify,
    LinkClock,
    LinkContext,
    LinkObserver,
    LocalBus,
    OurNames,
)
from federation.links.link_records import Recording
from federation.links.traces import Traces
from policy.core.gate import Gate, PeerRule
from protofly.codec import body_members, build, decode
from protofly.errors import Code
from protofly.message import Message
from protofly.records import DecisionRecord, LinkEvent, MessageRecord, Record


def node_of(domain: str) -> str:
    return f"runtime://{domain}/mn-1"


def everybody() -> Gate:
    """A gate that lets every domain pass."""
    return Gate(peers={"*": PeerRule()})


@dataclass(frozen=True, slots=True)
class Clock:
    """The time of one domain's node: when it started, and what time it is."""

    started_seconds: float = field(default_factory=time.monotonic)
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Aliases:
    """Further names: of this domain, and of others, as the operator lists them."""

    ours: frozenset[str] = frozenset()
    listed: Callable[[str], frozenset[str]] = lambda _domain: frozenset()


@dataclass
class Bus:
    """Stands in for the bus and the records of one domain: everything is kept, nothing is done.

    Attributes:
        batches: Messages that were delivered, as they came together.
        refuse: Gives the code with which a message is refused instead.
    """

    domain: str
    gate: Gate = field(default_factory=everybody)
    limits: QueueLimits = field(default_factory=QueueLimits)
    batches: list[list[Message]] = field(default_factory=list)
    answers: list[Message] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    quarantined: list[OutboundMessage] = field(default_factory=list)
    came_live: list[str] = field(default_factory=list)
    refuse: Callable[[Message], Code | None] = lambda _message: None
    room: trio.Event = field(default_factory=trio.Event)
    traces: Traces = field(default_factory=Traces)
    identify: Identify | None = None
    interworking: Interworking = field(default_factory=Interworking)
    terms: PeerTerms = field(default_factory=PeerTerms)
    aliases: Aliases = field(default_factory=Aliases)
    clock: Clock = field(default_factory=Clock)
    flows: FlowMode = "on"
    deliver_to: Deliver | None = None

    def __post_init__(self) -> None:
        self.room.set()

    @property
    def context(self) -> LinkContext:
        ours = OurNames(self.domain, node_of(self.domain), self.aliases.ours)
        return LinkContext(
            BorderRules(
                ours,
                self.gate,
                self.identify,
                self.interworking,
                self.aliases.listed,
                ids=MessageIds(self.domain.encode()[:8].ljust(8)),
                flows=self.flows,
            ),
            Recording(self.domain, self.gate, self.records.append),
            LocalBus(
                deliver=self.deliver_to or self._deliver,
                answer=self.answers.append,
                wait_for_room=lambda: self.room.wait(),
                is_wanted=lambda _domain: False,
                wake=lambda: None,
            ),
            LinkObserver(
                on_live=self.came_live.append,
                on_lost=lambda _domain: None,
                on_stub_state=lambda _status: None,
                quarantine=lambda _domain, pending: self.quarantined.append(pending),
            ),
            self.traces,
            self.limits,
            self.terms,
            LinkClock(lambda: self.clock.monotonic(), self.clock.started_seconds),
        )

    def _deliver(self, _domain: str, messages: list[Message]) -> list[Code | None]:
        codes = [self.refuse(message) for message in messages]
        self.batches.append([message for message, code in zip(messages, codes, strict=True) if code is None])
        return codes

    @property
    def delivered(self) -> list[Message]:
        return [message for batch in self.batches for message in batch]

    def link_to(self, peer: str, *, stream: str = "") -> DomainLink:
        return DomainLink(
            peer,
            stream or self.domain.encode().hex().ljust(32, "0")[:32],
            f"{node_of(self.domain)}/protostub/b7c1",
            self.context,
            touched=lambda _link: None,
        )

    # Records and answers by kind.

    @property
    def message_records(self) -> list[MessageRecord]:
        return [record for record in self.records if isinstance(record, MessageRecord)]

    @property
    def decisions(self) -> list[DecisionRecord]:
        return [record for record in self.records if isinstance(record, DecisionRecord)]

    @property
    def events(self) -> list[str]:
        return [record.event for record in self.records if isinstance(record, LinkEvent)]

    @property
    def answer_codes(self) -> list[Code]:
        pairs = {(code.status, code.word): code for code in Code}
        return [pairs[body["code"], body["reason"]] for body in map(body_of, self.answers)]  # type: ignore[index]


def body_of(message: Message) -> dict[str, object]:
    return body_members(message.body)


def chat(number: int, *, from_: str = "a.example", to: str = "b.example", **body: object) -> Message:
    """Message number so and so of a conversation; its body says the number again."""
    return build(
        id=number,
        type="create",
        from_=f"hyperty://{from_}/ana",
        to=f"comm://{to}/room/children/chat",
        body={"value": number, **body},
    )


def request(number: int, *, from_: str = "a.example", to: str = "b.example", **body: object) -> Message:
    """A message that waits for its reply."""
    return build(
        id=number, type="read", from_=f"hyperty://{from_}/ana", to=f"hyperty://{to}/bo", body={"value": number, **body}
    )


def text(from_: str = "hyperty://b.example/bo", to: str = "hyperty://a.example/ana", body: str = "") -> bytes:
    """Bytes of one message as another domain might send them."""
    tail = f',"body":{body}' if body else ""
    return f'{{"id":7,"type":"create","from":"{from_}","to":"{to}"{tail}}}'.encode()


def numbers_of(messages: Sequence[Message]) -> list[int]:
    return [body_of(message)["value"] for message in messages]  # type: ignore[misc]


def inbound(*raws: bytes, first: int = 1) -> list[tuple[int, bytes]]:
    return [(first + index, raw) for index, raw in enumerate(raws)]


class MemoryCarrier(Carrier):
    """Carries to the far end by nothing but lists: what was taken lies in `on_the_way` until `arrive` is called."""

    def __init__(self, near: DomainLink, far: LinkPort | None = None, *, channel: str = "stub") -> None:
        self.near, self.far = near, far
        self.channel = channel
        self.on_the_way: list[OutboundMessage] = []
        self.pumps = 0
        self.is_blocked = False
        self.is_ended = False

    def pump(self) -> None:
        self.pumps += 1
        if not self.is_blocked:
            self.on_the_way += self.near.queue.take_batch(1 << 20, 1 << 30, time.monotonic())

    def end(self) -> None:
        self.is_ended = True

    def cut_off(self, code: Code) -> None:  # noqa: ARG002 - it has no far end that could know
        self.is_ended = True

    def open(self) -> None:
        """The handshake: the far end says what it has, then messages flow."""
        if self.far is not None:
            self.near.handle(Accepted(self.far.processed(self.near.queue.stream)))
        self.near.handle(CarrierUp(self, node_of(self.near.domain)))

    def arrive(self, count: int | None = None) -> int:
        """So many of the messages on the way reach the far end, in one batch; returns the number of the last."""
        assert self.far is not None
        count = len(self.on_the_way) if count is None else count
        arrived, self.on_the_way = self.on_the_way[:count], self.on_the_way[count:]
        self.far.inbound([(one.number, one.wire) for one in arrived], self.near.queue.stream)
        return arrived[-1].number if arrived else 0

    def acknowledge(self) -> None:
        assert self.far is not None
        self.near.handle(Accepted(self.far.processed(self.near.queue.stream)))

    def cut(self) -> None:
        self.on_the_way.clear()
        self.near.handle(CarrierDown(self))


class Pair:
    """a.example and b.example, each with its link to the other."""

    def __init__(self, *, a: Bus | None = None, b: Bus | None = None) -> None:
        self.a, self.b = a or Bus("a.example"), b or Bus("b.example")
        self.to_b, self.to_a = self.a.link_to("b.example"), self.b.link_to("a.example")

    def carrier(self, *, channel: str = "stub") -> MemoryCarrier:
        """A carrier from a to b."""
        return MemoryCarrier(self.to_b, self.to_a, channel=channel)

    def back(self, *, channel: str = "peer") -> MemoryCarrier:
        """A carrier from b to a."""
        return MemoryCarrier(self.to_a, self.to_b, channel=channel)


def decoded(raw: bytes) -> Message:
    [message] = decode(raw)
    return message
