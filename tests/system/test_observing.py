"""A real node process with the settings for those who look on, lose their line, or hold objects to their schemas."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.support.rest_server import Asked, Said, rest_server
from tests.support.runtime_rig import SM, a_message, code_and_reason, runtime_address

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


SCHEMA = {"properties": {"topic": {"type": "string"}, "children": {"constant": ["messages"]}}}


def catalogue(asked: Asked) -> Said:
    is_known = asked.target == "/.well-known/dataschema/Room"
    return Said(200, json.dumps({"sourcePackage": {"sourceCode": SCHEMA}}).encode()) if is_known else Said(404, b"no")


@pytest.mark.long
async def test_a_node_with_these_settings_holds_objects_to_their_schemas(tmp_path: Path) -> None:
    async with rest_server(catalogue) as server:
        settings = f"""
[subscriptions]
expand_schema = true
[middleware.schema]
validate = true
[catalogue.own]
url = "{server.url}"
insecure_plaintext = true
"""
        async with serving(tmp_path, SETTINGS.format(grace=120) + settings) as node:
            ana, bo = await node.opened("ana"), await node.opened("bo")
            room = await bo.allocated()
            schema = {"resource": room, "schema": "hyperty-catalogue://alpha.example/.well-known/dataschema/Room"}
            assert code_and_reason(await bo.ask("subscribe", SM, schema)) == (200, "")
            assert code_and_reason(await ana.ask("subscribe", SM, schema)) == (200, "")
            await bo.say(a_message("create", bo.address, f"{room}/children/messages", {"value": 1}))
            assert (await ana.next())["body"] == {"value": 1}

            async def refusal() -> tuple[int, str] | None:
                """What a broken change is answered: nothing while the step has not got the schema yet."""
                await bo.say(a_message("update", room, f"{room}/changes", {"attribute": "topic", "value": 1}, id_=7))
                reported = [one for one in await bo.heard() if one["id"] == 7]
                return code_and_reason(reported[0]) if reported else None

            await wait_until(refusal, lambda reported: reported == (422, "schema"))
