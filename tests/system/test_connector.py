"""A node whose discovery service is a sandboxed connector: `examples/stubs/people_search`, in C and in JavaScript."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from sandbox.core.script_package import Script
from stubkit.adapt import packaged
from tests.examples_stubs.guest import STUBS
from tests.support.rest_server import Asked, Said, rest_server
from trapezoid.admin_client import ask_node

from .one_node import SETTINGS, serving

CONNECTOR = """
[[connector]]
service = "discovery"
stub = "{stub}"
endpoint = "http://127.0.0.1:{port}/directory"
allow_addresses = ["127.0.0.0/8"]
insecure_plaintext = true
"""
ADDRESS = "domain://discovery.alpha.example"


def directory(asked: Asked) -> Said:
    pages = {
        "/directory/people/ana": Said(200, b'{"name":"Ana","rooms":[1,2]}'),
        "/directory/broken": Said(200, b"<html>"),
    }
    return pages.get(asked.target, Said(404, b"none", "text/plain"))


def module_of(suffix: str, folder: Path) -> Path:
    source = (STUBS / "people_search" / "people_search").with_suffix(suffix)
    if suffix == ".wasm":
        return source
    script = Script(text=source.read_bytes(), file=source.name, name=source.stem, http=["mn"], kind="connector")
    module = folder / "people_search.wasm"
    module.write_bytes(packaged(script))
    return module


@pytest.mark.parametrize("suffix", [".wasm", pytest.param(".js", marks=pytest.mark.long)])
async def test_runtime_asks_the_service_and_gets_what_the_connector_found(suffix: str, tmp_path: Path) -> None:
    stub = module_of(suffix, tmp_path)
    async with rest_server(directory) as server:
        settings = SETTINGS.format(grace=30) + CONNECTOR.format(stub=stub, port=server.port)
        async with serving(tmp_path, settings) as process:
            runtime = await process.opened("anna")
            found = []
            for type_, resource in [
                ("read", "/people/ana"),
                ("read", "/people/bob"),
                ("read", "/broken"),
                ("read", "/x?y=1"),
                ("delete", "/people/ana"),
            ]:
                reply = await runtime.ask(type_, ADDRESS, {"resource": resource})
                assert reply["from"] == ADDRESS
                found.append((reply["body"]["code"], reply["body"].get("value")))
            codes = [(404, None), (502, None), (400, None), (405, None)]
            assert found == [(200, {"name": "Ana", "rooms": [1, 2]}), *codes]
            status = await process.status()
            facts = status["backends"]["connectors"]["discovery.alpha.example"]
            assert (facts["state"], facts["answered"], facts["dropped"]) == ("live", 5, 0)
            assert any("connector discovery" in text for text in status["insecure"])

            module = facts["stub"].split()[-1]
            forbid = partial(ask_node, tmp_path / "data", "stub forbid", {"module": module})
            await trio.to_thread.run_sync(forbid)
            body = (await runtime.ask("read", ADDRESS, {"resource": "/people/ana"}))["body"]
            assert (body["code"], body["reason"]) == (502, "stub-forbidden")


async def test_connector_comes_changes_and_goes_with_a_reload_while_its_runtime_stays_connected(tmp_path: Path) -> None:
    stub = module_of(".wasm", tmp_path)

    async def reload(text: str) -> list[str]:
        (tmp_path / "node.toml").write_text(text)
        done = await trio.to_thread.run_sync(partial(ask_node, tmp_path / "data", "reload", {}))
        assert isinstance(done, dict)
        return [one["name"] for one in done["after"]["changes"]]

    def others(_: Asked) -> Said:
        return Said(200, b'{"name":"another directory"}')

    async with rest_server(directory) as server, rest_server(others) as other:
        settings = SETTINGS.format(grace=30)
        with_one, with_other = (settings + CONNECTOR.format(stub=stub, port=one.port) for one in (server, other))
        async with serving(tmp_path, settings) as process:
            runtime = await process.opened("anna")

            async def ask() -> tuple[int, object]:
                body = (await runtime.ask("read", ADDRESS, {"resource": "/people/ana"}))["body"]
                return body["code"], body.get("value")

            without, _ = await ask()
            assert without >= 400
            assert await reload(with_one) == ["connector"]
            assert await ask() == (200, {"name": "Ana", "rooms": [1, 2]})
            assert await reload(with_other) == ["connector"]
            assert await ask() == (200, {"name": "another directory"})
            assert await reload(settings) == ["connector"]
            assert (await ask())[0] == without
            assert "connectors" not in (await process.status()).get("backends", {})
