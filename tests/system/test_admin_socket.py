"""Operators ask a real node on this machine: what they see is so, and what is no request is refused."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from msg_node.admin.admin_socket import SOCKET_NAME, short_path
from msg_node.admin.core.operations import REQUEST_BYTES
from msg_node.kernel.credentials import digest_of
from protofly.errors import HostError
from tests.support.runtime_rig import PATIENCE_SECONDS
from tests.support.status_token import AS_OPERATOR
from trapezoid.admin_client import ask_node

from .one_node import SETTINGS, Process, serving

WAYS = f"""
[admin]
port = 0
insecure_plaintext = true
[[sessions.credential]]
token_sha256 = "{digest_of("secret")}"
runtime = "runtime://alpha.example/ops"
roles = ["operator"]
"""
"""The other two ways into the same service."""


async def ask(folder: Path, operation: str, **arguments: object) -> Any:
    return await trio.to_thread.run_sync(partial(ask_node, folder / "data", operation, arguments))


async def raw(folder: Path, data: bytes) -> bytes:
    """Send bytes; everything that comes back until the node closes, or one line."""

    def talk() -> bytes:
        with socket.socket(socket.AF_UNIX) as connection, short_path(folder / "data", SOCKET_NAME) as path:
            connection.settimeout(PATIENCE_SECONDS)
            connection.connect(path)
            try:
                connection.sendall(data)
                return connection.makefile("rb").readline()
            except (ConnectionResetError, BrokenPipeError):
                return b""

    return await trio.to_thread.run_sync(talk)


async def same_on_every_way(node: Process, folder: Path) -> None:
    """One change, seen and made on another way each time."""
    ban = {"runtime": "runtime://alpha.example/eve", "ban": "1h"}
    await ask(folder, "kick", **ban)
    ops = await node.runtime()
    assert (await ops.open("ops", {"credentials": {"kind": "bearer", "token": "secret"}}))["body"]["code"] == 200
    admin = "domain://msg-node.alpha.example/admin"
    page = (await ops.ask("read", admin, {"operation": "restrictions"}))["body"]["value"]
    assert (page["total"], page["rows"][0]["subject"]) == (1, ban["runtime"])
    unban = {"operation": "unban", "arguments": {"runtime": ban["runtime"]}}
    token = await trio.Path(folder / "data" / "admin-token").read_text()
    headers = {"Authorization": f"Bearer {token.strip()}"}
    async with httpx.AsyncClient(trust_env=False, headers=headers) as client:
        for place, expected in ((f"{node.ready['site']}/api", 404), (f"{node.ready['admin']}/api", 200)):
            assert (await client.post(place, json=unban)).status_code == expected
    assert (await ops.ask("read", admin, {"operation": "restrictions"}))["body"]["value"]["total"] == 0
    config = trio.Path(folder / "node.toml")
    await config.write_text((await config.read_text()).replace(digest_of("secret"), digest_of("newer")))
    done = await ask(folder, "reload")
    assert (done["after"]["sessions_that_end"], digest_of("newer") in str(done)) == (1, False)
    assert await ops.close_code() == 4403


@pytest.mark.long
async def test_operators_see_sessions_and_what_they_hold_and_strangers_get_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, SETTINGS.format(grace=120) + WAYS) as node:
        ana = await node.opened("ana")
        address = await ana.allocated()
        await ana.subscribed("comm://alpha.example/news")
        page = await ask(tmp_path, "sessions", where="state=live")
        [session] = page["rows"]
        assert (page["total"], page["next"]) == (1, None)
        assert (session["runtime"], session["dialect"]) == (ana.address, "session-messages")
        owned = (await ask(tmp_path, "addresses"))["rows"]
        assert session["addresses"] == len(owned)
        assert (address, ana.address) in {(one["address"], one["runtime"]) for one in owned}
        [subscription] = (await ask(tmp_path, "subscriptions"))["rows"]
        assert (subscription["address"], subscription["listener"]) == ("comm://alpha.example/news", ana.address)
        assert (await ask(tmp_path, "status"))["domain"] == "alpha.example"
        assert any("guests run" in line["message"] for line in (await ask(tmp_path, "log", level="info"))["rows"])
        with pytest.raises(HostError, match="there is no operation"):
            await ask(tmp_path, "drop tables")

        async with httpx.AsyncClient(trust_env=False) as client:
            url = f"{node.ready['site']}/metrics"
            assert (await client.get(url)).status_code == 403
            page = (await client.get(url, headers=AS_OPERATOR)).text
            assert 'trapezoid_sessions{state="live"} 1\n' in page
            assert "trapezoid_frames_in_total" in page

        path = tmp_path / "data" / SOCKET_NAME
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        for nonsense in (b"\n", b"{}\n", b"[" * 50_000 + b"\n", b"\xff\xfe\n", b'{"operation": "status", "more": 1}\n'):
            assert json.loads(await raw(tmp_path, nonsense))["error"]["code"] == "bad-body"
        assert await raw(tmp_path, b"x" * (REQUEST_BYTES + 1)) == b""

        command = [sys.executable, "-m", "trapezoid", "node", "sessions", "--config", str(tmp_path / "node.toml")]
        done = await trio.run_process([*command, "--json"], capture_stdout=True)
        assert json.loads(done.stdout)["rows"][0]["runtime"] == ana.address
        await same_on_every_way(node, tmp_path)
    assert not await trio.Path(path).exists()
    done = await trio.run_process(command, check=False, capture_stderr=True, stdout=subprocess.DEVNULL)
    assert (done.returncode, b"no node runs on" in done.stderr) == (2, True)
