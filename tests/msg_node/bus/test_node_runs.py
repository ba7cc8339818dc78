"""Messages of a flow to another node of the domain are treated exactly as if each went the whole way."""

from __future__ import annotations

import json
import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.links.flow_table import FlowMode
from federation.links.link_context import Refusal
from msg_node.addresses.core.subscriptions import Subscription
from msg_node.bus import session_traffic
from msg_node.bus.middleware import MessageStep, rate
from msg_node.bus.node_questions import NodeQuestions
from msg_node.bus.node_runs import RUN_BYTES, NodeWay, RunsToNodes
from msg_node.bus.runtime_port import RuntimePort, RuntimeQueue
from msg_node.cluster.core.node_contents import MESSAGE
from msg_node.cluster.core.node_link import NodeLink
from msg_node.cluster.core.runs import RUN
from msg_node.cluster.directory import Claim, MemoryDirectory
from msg_node.cluster.node_bus import MemoryNodeBus
from msg_node.cluster.socket_node_bus import LinkSenders
from msg_node.kernel.changes import SHARED
from msg_node.kernel.rules import Rules
from msg_node.kernel.session import Line
from msg_node.storage.state_file import StateFile
from msg_node.storage.state_store import StateStore
from policy.core.rates import RateLimit
from policy.core.session_class import SessionClass
from protofly.errors import Code
from protofly.message import Message
from tests.support.cluster_rig import ClusterNode, SharedTables, node_of
from tests.support.flow_rig import KeptMessages
from tests.support.runtime_rig import DOMAIN, SESSION, RuntimeRig, a_message, runtime_address

ANA, BO, CY = runtime_address("ana"), runtime_address("bo"), runtime_address("cy")
_RETRY = re.compile(rb'"retryAfter":[0-9.]+')


