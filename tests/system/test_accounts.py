"""Clients of a real node: added by command, there after a restart, and gone at once when they are removed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from typer.testing import CliRunner

from tests.support.runtime_rig import code_and_reason
from trapezoid.commands import app

from .one_node import SETTINGS, Process, serving

IDM = "domain://idm.alpha.example"


async def command(folder: Path, *arguments: str) -> Any:
    """What a command prints as JSON."""
    asked = ["node", *arguments, "--config", str(folder / "node.toml"), "--json"]
    result = await trio.to_thread.run_sync(partial(CliRunner().invoke, app, asked))
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def opens(node: Process, name: str, token: str) -> tuple[int, str]:
    runtime = await node.runtime()
    return code_and_reason(await runtime.open(name, {"credentials": {"kind": "bearer", "token": token}}))


@pytest.mark.long
async def test_clients_are_added_by_command_outlive_a_restart_and_end_when_they_are_removed(tmp_path: Path) -> None:
    async with serving(tmp_path, SETTINGS.format(grace=120)) as node:
        token = (await command(tmp_path, "client", "add", "lamps", "--kind", "agent"))["answer"]["token"]
        code = (await command(tmp_path, "client", "enrol", "gauge", "--kind", "device", "--for", "1d"))["answer"][
            "code"
        ]
        assert await opens(node, "lamps", token) == (200, "")
        gauge = await node.runtime()
        assert (await gauge.open("gauge", {"credentials": {"kind": "bearer", "token": code}}))["body"]["code"] == 200
        own = (await gauge.ask("execute", IDM, {"method": "enrol"}))["body"]["value"]["token"]
    async with serving(tmp_path, SETTINGS.format(grace=120)) as node:
        listed = (await command(tmp_path, "client", "list"))["rows"]
        assert [(one["client"], one["kind"], one["state"]) for one in listed] == [
            ("gauge", "device", "enabled"),
            ("lamps", "agent", "enabled"),
        ]
        assert await opens(node, "gauge", code) == (401, "bad-token")
        assert await opens(node, "gauge", own) == (200, "")
        lamps = await node.runtime()
        assert (await lamps.open("lamps", {"credentials": {"kind": "bearer", "token": token}}))["body"]["code"] == 200
        await command(tmp_path, "client", "remove", "lamps")
        assert await lamps.close_code() == 4403
        assert await opens(node, "lamps", token) == (401, "bad-token")
