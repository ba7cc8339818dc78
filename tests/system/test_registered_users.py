"""A runtime of our own domain wants to get what is meant for a user that it is not: at a real node."""

from __future__ import annotations

import json
import time
from itertools import product
from pathlib import Path

import pytest
import trio
from typer.testing import CliRunner

from tests.support.runtime_rig import DOMAIN, Json, Runtime, code_and_reason
from tests.support.token_issuer import TokenIssuer
from trapezoid.commands import app

from .one_node import SETTINGS, Process, serving
from .pair import Pair

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


async def logged_in(node: Process, name: str, *, at: str = "") -> Runtime:
    """A runtime, of that name or another one, whose session is of the user of that name."""
    runtime = await node.opened(at or name)
    credentials = {"kind": "assertion", "assertion": assertion(name)}
    asked = {"method": "login", "params": {"credentials": credentials}}
    token = (await runtime.ask("execute", f"domain://idm.{DOMAIN}", asked))["body"]["value"]["token"]
    assert code_and_reason(await runtime.open(at or name, {"credentials": {"kind": "bearer", "token": token}})) == (
        200,
        "",
    )
    return runtime


async def until_reached(asker: Runtime, other: Runtime) -> None:
    """Wait until nodes that have just started know each other: a ping for a runtime that answers none goes there."""
    with trio.fail_after(30):
        while await other.heard() == []:
            await asker.say({"id": 1, "type": "ping", "from": asker.address, "to": other.address})
            await trio.sleep(0.1)
    await asker.heard()


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


ALIAS = "alias.example"
OF_ALIAS = TokenIssuer("https://login.alias.example")
OF_TWO_DOMAINS = f"""
[routing]
users = true
[identity]
registered_users = "proved"
[[identity.provider]]
issuer = "{PROVIDER.issuer}"
audience = ["node"]
domains = ["{DOMAIN}"]
jwks = "provider.json"
[[identity.provider]]
issuer = "{OF_ALIAS.issuer}"
audience = ["node"]
domains = ["{ALIAS}"]
user_claim = "email"
jwks = "alias.json"
[identity.tokens]
keys_dir = "keys"
"""


def account(text: str) -> str:
    """What the provider of the alias says of an account."""
    now = int(time.time())
    who = {"sub": "1", "email": text, "email_verified": True}
    return OF_ALIAS.signed({"iss": OF_ALIAS.issuer, "aud": "node", "iat": now, "exp": now + 300, **who})


@pytest.mark.long
async def test_a_provider_proves_nobody_of_a_domain_of_ours_for_which_it_does_not_speak(tmp_path: Path) -> None:
    (tmp_path / "provider.json").write_text(json.dumps(PROVIDER.jwks))
    (tmp_path / "alias.json").write_text(json.dumps(OF_ALIAS.jwks))
    made = CliRunner().invoke(app, ["keys", "token", "--keys", str(tmp_path / "keys")])
    assert made.exit_code == 0, made.output
    named = SETTINGS.format(grace=120).replace("[node]", f'[node]\naliases = ["{ALIAS}"]')
    async with serving(tmp_path, named + OF_TWO_DOMAINS) as node:
        mallory = await node.opened("mallory")
        url = await mallory.allocated("hyperty")
        theirs = f"user://{DOMAIN}/ana", f"user://{ALIAS}/ana@{DOMAIN}"
        for proof, user in product((f"ana@{DOMAIN}", f"ana@{DOMAIN.upper()}", f"ana@{ALIAS}"), theirs):
            refused = await registers(mallory, url, user, proof=account(proof))
            assert refused == (403, "not-owner"), (proof, user)
        credentials = {"kind": "assertion", "assertion": account(f"ana@{DOMAIN}")}
        asked = {"method": "login", "params": {"credentials": credentials}}
        token = (await mallory.ask("execute", f"domain://idm.{ALIAS}", asked))["body"]["value"]["token"]
        assert (await mallory.open("mallory", {"credentials": {"kind": "bearer", "token": token}}))["body"][
            "code"
        ] == 200
        for user in theirs:
            assert await registers(mallory, url, user) == (403, "not-owner"), user
        mine = f"user://{ALIAS}/mallory"
        assert await registers(mallory, url, mine, proof=account(f"mallory@{ALIAS}")) == (200, "")


@pytest.mark.long
@pytest.mark.parametrize("odd", ["{}/", " {}", "USER-GUID{}"])
async def test_another_spelling_of_a_guid_is_that_guid(tmp_path: Path, odd: str) -> None:
    (tmp_path / "provider.json").write_text(json.dumps(PROVIDER.jwks))
    made = CliRunner().invoke(app, ["keys", "token", "--keys", str(tmp_path / "keys")])
    assert made.exit_code == 0, made.output
    async with serving(tmp_path, SETTINGS.format(grace=120) + PEOPLE) as node:
        ana, mallory = await logged_in(node, "ana"), await logged_in(node, "mallory")
        spelled = odd.format(GUID.removeprefix("user-guid") if "USER" in odd else GUID)
        assert await registers(ana, await ana.allocated("hyperty"), f"user://{DOMAIN}/ana", guid=GUID) == (200, "")
        at_mallory = await mallory.allocated("hyperty")
        refused = await registers(mallory, at_mallory, f"user://{DOMAIN}/mallory", guid=spelled)
        assert refused == (403, "not-owner")


@pytest.mark.long
async def test_a_guid_that_is_registered_at_one_node_is_nobody_elses_at_another(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "provider.json").write_text(json.dumps(PROVIDER.jwks))
    made = CliRunner().invoke(app, ["keys", "token", "--keys", str(tmp_path / "keys")])
    assert made.exit_code == 0, made.output
    shared = PEOPLE.replace('"provider.json"', f'"{tmp_path}/provider.json"').replace('"keys"', f'"{tmp_path}/keys"')
    pair.further = shared
    async with pair.node("n1") as one, pair.node("n2") as two:
        ana, mallory = await logged_in(one, "ana"), await logged_in(two, "mallory")
        again = await logged_in(two, "ana", at="ana-2")
        at_ana, at_mallory, at_again = [await who.allocated("hyperty") for who in (ana, mallory, again)]
        await until_reached(again, ana)
        assert await registers(ana, at_ana, f"user://{DOMAIN}/ana", guid=GUID) == (200, "")
        assert await registers(mallory, at_mallory, f"user://{DOMAIN}/mallory", guid=GUID) == (403, "not-owner")
        assert await registers(again, at_again, f"user://{DOMAIN}/ana", guid=GUID) == (200, "")
        assert await registers(mallory, at_mallory, f"user://{DOMAIN}/mallory", guid=GUID) == (403, "not-owner")
