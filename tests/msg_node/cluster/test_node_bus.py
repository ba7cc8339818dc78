"""What every bus between nodes does: in one process, over Unix sockets, over TCP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
import pytest
import trio

from msg_node.cluster.core.handshake import RUNS_ABROAD, Hello
from msg_node.cluster.node_bus import MemoryNodeBus, NodeBus
from msg_node.cluster.node_line import Address
from msg_node.cluster.socket_node_bus import NodeIdentity, SocketNodeBus
from protofly.errors import Code

KEY = b"k" * 32


class User:
    """A node that notes what its bus reports."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.back: list[tuple[str, bytes]] = []
        self.meetings: list[tuple[str, bool]] = []
        self.news = trio.Condition()
        self._pulse = trio.Event()
        self.holds = False

    def met(self, node: str, *, is_new: bool) -> None:
        self.meetings.append((node, is_new))
        self.go_on()

    def taken(self, node: str, contents: Sequence[bytes]) -> None:
        self.heard += [(node, one) for one in contents]
        self.go_on()

    def returned(self, node: str, contents: Sequence[bytes]) -> None:
        self.back += [(node, one) for one in contents]
        self.go_on()

    async def wait_for_room(self) -> None:
        while self.holds:
            await self._pulse.wait()

    def go_on(self) -> None:
        pulse, self._pulse = self._pulse, trio.Event()
        pulse.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(10):
            while not condition():
                await self._pulse.wait()


class Cluster(Protocol):
    async def start(self, node: str) -> tuple[NodeBus, User]: ...

    async def kill(self, node: str) -> None: ...


class InMemory:
    def __init__(self) -> None:
        self.buses: dict[str, MemoryNodeBus] = {}

    async def start(self, node: str) -> tuple[NodeBus, User]:
        user = User()
        return MemoryNodeBus(node, self.buses, user), user

    async def kill(self, node: str) -> None:
        self.buses[node].leave()


class OverSockets:
    """Nodes that listen on Unix sockets or on TCP, each in a task of its own."""

    def __init__(self, nursery: trio.Nursery, address: Callable[[str], str]) -> None:
        self.nursery = nursery
        self.address = address
        self.members: dict[str, str] = {}
        self.scopes: dict[str, trio.CancelScope] = {}
        self.ended: dict[str, trio.Event] = {}
        self.epochs: dict[str, int] = {}

    async def start(self, node: str) -> tuple[SocketNodeBus, User]:
        user = User()
        self.ended[node] = trio.Event()
        epoch = self.epochs[node] = self.epochs.get(node, 0) + 1
        identity = NodeIdentity("a.example", node, epoch, KEY)
        bus = SocketNodeBus(identity, Address.parse(self.address(node)), lambda: self.members, user)

        async def run(task_status: trio.TaskStatus[None]) -> None:
            with trio.CancelScope() as self.scopes[node]:
                await bus.run(task_status=task_status)
            self.ended[node].set()

        await self.nursery.start(run)
        self.members[node] = bus.listens_at
        return bus, user

    async def kill(self, node: str) -> None:
        self.scopes[node].cancel()
        await self.ended[node].wait()


@asynccontextmanager
async def over_sockets(address: Callable[[str], str]) -> AsyncIterator[OverSockets]:
    async with trio.open_nursery() as nursery:
        yield OverSockets(nursery, address)
        nursery.cancel_scope.cancel()


