"""A real Mosquitto on loopback, with the configuration of a test; and a runtime that speaks through it.

Where there is no broker, its tests are skipped with the command that would install it; with TRAPEZOID_REQUIRE_BROKER in
the environment they fail instead.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from paho.mqtt.client import Client, MQTTMessage, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from interop.free_ports import free_ports
from msg_node.connectors.mqtt import MqttBinding, MqttOptions
from msg_node.connectors.mqtt_client import BrokerOptions
from tests.support.runtime_rig import (
    DOMAIN,
    NODE,
    PATIENCE_SECONDS,
    SESSION,
    SM,
    Json,
    RuntimeRig,
    a_message,
    runtime_address,
)

INSTALL = "apt-get install -y mosquitto"
PREFIX = "trapezoid"


def _program() -> str:
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin") or ""


def needs_broker() -> None:
    """Skip (or, where it is required, fail) a test that cannot have a broker."""
    if _program():
        return
    if os.environ.get("TRAPEZOID_REQUIRE_BROKER"):
        pytest.fail(f"no mosquitto here: {INSTALL}")
    pytest.skip(f"no mosquitto here: {INSTALL}")


class Broker:
    """One broker process after the other on the same port, with the same memory."""

    def __init__(self, folder: Path, authority: trustme.CA | None = None, *, is_persistent: bool = True) -> None:
        self.port, self.tls_port = free_ports(2)
        self.runtimes: list[MqttRuntime] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = folder / "mosquitto.conf"
        self._settings.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence {str(is_persistent).lower()}\n"
            f"persistence_location {folder}/\nautosave_interval 1\nautosave_on_changes true\nuser root\n"
            "max_queued_messages 0\nlog_type none\n" + ("" if authority is None else self._tls(folder, authority))
        )

    def _tls(self, folder: Path, authority: trustme.CA) -> str:
        certificate = authority.issue_cert("localhost", key_type=trustme.KeyType.ECDSA)
        certificate.cert_chain_pems[0].write_to_path(folder / "broker.pem")
        certificate.private_key_pem.write_to_path(folder / "broker.key")
        return f"listener {self.tls_port} 127.0.0.1\ncertfile {folder}/broker.pem\nkeyfile {folder}/broker.key\n"

    async def start(self) -> None:
        """Start it and wait until it listens."""
        command = [_program(), "-c", str(self._settings)]
        self._process = await trio.to_thread.run_sync(lambda: subprocess.Popen(command, stderr=subprocess.DEVNULL))
        with trio.fail_after(PATIENCE_SECONDS):
            while True:
                assert self._process.poll() is None, "the broker has ended"
                try:
                    stream = await trio.open_tcp_stream("127.0.0.1", self.port)
                except OSError:  # it does not listen yet
                    await trio.lowlevel.checkpoint()
                    continue
                await stream.aclose()
                return

    async def stop(self) -> None:
        """Ask it to end, as an operator does, and wait until it has."""
        if self._process is not None:
            self._process.terminate()
            await trio.to_thread.run_sync(self._process.wait)
            self._process = None

    async def kill(self) -> None:
        """`kill -9`: it says nothing to anybody, and what it has not written is gone."""
        assert self._process is not None
        self._process.kill()
        await trio.to_thread.run_sync(self._process.wait)
        self._process = None

    async def aclose(self) -> None:
        """End everything: a thread of Paho's that outlives its test may keep the interpreter from ending."""
        with trio.CancelScope(shield=True):
            for runtime in self.runtimes:
                await runtime.leave()
            await self.stop()


