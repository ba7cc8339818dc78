"""Quotas of a QoS broker over two nodes: one grants for both, and notifies for both."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import trio

from msg_node.backends import backend
from msg_node.backends.backend import Backend
from msg_node.backends.backend_http import BackendHttp
from msg_node.backends.qos_watch import QosWatch
from msg_node.bus import quotas_of_nodes
from msg_node.bus.quotas_of_nodes import KEY, QuotasOfNodes, QuotaSources
from msg_node.kernel.changes import Table
from msg_node.kernel.credentials import OPERATOR, Credential, digest_of
from msg_node.kernel.service import Service
from msg_node.node_state import NodeState
from msg_node.qos.core.domain_quotas import PENDING_SECONDS, QUOTAS, RELEASES, DomainQuotas, Grant, Granted
from msg_node.qos.core.leases import Amounts, Lease
from msg_node.qos.core.qos_service import BROKER, QosService
from protofly.errors import HostError
from tests.peers.qos_broker import QosBrokerPeer
from tests.support.cluster_rig import cluster_rig, node_of
from tests.support.rest_server import rest_server
from tests.support.runtime_rig import DOMAIN, Json, Runtime, RuntimeRig, a_message, code_and_reason
from tests.support.services import PATIENCE_SECONDS, until

ADDRESS = f"domain://qos.{DOMAIN}"
OPERATOR_TOKEN = "t" * 40
WANTED = {"cspId": "prov-alpha", "clientName": "ana", "video": 500, "ttl": 600}
QUOTA_EVENTS = f"{ADDRESS}/quotas/prov-alpha/changes"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "BACKEND_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(quotas_of_nodes, "BEGIN_SECONDS", 0.0)
    monkeypatch.setattr(quotas_of_nodes, "LOOK_SECONDS", 1e6)  # tests look


@dataclass
class Sharing:
    """One of the nodes."""

    rig: RuntimeRig
    quotas: QuotasOfNodes
    watch: QosWatch

    async def look(self) -> None:
        """What happens each second."""
        await self.quotas.look()
        self.watch.sweep_once()


@dataclass
class Two:
    nodes: list[Sharing]
    peer: QosBrokerPeer
    away: list[str]

    @property
    def granting(self) -> list[bool]:
        return [one.quotas.is_granting for one in self.nodes]

    async def look(self) -> None:
        for one in self.nodes:
            await one.look()


def share(rig: RuntimeRig, service: QosService, rigs: list[RuntimeRig], broker: Backend, away: list[str]) -> Sharing:
    node = node_of(rig)

    async def stored() -> list[Lease]:
        rows = [row for one in rigs for row in one.store.load().get(Table.QOS_LEASES, {}).values()]
        return [msgspec.json.decode(row, type=Lease) for row in rows]

    def keep(kept: Callable[[], None], broken: Callable[[HostError], None]) -> None:
        node.claims.submit(rig.state.take_changes(), kept, broken)

    sources = QuotaSources(node.name, node.directory, node.dead.__contains__, stored, lambda: away, keep)
    quotas = QuotasOfNodes(sources, node.parts.questions, service, rig.state.leases)
    rig.bus.inquiries.connect(BROKER, broker)
    rig.bus.inquiries.connect(QUOTAS, quotas.ask)
    rig.bus.inquiries.connect(RELEASES, quotas.release)
    return Sharing(rig, quotas, QosWatch(service, broker, rig.bus.effects.publish_events, domain=DOMAIN))


@asynccontextmanager
async def two_nodes(folder: Path) -> AsyncIterator[Two]:
    services: list[QosService] = []

    def at(state: NodeState) -> Mapping[str, Service]:
        services.append(QosService(state))
        return {ADDRESS: services[-1]}

    peer, away = QosBrokerPeer(), list[str]()
    operator = Credential(digest_of(OPERATOR_TOKEN), f"runtime://{DOMAIN}/ops", frozenset({OPERATOR}))
    async with (
        rest_server(peer) as server,
        cluster_rig(folder, further=at, credentials=[operator]) as rigs,
        trio.open_nursery() as nursery,
    ):
        http = BackendHttp(server.url, ssl.create_default_context(), max_bytes=100_000)
        broker = Backend("the QoS broker", http, attempt_seconds=PATIENCE_SECONDS)
        nodes = [share(rig, service, rigs, broker, away) for rig, service in zip(rigs, services, strict=True)]
        for one in nodes:
            await nursery.start(one.quotas.run)
        yield Two(nodes, peer, away)
        nursery.cancel_scope.cancel()


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    async with two_nodes(tmp_path) as made:
        yield made


async def runtimes(two: Two) -> tuple[Runtime, Runtime]:
    ana, bo = [await one.rig.opened(name) for one, name in zip(two.nodes, ("ana", "bo"), strict=True)]
    return ana, bo


async def reserve(runtime: Runtime, **members: object) -> Json:
    return await runtime.ask("create", ADDRESS, {"resource": "/reservations", "value": {**WANTED, **members}})


async def test_two_nodes_take_no_more_of_a_quota_than_there_is(two: Two) -> None:
    ana, bo = await runtimes(two)
    assert (await reserve(ana))["body"]["code"] == 200
    assert two.granting == [True, False]
    assert (await reserve(bo))["body"]["code"] == 200
    for one in (ana, bo):
        refused = await reserve(one)
        assert code_and_reason(refused) == (429, "quota")
        assert refused["body"]["value"] == {"kind": "video", "used": 1000, "limit": 1000}
    assert [len(one.rig.state.leases) for one in two.nodes] == [1, 1]


async def test_of_many_that_reserve_at_once_at_both_nodes_as_many_get_it_as_there_is(two: Two) -> None:
    ana, bo = await runtimes(two)
    for number in range(5):
        for one in (ana, bo):
            body = {"resource": "/reservations", "value": {**WANTED, "video": 300}}
            await one.say(a_message("create", one.address, ADDRESS, body, id_=f"r{number}"))
    replies = [await one.next() for one in (ana, bo) for _ in range(5)]
    assert sorted(reply["body"]["code"] for reply in replies) == [200] * 3 + [429] * 7


async def test_what_one_node_gives_back_is_there_for_the_other(two: Two) -> None:
    ana, bo = await runtimes(two)
    name = (await reserve(ana, video=1000))["body"]["value"]["reservation"]
    assert code_and_reason(await reserve(bo)) == (429, "quota")
    await two.look()
    assert (await ana.ask("delete", ADDRESS, {"resource": f"/reservations/{name}"}))["body"]["code"] == 200
    assert (await reserve(bo, video=1000))["body"]["code"] == 200


async def test_an_object_may_be_at_another_node_and_ends_its_reservation(two: Two) -> None:
    ana, bo = await runtimes(two)
    room = await bo.allocated("comm")
    assert code_and_reason(await reserve(ana, object=f"comm://{DOMAIN}/nobodys")) == (400, "bad-body")
    assert (await reserve(ana, object=room))["body"]["code"] == 200
    await two.look()
    assert len(two.nodes[0].rig.state.leases) == 1
    released = await bo.ask("delete", f"domain://msg-node.{DOMAIN}/address-allocation", {"resource": room})
    assert released["body"]["code"] == 200, released
    await bo.heard()
    await two.look()
    assert len(two.nodes[0].rig.state.leases) == 0
    await until(lambda: not two.nodes[0].rig.store.load()[Table.QOS_LEASES])  # quotas count what is stored
    assert (await reserve(bo, video=1000))["body"]["code"] == 200


async def test_an_operator_at_any_node_ends_a_reservation_and_nobody_else_does(two: Two) -> None:
    ana, bo = await runtimes(two)
    name = (await reserve(ana))["body"]["value"]["reservation"]
    resource = {"resource": f"/reservations/{name}"}
    assert code_and_reason(await bo.ask("delete", ADDRESS, resource)) == (404, "not-registered")
    operator = await two.nodes[1].rig.runtime(bearer=OPERATOR_TOKEN)
    assert (await operator.open("ops"))["body"]["code"] == 200
    assert (await operator.ask("delete", ADDRESS, resource))["body"]["code"] == 200
    assert two.nodes[0].rig.store.load()[Table.QOS_LEASES] == {}
    assert code_and_reason(await operator.ask("delete", ADDRESS, resource)) == (404, "not-registered")
    two.away.append("n3")
    assert code_and_reason(await operator.ask("delete", ADDRESS, resource)) == (503, "not-connected")


async def test_who_listens_to_a_quota_at_any_node_hears_once_of_each_change(two: Two) -> None:
    ana, bo = await runtimes(two)
    for one in (ana, bo):
        assert (await one.subscribed(QUOTA_EVENTS))["body"]["code"] == 200
    names = [(await reserve(one))["body"]["value"]["reservation"] for one in (ana, bo)]
    await two.look()
    await two.look()
    used_up = {"kind": "video", "used": 1000, "limit": 1000}
    assert [(await one.next())["body"]["value"] for one in (ana, bo)] == [used_up] * 2
    assert (await bo.ask("delete", ADDRESS, {"resource": f"/reservations/{names[1]}"}))["body"]["code"] == 200
    await two.look()
    free = {"kind": "video", "used": 500, "limit": 1000}
    assert [(await one.next())["body"]["value"] for one in (ana, bo)] == [free] * 2
    await two.look()
    assert [await one.heard() for one in (ana, bo)] == [[], []]


async def test_only_the_node_that_grants_watches_what_the_broker_counts(two: Two) -> None:
    ana, bo = await runtimes(two)
    await reserve(ana, video=1)
    await bo.subscribed(QUOTA_EVENTS)
    two.peer.usage["prov-alpha"]["video"] = 1000
    for one in reversed(two.nodes):
        await one.watch.watch_once()
    assert (await bo.next())["body"]["value"]["used"] == 1000
    assert await bo.heard() == []


async def test_another_node_grants_when_the_one_that_did_has_died_and_knows_all_that_is_stored(two: Two) -> None:
    ana, bo = await runtimes(two)
    assert (await reserve(ana))["body"]["code"] == 200
    first, second = two.nodes
    node_of(second.rig).dead.add("n1")
    assert (await reserve(bo))["body"]["code"] == 200
    assert second.quotas.is_granting
    assert code_and_reason(await reserve(bo)) == (429, "quota")
    await first.look()
    assert two.granting == [False, True]
    assert (await node_of(first.rig).directory.find([KEY]))[KEY].node == "n2"


async def test_a_reservation_is_refused_while_the_node_that_grants_cannot_be_asked(two: Two) -> None:
    ana, bo = await runtimes(two)
    await reserve(ana)
    node_of(two.nodes[0].rig).bus.cut("n2")
    assert code_and_reason(await reserve(bo)) == (503, "not-connected")
    assert len(two.nodes[1].rig.state.leases) == 0


# Granting, as plain values.


def wanted(name: str, video: int = 500, usage: int = 0) -> Grant:
    return Grant(name, "p", Amounts(0, video), Amounts(0, usage), Amounts(0, 1000))


def stored(name: str, video: int = 500, expires_at: float = 1e9) -> Lease:
    return Lease(name, 1, "p", Amounts(0, video), "s", "c", "", expires_at)


def test_what_was_granted_counts_until_it_is_stored_and_then_once() -> None:
    quotas = DomainQuotas()
    assert quotas.grant(wanted("a"), 0.0) == Granted(is_granted=True)
    assert quotas.grant(wanted("b"), 0.0).is_granted
    assert quotas.grant(wanted("c"), 0.0) == Granted(is_granted=False, reserved=Amounts(0, 1000))
    quotas.saw([stored("a"), stored("a")], 1.0)
    assert quotas.reserved("p") == Amounts(0, 1000)
    quotas.saw([], 2.0)
    assert quotas.reserved("p") == Amounts(0, 500)
    quotas.saw([], PENDING_SECONDS)
    assert quotas.reserved("p") == Amounts()


def test_a_kind_that_is_not_wanted_may_be_used_up() -> None:
    quotas = DomainQuotas()
    full = msgspec.structs.replace(wanted("a"), usage=Amounts(audio=9), limits=Amounts(1, 1000, 1))
    assert quotas.grant(full, 0.0).is_granted
    assert not quotas.grant(msgspec.structs.replace(full, name="b", amounts=Amounts(audio=1)), 0.0).is_granted


def test_what_has_expired_and_other_providers_do_not_count_and_what_is_used_does() -> None:
    quotas = DomainQuotas()
    quotas.saw([stored("a", expires_at=5.0), msgspec.structs.replace(stored("b"), provider="q")], 5.0)
    assert quotas.reserved("p") == Amounts()
    assert not quotas.grant(wanted("c", usage=501), 5.0).is_granted
    assert quotas.grant(wanted("c", usage=500), 5.0).is_granted
    assert quotas.reserved("q") == Amounts(0, 500)
