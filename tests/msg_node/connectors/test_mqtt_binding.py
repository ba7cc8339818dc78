"""Runtimes behind a real MQTT broker: one kind of session, messages both ways, and a broker that comes and goes."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trustme

from msg_node.connectors import mqtt, mqtt_client
from msg_node.connectors.mqtt import MqttBinding, MqttOptions
from msg_node.connectors.mqtt_client import BrokerOptions
from msg_node.kernel.credentials import Credential, digest_of
from tests.support.mqtt_broker import Broker, MqttRuntime, mqtt_binding, needs_broker
from tests.support.runtime_rig import (
    NODE,
    PATIENCE_SECONDS,
    SESSION,
    Json,
    RuntimeRig,
    a_message,
    code_and_reason,
    runtime_address,
    runtime_rig,
)
from tests.support.services import running

ANA = runtime_address("ana")
BOTH_VERSIONS = pytest.mark.parametrize("is_version_5", [True, False], ids=["5", "3.1.1"])


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    needs_broker()
    folder = tmp_path / "broker"
    folder.mkdir()
    broker = Broker(folder)
    await broker.start()
    yield broker
    await broker.aclose()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path, max_bytes=10_000) as rig:
        yield rig


async def runtime_at(broker: Broker, name: str = "ana", **more: object) -> MqttRuntime:
    runtime = MqttRuntime(broker, name, **more)  # type: ignore[arg-type]
    await runtime.ready()
    return runtime


async def opened_mqtt(broker: Broker, name: str = "ana", **more: object) -> MqttRuntime:
    runtime = await runtime_at(broker, name, **more)
    reply = await runtime.open()
    assert reply["body"]["code"] == 200, reply
    return runtime


async def until_sessions(binding: MqttBinding, number: int) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while binding.live_sessions != number:
            await trio.lowlevel.checkpoint()


def values(messages: list[Json]) -> list[object]:
    return [message["body"]["value"] for message in messages]


@BOTH_VERSIONS
async def test_messages_go_both_ways_whatever_version_runtime_and_node_speak(
    rig: RuntimeRig, broker: Broker, is_version_5: bool
) -> None:
    async with mqtt_binding(rig, broker, is_version_5=is_version_5):
        bob = await rig.opened("bob")
        for name, version in (("ana", True), ("carol", False)):
            in_body = not is_version_5  # a node of version 3.1.1 hears of no properties
            runtime = await opened_mqtt(broker, name, is_version_5=version, token_in_body=in_body)
            await bob.say(a_message("event", bob.address, runtime.address, {"value": 1}))
            assert (await runtime.next())["body"] == {"value": 1}
            await runtime.say(a_message("read", runtime.address, bob.address, {"value": 2}, id_=7))
            asked = await bob.next()
            assert asked["body"] == {"value": 2}, "the token stays with the node"
            await bob.say(a_message("response", bob.address, runtime.address, {"code": 200}, id_=7))
            assert (await runtime.next())["body"] == {"code": 200}


async def test_a_will_parks_the_session_and_its_token_brings_it_back(rig: RuntimeRig, broker: Broker) -> None:
    async with mqtt_binding(rig, broker) as binding:
        ana, bob = await opened_mqtt(broker), await rig.opened("bob")
        await ana.subscribed("comm://alpha.example/mine")
        await ana.vanish()
        await rig.until("sessions lost")
        assert code_and_reason(await bob.ask("read", ANA)) == (503, "not-connected")
        again = await runtime_at(broker)
        reply = await again.ask("re-open", SESSION, from_=f"{ANA}/{ana.token}")
        assert reply["body"]["code"] == 200
        again.token = ana.token
        await bob.say(a_message("event", bob.address, "comm://alpha.example/mine", {"value": 1}))
        assert (await again.next())["body"] == {"value": 1}
        assert binding.live_sessions == 1


async def test_a_runtime_that_left_without_a_will_is_found_out_by_what_is_sent_to_it(
    rig: RuntimeRig, broker: Broker
) -> None:
    async with mqtt_binding(rig, broker) as binding:
        ana, bob = await opened_mqtt(broker), await rig.opened("bob")
        await ana.leave()
        with trio.fail_after(PATIENCE_SECONDS):
            while binding.live_sessions:  # the broker hears of the end when it gets to it
                await bob.say(a_message("event", bob.address, ANA, {"value": 1}))
                await bob.heard()
        assert code_and_reason(await bob.ask("read", ANA)) == (503, "not-connected")


async def test_close_ends_the_session(rig: RuntimeRig, broker: Broker) -> None:
    async with mqtt_binding(rig, broker) as binding:
        ana = await opened_mqtt(broker)
        await ana.say(a_message("close", ANA, SESSION, id_=1))
        await until_sessions(binding, 0)
        assert rig.state.sessions.by_runtime(ANA) is None


async def test_take_over_asks_for_a_proof_like_everywhere(tmp_path: Path, broker: Broker) -> None:
    credential = Credential(digest_of("secret"), ANA)
    proof = {"credentials": {"kind": "bearer", "token": "secret"}}
    async with runtime_rig(tmp_path, credentials=[credential]) as rig, mqtt_binding(rig, broker) as binding:
        ana = await runtime_at(broker)
        assert (await ana.open(proof))["body"]["code"] == 200
        other = await runtime_at(broker, session_id="other")
        assert code_and_reason(await other.open()) == (409, "address-taken")
        assert binding.live_sessions == 1
        over_websocket = await rig.runtime(bearer="secret")
        assert (await over_websocket.open("ana"))["body"]["code"] == 200
        await until_sessions(binding, 0)
        messages = [await ana.next() for _ in range(2)]
        assert [one["body"]["value"] for one in messages if one["to"] == f"{ANA}/status"] == ["taken-over"]


@BOTH_VERSIONS
async def test_a_broker_that_restarts_loses_nothing_that_was_acknowledged(
    rig: RuntimeRig, broker: Broker, is_version_5: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt, "MQTT_GONE_SECONDS", PATIENCE_SECONDS)  # it says of all that they are gone as it stops
    async with mqtt_binding(rig, broker, is_version_5=is_version_5) as binding:
        ana = await opened_mqtt(broker, session_id="ana-stays", token_in_body=not is_version_5)
        bob = await rig.opened("bob")
        await ana.say(a_message("event", ANA, bob.address, {"value": 0}))
        assert (await bob.next())["body"] == {"value": 0}
        await broker.stop()
        await bob.say(*(a_message("event", bob.address, ANA, {"value": value}) for value in range(50)))
        await bob.heard()
        await broker.start()
        with trio.fail_after(PATIENCE_SECONDS):
            await binding.client.wait_connected()
        got = [await ana.next() for _ in range(50)]
        assert values(got) == list(range(50))
        await ana.say(*(a_message("event", ANA, bob.address, {"value": value}) for value in range(1, 4)))
        assert values([await bob.next() for _ in range(3)]) == [1, 2, 3]


async def test_messages_wait_at_the_broker_while_the_node_is_away(rig: RuntimeRig, broker: Broker) -> None:
    bob = await rig.opened("bob")
    async with mqtt_binding(rig, broker, needs_token=False):
        ana = await opened_mqtt(broker)
    await ana.say(*(a_message("event", ANA, bob.address, {"value": value}) for value in range(20)))
    async with mqtt_binding(rig, broker, needs_token=False):
        await ana.say(a_message("read", ANA, bob.address, id_="late"))
        refusal = await ana.next()
        assert (refusal["id"], *code_and_reason(refusal)) == ("late", 401, "bad-token")
    assert rig.listener is not None
    assert rig.listener.counters["mqtt refused bad-token"] == 21, "each of them arrived, and none has a session now"


# Hostile topics and payloads.


@pytest.mark.parametrize(
    "topic",
    [
        "trapezoid/beta.example/ana/up",
        "trapezoid/alpha.example/ana%2Fb/up",
        "trapezoid/alpha.example/%61na/up",
        "trapezoid/alpha.example/ana/down",
        "trapezoid/alpha.example//up",
        "trapezoid/alpha.example/%FF/up",
        "trapezoid/alpha.example/mn-1/up",
    ],
)
async def test_topics_that_name_no_runtime_of_ours_open_nothing(rig: RuntimeRig, broker: Broker, topic: str) -> None:
    async with mqtt_binding(rig, broker) as binding:
        hostile = await runtime_at(broker, "hostile")
        await hostile.publish(json.dumps(a_message("open", ANA, SESSION, id_=1)).encode(), topic=topic)
        reply = await hostile.open()
        assert reply["body"]["code"] == 200
        assert binding.live_sessions == 1
        assert rig.state.sessions.by_runtime(ANA) is None


@pytest.mark.parametrize(
    "payload",
    [b"\x00", b"\xff\xfe", b"{", b"[]", b"null", b'{"type":"read"}', b'{"a":' * 200, b"x" * 20_000, b'"' * 9_000],
)
async def test_payloads_that_are_no_messages_harm_nobody(rig: RuntimeRig, broker: Broker, payload: bytes) -> None:
    async with mqtt_binding(rig, broker):
        ana = await opened_mqtt(broker)
        await ana.publish(payload)
        await ana.publish(b"")
        assert code_and_reason(await ana.ask("read", runtime_address("nobody"))) == (404, "no-route")


async def test_who_can_write_to_a_topic_still_needs_the_token_of_its_session(rig: RuntimeRig, broker: Broker) -> None:
    async with mqtt_binding(rig, broker):
        ana, thief = await opened_mqtt(broker), await runtime_at(broker, "thief")
        bob = await rig.opened("bob")
        up = f"{ana.topic}/up"
        for token in ("", "guess"):
            await thief.publish(json.dumps(a_message("event", ANA, bob.address)).encode(), topic=up, token=token)
            request = json.dumps(a_message("read", ANA, bob.address, id_=1)).encode()
            await thief.publish(request, topic=up, token=token)
            expected = (401, "bad-token" if token else "no-credentials")
            assert code_and_reason(await ana.next()) == expected
        assert await bob.heard() == []
        spoofed = json.dumps(a_message("open", ANA, SESSION, id_=2)).encode()
        await thief.publish(spoofed)
        assert code_and_reason(await thief.next()) == (403, "spoofed-source")


async def test_retained_messages_are_no_messages(rig: RuntimeRig, broker: Broker) -> None:
    hostile = await runtime_at(broker, "hostile")
    opening = json.dumps(a_message("open", ANA, SESSION, id_=1)).encode()
    await hostile.publish(opening, topic="trapezoid/alpha.example/ana/up", retain=True)
    async with mqtt_binding(rig, broker) as binding:
        assert (await hostile.open())["body"]["code"] == 200
        assert (binding.client.retained_ignored, binding.live_sessions) == (1, 1)


async def test_a_node_without_a_broker_goes_on_and_says_so(rig: RuntimeRig, broker: Broker) -> None:
    await broker.stop()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def _binding() -> None:
            async with mqtt_binding(rig, broker) as binding:
                assert (await opened_mqtt(broker)).token
                assert binding.client.error == ""

        assert code_and_reason(await (await rig.opened("bob")).ask("read", ANA)) == (404, "no-route")
        await broker.start()


async def test_more_than_may_wait_for_the_broker_costs_the_session_and_not_the_node(
    rig: RuntimeRig, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_client, "MQTT_QUEUED_MESSAGES", 1)
    monkeypatch.setattr(mqtt_client, "MQTT_WINDOW_MESSAGES", 1)
    async with mqtt_binding(rig, broker) as binding:
        ana, bob = await opened_mqtt(broker), await rig.opened("bob")
        for _ in range(20):
            await bob.say(*(a_message("event", bob.address, ANA, {"value": "x"}) for _ in range(20)))
            await bob.heard()
            if not binding.live_sessions:
                break
        await until_sessions(binding, 0)
        assert rig.listener is not None
        assert rig.listener.counters["mqtt publications refused"] >= 1
        assert code_and_reason(await bob.ask("read", ANA)) == (503, "not-connected")
        assert ana.token


@BOTH_VERSIONS
async def test_over_tls_long_messages_come_whole(rig: RuntimeRig, tmp_path: Path, is_version_5: bool) -> None:
    needs_broker()
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    broker = Broker(tmp_path, authority)
    await broker.start()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    try:
        async with mqtt_binding(rig, broker, tls=context, is_version_5=is_version_5):
            ana = await opened_mqtt(broker, token_in_body=True)
            bob = await rig.opened("bob")
            for number in range(30):
                await ana.say(a_message("event", ANA, bob.address, {"value": "x" * 9000, "n": number}))
            got = [(await bob.next())["body"] for _ in range(30)]
            assert [(one["n"], len(one["value"])) for one in got] == [(number, 9000) for number in range(30)]
    finally:
        await broker.aclose()


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # Paho leaves the socket to the collector
async def test_a_broker_of_an_unknown_authority_is_not_believed(rig: RuntimeRig, tmp_path: Path) -> None:
    needs_broker()
    broker = Broker(tmp_path, trustme.CA(key_type=trustme.KeyType.ECDSA))
    await broker.start()
    assert rig.listener is not None
    at = BrokerOptions("localhost", broker.tls_port, "mn-1", tls=ssl.create_default_context())
    binding = MqttBinding(rig.listener.reception, MqttOptions(at, "trapezoid"), node=NODE, domains=["alpha.example"])
    try:
        async with running(binding.run, seconds=PATIENCE_SECONDS):
            while "certificate verify failed" not in binding.client.error:
                await trio.lowlevel.checkpoint()
            assert not binding.client.is_connected
    finally:
        await broker.aclose()
