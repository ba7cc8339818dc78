"""A node as operators start it, with settings that name a domain registry, a QoS broker and a catalogue of its own."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio

from interop.processes import Child
from tests.peers.domain_registry import DomainRegistryPeer
from tests.peers.qos_broker import QosBrokerPeer
from tests.support.registry_entries import DOMAIN, HYPERTY, USER, hyperty
from tests.support.rest_server import Asked, RestServer, Said, rest_server
from tests.support.runtime_rig import SM, Runtime, Wire, code_and_reason
from tests.support.status_members import unlisted
from tests.support.status_token import AS_OPERATOR, STATUS_TOKEN_SHA256
from wire.core.websocket import ClientWebSocket

REGISTRY = f"domain://registry.{DOMAIN}"
QOS = f"domain://qos.{DOMAIN}"
WANTED = {"cspId": "prov-alpha", "clientName": "ana", "video": 500, "ttl": 600}
CATALOGUE_ENTRY = f"hyperty-catalogue://catalogue.{DOMAIN}/.well-known/hyperty/Chat"


def catalogue(asked: Asked) -> Said:
    return Said(200, b'{"objectName":"Chat"}') if asked.parts[-1] == "Chat" else Said(404)


class Node:
    """The process, and where it is."""

    def __init__(self, folder: Path, text: str) -> None:
        self._folder = folder
        self._settings = folder / "node.toml"
        self._settings.write_text(text, encoding="utf-8")
        self._child = Child([], log_file=folder / "node.log")
        self._ready: dict[str, object] = {}
        self._wires: list[Wire] = []

    async def start(self) -> None:
        arguments = ["trapezoid", "serve", "--config", str(self._settings)]
        self._child = Child(arguments, log_file=self._folder / "node.log")
        await self._child.start()
        self._ready = await self._child.wait_ready()

    async def stop(self) -> None:
        await self._child.stop()
        for wire in self._wires:
            await wire.cut()

    async def kill(self) -> None:
        os.kill(self._child.pid, signal.SIGKILL)
        await self._child.stop()

    async def opened(self, name: str) -> Runtime:
        host, _, port = str(self._ready["listen"]).removeprefix("ws://").removesuffix("/ws").rpartition(":")
        wire = Wire(await trio.open_tcp_stream(host, int(port)))
        self._wires.append(wire)
        runtime = Runtime(wire, ClientWebSocket("ws://localhost/ws", is_binary=False, headers={}, max_bytes=8 << 20))
        await runtime.shake_hands()
        reply = await runtime.open(name)
        assert reply["body"]["code"] == 200, reply
        return runtime

    async def status(self) -> dict[str, dict[str, dict[str, object]]]:
        async with httpx.AsyncClient(trust_env=False, headers=AS_OPERATOR) as client:
            answer = await client.get(f"{self._ready['site']}/status")
            found: dict[str, dict[str, dict[str, object]]] = answer.json()
            assert unlisted(found) == []
            return found


@asynccontextmanager
async def running(folder: Path, registry: DomainRegistryPeer) -> AsyncIterator[tuple[Node, RestServer]]:
    async with (
        rest_server(registry) as registry_server,
        rest_server(QosBrokerPeer()) as broker,
        rest_server(catalogue) as own,
    ):
        node = Node(
            folder,
            f"""
            [node]
            domain = "{DOMAIN}"
            data_dir = {json.dumps(str(folder / "data"))}
            [listen]
            port = 0
            insecure_plaintext = true
            [site]
            port = 0
            insecure_plaintext = true
            status_token_sha256 = "{STATUS_TOKEN_SHA256}"
            [registry]
            url = "{registry_server.url}"
            insecure_plaintext = true
            poll_seconds = 0.05
            cache_seconds = 0
            attempt_seconds = 2.0
            [qos]
            url = "{broker.url}"
            insecure_plaintext = true
            [catalogue.own]
            url = "{own.url}"
            insecure_plaintext = true
            """,
        )
        await node.start()
        try:
            yield node, registry_server
        finally:
            with trio.CancelScope(shield=True):  # bounded: stopping has its own deadline
                await node.stop()


@pytest.mark.long
async def test_a_node_with_services_elsewhere_serves_them_and_outlives_their_absence_and_its_own(
    tmp_path: Path,
) -> None:
    peer = DomainRegistryPeer(time.time)
    async with running(tmp_path, peer) as (node, server):
        ana, bo = await node.opened("rt-ana"), await node.opened("rt-bo")
        assert (await ana.ask("create", REGISTRY, {"value": hyperty()}))["body"]["code"] == 200
        assert list((await bo.ask("read", REGISTRY, {"resource": USER}))["body"]["value"]) == [HYPERTY]
        reserved = await ana.ask("create", QOS, {"resource": "/reservations", "value": WANTED})
        assert reserved["body"]["code"] == 200
        assert (await bo.ask("read", CATALOGUE_ENTRY))["body"]["value"] == {"objectName": "Chat"}

        # News that nobody here has caused reach who listens.
        await bo.subscribed(f"{HYPERTY}/registration", to=SM)
        peer._update(peer.hyperties[HYPERTY], {"status": "disconnected"})
        assert (await bo.next())["body"]["value"] == "disconnected"

        # The registry is away: clear words, and the node is well.
        async def silence(stream: trio.abc.Stream) -> None:
            await stream.receive_some()

        server.always = silence
        codes = {code_and_reason(await bo.ask("read", REGISTRY, {"resource": USER})) for _ in range(4)}
        assert codes <= {(504, "timeout"), (503, "circuit-open")}
        assert (await bo.ask("read", QOS, {"resource": "/providers"}))["body"]["code"] == 200
        backends = (await node.status())["backends"]
        assert backends["registry"]["circuit"] in ("open", "trial")
        assert backends["qos"]["circuit"] == "closed"
        server.always = None

        # What the node has promised is there after `kill -9`; the registry is the truth about entries.
        await node.kill()
        await node.start()
        ana = await node.opened("rt-ana")
        assert (await ana.ask("update", REGISTRY, {"resource": HYPERTY}))["body"]["code"] == 200
        assert peer.hyperties[HYPERTY]["status"] == "live"
        over = await ana.ask("create", QOS, {"resource": "/reservations", "value": {**WANTED, "video": 501}})
        assert code_and_reason(over) == (429, "quota")
