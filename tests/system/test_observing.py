"""A real node process with the settings for those who look on, and for observers that lose their line."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.support.runtime_house import a_message, code_and_reason, runtime_address

from .one_node import SETTINGS, Process, serving
from .systems import wait_until

OPERATOR = f"""
[subscriptions]
taps = true
catch_up_seconds = 60
[[sessions.credential]]
runtime = "{runtime_address("ops")}"
token_sha256 = "{hashlib.sha256(b"secret").hexdigest()}"
roles = ["operator"]
"""


async def lost(node: Process) -> None:
    await wait_until(node.counters, lambda counters: counters.get("sessions lost") == 1)


@pytest.mark.long
async def test_a_node_with_these_settings_has_taps_and_keeps_what_observers_miss(tmp_path: Path) -> None:
    async with serving(tmp_path, SETTINGS.format(grace=120) + OPERATOR) as node:
        credentials: dict[str, object] = {"credentials": {"kind": "bearer", "token": "secret"}}
        ops, ana, bo = await node.opened("ops", credentials), await node.opened("ana"), await node.opened("bo")
        room = await bo.allocated()
        await ana.subscribed(f"{room}/changes")
        assert code_and_reason(await ops.subscribed("*")) == (200, "")
        await ana.wire.cut()
        await lost(node)
        await bo.say(a_message("update", room, f"{room}/changes", {"version": 1}))
        await bo.heard()
        copies = [one["body"] for one in await ops.heard() if one["type"] == "forward"]
        assert [(one["origin"], one["message"]["body"]) for one in copies if one["message"]["type"] == "update"] == [
            (bo.address, {"version": 1})
        ]
        again, code = await node.returned(ana)
        assert code == 200
        assert (await again.next())["body"] == {"version": 1}
        refused = await again.subscribed("*")
        assert code_and_reason(refused) == (403, "not-owner")
