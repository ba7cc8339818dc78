"""An operator reads which stubs a real node hosts: one that is live, and one that was refused."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

import trio

from tests.support.runtime_rig import SESSION, Runtime, Wire, code_and_reason
from wire.core.websocket import ClientWebSocket

from .foreign import WELL_KNOWN, ForeignDomain
from .frontier import DOMAIN, Frontier, running_frontier

TOKEN = "operators-token"
OPERATOR = f"""
[[sessions.credential]]
runtime = "runtime://{DOMAIN}/ops"
token_sha256 = "{hashlib.sha256(TOKEN.encode()).hexdigest()}"
roles = ["operator"]
"""
STUBS = f"domain://msg-node.{DOMAIN}/stubs"


async def operator(frontier: Frontier) -> Runtime:
    host, _, port = frontier.node.listen_url.split("/")[2].partition(":")
    context = frontier.authority.client_context()
    stream = trio.SSLStream(await trio.open_tcp_stream(host, int(port)), context, server_hostname=host)
    runtime = Runtime(Wire(stream), ClientWebSocket(frontier.node.listen_url, is_binary=False))
    await runtime.shake_hands()
    runtime.address = f"runtime://{DOMAIN}/ops"
    reply = await runtime.ask("open", SESSION, {"credentials": {"kind": "bearer", "token": TOKEN}})
    assert code_and_reason(reply) == (200, "")
    return runtime


async def lines(runtime: Runtime) -> dict[str, dict[str, Any]]:
    reply = await runtime.ask("read", STUBS)
    assert code_and_reason(reply) == (200, "")
    return {line.pop("domain").partition(".")[0]: line for line in reply["body"]["value"]}


def spoil(foreign: ForeignDomain) -> None:
    foreign.files[WELL_KNOWN] = b"{}"


async def test_an_operator_reads_the_stubs_that_a_node_hosts_and_nobody_else_does(tmp_path: Path) -> None:
    async with running_frontier(tmp_path, "refused", "unused") as frontier:
        settings = frontier.node.folder.settings
        await frontier.node.stop()
        settings.write_text(settings.read_text() + OPERATOR)
        await frontier.start()
        ops = await operator(frontier)
        reply = await ops.subscribed(f"runtime://{DOMAIN}/mn-1/status", to=f"domain://msg-node.{DOMAIN}/sm")
        assert code_and_reason(reply) == (200, "")
        refused, _ = await frontier.add("refused"), await frontier.add("unused")
        spoil(refused)
        assert (await frontier.ask(frontier.good)).is_ok
        assert (await frontier.ask(refused)).code == 502
        events = [(one["from"], one["body"]["resource"], one["body"]["value"]) for one in await ops.heard()]
        found = await lines(ops)
        assert set(found) == {"good", "refused"}
        assert re.fullmatch(r"sha256-[0-9a-f]{64}", found["good"].pop("package"))
        moments = [found[name].pop("since") for name in found]
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", moment) for moment in moments)
        urls = {found[name].pop("url") for name in found}
        assert all(re.fullmatch(rf"runtime://{DOMAIN}/mn-1/protostub/[0-9a-f]+", url) for url in urls)
        assert len(urls) == 2
        assert {from_ for from_, _, _ in events} == {f"runtime://{DOMAIN}/mn-1/registry"}
        assert {url for _, url, _ in events} == urls
        good = events[0][1]
        states = [value for _, url, value in events if url == good]
        assert (states[:2], states[-2:]) == (["deploying", "deployed"], ["in-progress", "live"])
        assert [value for _, url, value in events if url != good] == ["deploying", "verify-failed"]
        assert found["good"] == {"version": "1.1.0", "signature": "valid", "state": "live"}
        assert found["refused"].pop("desc")
        assert found["refused"] == {"package": "", "version": "", "signature": "unverified", "state": "verify-failed"}
        answer = await frontier.anna.client.request("read", frontier.anna.client.runtime, STUBS, {})
        assert (answer.code, answer.reason) == (403, "policy")
        await ops.wire.cut()


async def test_a_stub_has_its_address_again_after_a_restart_and_another_one_at_another_node(tmp_path: Path) -> None:
    async with running_frontier(tmp_path) as frontier:
        folder, found = frontier.node.folder, []
        await frontier.node.stop()
        folder.settings.write_text(folder.settings.read_text() + OPERATOR)
        for is_other_node in (False, False, True):
            if is_other_node:  # of the same name and domain, with a folder of its own
                shutil.rmtree(folder.data)
                frontier.anna.client.token = ""
            await frontier.start()
            assert (await frontier.ask(frontier.good)).is_ok
            ops = await operator(frontier)
            found.append((await lines(ops))["good"]["url"])
            await ops.wire.cut()
            await frontier.node.stop()
        first, restarted, other = found
        assert first == restarted
        assert not other.startswith(first)
        assert not first.startswith(other)
