"""A runtime of our own domain wants to get what is meant for a user that it is not: at a real node."""

from __future__ import annotations

import json
import time
from itertools import product
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.runtime_rig import DOMAIN, Json, Runtime, code_and_reason
from tests.support.token_issuer import TokenIssuer
from trapezoid.commands import app

from .one_node import SETTINGS, Process, serving

REGISTRY = f"domain://registry.{DOMAIN}"
PROVIDER = TokenIssuer("https://login.alpha.example")
PEOPLE = f"""
[routing]
users = true
[identity]
registered_users = "proved"
[[identity.provider]]
issuer = "{PROVIDER.issuer}"
audience = ["node"]
jwks = "provider.json"
[identity.tokens]
keys_dir = "keys"
"""
GUID = "user-guid://3mCDsu5R9o0HlNMBxdICiQS1vGRMUD39jkpl5u3iRdI"


def assertion(subject: str) -> str:
    now = int(time.time())
    return PROVIDER.signed({"iss": PROVIDER.issuer, "aud": "node", "sub": subject, "iat": now, "exp": now + 300})


async def logged_in(node: Process, name: str) -> Runtime:
    """A runtime whose session is of the user of that name."""
    runtime = await node.opened(name)
    credentials = {"kind": "assertion", "assertion": assertion(name)}
    asked = {"method": "login", "params": {"credentials": credentials}}
    token = (await runtime.ask("execute", f"domain://idm.{DOMAIN}", asked))["body"]["value"]["token"]
    assert code_and_reason(await runtime.open(name, {"credentials": {"kind": "bearer", "token": token}})) == (200, "")
    return runtime


async def registers(
    runtime: Runtime, url: str, user: str, *, guid: str = "", proof: str = "", type_: str = "create"
) -> tuple[int, str]:
    entry: Json = {"url": url, "runtime": runtime.address, "descriptor": "hyperty-catalogue://x/hyperty/chat"}
    entry |= {"user": user} | ({"guid": guid} if guid else {})
    more: Json = {"identity": {"assertion": proof}} if proof else {}
    if type_ == "update":
        more["resource"] = url
    return code_and_reason(await runtime.ask(type_, REGISTRY, {"value": entry, **more}))


async def hyperties_of(runtime: Runtime, user: str) -> set[str]:
    reply = await runtime.ask("read", REGISTRY, {"resource": f"/hyperty/user/{user}"})
    value = reply["body"].get("value") or {}
    return set(value) if "url" not in value else {value["url"]}


@pytest.mark.long
async def test_nobody_registers_as_a_user_that_the_session_has_not_proved_and_mail_goes_to_its_user_only(
    tmp_path: Path,
) -> None:
    (tmp_path / "provider.json").write_text(json.dumps(PROVIDER.jwks))
    made = CliRunner().invoke(app, ["keys", "token", "--keys", str(tmp_path / "keys")])
    assert made.exit_code == 0, made.output
    ana_user = f"user://{DOMAIN}/ana"
    async with serving(tmp_path, SETTINGS.format(grace=120) + PEOPLE) as node:
        ana, mallory, nobody = await logged_in(node, "ana"), await logged_in(node, "mallory"), await node.opened("x")
        at_ana, at_mallory = await ana.allocated("hyperty"), await mallory.allocated("hyperty")
        at_nobody = await nobody.allocated("hyperty")
        assert await registers(ana, at_ana, ana_user, guid=GUID) == (200, "")
        hers = (ana_user, f"user://{DOMAIN}/x/ana", f"user://{DOMAIN.upper()}/ana", "user://idp.example/ana")
        strangers = (mallory, at_mallory), (nobody, at_nobody)
        for user, type_, (runtime, url) in product(hers, ("create", "update"), strangers):
            assert await registers(runtime, url, user, type_=type_) == (403, "not-owner"), (user, type_)
        mine = f"user://{DOMAIN}/mallory"
        assert await registers(mallory, at_mallory, mine, guid=GUID) == (403, "not-owner")
        assert await registers(mallory, at_mallory, mine) == (200, "")
        assert await registers(mallory, at_mallory, ana_user, type_="update") == (403, "not-owner")
        assert await registers(nobody, at_nobody, "user://alpha.example/bo", proof=assertion("bo")) == (200, "")
        assert await registers(nobody, at_nobody, ana_user, proof=assertion("bo")) == (403, "not-owner")
        assert await hyperties_of(nobody, ana_user) == {at_ana}
        for to in (ana_user, GUID):
            await nobody.say({"id": 5, "type": "event", "from": at_nobody, "to": to, "body": {"value": to}})
        heard = [(await ana.next())["body"]["value"], (await ana.next())["body"]["value"]]
        assert heard == [ana_user, GUID]
        assert await mallory.heard() == []


@pytest.mark.long
async def test_an_entry_that_somebody_left_behind_is_not_brought_back_by_another_user(tmp_path: Path) -> None:
    (tmp_path / "provider.json").write_text(json.dumps(PROVIDER.jwks))
    made = CliRunner().invoke(app, ["keys", "token", "--keys", str(tmp_path / "keys")])
    assert made.exit_code == 0, made.output
    url = f"hyperty://{DOMAIN}/desk"
    async with serving(tmp_path, SETTINGS.format(grace=0) + "[compat]\nkeep_registered = true\n" + PEOPLE) as node:
        ana, mallory = await logged_in(node, "ana"), await logged_in(node, "mallory")
        assert await registers(ana, url, f"user://{DOMAIN}/ana") == (200, "")
        left = {"resource": url, "value": {"status": "disconnected"}}
        assert code_and_reason(await ana.ask("update", REGISTRY, left)) == (200, "")
        revived = {"resource": url, "attribute": "status", "value": "live"}
        assert code_and_reason(await mallory.ask("update", REGISTRY, revived)) == (403, "not-owner")
        renamed = {"resource": url, "value": {"user": f"user://{DOMAIN}/mallory"}}
        assert code_and_reason(await mallory.ask("update", REGISTRY, renamed)) == (200, "")
