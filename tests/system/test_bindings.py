"""One real node process with every binding: what it says about itself, and a runtime that moves between them."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import httpx
import pytest
import trio

from tests.support.mqtt_broker import Broker, MqttRuntime, needs_broker
from tests.support.status_members import unlisted
from tests.support.status_token import AS_OPERATOR, STATUS_TOKEN_SHA256

pytestmark = pytest.mark.long

LIMIT_SECONDS = 60.0
ANA = "runtime://alpha.example/ana"
SETTINGS = """
[node]
domain = "alpha.example"
data_dir = "data"
[listen]
port = 0
insecure_plaintext = true
[site]
port = 0
insecure_plaintext = true
requests_per_second = 10000
status_token_sha256 = "{token_sha256}"
[mqtt]
host = "127.0.0.1"
port = {port}
insecure_plaintext = true
[middleware]
order = ["rate", "logging"]
[middleware.rate]
messages_per_second = 1000.0
[middleware.logging]
every = 1
"""


@asynccontextmanager
async def a_node(folder: Path, broker: Broker) -> AsyncIterator[dict[str, Any]]:
    """What the node says when it is ready."""
    (folder / "node.toml").write_text(SETTINGS.format(port=broker.port, token_sha256=STATUS_TOKEN_SHA256))
    command = [sys.executable, "-m", "trapezoid", "serve", "--config", str(folder / "node.toml")]
    with trio.fail_after(LIMIT_SECONDS):
        process = await trio.lowlevel.open_process(command, stdout=PIPE, stderr=DEVNULL)
        assert process.stdout is not None
        try:
            line = b""
            while b"\n" not in line:
                data = await process.stdout.receive_some()
                assert data, "the node has ended"
                line += data
            yield json.loads(line.partition(b" ")[2].splitlines()[0])
        finally:
            with trio.CancelScope(shield=True):
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
                await process.stdout.aclose()


def a_client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers=AS_OPERATOR)


async def until_ready(site: httpx.AsyncClient, *, problem: str) -> None:
    """Until the node has no problem but this one ("": none)."""
    while True:
        problems = (await site.get("/readyz")).json()["problems"]
        if [one.partition(":")[0] for one in problems] == ([problem] if problem else []):
            return


def message(type_: str, to: str, from_: str = ANA, **body: object) -> dict[str, object]:
    return {"id": 1, "type": type_, "from": from_, "to": to, "body": body}


async def test_a_session_moves_from_https_to_mqtt_on_a_real_node_that_informs_its_operator(tmp_path: Path) -> None:
    needs_broker()
    (tmp_path / "broker").mkdir()
    broker = Broker(tmp_path / "broker")
    await broker.start()
    try:
        async with a_node(tmp_path, broker) as ready:
            url = ready["listen"].replace("ws://", "http://").removesuffix("/ws")
            async with httpx.AsyncClient(base_url=url) as http, a_client(ready["site"]) as site:
                await until_ready(site, problem="")
                opened = (await http.post("/messages", json=message("open", "mn:/session"))).json()
                token = opened["body"]["runtimeToken"]
                http.headers["Authorization"] = f"Bearer {token}"
                answer = await http.post("/messages", json=message("read", "domain://msg-node.alpha.example"))
                assert answer.json()["body"]["value"]["domain"] == "alpha.example"
                status = (await site.get("/status")).json()
                assert unlisted(status) == []
                assert status["middleware"] == ["rate", "logging"]
                assert "mqtt.insecure_plaintext: no TLS to the broker" in status["insecure"]

                ana = MqttRuntime(broker, "ana")
                await ana.ready()
                reply = await ana.ask("re-open", "mn:/session", from_=f"{ANA}/{token}")
                assert reply["body"]["code"] == 200
                ana.token = token
                assert (await ana.ask("read", "domain://msg-node.alpha.example"))["body"]["code"] == 200
                assert (await http.get("/messages?wait=0")).json()["detail"] == "this session has ended: taken-over"

                await broker.stop()
                await until_ready(site, problem="mqtt")
                await broker.start()
                await until_ready(site, problem="")
    finally:
        await broker.aclose()