@pytest.fixture(autouse=True, scope="module")
def _unhurried() -> Iterator[None]:
    """A turn takes all that was read, however slow the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_traffic, "TURN_SECONDS", 60.0)
        yield


class PairOfNodes:
    """Ana and Cy at one node, Bo at the other; each is given frames, and what it is sent is kept."""

    def __init__(
        self, folder: Path, flows: FlowMode, steps: Sequence[tuple[str, MessageStep]], has_own_gate: bool
    ) -> None:
        self._shared: SharedTables = {table: {} for table in SHARED}
        self._directories: list[MemoryDirectory] = []
        self._buses: dict[str, MemoryNodeBus] = {}
        self.one, self.two = [
            RuntimeRig(
                StateStore(StateFile(folder / f"{name}.sqlite")),
                credentials=(),
                ping_seconds=30.0,
                max_hops=8,
                rules=Rules(shares_domain=True),
                nodes=partial(ClusterNode, name, self._directories, self._buses, NodeQuestions(), self._shared),
                steps=steps,
                flows=flows,
                has_own_gate=has_own_gate,
            )
            for name in ("n1", "n2")
        ]
        self.channels: dict[str, KeptMessages] = {}
        self.ports: dict[str, RuntimePort] = {}
        self.contents: list[bytes] = []
        for rig in (self.one, self.two):
            node_of(rig).join(rig)
        bus = node_of(self.one).bus
        send = bus.send

        def noted(node: str, content: bytes) -> Code | None:
            self.contents.append(content)
            return send(node, content)

        bus.send = noted  # type: ignore[method-assign]

    def open(self, rig: RuntimeRig, name: str) -> None:
        node, key = node_of(rig), runtime_address(name)
        node.claims.held.add(key)
        node.directory.claims[key] = Claim(node.name, 1)
        channel = self.channels[name] = KeptMessages()
        port = RuntimePort(Line(len(self.ports) + 1), RuntimeQueue(channel, counters=rig.counters), now=0.0)
        self.ports[name] = port
        rig.bus.runtimes.connected(port)
        text = json.dumps(a_message("open", key, SESSION, id_=1)).encode()
        rig.bus.from_sessions.take(port, [text])

    @property
    def crossed(self) -> list[bytes]:
        """The kinds of what the first node sent to the second one."""
        return [content[:1] for content in self.contents]

    async def say(self, *messages: dict[str, Any]) -> None:
        await self.write(*(json.dumps(one, separators=(",", ":")).encode() for one in messages))

    async def write(self, *frames: bytes) -> None:
        """Ana sends frames; all that follows from them happens."""
        port, left, routing = self.ports["ana"], list(frames), node_of(self.one).parts.routing
        while left and not port.queue.is_closing:
            left = left[self.one.bus.from_sessions.take(port, left) :]
            port.blockers.clear()
            self.flush()
        while routing._coming.statistics().current_buffer_used:
            await routing._look_up([await routing._coming.receive()])
            self.flush()

    def flush(self) -> None:
        for rig in (self.one, self.two, self.one):
            rig.bus.send_queues._flush()
        for port in self.ports.values():
            port.queue.flush()

    def heard(self, name: str) -> list[Any]:
        return [json.loads(one)["body"]["n"] for one in self.channels[name].sent if b'"response"' not in one]

    def outcome(self) -> dict[str, Any]:
        """Everything that a message can lead to."""
        return {
            "sent": {name: [_RETRY.sub(b"", one) for one in kept.sent] for name, kept in self.channels.items()},
            "counted": [rig.counters.shown() for rig in (self.one, self.two)],
            "abroad": [len(rig.domains.sent) for rig in (self.one, self.two)],
        }


async def pair_of_nodes(
    folder: Path, flows: FlowMode = "on", steps: Sequence[tuple[str, MessageStep]] = (), *, has_own_gate: bool = False
) -> PairOfNodes:
    pair = PairOfNodes(folder, flows, steps, has_own_gate)
    for rig, name in ((pair.one, "ana"), (pair.two, "bo"), (pair.one, "cy")):
        pair.open(rig, name)
    await pair.say(event(0))
    return pair


def event(number: int, *, type_: str = "event", to: str = BO, **body: object) -> dict[str, Any]:
    return {"id": number, **a_message(type_, ANA, to, {"n": number, **body})}


async def test_messages_of_a_flow_cross_as_one_content_and_in_order(tmp_path: Path) -> None:
    pair = await pair_of_nodes(tmp_path)
    await pair.say(event(1), event(2), event(3))
    assert pair.crossed[-1:] == [RUN]
    before = len(pair.crossed)
    await pair.say(*map(event, range(4, 104)))
    assert pair.crossed[before:] == [RUN, RUN]  # of at most 64
    assert pair.heard("bo") == list(range(104))
    assert node_of(pair.one).parts.routing.look_ups == 1


async def test_a_gate_on_the_bus_of_the_domain_judges_each_message_on_the_whole_way(tmp_path: Path) -> None:
    pair = await pair_of_nodes(tmp_path, has_own_gate=True)
    await pair.say(*map(event, range(1, 20)))
    assert set(pair.crossed) == {MESSAGE}
    assert pair.heard("bo") == list(range(20))


class NotFive:
    """The policy of an object that does not want one number."""

    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.is_concerned = True

    def concerns(self, message: Message) -> bool:  # noqa: ARG002
        return self.is_concerned

    def narrow(self, message: Message, roles: frozenset[str], *, is_from_abroad: bool) -> Refusal | None:  # noqa: ARG002
        self.asked.append(is_from_abroad)
        return Refusal(Code.POLICY) if self.is_concerned and b"5" in message.body else None


async def test_each_message_of_a_run_is_asked_about_where_the_policy_of_an_object_is(tmp_path: Path) -> None:
    pair = await pair_of_nodes(tmp_path)
    objects = NotFive()
    traffic = pair.two.bus.from_nodes
    assert traffic is not None
    traffic.narrow_by(objects)
    await pair.say(*map(event, range(1, 10)))
    assert pair.crossed[-1] == RUN
    assert pair.heard("bo") == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert objects.asked == [False] * 9
    objects.is_concerned = False
    await pair.say(*map(event, range(10, 20)))
    assert pair.crossed[-1] == RUN
    assert pair.heard("bo")[9:] == list(range(10, 20))


async def test_what_is_too_long_for_a_run_crosses_by_itself(tmp_path: Path) -> None:
    pair = await pair_of_nodes(tmp_path)
    await pair.say(event(1), event(2), event(3))
    before = len(pair.crossed)
    await pair.say(event(4, text="x" * RUN_BYTES), event(5))
    assert pair.crossed[before:] == [MESSAGE, RUN]
    assert pair.heard("bo") == [0, 1, 2, 3, 4, 5]


async def test_beyond_the_window_of_a_node_a_run_still_crosses_as_one_and_its_sender_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = await pair_of_nodes(tmp_path)
    await pair.say(event(1), event(2), event(3))
    senders = LinkSenders(NodeLink(now=0.0))
    monkeypatch.setattr(MemoryNodeBus, "congested", lambda _bus, _node: senders)
    port, before = pair.ports["ana"], len(pair.crossed)
    frames = [json.dumps(event(number), separators=(",", ":")).encode() for number in range(4, 20)]
    taken = pair.one.bus.from_sessions.take(port, frames)
    assert port.blockers == {senders}
    pair.flush()
    assert pair.crossed[before:] == [RUN]
    assert pair.heard("bo") == list(range(4 + taken))
    assert taken > 1


async def test_requests_of_a_run_that_does_not_arrive_are_each_answered(tmp_path: Path) -> None:
    pair = await pair_of_nodes(tmp_path)
    await pair.say(*[event(number, type_="read") for number in range(1, 4)])
    await pair.say(*[event(number, type_="read") for number in range(4, 10)])
    traffic = pair.one.bus.from_nodes
    assert traffic is not None
    assert pair.crossed[-1] == RUN
    traffic.returned("n2", [pair.contents[-1]])
    pair.flush()
    answers = [json.loads(one) for one in pair.channels["ana"].sent]
    assert [(one["id"], one["body"]["code"]) for one in answers] == [(number, 503) for number in range(4, 10)]


async def test_steps_of_the_session_see_each_message(tmp_path: Path) -> None:
    limit = rate(RateLimit(messages_per_second=1e-3, burst_seconds=20_000.0))
    pair = await pair_of_nodes(tmp_path, steps=[("rate", limit)])
    await pair.say(*map(event, range(1, 40)))
    assert pair.heard("bo") == list(range(20))
    assert pair.one.counters["refused rate"] == 20


async def test_a_difference_is_reported_and_the_whole_way_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = await pair_of_nodes(tmp_path, "verify")
    caplog.set_level(logging.ERROR)
    await pair.say(*map(event, range(1, 6)))
    assert not caplog.records
    flow = pair.ports["ana"].flows.last
    assert flow is not None
    assert isinstance(flow.outward, NodeWay)
    flow.outward._runs = Lying(node_of(pair.one).parts.runs)  # type: ignore[assignment]
    await pair.say(event(6))
    [record] = caplog.records
    assert record.code == "flow-differs"  # type: ignore[attr-defined]
    assert "roles" in record.message
    assert pair.heard("bo") == list(range(7))
    assert set(pair.crossed) == {MESSAGE}


class Lying:
    """Would send messages with roles that their sender does not have."""

    def __init__(self, runs: RunsToNodes) -> None:
        self.bus, self.send_queues, self.name, self._runs = runs.bus, runs.send_queues, runs.name, runs

    def head(self, like: Message, _roles: frozenset[str]) -> bytes:
        return self._runs.head(like, frozenset({"another"}))


# Any messages and changes, in any order.

Change = Callable[[PairOfNodes], object]


def listen_here(pair: PairOfNodes) -> None:
    sid = pair.one.state.sessions.by_runtime(CY)
    if sid is not None:
        pair.one.state.listeners.add(sid, [Subscription(BO, BO, "")])


def listen_there(pair: PairOfNodes) -> None:
    sid = pair.two.state.sessions.by_runtime(BO)
    if sid is not None:
        pair.two.state.listeners.add(sid, [Subscription(f"{BO}/x/changes", f"{BO}/x/changes", "")])


def leave(pair: PairOfNodes) -> None:
    """Bo's connection is lost; its session waits for it."""
    pair.two.bus.send_queues.closed(pair.ports["bo"])


