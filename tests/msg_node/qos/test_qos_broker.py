"""`domain://qos.<d>` over real sockets, in front of a small broker written from its description."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
import trio

from msg_node.backends import backend
from msg_node.backends.backend import Backend
from msg_node.backends.backend_http import BackendHttp
from msg_node.backends.qos_watch import QosWatch
from msg_node.kernel.credentials import OPERATOR, Credential, digest_of
from msg_node.kernel.service import Service
from msg_node.node_state import NodeState
from msg_node.qos.core import leases, qos_service
from msg_node.qos.core.qos_service import BROKER, QosService
from tests.peers.qos_broker import QosBrokerPeer
from tests.support.rest_server import Lie, RestServer, Said, answer, rest_server
from tests.support.runtime_rig import (
    DOMAIN,
    FOREIGN,
    SM,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_rig,
)
from tests.support.services import PATIENCE_SECONDS

ADDRESS = f"domain://qos.{DOMAIN}"
ALIAS = f"domain://qos-broker.{DOMAIN}"
OPERATOR_TOKEN = "t" * 40
WANTED = {"cspId": "prov-alpha", "clientName": "ana", "audio": 64, "video": 500, "ttl": 600}
QUOTA_EVENTS = f"{ADDRESS}/quotas/prov-alpha/changes"


@dataclass
class Broker:
    rig: RuntimeRig
    peer: QosBrokerPeer
    server: RestServer
    watch: QosWatch
    service: QosService
    backend: Backend

    async def operator(self) -> Runtime:
        runtime = await self.rig.runtime(bearer=OPERATOR_TOKEN)
        reply = await runtime.open("ops")
        assert reply["body"]["code"] == 200, reply
        return runtime


@asynccontextmanager
async def broker_rig(folder: Path, peer: QosBrokerPeer | None = None) -> AsyncIterator[Broker]:
    services: list[QosService] = []

    def at(state: NodeState) -> Mapping[str, Service]:
        services.append(QosService(state, max_lease_seconds=1000))
        return {ADDRESS: services[0], ALIAS: services[0]}

    played = peer or QosBrokerPeer()
    credentials = [
        Credential(digest_of(OPERATOR_TOKEN), f"runtime://{DOMAIN}/ops", frozenset({OPERATOR})),
    ]
    async with (
        rest_server(played) as server,
        runtime_rig(folder, services_at=at, credentials=credentials) as rig,
    ):
        http = BackendHttp(server.url, ssl.create_default_context(), max_bytes=100_000)
        made = Backend("the QoS broker", http, attempt_seconds=PATIENCE_SECONDS)
        rig.bus.inquiries.connect(BROKER, made)
        watch = QosWatch(services[0], made, rig.bus.effects.publish_events, domain=DOMAIN)
        yield Broker(rig, played, server, watch, services[0], made)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "BACKEND_RETRY_SECONDS", 0.001)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with broker_rig(tmp_path) as made:
        yield made


@pytest.fixture
async def ana(broker: Broker) -> Runtime:
    return await broker.rig.opened("ana")


async def reserve(runtime: Runtime, **members: object) -> Json:
    return await runtime.ask("create", ADDRESS, {"resource": "/reservations", "value": {**WANTED, **members}})


async def reserved(runtime: Runtime, **members: object) -> str:
    reply = await reserve(runtime, **members)
    assert reply["body"]["code"] == 200, reply
    return str(reply["body"]["value"]["reservation"])


# Enquiry.


async def test_what_the_broker_knows_is_read_with_numbers_as_numbers(broker: Broker, ana: Runtime) -> None:
    broker.peer.usage["prov-alpha"]["audio"] = 17
    for to in (ADDRESS, ALIAS):
        turn = await ana.ask(
            "read", to, {"resource": "/turn", "criteria": {"cspId": "prov-alpha", "clientName": "a b"}}
        )
        assert turn["body"]["value"] == {"server": "192.0.2.10:3478", "clientId": "c-a b"}
        usage = await ana.ask("read", to, {"resource": "/usage", "criteria": {"cspkey": "prov-alpha"}})
        assert usage["body"]["value"] == {"audio": 17, "video": 0, "data": 0}
        listed = await ana.ask("read", to, {"resource": "/providers"})
        assert listed["body"]["value"] == [
            {"csp": "prov-alpha", "audioQuota": 1000, "videoQuota": 1000, "dataQuota": 0}
        ]
    credentials = {"resource": "/credentials", "criteria": {"clientId": "c-a b"}}
    assert (await ana.ask("read", ADDRESS, credentials))["body"]["value"]["password"] == "secret of c-a b"


async def test_passwords_are_for_those_whom_the_client_was_named_to(broker: Broker, ana: Runtime) -> None:
    await reserved(ana)
    credentials = {"resource": "/credentials", "criteria": {"clientId": "c-ana"}}
    mallory = await broker.rig.opened("mallory")
    assert code_and_reason(await mallory.ask("read", ADDRESS, credentials)) == (403, "not-owner")
    assert (await ana.ask("read", ADDRESS, credentials))["body"]["code"] == 200
    operator = await broker.operator()
    assert (await operator.ask("read", ADDRESS, credentials))["body"]["code"] == 200


@pytest.mark.parametrize(
    ("type_", "body", "expected"),
    [
        ("read", {"resource": "/turn", "criteria": {"cspId": "prov-alpha"}}, (400, "bad-body")),
        ("read", {"resource": "/turn", "criteria": {"cspId": "nobody", "clientName": "a"}}, (404, "not-registered")),
        ("read", {"resource": "/usage", "criteria": {"cspkey": "nobody"}}, (404, "not-registered")),
        ("read", {"resource": "/nothing"}, (404, "no-such-service")),
        ("read", {}, (404, "no-such-service")),
        ("read", {"resource": "/reservations"}, (405, "bad-type")),
        ("create", {"resource": "/turn"}, (405, "bad-type")),
        ("create", {"resource": "/reservations", "value": {"cspId": "prov-alpha"}}, (400, "bad-body")),
        ("create", {"resource": "/reservations", "value": {**WANTED, "video": -1}}, (400, "bad-body")),
        ("create", {"resource": "/reservations", "value": {**WANTED, "video": True}}, (400, "bad-body")),
        ("create", {"resource": "/reservations", "value": {**WANTED, "ttl": "soon"}}, (400, "bad-body")),
        ("create", {"resource": "/reservations", "value": {**WANTED, "cspId": "nobody"}}, (404, "not-registered")),
        (
            "create",
            {"resource": "/reservations", "value": {**WANTED, "object": "comm://alpha.example/no"}},
            (400, "bad-body"),
        ),
        ("delete", {"resource": "/reservations/r-77"}, (404, "not-registered")),
        ("create", {"resource": "/providers", "value": {"servicename": "evil", "audio": 9}}, (403, "policy")),
        ("delete", {"resource": "/providers/prov-alpha"}, (403, "policy")),
        ("update", {"resource": "/quotas", "value": {"cspkey": "prov-alpha", "audio": 9}}, (403, "policy")),
    ],
)
async def test_what_cannot_be_served_is_refused_and_changes_nothing(
    broker: Broker, ana: Runtime, type_: str, body: dict[str, object], expected: tuple[int, str]
) -> None:
    before = dict(broker.peer.quotas)
    assert code_and_reason(await ana.ask(type_, ADDRESS, body)) == expected
    assert broker.peer.quotas == before
    assert len(broker.rig.state.leases) == 0


async def test_another_domain_is_not_served(broker: Broker, ana: Runtime) -> None:
    request = a_message("read", f"runtime://{FOREIGN}/rt", ADDRESS, {"resource": "/providers"}, id_=1)
    broker.rig.bus.from_links.take(FOREIGN, [parsed(request)])
    while not broker.rig.domains.sent:
        await ana.heard()
    (reply,) = broker.rig.domains.take()
    assert code_and_reason(reply) == (403, "policy")


# Reservations.


async def test_a_reservation_brings_server_and_password_and_is_held_by_the_node(broker: Broker, ana: Runtime) -> None:
    room = await ana.allocated()
    reply = await reserve(ana, object=room, ttl=100_000)
    value = reply["body"]["value"]
    name, expires = value.pop("reservation"), value.pop("expires")
    assert value == {"server": "192.0.2.10:3478", "clientId": "c-ana", "password": "secret of c-ana"}
    assert time.time() + 900 < expires <= time.time() + 1000  # the longest that the settings allow
    lease = broker.rig.state.leases.get(name)
    assert lease is not None
    assert tuple(lease.amounts) == (64, 500, 0)


async def test_what_is_left_of_a_quota_is_reserved_once(broker: Broker, ana: Runtime) -> None:
    bo = await broker.rig.opened("bo")
    for one in (ana, bo, ana, bo):
        await one.say(
            a_message("create", one.address, ADDRESS, {"resource": "/reservations", "value": WANTED}, id_=f"r-{one}")
        )
    replies = [await one.next() for one in (ana, ana, bo, bo)]
    assert sorted(reply["body"]["code"] for reply in replies) == [200, 200, 429, 429]
    refused = next(reply for reply in replies if reply["body"]["code"] == 429)
    assert refused["body"]["reason"] == "quota"
    assert refused["body"]["value"] == {"kind": "video", "used": 1000, "limit": 1000}


async def test_what_others_use_counts(broker: Broker, ana: Runtime) -> None:
    broker.peer.usage["prov-alpha"]["video"] = 501
    assert code_and_reason(await reserve(ana)) == (429, "quota")
    assert (await reserve(ana, video=499))["body"]["code"] == 200


async def test_a_reservation_ends_with_delete_by_its_holder_or_an_operator(broker: Broker, ana: Runtime) -> None:
    bo, operator = await broker.rig.opened("bo"), await broker.operator()
    first, second = await reserved(ana), await reserved(ana)
    assert code_and_reason(await reserve(ana)) == (429, "quota")
    refused = await bo.ask("delete", ADDRESS, {"resource": f"/reservations/{first}"})
    assert code_and_reason(refused) == (403, "not-owner")
    for one, name in ((ana, first), (operator, second)):
        assert (await one.ask("delete", ADDRESS, {"resource": f"/reservations/{name}"}))["body"]["code"] == 200
    await reserved(bo, video=1000)


async def test_a_reservation_ends_with_its_time(broker: Broker, ana: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    await reserved(ana, ttl=5)
    events = broker.service.sweep(DOMAIN, time.time() + 4)
    assert len(broker.rig.state.leases) == 1
    assert events == []
    broker.service.sweep(DOMAIN, time.time() + 7)
    assert len(broker.rig.state.leases) == 0
    await reserved(ana, video=1000)


async def test_a_reservation_ends_with_its_object(broker: Broker, ana: Runtime) -> None:
    room = await ana.allocated()
    await reserved(ana, object=room)
    broker.watch.sweep_once()
    assert len(broker.rig.state.leases) == 1
    released = await ana.ask(
        "delete", f"domain://msg-node.{DOMAIN}/address-allocation", {"resources": [room], "childrenResources": []}
    )
    assert released["body"]["code"] == 200
    broker.watch.sweep_once()
    assert len(broker.rig.state.leases) == 0


async def test_a_reservation_ends_with_the_session_of_its_holder(broker: Broker, ana: Runtime) -> None:
    await reserved(ana)
    await ana.say(a_message("close", ana.address, "mn:/session", id_=1))
    assert await ana.close_code() == 1000
    assert len(broker.rig.state.leases) == 0


async def test_reservations_are_there_after_a_restart(tmp_path: Path) -> None:
    peer = QosBrokerPeer()
    async with broker_rig(tmp_path, peer) as broker:
        ana = await broker.rig.opened("ana")
        name = await reserved(ana)
    async with broker_rig(tmp_path, peer) as broker:
        lease = broker.rig.state.leases.get(name)
        assert lease is not None
        assert lease.client_id == "c-ana"
        bo = await broker.rig.opened("bo")
        assert code_and_reason(await reserve(bo, video=501)) == (429, "quota")


async def test_one_session_cannot_hold_everything(
    broker: Broker, ana: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "QOS_LEASES_PER_SESSION", 2)
    for _ in range(2):
        await reserved(ana, video=1, audio=1)
    assert code_and_reason(await reserve(ana, video=1)) == (429, "quota")
    assert len(broker.rig.state.leases) == 2


# Quota events.


async def test_who_listens_learns_when_a_quota_is_used_up_and_when_it_no_longer_is(
    broker: Broker, ana: Runtime
) -> None:
    bo = await broker.rig.opened("bo")
    assert (await bo.subscribed(QUOTA_EVENTS, to=SM))["body"]["code"] == 200
    names = [await reserved(ana), await reserved(ana)]
    events = await bo.heard()
    assert [(one["type"], one["from"], one["to"], one["body"]["value"]) for one in events] == [
        ("update", ADDRESS, QUOTA_EVENTS, {"kind": "video", "used": 1000, "limit": 1000})
    ]
    await ana.ask("delete", ADDRESS, {"resource": f"/reservations/{names[0]}"})
    assert [one["body"]["value"]["used"] for one in await bo.heard()] == [500]


async def test_usage_is_looked_at_where_somebody_listens(broker: Broker, ana: Runtime) -> None:
    await broker.watch.watch_once()
    assert broker.server.asked_for("GET", "/getCspConso") == []
    await ana.subscribed(QUOTA_EVENTS, to=SM)
    broker.peer.usage["prov-alpha"]["audio"] = 1200
    for _ in range(2):
        await broker.watch.watch_once()
    assert [one["body"]["value"] for one in await ana.heard()] == [{"kind": "audio", "used": 1200, "limit": 1000}]


# Operators.


@pytest.mark.parametrize("knows_put", [False, True])
async def test_operators_change_providers_and_quotas(tmp_path: Path, knows_put: bool) -> None:
    async with broker_rig(tmp_path, QosBrokerPeer(knows_put=knows_put)) as broker:
        operator = await broker.operator()
        value = {"servicename": "prov-b", "audio": 1, "video": 2, "data": 3}
        for type_, body in (
            ("create", {"resource": "/providers", "value": value}),
            ("update", {"resource": "/quotas", "value": {"cspkey": "prov-b", "audio": 4, "video": 5, "data": 6}}),
            ("delete", {"resource": "/providers/prov-alpha"}),
        ):
            assert (await operator.ask(type_, ADDRESS, cast("dict[str, object]", body)))["body"]["code"] == 200
        assert broker.peer.quotas == {"prov-b": {"audio": 4, "video": 5, "data": 6}}
        gone = await operator.ask("delete", ADDRESS, {"resource": "/providers/prov-alpha"})
        assert code_and_reason(gone) == (404, "not-registered")
        assert len(broker.server.asked_for("POST")) == 1


# A broker that breaks.


def says(said: Said) -> Lie:
    async def lie(stream: trio.abc.Stream) -> None:
        await stream.send_all(answer(said))

    return lie


async def is_silent(stream: trio.abc.Stream) -> None:
    await stream.receive_some()


@pytest.mark.parametrize(
    ("lie", "expected"),
    [
        (is_silent, (504, "timeout")),
        (says(Said(500, b"Error", "text/html")), (502, "bad-reply")),
        (says(Said(200, b"7")), (502, "bad-reply")),
        (says(Said(200, b'[{"csp":"prov-alpha","audioQuota":"lots"}]')), (502, "bad-reply")),
        (says(Said(200, b'[{"csp":"prov-alpha","audioQuota":1e300}]')), (502, "bad-reply")),
        (says(Said(200, b"<html>", "text/html")), (502, "bad-reply")),
        (says(Said(302, b"", headers=(("Location", "http://127.0.0.1:1/"),))), (502, "redirect-refused")),
    ],
)
async def test_a_broker_that_breaks_has_its_code_and_no_lease_is_left(
    broker: Broker, ana: Runtime, lie: Lie, expected: tuple[int, str]
) -> None:
    broker.server.always = lie
    if lie is is_silent:
        broker.backend._attempt_seconds = 0.2
    assert code_and_reason(await reserve(ana)) == expected
    assert len(broker.rig.state.leases) == 0
    broker.server.always, broker.backend._attempt_seconds = None, PATIENCE_SECONDS
    await reserved(ana)


async def test_a_broker_that_breaks_half_way_leaves_no_lease(broker: Broker, ana: Runtime) -> None:
    broker.server.lies = [None, None, None, says(Said(200, b'{"clientId":"c-ana"}'))]
    assert code_and_reason(await reserve(ana)) == (502, "bad-reply")
    assert len(broker.rig.state.leases) == 0
    await reserved(ana, video=1000)


async def test_a_broker_that_takes_too_long_for_all_of_it_is_not_waited_for(
    broker: Broker, ana: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qos_service, "QOS_CALL_SECONDS", 0.05)
    broker.server.always = is_silent
    assert code_and_reason(await reserve(ana)) == (504, "timeout")


async def test_without_a_broker_the_service_is_off(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        ana = await rig.opened("ana")
        for to in (ADDRESS, ALIAS):
            assert code_and_reason(await ana.ask("read", to, {"resource": "/providers"})) == (501, "connector-off")