@pytest.fixture(params=["memory", "unix", "tcp"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    if request.param == "memory":
        yield InMemory()
        return
    kind = (lambda node: f"unix:{tmp_path}/{node}") if request.param == "unix" else (lambda _: "127.0.0.1:0")
    async with over_sockets(kind) as sockets:
        yield sockets


async def two(cluster: Cluster) -> tuple[NodeBus, User, NodeBus, User]:
    one, of_one = await cluster.start("n1")
    other, of_other = await cluster.start("n2")
    await of_one.until(lambda: "n2" in one.connected)
    await of_other.until(lambda: "n1" in other.connected)
    return one, of_one, other, of_other


async def test_contents_arrive_in_order_in_both_directions(cluster: Cluster) -> None:
    one, of_one, other, of_other = await two(cluster)
    for number in range(300):
        assert one.send("n2", b"%d" % number) is None
        assert other.send("n1", b"%d" % number) is None
        if number % 7 == 0:
            one.flush()
            other.flush()
    one.flush()
    other.flush()
    await of_one.until(lambda: len(of_one.heard) == 300)
    await of_other.until(lambda: len(of_other.heard) == 300)
    assert of_other.heard == [("n1", b"%d" % number) for number in range(300)]
    assert of_one.heard == [("n2", b"%d" % number) for number in range(300)]


async def test_nodes_know_what_the_other_end_understands_while_it_is_connected(cluster: Cluster) -> None:
    one, _, other, _ = await two(cluster)
    for bus, node in ((one, "n2"), (other, "n1")):
        assert bus.is_able(node, RUNS_ABROAD)
        assert not bus.is_able(node, "what no version has")
        assert not bus.is_able("n3", RUNS_ABROAD)


async def test_a_node_of_the_version_before_is_met_and_said_to_understand_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with over_sockets(lambda node: f"unix:{tmp_path}/{node}") as cluster:
        hello = SocketNodeBus._hello

        def of_before(bus: SocketNodeBus, node: str) -> Hello:
            ours = hello(bus, node)
            return msgspec.structs.replace(ours, abilities=()) if ours.node == "n1" else ours

        monkeypatch.setattr(SocketNodeBus, "_hello", of_before)
        one, of_one, other, of_other = await two(cluster)
        assert (one.is_able("n2", RUNS_ABROAD), other.is_able("n1", RUNS_ABROAD)) == (True, False)
        assert one.send("n2", b"x") is other.send("n1", b"y") is None
        one.flush()
        other.flush()
        await of_one.until(lambda: of_one.heard == [("n2", b"y")])
        await of_other.until(lambda: of_other.heard == [("n1", b"x")])


async def test_a_node_that_nobody_knows_is_refused_at_once(cluster: Cluster) -> None:
    one, _ = await cluster.start("n1")
    assert one.send("n9", b"x") is Code.NOT_CONNECTED
    assert not one.keep("n9", b"x")
    assert one.congested("n9") is None


async def test_what_a_node_that_ended_did_not_take_comes_back_in_order(cluster: Cluster) -> None:
    one, of_one, _, _ = await two(cluster)
    await cluster.kill("n2")
    sent = [b"%d" % number for number in range(5)]
    taken = [content for content in sent if one.send("n2", content) is None]
    one.flush()
    await of_one.until(lambda: len(of_one.back) == len(taken))
    assert of_one.back == [("n2", content) for content in taken]


async def test_a_node_that_started_anew_is_met_as_new_and_hears_what_comes_then(cluster: Cluster) -> None:
    one, of_one, _, _ = await two(cluster)
    await cluster.kill("n2")
    _, of_newcomer = await cluster.start("n2")
    await of_one.until(lambda: of_one.meetings.count(("n2", True)) == 2)
    assert one.send("n2", b"hello") is None
    one.flush()
    await of_newcomer.until(lambda: of_newcomer.heard == [("n1", b"hello")])


async def test_three_nodes_reach_each_other(cluster: Cluster) -> None:
    nodes = {name: await cluster.start(name) for name in ("n1", "n2", "n3")}
    for name, (bus, user) in nodes.items():
        await user.until(partial(lambda bus: len(bus.connected) == 2, bus))
        for other in nodes:
            assert (bus.send(other, name.encode()) is None) is (other != name)
        bus.flush()
    for name, (_, user) in nodes.items():
        await user.until(partial(lambda user: len(user.heard) == 2, user))
        assert sorted(user.heard) == [(other, other.encode()) for other in sorted(nodes) if other != name]


# Over sockets only.


async def test_a_receiver_that_pauses_slows_its_senders_down_and_loses_nothing(tmp_path: Path) -> None:
    async with over_sockets(lambda node: f"unix:{tmp_path}/{node}") as sockets:
        one, _, _, of_other = await two(sockets)
        of_other.holds = True
        sent = 0
        while one.congested("n2") is None:
            assert one.send("n2", b"x" * 100_000) is None
            sent += 1
            one.flush()
        senders = one.congested("n2")
        assert senders is not None
        assert one.send("n2", b"y") is None
        of_other.holds = False
        of_other.go_on()
        with trio.fail_after(10):
            await senders.wait_relief()
        await of_other.until(lambda: len(of_other.heard) == sent + 1)


def close_line(bus: SocketNodeBus, node: str) -> None:
    channel = bus._partners[node].channel
    if channel is not None:
        channel.close()


async def test_a_connection_that_breaks_is_made_again_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    async with over_sockets(lambda node: f"unix:{tmp_path}/{node}") as sockets:
        one, of_one, _, of_other = await two(sockets)
        assert isinstance(one, SocketNodeBus)
        for number in range(200):
            assert one.send("n2", b"%d" % number) is None
            one.flush()
            if number % 50 == 25:
                close_line(one, "n2")
                await of_one.until(lambda: "n2" in one.connected)
        await of_other.until(lambda: len(of_other.heard) == 200)
        assert of_other.heard == [("n1", b"%d" % number) for number in range(200)]
        assert of_one.back == []