def fill(pair: PairOfNodes) -> None:
    """Bo reads nothing, and its queue is nearly full."""
    pair.channels["bo"].takes_more = False
    pair.ports["bo"].queue._waiting.max_messages = 5


def read_again(pair: PairOfNodes) -> None:
    pair.channels["bo"].takes_more = True


def set_class(pair: PairOfNodes) -> None:
    pair.ports["ana"].roles = SessionClass.USER.alone


CHANGES: dict[str, Change] = {
    "a listener at the sender's node": listen_here,
    "a listener at the recipient's node": listen_there,
    "the recipient is away": leave,
    "the recipient does not read": fill,
    "it reads again": read_again,
    "the sender has another class": set_class,
    "the node of the sender is fenced": lambda pair: pair.one.bus.from_sessions.fence(5.0),
    "it goes on": lambda pair: pair.one.bus.from_sessions.fence(None),
    "the node of the sender stops": lambda pair: pair.one.bus.refuse_new(5.0),
    "the nodes are parted": lambda pair: node_of(pair.one).bus.cut("n2"),
    "they are connected": lambda pair: node_of(pair.one).bus.mend("n2"),
    "where the recipient is has been forgotten": lambda pair: node_of(pair.one).parts.routing.forget(BO),
}

_TYPES = st.sampled_from(["event", "update", "read", "create", "execute", "delete", "response", "forward", "subscribe"])
_TO = st.sampled_from([BO, f"{BO}/x", f"{BO}/x/changes", CY, runtime_address("nobody"), f"domain://{DOMAIN}", "x"])
_FROM = st.sampled_from([ANA, f"{ANA}/y", BO])
_BODY = st.dictionaries(
    st.sampled_from(["n", "ttl", "receipt", "source", "auth", "class", "guarantee", "code", "via"]),
    st.sampled_from([1, "x", True, ANA, [], "event", "ack"]),
    max_size=2,
)
_MESSAGE = st.fixed_dictionaries(
    {"type": _TYPES, "from": _FROM, "to": _TO}, optional={"id": st.integers(0, 9) | st.just("x")}
)
_USUAL = st.just({"type": "event", "from": ANA, "to": BO, "id": 7}) | st.just(
    {"type": "read", "from": ANA, "to": BO, "id": 7}
)
_SAID = st.lists(st.tuples(_USUAL | _USUAL | _MESSAGE, _BODY, st.integers(1, 4)), min_size=1, max_size=6)
_STEPS = st.lists(st.tuples(_SAID, st.none() | st.sampled_from(sorted(CHANGES))), min_size=1, max_size=8)


async def play(folder: Path, flows: FlowMode, steps: list[tuple[Any, str | None]]) -> dict[str, Any]:
    pair = await pair_of_nodes(folder, flows)
    for said, change in steps:
        await pair.write(
            *(
                json.dumps({**header, "body": body}, separators=(",", ":")).encode()
                for header, body, times in said
                for _ in range(times)
            )
        )
        if change is not None:
            CHANGES[change](pair)
    return pair.outcome()


@settings(max_examples=25)
@given(_STEPS)
def test_runs_do_what_the_whole_way_does(steps: list[tuple[Any, str | None]]) -> None:
    outcomes = []
    for mode in ("off", "on"):
        with tempfile.TemporaryDirectory() as folder:
            outcomes.append(trio.run(play, Path(folder), mode, steps))
    assert outcomes[0] == outcomes[1]
