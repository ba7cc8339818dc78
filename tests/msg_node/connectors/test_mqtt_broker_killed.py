"""A broker that is killed amid traffic: what was promised is kept, on both sides of it, and nothing is done twice."""

from __future__ import annotations

import logging
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

from msg_node.connectors import mqtt_presence
from msg_node.connectors.mqtt import MqttBinding
from tests.support.mqtt_broker import Broker, MqttRuntime, mqtt_binding, needs_broker
from tests.support.runtime_rig import (
    DOMAIN,
    PATIENCE_SECONDS,
    SESSION,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    runtime_rig,
)

LAMPS, BELLS = f"thing://{DOMAIN}/lamps", f"thing://{DOMAIN}/bells"
BATCHES, BATCH = 8, 5
NUMBERS = list(range(BATCHES * BATCH))


def action(sender: str, to: str, number: int) -> Json:
    body = {"class": "action", "method": "do", "params": {"number": number}}
    return a_message("execute", sender, f"{to}/one/actions/do", body, id_=f"{to}-{number}")


def done(request: Json) -> Json:
    return a_message("response", request["to"], request["from"], {"code": 200}, id_=request["id"])


class Lamps:
    """An agent behind the broker, as the documentation wants it: it knows what it has done, and comes back itself.

    What it says while the node is away from a broker that forgets comes to nobody, so it says it again until it has an
    answer.
    """

    def __init__(self, runtime: MqttRuntime, *, comes_back: bool) -> None:
        self.runtime = runtime
        self.did: list[int] = []
        self._known: set[str] = set()
        self._unanswered: dict[str, Json] = {}
        self._comes_back = comes_back
        self._connections = runtime.connections

    async def work(self) -> None:
        while True:
            message = None
            with trio.move_on_after(0.25):
                message = await self.runtime.next()
            if self._comes_back and self.runtime.connections != self._connections:
                self._connections = self.runtime.connections
                address = f"{self.runtime.address}/{self.runtime.token}"
                self._unanswered["back"] = a_message("re-open", address, SESSION, id_="back")
            if message is None:
                await self.runtime.say(*self._unanswered.values())
            elif message["type"] == "execute":
                await self._do(message)
            elif message["type"] == "response":
                self._unanswered.pop(message["id"], None)

    async def _do(self, request: Json) -> None:
        request_id = request["body"]["requestId"]
        if request_id not in self._known:
            self._known.add(request_id)
            self.did.append(request["body"]["params"]["number"])
        await self.runtime.say(done(request))

    async def ring(self) -> None:
        """Send actions the other way; each waits for the broker's word."""
        for number in NUMBERS:
            request = action(self.runtime.address, BELLS, number)
            self._unanswered[request["id"]] = request
            await self.runtime.say(request)


