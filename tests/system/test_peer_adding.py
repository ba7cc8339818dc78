"""`trapezoid peer add`: the entry is written, its stub connects to the node once, and a node then has the partner."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from interop.foreign.simulator import ForeignNode
from interop.foreign.vertx import VertxNode
from interop.free_ports import free_ports
from msg_node.settings.load import load_settings
from protofly.errors import HostError
from tests.examples_stubs.guest import STUBS
from trapezoid.admin_client import ask_node
from trapezoid.peer_check import Outcome, check_domain

from .dialects import DIALECTS, Dialect, bruno_of, each_dialect
from .one_node import SETTINGS, serving
from .peer_stubs import THEIRS, talker_of

ALLOW = ("--allow", "127.0.0.0/8")
OURS = SETTINGS.format(grace=30)


async def add(folder: Path, *words: str) -> tuple[int, Any]:
    """Run the command over settings in `folder`; its exit code, and what it says."""
    (folder / "node.toml").write_text(OURS)
    command = [
        sys.executable,
        "-m",
        "trapezoid",
        "peer",
        "add",
        *words,
        "--config",
        str(folder / "node.toml"),
        "--json",
    ]
    with trio.fail_after(60):
        done = await trio.run_process(command, capture_stdout=True, stderr=subprocess.DEVNULL, check=False)
    return done.returncode, json.loads(done.stdout)


def plain(node: ForeignNode, dialect: Dialect = DIALECTS[0]) -> tuple[str, ...]:
    """The options that lead to a simulator."""
    where = f"ws://127.0.0.1:{node.port}{node.path}"
    return (THEIRS, "--stub", dialect.stub, "--endpoint", where, *ALLOW, "--insecure-plaintext")


@each_dialect
async def test_domain_that_was_added_is_a_partner_at_the_next_start(
    tmp_path: Path, nursery: trio.Nursery, dialect: Dialect
) -> None:
    node = dialect.make(THEIRS)
    await nursery.start(node.run)
    code, said = await add(tmp_path, *plain(node, dialect))
    assert (code, said["live"].startswith("after")) == (0, True)
    assert "NO TLS" in said["warning"]
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0
    seen = node.connections
    assert seen == 1
    async with serving(tmp_path, OURS) as process:
        anna = await talker_of(process, "anna", nursery)
        _, hyperty = await bruno_of(node)
        assert (await anna.ask(hyperty, 7)).is_ok
    nursery.cancel_scope.cancel()


async def test_a_running_node_takes_up_and_drops_a_partner_with_a_chosen_stub_by_a_reload(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    node = VertxNode(THEIRS)
    await nursery.start(node.run)
    async with serving(tmp_path, OURS) as process:
        anna = await talker_of(process, "anna", nursery)
        _, hyperty = await bruno_of(node)
        assert (await anna.ask(hyperty, 7)).code == 403
        assert (await add(tmp_path, *plain(node)))[0] == 0
        reload = partial(ask_node, tmp_path / "data", "reload", {})
        await trio.to_thread.run_sync(reload)
        assert (await anna.ask(hyperty, 7)).is_ok
        entry = tmp_path / "conf.d" / f"peer-{THEIRS}.toml"
        right = entry.read_text()

        broken = tmp_path / "broken.wasm"
        broken.write_bytes(b"no module")
        entry.write_text(right.replace('"vertx_peer"', f'"{broken}"'))
        with pytest.raises(HostError, match=r"the stub of b\.example"):
            await trio.to_thread.run_sync(reload)
        assert (await anna.ask(hyperty, 7)).is_ok

        other = VertxNode(THEIRS)
        await nursery.start(other.run)
        entry.write_text(right.replace(f":{node.port}/", f":{other.port}/"))
        await trio.to_thread.run_sync(reload)
        _, elsewhere = await bruno_of(other)
        assert (await anna.ask(elsewhere, 7)).is_ok
        entry.unlink()
        await trio.to_thread.run_sync(reload)
        assert (await anna.ask(elsewhere, 7)).code == 403
    nursery.cancel_scope.cancel()


async def checked(folder: Path) -> dict[str, tuple[str, str]]:
    """Outcome and code of each step that `peer check --connect` tries."""
    report = await check_domain(load_settings(folder / "node.toml"), THEIRS, connects=True)
    tried = [one for one in report.results if one.outcome is not Outcome.SKIPPED]
    return {one.step: (one.outcome.value, one.code) for one in tried}


async def test_trial_and_check_leave_no_session_at_the_node(tmp_path: Path, nursery: trio.Nursery) -> None:
    node = VertxNode(THEIRS)
    await nursery.start(node.run)
    assert (await add(tmp_path, *plain(node)))[0] == 0
    steps = ("name", "policy", "addresses", "tcp", "module", "start", "endpoint", "authentication")
    passed = dict.fromkeys(steps, ("ok", "ok"))
    assert await checked(tmp_path) == passed | {"stub": ("warning", "insecure")}
    assert node.sessions == []
    nursery.cancel_scope.cancel()


async def test_check_names_what_is_wrong_with_a_chosen_stub(tmp_path: Path) -> None:
    module = tmp_path / "stub.wasm"
    module.write_bytes((STUBS / "vertx_peer" / "vertx_peer.wasm").read_bytes())
    where = f"wss://127.0.0.1:{free_ports(1)[0]}/ws"
    await add(tmp_path, THEIRS, "--stub", str(module), "--endpoint", where, *ALLOW, "--no-check")
    found = await checked(tmp_path)
    assert (found["tcp"], found["stub"]) == (("failed", "connect-failed"), ("ok", "ok"))
    assert not {"endpoint", "authentication"} & found.keys()
    entry = tmp_path / "conf.d" / f"peer-{THEIRS}.toml"
    right = entry.read_text()
    entry.write_text(f"{right}configuration = {{ runtime = 7 }}\n")
    assert (await checked(tmp_path))["stub"] == ("failed", "stub-configuration")
    entry.write_text(right)
    module.write_bytes((STUBS / "nodejs_peer" / "nodejs_peer.wasm").read_bytes())
    assert (await checked(tmp_path))["module"] == ("failed", "digest-not-approved")
    module.unlink()
    assert (await checked(tmp_path))["module"][0] == "failed"


async def nonsense(stream: trio.SocketStream) -> None:
    """Accepts, and says what no node says."""
    with_noise = b"\x00\xff" * 500
    async with stream:
        await stream.send_all(with_noise)
        await stream.receive_some()


async def silence(stream: trio.SocketStream) -> None:
    """Accepts, and says nothing."""
    async with stream:
        while await stream.receive_some():
            pass


@pytest.mark.parametrize("serve", [nonsense, silence])
async def test_entry_is_not_left_behind_where_the_far_end_is_no_such_node(
    tmp_path: Path, nursery: trio.Nursery, serve: Any
) -> None:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, serve, [listener])
    node = VertxNode(THEIRS)
    node.port = listener.socket.getsockname()[1]
    code, said = await add(tmp_path, *plain(node))
    assert code != 0
    assert "did not become live" in str(said["error"])
    assert list((tmp_path / "conf.d").glob("*")) == []
    assert not (tmp_path / "data" / "pinned_stubs" / THEIRS).exists()
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((THEIRS, "--stub", "vertx_peer", "--endpoint", "ws://b.example/ws"), "insecure_plaintext"),
        ((THEIRS, "--stub", "nobody", "--endpoint", "wss://b.example/ws"), "nobody"),
        ((THEIRS, "--stub", "vertx_peer", "--endpoint", "wss://b.example/ws", "--set", "colour=red"), "colour"),
        ((THEIRS, "--stub", "vertx_peer", "--endpoint", "wss://b.example/ws", "--set", "colour"), "NAME=VALUE"),
        (("../x", "--stub", "vertx_peer", "--endpoint", "wss://b.example/ws"), ""),
        (("alpha.example", "--stub", "vertx_peer", "--endpoint", "wss://b.example/ws"), "own domain"),
    ],
)
async def test_entry_that_cannot_be_is_refused_and_not_left_behind(
    tmp_path: Path, words: tuple[str, ...], complaint: str
) -> None:
    code, said = await add(tmp_path, *words, "--no-check")
    assert code != 0
    assert complaint in str(said["error"])
    assert list((tmp_path / "conf.d").glob("*")) == []


async def test_domain_is_added_once(tmp_path: Path) -> None:
    words = (THEIRS, "--stub", "vertx_peer", "--endpoint", "wss://b.example/ws", "--no-check")
    code, said = await add(tmp_path, *words, "--set", "runtime=runtime://b.example/gw")
    assert (code, said["live"]) == (0, "not tried")
    code, said = await add(tmp_path, *words)
    assert (code != 0, "entry for b.example already" in str(said["error"])) == (True, True)
    assert (tmp_path / "conf.d" / "peer-b.example.toml").exists()
