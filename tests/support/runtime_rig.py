"""The message path of one node over real sockets and a real state file, with runtimes that speak frame by frame.

Only other domains are played: `NearDomains` does what the bus asks of federation, in memory.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import trio

from federation.core.border import HopBound
from federation.core.interworking import Interworking
from federation.core.moved_link import MovedLink
from federation.links.decision_records import DecisionRecords
from federation.links.flow_table import FlowMode
from federation.links.guest_border import GuestBorder, GuestContext
from federation.links.link_context import BorderRules, OurNames, Refusal
from federation.links.link_records import Recording
from msg_node.addresses.core.allocation import Owners
from msg_node.bus.address_claims import AddressClaims
from msg_node.bus.announcements import Announcements
from msg_node.bus.bus import Bus, BusOptions, Judges, make_bus
from msg_node.bus.middleware import MessageStep, authorisation, make_stack
from msg_node.bus.node_traffic import NodeParts
from msg_node.bus.runtime_port import RuntimePort
from msg_node.bus.send_queues import SendQueues
from msg_node.bus.services import Services
from msg_node.connectors.https import HttpsBinding
from msg_node.connectors.listener import Listener, ListenerOptions
from msg_node.connectors.socketio import SocketIo
from msg_node.kernel.changes import Journal
from msg_node.kernel.congestion import Congestible
from msg_node.kernel.credentials import Credential, Credentials
from msg_node.kernel.own_names import OwnNames
from msg_node.kernel.rules import Rules
from msg_node.kernel.service import Service
from msg_node.node_state import NodeState, StateParts, make_state, restore
from msg_node.registries.core.twin import Twin
from msg_node.requests.core.delivery_state import DeliveryRules, DeliveryState
from msg_node.requests.parked_actions import Parks, park_nothing
from msg_node.services import NodeFacts, make_services
from msg_node.sessions.core.session_service import SessionService
from msg_node.sessions.core.transitions import SessionRules, SessionTransitions
from msg_node.storage.state_file import Rows, StateFile
from msg_node.storage.state_store import DurableRows, StateStore
from policy.core.gate import Gate, PeerRule
from protofly import codec
from protofly.counters import Counters
from protofly.errors import Code, PeerError
from protofly.limits import FRAME_BYTES, SESSIONS, UNOPENED_PER_SECOND
from protofly.message import Message
from protofly.records import Record
from wire.core.websocket import ClientWebSocket

DOMAIN = "alpha.example"
ALIAS = "alias.example"
NODE = f"runtime://{DOMAIN}/mn-1"
SESSION = "mn:/session"
ALLOCATION = f"domain://msg-node.{DOMAIN}/address-allocation"
SM = f"domain://msg-node.{DOMAIN}/sm"
FOREIGN = "beta.example"
FOREIGN_SM = f"domain://msg-node.{FOREIGN}/sm"
PATIENCE_SECONDS = 30.0
_MARK = "that is all"

ServicesAt = Callable[[NodeState], Mapping[str, Service]]
"""Makes services over the state of the rig, by canonical key."""


class Nodes(Protocol):
    """What only one of several nodes has."""

    parts: NodeParts
    claims: AddressClaims

    async def run(self, rig: RuntimeRig, *, task_status: trio.TaskStatus[None]) -> None: ...


RowsOver = Callable[[DurableRows], DurableRows]
NodesOf = Callable[[NodeState, StateStore], Nodes]
"""Makes it over the state and the store of the rig."""

JudgeLocal = Callable[[Message, frozenset[str]], Refusal | None]
"""Stands in for the gate on our own bus."""

Json = dict[str, Any]


def runtime_address(name: str) -> str:
    """Address of a runtime of our domain."""
    return f"runtime://{DOMAIN}/{name}"


def a_message(type_: str, from_: str, to: str, body: Mapping[str, object] | None = None, *, id_: object = None) -> Json:
    """A message as a runtime writes it."""
    message: Json = {"type": type_, "from": from_, "to": to}
    if id_ is not None:
        message["id"] = id_
    if body is not None:
        message["body"] = body
    return message


def _parsed_or_long(raw: bytes) -> Json:
    """What a runtime reads; numbers of more digits than Python reads stay texts."""
    try:
        message: Json = json.loads(raw)
    except ValueError:
        message = json.loads(raw, parse_int=str)
    return message


def parsed(message: Json) -> Message:
    """A message as a link hands it to the bus."""
    return codec.decode(json.dumps(message).encode())[0]


class Wire:
    """A client's bytes, raw; every wait has an end."""

    def __init__(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> None:
        self.stream = stream
        self._sending = trio.Lock()

    @property
    def socket(self) -> trio.socket.SocketType:
        return (self.stream if isinstance(self.stream, trio.SocketStream) else self.stream.transport_stream).socket

    async def write(self, data: bytes) -> None:
        with trio.fail_after(PATIENCE_SECONDS):
            async with self._sending:  # who reads answers pings, perhaps beside somebody who says something
                await self.stream.send_all(data)

    async def read(self) -> bytes:
        """What is there; b"" at the end, orderly or not."""
        with trio.fail_after(PATIENCE_SECONDS):
            try:
                return bytes(await self.stream.receive_some())
            except trio.BrokenResourceError:
                return b""

    async def read_to_end(self) -> bytes:
        data = b""
        while part := await self.read():
            data += part
        return data

    async def cut(self) -> None:
        """End the connection without a word."""
        await trio.aclose_forcefully(self.stream)


class Runtime:
    """A runtime: one WebSocket, messages as JSON."""

    def __init__(self, wire: Wire, websocket: ClientWebSocket) -> None:
        self.wire = wire
        self.websocket = websocket
        self.address = ""
        self.token = ""
        self._inbox: list[Json] = []
        self._numbers = count(1)

    async def shake_hands(self) -> None:
        await self.wire.write(self.websocket.data_to_send())
        while not self.websocket.is_open:
            data = await self.wire.read()
            assert data, self.websocket.refusal
            self._take(data)

    def _take(self, data: bytes) -> None:
        self._inbox += map(_parsed_or_long, self.websocket.receive(data))

    async def say_raw(self, *frames: bytes) -> None:
        """Send texts as they are, all in one write."""
        self.websocket.send(frames)
        await self.wire.write(self.websocket.data_to_send())

    async def say(self, *messages: Json) -> None:
        await self.say_raw(*(json.dumps(message).encode() for message in messages))

    async def next(self) -> Json:
        """The next message of the node."""
        while not self._inbox:
            data = await self.wire.read()
            self._take(data)
            await self.wire.write(self.websocket.data_to_send())
            assert data or self._inbox, f"closed with {self.websocket.close_code}"
        return self._inbox.pop(0)

    async def ask(self, type_: str, to: str, body: Mapping[str, object] | None = None, *, from_: str = "") -> Json:
        """Send a request and wait for its reply; what comes before it is lost."""
        id_ = f"q{next(self._numbers)}"
        await self.say(a_message(type_, from_ or self.address, to, body, id_=id_))
        while True:
            message = await self.next()
            if message.get("id") == id_:
                return message

    async def open(self, name: str, body: Mapping[str, object] | None = None) -> Json:
        self.address = runtime_address(name)
        reply = await self.ask("open", SESSION, body)
        self.token = reply["body"].get("runtimeToken", "")
        return reply

    @property
    def session_address(self) -> str:
        return f"{self.address}/{self.token}"

    async def allocated(self, scheme: str = "comm") -> str:
        """A fresh address of this runtime."""
        reply = await self.ask("create", ALLOCATION, {"scheme": scheme, "value": {"number": 1}})
        (address,) = reply["body"]["value"]["allocated"]
        return str(address)

    async def subscribed(self, *addresses: str, to: str = SM) -> Json:
        return await self.ask("subscribe", to, {"resources": list(addresses), "source": self.address})

    async def heard(self) -> list[Json]:
        """Everything that was queued for this runtime by now: the node answers a ping in order."""
        await self.say(a_message("ping", self.address or runtime_address("nobody"), SESSION, id_=_MARK))
        messages = []
        while (message := await self.next()).get("id") != _MARK:
            messages.append(message)
        return messages

    async def close_code(self) -> int | None:
        """Read until the node has ended the connection; how it closed the WebSocket."""
        while data := await self.wire.read():
            self._take(data)
            with contextlib.suppress(trio.BrokenResourceError, trio.BusyResourceError):
                await self.wire.write(self.websocket.data_to_send())
        return self.websocket.close_code


def code_and_reason(reply: Json) -> tuple[int, str]:
    """What a response says."""
    return reply["body"]["code"], reply["body"].get("reason", "")


class NearDomains:
    """What the bus asks of federation. `refusals` and `congested` are set by tests."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.roles: list[frozenset[str]] = []
        self.refusals: dict[str, Refusal] = {}
        self.congested: dict[str, Congestible] = {}
        self.away: set[str] = set()
        self.reached: list[str] = []
        self.given_away: list[str] = []
        self.taken_over: list[tuple[str, MovedLink]] = []
        self.takes_over: PeerError | None = None
        self.needed: list[str] = []
        self.undone: list[tuple[MovedLink, Code]] = []
        self.flushes = 0

    def send(self, domain: str, message: Message, roles: frozenset[str] = frozenset()) -> Refusal | None:
        refusal = self.refusals.get(domain)
        if refusal is None:
            self.sent.append((domain, message))
            self.roles.append(roles)
        return refusal

    def flow(self, _domain: str, _message: Message, _roles: frozenset[str]) -> None:
        return None

    def reach(self, domain: str, _message: Message, _roles: frozenset[str] = frozenset()) -> Refusal | None:
        refusal = self.refusals.get(domain)
        if refusal is None:
            self.reached.append(domain)
        return refusal

    def is_live(self, domain: str) -> bool:
        return domain not in self.away

    def exists(self, domain: str) -> bool:
        return any(one == domain for one, _ in self.sent)

    def permits(self, domain: str, _message: Message) -> Refusal | None:
        return self.refusals.get(domain)

    def keeps(self, domain: str, _stream: str) -> bool:
        return domain not in self.away

    def give_away(self, domain: str) -> MovedLink | None:
        self.given_away.append(domain)
        return MovedLink("a" * 32, 1, [("f" * 32, 7)]) if self.exists(domain) else None

    def take_over(self, domain: str, moved: MovedLink) -> None:
        if self.takes_over is not None:
            raise self.takes_over
        self.taken_over.append((domain, moved))

    def need(self, domain: str) -> None:
        self.needed.append(domain)

    def undo(self, moved: MovedLink, code: Code) -> None:
        self.undone.append((moved, code))

    def congested_link(self, domain: str) -> Congestible | None:
        return self.congested.get(domain)

    def flush(self) -> None:
        self.flushes += 1

    def take(self) -> list[Json]:
        """What was sent since the last call."""
        sent, self.sent = self.sent, []
        return [json.loads(message.raw) for _, message in sent]


class RecordList:
    """Takes records; `is_accepting` says whether it takes more."""

    def __init__(self) -> None:
        self.taken: list[Record] = []
        self.is_accepting = True
        self.room = trio.Event()

    def append(self, record: Record) -> None:
        self.taken.append(record)

    async def wait_accepting(self) -> None:
        while not self.is_accepting:
            await self.room.wait()


@dataclass
class Clocks:
    """The clocks of a rig; tests set them."""

    now: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


class RuntimeRig:
    """State, services, bus and listener of one node."""

    def __init__(
        self,
        store: StateStore,
        *,
        credentials: Iterable[Credential] | Credentials,
        ping_seconds: float,
        max_hops: int,
        rules: Rules | None = None,
        pools: Mapping[str, Sequence[str]] | None = None,
        allows_guests: bool = False,
        max_sessions: int = SESSIONS,
        returns_by_address: bool = False,
        services_at: ServicesAt | None = None,
        kept_objects: Collection[str] = (),
        delivery: DeliveryRules | None = None,
        steps: Sequence[tuple[str, MessageStep]] = (),
        interworking: Interworking | None = None,
        gate: Gate | None = None,
        nodes: NodesOf | None = None,
        flows: FlowMode = "on",
        has_own_gate: bool = True,
    ) -> None:
        journal = Journal()
        accepted = credentials if isinstance(credentials, Credentials) else Credentials(credentials)
        session_rules = SessionRules(max_sessions=max_sessions, returns_by_address=returns_by_address)
        self.store = store
        parts = StateParts(
            journal=journal,
            transitions=SessionTransitions(journal, accepted, session_rules),
            owners=Owners(journal, pools=pools),
            rules=rules or Rules(),
            delivery=DeliveryState(journal, delivery),
            twin=Twin(journal, objects=kept_objects),
            interworking=interworking or Interworking(),
        )
        self.state = make_state(OwnNames.of({DOMAIN, ALIAS}, {NODE}), parts)
        self.records = RecordList()
        self.gate = gate or Gate(peers={"*": PeerRule()})
        self.guests = self._make_guest_border()
        self.services = self._make_services(services_at, allows_guests=allows_guests)
        self.domains = NearDomains()
        self.nodes = None if nodes is None else nodes(self.state, store)
        self.clocks = Clocks()
        options = BusOptions(
            node=NODE,
            first_request=5000,
            ping_seconds=ping_seconds,
            max_hops=HopBound(max_hops),
            nodes=None if self.nodes is None else self.nodes.parts,
            flows=flows,
            now=lambda: self.clocks.now(),
            steady=lambda: self.clocks.steady(),
        )
        self.bus = self._make_bus(options, steps, has_own_gate=has_own_gate)
        self.parks: Parks = park_nothing
        self.bus.send_queues.links = self.domains
        self.judge_local: JudgeLocal = lambda _message, _roles: None
        self.port = 0
        self.listener: Listener | None = None
        self._wires: list[Wire] = []

    def _make_guest_border(self) -> GuestBorder:
        record = self.records.taken.append
        return GuestBorder(
            GuestContext(
                BorderRules(
                    OurNames(DOMAIN, NODE, self.state.domains), self.gate, interworking=self.state.interworking
                ),
                Recording(DOMAIN, self.gate, record),
                DecisionRecords(self.gate, record),
                doubt_until=0.0,
            )
        )

    def _make_services(self, services_at: ServicesAt | None, *, allows_guests: bool) -> Services:
        state, permit_guest = self.state, self.guests.open if allows_guests else None
        return make_services(
            state,
            SessionService(state.lifecycle, state.own, permit_guest=permit_guest),
            Announcements(NODE, state.listeners, first_id=1000),
            NodeFacts(NODE, "1"),
            at=services_at(state) if services_at is not None else None,
        )

    def _make_bus(self, options: BusOptions, steps: Sequence[tuple[str, MessageStep]], *, has_own_gate: bool) -> Bus:
        """The bus, whose judges, parks and clocks are looked up at each message: tests replace them."""

        def judge(message: Message, roles: frozenset[str], _sid: int | None) -> Refusal | None:
            return self.judge_local(message, roles)

        last: tuple[str, MessageStep] = ("authorisation", authorisation(judge, self.state.guests.domain))
        return make_bus(
            options,
            self.state,
            self.services,
            self.store if self.nodes is None else self.nodes.claims,
            SendQueues(self.state, guests=self.guests, records=self.records),
            Judges(
                guests=self.guests,
                stack=make_stack([*steps, last] if has_own_gate else steps, judge),
                parks=lambda message, roles, domain: self.parks(message, roles, domain),
            ),
        )

    @property
    def counters(self) -> Counters:
        return self.bus.counters

    async def until(self, counter: str, number: int = 1) -> None:
        """Wait until the bus has counted so much."""
        with trio.fail_after(PATIENCE_SECONDS):
            while self.counters[counter] < number:
                await trio.lowlevel.checkpoint()

    @property
    def socket_io(self) -> SocketIo:
        """The Engine.IO sessions at the listener."""
        assert self.listener is not None
        return self.listener._socket_io

    @property
    def https(self) -> HttpsBinding:
        """The runtimes over HTTP at the listener."""
        assert self.listener is not None
        assert self.listener._https is not None
        return self.listener._https

    def port_of(self, name: str) -> RuntimePort:
        """The node's end of a runtime's connection."""
        sid = self.state.sessions.by_runtime(runtime_address(name))
        assert sid is not None
        return self.bus.send_queues.ports[sid]

    async def connect(
        self, *, receive_bytes: int = 0, context: ssl.SSLContext | None = None, address: str = ""
    ) -> Wire:
        """A TCP (or TLS) connection with nothing said on it yet, from an address of the loopback net."""
        stream = trio.SocketStream(trio.socket.socket())
        if address:
            await stream.socket.bind((address, 0))
        if receive_bytes:
            stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_bytes)
        await stream.socket.connect(("127.0.0.1", self.port))
        wire = Wire(stream if context is None else trio.SSLStream(stream, context, server_hostname="localhost"))
        self._wires.append(wire)
        return wire

    def restore(self) -> None:
        """Go on with what was stored."""
        restore(self.state, self.store.load(), now=time.time())
        self.bus.restore()

    async def join(self, nursery: trio.Nursery) -> None:
        """Become one of several nodes, if it is to be one."""
        if self.nodes is not None:
            await nursery.start(self.nodes.run, self)

    def stop(self) -> None:
        """Stop the bus in the order of `Drain`, without its pauses."""
        self.bus.refuse_new(5.0)
        self.bus.answer_rest()
        self.bus.runtimes.finish()

    def hang_up(self) -> None:
        """Close every client's socket."""
        for wire in self._wires:
            wire.socket.close()

    async def runtime(
        self, *, receive_bytes: int = 0, context: ssl.SSLContext | None = None, bearer: str = "", address: str = ""
    ) -> Runtime:
        """A WebSocket at the listener, without a session."""
        wire = await self.connect(receive_bytes=receive_bytes, context=context, address=address)
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        runtime = Runtime(
            wire, ClientWebSocket("ws://localhost/ws", is_binary=False, headers=headers, max_bytes=8 << 20)
        )
        await runtime.shake_hands()
        return runtime

    async def opened(
        self, name: str, *, receive_bytes: int = 0, context: ssl.SSLContext | None = None, address: str = ""
    ) -> Runtime:
        """A runtime with a session."""
        runtime = await self.runtime(receive_bytes=receive_bytes, context=context, address=address)
        reply = await runtime.open(name)
        assert reply["body"]["code"] == 200, reply
        return runtime


@contextlib.contextmanager
def commits_held(rig: RuntimeRig) -> Iterator[None]:
    """Within the block no commit of the node comes to its end."""
    rows, may_go_on = rig.store._rows, threading.Event()
    rig.store._rows = _HeldRows(rows, may_go_on)
    try:
        yield
    finally:
        may_go_on.set()
        rig.store._rows = rows


class _HeldRows:
    def __init__(self, rows: DurableRows, may_go_on: threading.Event) -> None:
        self.load, self.close, self.scrub = rows.load, rows.close, rows.scrub
        self._rows = rows
        self._may_go_on = may_go_on

    def commit(self, rows: Rows) -> None:
        assert self._may_go_on.wait(PATIENCE_SECONDS)
        self._rows.commit(rows)


async def on_loopback() -> tuple[int, list[trio.SocketListener]]:
    """Listen on a free port."""
    listeners = list(await trio.open_tcp_listeners(0, host="127.0.0.1"))
    return int(listeners[0].socket.getsockname()[1]), listeners


async def listen(
    rig: RuntimeRig, nursery: trio.Nursery, context: ssl.SSLContext | None, options: ListenerOptions
) -> None:
    """Accept runtimes."""
    rig.listener = Listener(rig.bus, context=context, acceptor=None, options=options)
    rig.port, listeners = await on_loopback()
    await nursery.start(rig.listener.run, listeners)


@asynccontextmanager
async def runtime_rig(
    folder: Path,
    *,
    context: ssl.SSLContext | None = None,
    credentials: Iterable[Credential] | Credentials = (),
    ping_seconds: float = 30.0,
    max_hops: int = 8,
    max_bytes: int = FRAME_BYTES,
    rules: Rules | None = None,
    pools: Mapping[str, Sequence[str]] | None = None,
    allows_guests: bool = False,
    origins: Collection[str] = ("*",),
    max_sessions: int = SESSIONS,
    returns_by_address: bool = False,
    services_at: ServicesAt | None = None,
    kept_objects: Collection[str] = (),
    delivery: DeliveryRules | None = None,
    steps: Sequence[tuple[str, MessageStep]] = (),
    interworking: Interworking | None = None,
    gate: Gate | None = None,
    nodes: NodesOf | None = None,
    rows_over: RowsOver = lambda rows: rows,
    unopened_per_second: float = UNOPENED_PER_SECOND,
) -> AsyncIterator[RuntimeRig]:
    """Run the message path over the state file in `folder`; leaving is the end of that process."""
    rig = RuntimeRig(
        store := StateStore(rows_over(StateFile(folder / "state.sqlite"))),
        credentials=credentials,
        ping_seconds=ping_seconds,
        max_hops=max_hops,
        rules=rules,
        pools=pools,
        allows_guests=allows_guests,
        max_sessions=max_sessions,
        returns_by_address=returns_by_address,
        services_at=services_at,
        kept_objects=kept_objects,
        delivery=delivery,
        steps=steps,
        interworking=interworking,
        gate=gate,
        nodes=nodes,
    )
    rig.restore()
    async with trio.open_nursery() as services:
        await services.start(store.run)
        async with trio.open_nursery() as traffic:
            traffic.start_soon(rig.bus.send_queues.run)
            await traffic.start(rig.bus.inquiries.run)
            await traffic.start(rig.bus.users.run)
            await rig.join(traffic)
            options = ListenerOptions(max_bytes, origins=origins, unopened_per_second=unopened_per_second)
            await listen(rig, traffic, context, options)
            try:
                yield rig
            finally:
                rig.hang_up()
            traffic.cancel_scope.cancel()
        services.cancel_scope.cancel()
