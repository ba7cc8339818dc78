"""One node with many partners of its operator's choice that are bad in different ways: each costs itself alone."""

from __future__ import annotations

from pathlib import Path

import httpx
import msgspec
import trio

from interop.foreign.nomatrix import NomatrixNode
from interop.foreign.vertx import VertxNode
from tests.support.status_token import AS_OPERATOR

from .dialects import bruno_of
from .frontier import LinkFacts
from .one_node import serving
from .peer_stubs import THEIRS, peer_settings, talker_of

ENTRY = """
[[peer]]
domain = "{name}.example"
stub = "vertx_peer"
endpoint = "ws://127.0.0.1:{port}/ws"
class = "plain"
allow_addresses = ["127.0.0.0/8"]
insecure_plaintext = true
"""
IMPATIENT = "[limits]\nwaiting_seconds = 2.0\n"


async def noise(stream: trio.SocketStream) -> None:
    """Accepts, and says what no node says."""
    async with stream:
        await stream.send_all(b"HTTP/1.1 200 Fine\r\n\r\n" + b"\x00\xff" * 50_000)
        await stream.receive_some()


async def silence(stream: trio.SocketStream) -> None:
    """Accepts, and says nothing."""
    async with stream:
        while await stream.receive_some():
            pass


class _Status(msgspec.Struct, frozen=True):
    links: list[LinkFacts]


async def test_bad_partners_have_their_codes_and_the_good_one_is_asked_as_before(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    good, other = VertxNode(THEIRS), NomatrixNode("dialect.example")
    await nursery.start(good.run)
    await nursery.start(other.run)
    ports = {"dialect": other.port}
    for name, serve in (("noise", noise), ("silence", silence)):
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        ports[name] = listener.socket.getsockname()[1]
    entries = [ENTRY.format(name=name, port=port) for name, port in ports.items()]
    async with serving(tmp_path, peer_settings(good, "vertx_peer") + "".join(entries) + IMPATIENT) as process:
        anna = await talker_of(process, "anna", nursery)
        _, hyperty = await bruno_of(good)
        while (answer := await anna.ask(hyperty, 1)).reason == "deploy-timeout":
            pass  # a busy machine may need longer for a first contact than messages wait
        assert answer.is_ok
        found: dict[str, tuple[int, str]] = {}

        async def ask(name: str) -> None:
            answer = await anna.ask(f"hyperty://{name}.example/h")
            found[name] = answer.code, answer.reason

        async with trio.open_nursery() as asking:
            for name in ports:
                asking.start_soon(ask, name)
            for number in range(20):
                assert (await anna.ask(hyperty, number)).is_ok
        assert found == dict.fromkeys(("dialect", "noise", "silence"), (504, "deploy-timeout"))
        assert (await anna.ask(hyperty, 2)).is_ok
        async with httpx.AsyncClient(trust_env=False, headers=AS_OPERATOR) as client:
            status = msgspec.json.decode((await client.get(f"{process.ready['site']}/status")).content, type=_Status)
        assert {one.domain: one.stub_faults for one in status.links if one.stub_faults} == {}
        assert [one.state for one in status.links if one.domain == THEIRS] == ["live"]
    nursery.cancel_scope.cancel()