class MqttRuntime:
    """A runtime behind the broker, of either version; Paho's client with a thread of its own."""

    def __init__(
        self,
        broker: Broker,
        name: str,
        *,
        is_version_5: bool = True,
        session_id: str = "",
        token_in_body: bool = False,
    ) -> None:
        self.address = runtime_address(name)
        self.token = ""
        self._token_in_body = token_in_body or not is_version_5
        self.topic = f"{PREFIX}/{DOMAIN}/{name}"
        self._inbox: deque[bytes] = deque()
        self._arrived = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._is_subscribed = trio.Event()
        self.connections = 0
        self._numbers = count(1)
        self._client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=session_id or name,
            protocol=MQTTv5 if is_version_5 else MQTTv311,
            clean_session=None if is_version_5 else not session_id,
        )
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._client.on_subscribe = self._on_subscribe
        self._client.reconnect_delay_set(1, 1)
        self._client.will_set(f"{self.topic}/gone", b"", qos=1)
        more: dict[str, Any] = {}
        if is_version_5 and session_id:
            more["properties"] = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            more["properties"].SessionExpiryInterval = 600
            more["clean_start"] = False
        broker.runtimes.append(self)
        self._client.connect("127.0.0.1", broker.port, keepalive=5, **more)
        self._client.loop_start()

    def _on_connect(self, client: Client, *_: Any) -> None:
        client.subscribe(f"{self.topic}/down", qos=1)

    def _on_subscribe(self, *_: Any) -> None:
        self._token.run_sync_soon(self._listens)

    def _listens(self) -> None:
        self.connections += 1
        self._is_subscribed.set()

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        self._token.run_sync_soon(self._take, bytes(message.payload))

    def _take(self, payload: bytes) -> None:
        if payload:
            self._inbox.append(payload)
            self._arrived.set()

    async def ready(self) -> None:
        """Wait until the broker knows what this runtime listens to."""
        with trio.fail_after(PATIENCE_SECONDS):
            await self._is_subscribed.wait()

    async def publish(self, payload: bytes, *, topic: str = "", token: str | None = None, retain: bool = False) -> None:
        """Publish, and wait until the broker has acknowledged it."""
        properties = None
        token = self.token if token is None else token
        if token and not self._token_in_body:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.UserProperty = [("token", token)]
        info = self._client.publish(topic or f"{self.topic}/up", payload, qos=1, retain=retain, properties=properties)
        if info.rc == MQTTErrorCode.MQTT_ERR_NO_CONN:  # it is kept, and goes when the broker is back
            info.rc = MQTTErrorCode.MQTT_ERR_SUCCESS
        with trio.fail_after(PATIENCE_SECONDS):
            await trio.to_thread.run_sync(info.wait_for_publish, PATIENCE_SECONDS)

    async def say(self, *messages: Json) -> None:
        for message in messages:
            if self._token_in_body and self.token:
                message = {**message, "body": {**message.get("body", {}), "sessionToken": self.token}}
            await self.publish(json.dumps(message).encode())

    async def next(self) -> Json:
        """The next message of the node."""
        with trio.fail_after(PATIENCE_SECONDS):
            while not self._inbox:
                self._arrived = trio.Event()
                await self._arrived.wait()
        message: Json = json.loads(self._inbox.popleft())
        return message

    async def ask(self, type_: str, to: str, body: Mapping[str, object] | None = None, *, from_: str = "") -> Json:
        """Send a request and wait for its reply; what comes before it is lost."""
        id_ = f"q{next(self._numbers)}"
        await self.say(a_message(type_, from_ or self.address, to, body, id_=id_))
        while (message := await self.next()).get("id") != id_:
            pass
        return message

    async def open(self, body: Mapping[str, object] | None = None) -> Json:
        reply = await self.ask("open", SESSION, body)
        self.token = reply["body"].get("runtimeToken", "")
        return reply

    async def subscribed(self, *addresses: str) -> Json:
        return await self.ask("subscribe", SM, {"resources": list(addresses), "source": self.address})

    async def vanish(self) -> None:
        """End the connection without a word: the broker publishes the will."""
        await trio.to_thread.run_sync(self._client.loop_stop)
        self._hang_up()

    async def leave(self) -> None:
        """Say goodbye to the broker, which then publishes no will."""
        self._client.disconnect()
        await trio.to_thread.run_sync(self._client.loop_stop)
        self._hang_up()

    def _hang_up(self) -> None:
        sock: Any = self._client.socket()
        if sock is not None:
            sock.close()


MakeRuntime = Callable[..., MqttRuntime]


@asynccontextmanager
async def mqtt_binding(
    rig: RuntimeRig,
    broker: Broker,
    *,
    is_version_5: bool = True,
    needs_token: bool = True,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[MqttBinding]:
    """The node's end, connected."""
    assert rig.listener is not None
    host, port = ("127.0.0.1", broker.port) if tls is None else ("localhost", broker.tls_port)
    at = BrokerOptions(host, port, "mn-1.alpha.example", tls=tls, is_version_5=is_version_5)
    options = MqttOptions(at, PREFIX, needs_token)
    binding = MqttBinding(rig.listener.reception, options, node=NODE, domains=[DOMAIN])
    async with trio.open_nursery() as nursery:
        await nursery.start(binding.run)
        with trio.fail_after(PATIENCE_SECONDS):
            await binding.client.wait_connected()
        yield binding
        nursery.cancel_scope.cancel()