class Bob:
    """A runtime at a WebSocket: sends actions to the lamps, hears what becomes of them, and is an agent itself."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.rang: list[int] = []
        self.finals: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self._ids: dict[str, str] = {}

    async def listen(self) -> None:
        while True:
            message = await self.runtime.next()
            body: dict[str, Any] = message["body"]
            if message["type"] == "execute":
                self.rang.append(body["params"]["number"])
                await self.runtime.say(done(message))
            elif "requestId" in body:
                self._ids.setdefault(body["requestId"], str(message["id"]))
                self.statuses[body["status"]] += 1
                if body["status"] not in ("pending", "delivered"):
                    self.finals[self._ids[body["requestId"]]] += 1


async def until_connected(binding: MqttBinding) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        await binding.client.wait_connected()


async def kill(broker: Broker, binding: MqttBinding) -> None:
    await broker.kill()
    with trio.fail_after(PATIENCE_SECONDS):
        while not binding.client.error:
            await trio.lowlevel.checkpoint()
    await broker.start()
    await until_connected(binding)


async def until_all_is_done(rig: RuntimeRig, bob: Bob) -> None:
    def is_done() -> bool:
        both = len(bob.finals) >= len(NUMBERS) and len(bob.rang) >= len(NUMBERS)
        return both and rig.counters["actions completed"] >= 2 * len(NUMBERS)  # the last answer is on its way before

    while not is_done():
        rig.bus.parked_actions.sweep(time.time())
        rig.bus.parked_actions.tick(time.time())
        await trio.lowlevel.checkpoint()


async def send_while_the_broker_dies(bob: Bob, broker: Broker, binding: MqttBinding) -> None:
    """All actions, in batches; after some of them the broker is killed."""
    for batch in range(BATCHES):
        numbers = NUMBERS[batch * BATCH : (batch + 1) * BATCH]
        await bob.runtime.say(*(action(bob.runtime.address, LAMPS, number) for number in numbers))
        if batch in (1, 3, 4):
            await kill(broker, binding)


@pytest.mark.long
@pytest.mark.parametrize("is_persistent", [True, False], ids=["remembers", "forgets"])
@pytest.mark.parametrize("is_version_5", [True, False], ids=["5", "3.1.1"])
async def test_a_broker_that_is_killed_amid_traffic_costs_no_action_and_none_is_done_twice(
    tmp_path: Path, is_version_5: bool, is_persistent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    needs_broker()
    caplog.set_level(logging.INFO, "msg_node.mqtt")
    (tmp_path / "broker").mkdir()
    broker = Broker(tmp_path / "broker", is_persistent=is_persistent)
    await broker.start()
    try:
        async with (
            runtime_rig(tmp_path) as rig,
            mqtt_binding(rig, broker, is_version_5=is_version_5) as binding,
            trio.open_nursery() as nursery,
        ):
            lamps, bob = await opened(rig, broker, is_version_5=is_version_5)
            nursery.start_soon(lamps.work)
            nursery.start_soon(bob.listen)
            nursery.start_soon(lamps.ring)
            with trio.fail_after(6 * PATIENCE_SECONDS):
                await send_while_the_broker_dies(bob, broker, binding)
                await until_all_is_done(rig, bob)
            assert sorted(lamps.did) == NUMBERS
            assert bob.finals == Counter({f"{LAMPS}-{number}": 1 for number in NUMBERS})
            assert sorted(bob.rang) == NUMBERS
            assert binding.client.error == ""
            assert rig.counters["actions completed"] == 2 * len(NUMBERS)
            nursery.cancel_scope.cancel()
    finally:
        await broker.aclose()
    assert caplog.text.count("the connection to the broker is lost") == 3
    assert caplog.text.count("connected to the broker") == 4


async def opened(rig: RuntimeRig, broker: Broker, *, is_version_5: bool) -> tuple[Lamps, Bob]:
    runtime = MqttRuntime(broker, "lamps", session_id="lamps-stay", token_in_body=not is_version_5)
    await runtime.ready()
    assert code_and_reason(await runtime.open()) == (200, "")
    assert (await runtime.subscribed(LAMPS))["body"]["code"] == 200
    bob = await rig.opened("bob")
    assert (await bob.subscribed(BELLS))["body"]["code"] == 200
    return Lamps(runtime, comes_back=not is_version_5), Bob(bob)


@pytest.mark.parametrize("is_version_5", [True, False], ids=["5", "3.1.1"])
async def test_a_runtime_that_does_not_come_back_to_its_broker_is_lost_and_what_waited_for_it_is_parked(
    tmp_path: Path, is_version_5: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_broker()
    monkeypatch.setattr(mqtt_presence, "MQTT_DOUBT_SECONDS", 0.5)
    (tmp_path / "broker").mkdir()
    broker = Broker(tmp_path / "broker", is_persistent=False)
    await broker.start()
    try:
        async with (
            runtime_rig(tmp_path) as rig,
            mqtt_binding(rig, broker, is_version_5=is_version_5) as binding,
        ):
            lamps, bob = await opened(rig, broker, is_version_5=is_version_5)
            await broker.kill()
            await lamps.runtime.leave()
            await bob.runtime.say(action(bob.runtime.address, LAMPS, 1))
            await broker.start()
            await until_connected(binding)
            reply = await bob.runtime.next()
            assert (*code_and_reason(reply), reply["body"]["status"]) == (202, "queued", "pending")
            assert binding.live_sessions == 0
            assert code_and_reason(await bob.runtime.ask("read", lamps.runtime.address)) == (503, "not-connected")
    finally:
        await broker.aclose()
