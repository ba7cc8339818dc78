"""Operators decide about modules at a running node: which one runs for no domain, which one they chose instead."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from typer.testing import CliRunner

from interop.foreign.vertx import VertxNode
from interop.lab.spool import read_records
from protofly.errors import Code, HostError
from protofly.records import AdminEvent
from tests.examples_stubs.guest import STUBS
from tests.support.guests import custom_section
from trapezoid.admin_client import ask_node
from trapezoid.commands import app

from .dialects import bruno_of
from .peer_stubs import THEIRS, peering
from .systems import running_system

B = "b.example"


async def ask(data_dir: Path, operation: str, *, dry_run: bool = False, **arguments: object) -> Any:
    return await trio.to_thread.run_sync(partial(ask_node, data_dir, operation, arguments, dry_run=dry_run))


async def test_a_forbidden_module_runs_for_no_domain_after_a_restart_either_until_it_is_allowed(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        anna, bruno = await system.talker(system.a, "anna"), await system.talker(system.b, "bruno")
        assert (await anna.ask(bruno.hyperty)).is_ok
        data = system.a.folder.data
        [stub] = (await ask(data, "stubs"))["rows"]
        module = stub["package"]
        tried = await ask(data, "stub forbid", module=module, dry_run=True)
        assert (tried["after"]["domains"], tried["before"]) == ([B], None)
        assert (await anna.ask(bruno.hyperty)).is_ok
        for arguments in ({}, {"module": module, "domain": B}, {"module": module.upper()}):
            with pytest.raises(HostError, check=lambda error: error.code is Code.BAD_BODY):
                await ask(data, "stub forbid", **arguments)

        await ask(data, "stub forbid", module=module, reason="advisory 7")
        [stub] = (await ask(data, "stubs"))["rows"]
        assert (stub["state"], stub["worker_pid"]) != ("live", stub["worker_pid"])
        refused = await anna.ask(bruno.hyperty)
        assert (refused.code, refused.reason) == (502, "stub-forbidden")
        assert "advisory 7" in str(refused.body["description"])

        await system.a.stop()
        await system.start(system.a)
        anna = await system.talker(system.a, "anna-2")
        assert (await anna.ask(bruno.hyperty)).reason == "stub-forbidden"
        await ask(data, "stub allow", module=module)
        assert (await anna.ask(bruno.hyperty)).is_ok
        [stub] = (await ask(data, "stubs"))["rows"]
        assert (stub["state"], stub["package"]) == ("live", module)


async def test_another_chosen_module_is_accepted_at_the_running_node_and_that_is_recorded(tmp_path: Path) -> None:
    module = tmp_path / "mine.wasm"
    module.write_bytes((STUBS / "vertx_peer" / "vertx_peer.wasm").read_bytes())
    first = hashlib.sha256(module.read_bytes()).hexdigest()
    async with peering(tmp_path, VertxNode(THEIRS), str(module)) as system:
        _, hyperty = await bruno_of(system.node)
        assert (await system.anna.ask(hyperty)).is_ok
        module.write_bytes(module.read_bytes() + custom_section("x", b"1"))
        second = hashlib.sha256(module.read_bytes()).hexdigest()
        data = tmp_path / "data"
        await ask(data, "stub restart", domain=THEIRS)
        assert (await system.anna.ask(hyperty)).reason == "digest-not-approved"
        tried = await ask(data, "stub pin", domain=THEIRS, module=second, dry_run=True)
        assert (tried["before"], tried["after"]) == ({"module": first}, {"module": second})
        assert (await system.anna.ask(hyperty)).reason == "digest-not-approved"

        with pytest.raises(HostError, match="`stub pin`"):
            await ask(data, "stub approve", domain=THEIRS)

        words = ["peer", "approve", THEIRS, "vertx_peer", "--config", str(tmp_path / "node.toml"), "--json"]
        done = await trio.to_thread.run_sync(partial(CliRunner().invoke, app, words))
        assert done.exit_code == 0, done.output
        assert (await system.anna.ask(hyperty)).is_ok
        [stub] = (await ask(data, "stubs"))["rows"]
        assert (stub["state"], stub["package"]) == ("live", second)
    [pinned] = [one for one in read_records(tmp_path / "data" / "records", AdminEvent) if one.operation == "stub pin"]
    assert (pinned.way, first in str(pinned.before), second in str(pinned.after)) == ("socket", True, True)
