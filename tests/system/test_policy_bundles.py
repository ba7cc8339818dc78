"""Policies that operators activate at a real node: they outlive reloads and restarts, and one command returns."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from trapezoid.admin_client import ask_node

from .one_node import SETTINGS, Process, serving

FILES = '[policy]\nfiles = ["first.toml"]\n'
FIRST = 'id = "first"\n[[rules]]\nid = "all"\neffect = "permit"\n'
CLOSED = 'id = "closed"\n[[rules]]\nid = "none"\neffect = "deny"\ncondition = { actionType = { equals = "read" } }\n'
NODE = "domain://msg-node.alpha.example"


async def ask(folder: Path, operation: str, *, dry_run: bool = False, **arguments: object) -> Any:
    call = partial(ask_node, folder / "data", operation, arguments, dry_run=dry_run)
    return await trio.to_thread.run_sync(call)


async def evaluated(folder: Path, **more: str) -> Any:
    question = {"from": "hyperty://alpha.example/a", "to": NODE, "type": "read", **more}
    return await trio.to_thread.run_sync(ask_node, folder / "data", "evaluate", question)


async def command(folder: Path, *words: str) -> Any:
    """Run a command that prints JSON."""
    line = [sys.executable, "-m", "trapezoid", *words, "--config", "node.toml"]
    run = partial(subprocess.run, line, cwd=folder, capture_output=True, check=True)
    return json.loads((await trio.to_thread.run_sync(run)).stdout)


async def is_denied(node: Process, name: str) -> bool:
    """Whether a runtime's question to the node is."""
    runtime = await node.opened(name)
    return bool((await runtime.ask("read", NODE, {}))["body"]["code"] == 403)


async def test_a_gate_for_a_time_survives_a_kill_and_ends_by_itself(tmp_path: Path) -> None:
    settings = SETTINGS.format(grace=120)
    words = ("node", "gate", "set", "alpha.example", "alpha.example", "--type", "read")
    async with serving(tmp_path, settings) as node:
        assert not await is_denied(node, "ana")
        await command(tmp_path, *words, "--for", "1h", "--reason", "trial", "--json")
        assert await is_denied(node, "bob")
        assert (await evaluated(tmp_path))["rule"] == "gate: deny alpha.example > alpha.example type=read"
        node.kill()
    async with serving(tmp_path, settings) as node:
        [row] = (await command(tmp_path, "node", "gates", "--json"))["rows"]
        assert (row["effect"], row["type"], row["reason"]) == ("deny", "read", "trial")
        assert await is_denied(node, "cora")
        await command(tmp_path, *words, "--for", "1s", "--json")
        with trio.fail_after(30):
            while (await ask(tmp_path, "gates"))["rows"]:
                await trio.lowlevel.checkpoint()
        assert not await is_denied(node, "dora")


OWN_BUS = """
id = "own-bus"
[[rules]]
id = "sessions-and-reads"
effect = "permit"
condition = { actionType = { in = ["open", "re-open", "close", "response", "read"] } }
"""


async def test_a_closed_own_bus_denies_what_no_rule_permits_until_a_reload_opens_it(tmp_path: Path) -> None:
    await trio.Path(tmp_path / "own.toml").write_text(OWN_BUS)
    settings = SETTINGS.format(grace=120) + '[policy]\nfiles = ["own.toml"]\nlocal_default = "deny"\n'
    async with serving(tmp_path, settings) as node:
        ana = await node.opened("ana")
        assert (await ana.ask("read", NODE, {}))["body"]["code"] != 403
        refused = (await ana.ask("create", "hyperty://alpha.example/h-1", {}))["body"]
        assert (refused["code"], refused["reason"]) == (403, "policy")
        await trio.Path(tmp_path / "node.toml").write_text(settings.replace('"deny"', '"permit"'))
        await ask(tmp_path, "reload")
        assert (await ana.ask("create", "hyperty://alpha.example/h-1", {}))["body"]["code"] == 404


@pytest.mark.long
async def test_an_activated_bundle_outlives_reload_and_restart_until_it_is_rolled_back(tmp_path: Path) -> None:
    await trio.Path(tmp_path / "first.toml").write_text(FIRST)
    await trio.Path(tmp_path / "closed.toml").write_text(CLOSED)
    settings = SETTINGS.format(grace=120) + FILES
    async with serving(tmp_path, settings) as node:
        added = await command(tmp_path, "node", "policy", "add", "closed.toml", "--note", "no reads", "--json")
        digest = added["after"]["bundle"]
        tried = await ask(tmp_path, "policy activate", bundle=digest, dry_run=True)
        assert (tried["dry_run"], tried["before"]["bundle"]) == (True, "settings")
        assert not await is_denied(node, "ana")
        await ask(tmp_path, "policy activate", bundle=digest[:8])
        assert await is_denied(node, "bob")
        await trio.Path(tmp_path / "first.toml").write_text(FIRST.replace("all", "everything"))
        reloaded = await ask(tmp_path, "reload")
        assert digest in reloaded["after"]["policies_are_of"]
        assert await is_denied(node, "cora")
        assert (await evaluated(tmp_path))["rule"] == "closed/none"
        assert (await evaluated(tmp_path, bundle="settings"))["rule"] == "first/everything"
        node.kill()
    assert digest in (await command(tmp_path, "config", "show", "--source"))["policies in force"]
    async with serving(tmp_path, settings) as node:
        assert await is_denied(node, "dora")
        assert (await ask(tmp_path, "status"))["policies"]["bundle"] == digest
        await ask(tmp_path, "policy roll-back")
        assert not await is_denied(node, "emil")
        active = await ask(tmp_path, "policy active")
        assert (active["source"], active["roll_back_to"]) == ("settings", None)
        rows = (await ask(tmp_path, "policy bundles"))["rows"]
        notes = [(row["state"], row["note"]) for row in rows]
        assert notes == [("", "no reads"), ("in force", str(tmp_path / "first.toml"))]
