"""Strangers at the admin service: runtimes without the role, guests, links, what runs in an operator's runtime; and
clients of the admin site without its token, behind a proxy, or from the page of somebody else. None changes anything.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from msg_node.admin.admin_access import FAILURES
from msg_node.admin.admin_site import AdminSite
from msg_node.admin.core.operations import REQUEST_BYTES
from msg_node.settings.model import Settings
from msg_node.settings.tables.admin import AdminSettings
from msg_node.settings.tables.node import NodeSettings
from protofly.errors import SettingsError
from tests.support.admin_rig import ADMIN_ADDRESS, AdminRig, admin_rig, admin_site, ask_admin, bearer
from tests.support.runtime_rig import DOMAIN, FOREIGN, Json, a_message, parsed, runtime_address

BOB = runtime_address("bob")
KICK: Json = {"operation": "kick", "arguments": {"runtime": BOB, "ban": "1h"}}


def nothing_has_changed(at: AdminRig) -> bool:
    return at.has_session("bob") and not list(at.rig.state.restrictions) and not at.events


# By message.


async def test_runtimes_without_the_role_are_refused_whatever_they_ask(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        bob, plain = await at.rig.opened("bob"), await at.operator(token="plain")
        types = ("read", "execute", "update", "create", "delete", "subscribe")
        bodies: tuple[Json, ...] = (
            KICK,
            {"operation": "sessions"},
            {},
            {"operation": "x" * 9000},
            {"roles": ["operator"]},
        )
        for runtime, type_, body in itertools.product((bob, plain), types, bodies):
            answer = (await runtime.ask(type_, ADMIN_ADDRESS, body))["body"]
            assert (answer["code"], answer["reason"], "value" in answer) == (403, "policy", False), (type_, body)
        assert nothing_has_changed(at)


async def test_the_role_of_a_token_is_not_that_of_a_guest_who_has_it(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        await at.rig.opened("bob")
        guest = await at.rig.runtime(bearer="guest")
        guest.address = f"runtime://{FOREIGN}/eve"
        opened = await guest.ask("open", "mn:/session", {})
        assert opened["body"]["code"] == 200, opened
        answer = await ask_admin(guest, "kick", arguments=KICK["arguments"])
        assert answer["code"] == 403
        assert nothing_has_changed(at)


@pytest.mark.parametrize(
    "sender", [f"hyperty://{FOREIGN}/eve", f"runtime://{FOREIGN}/ops", runtime_address("ops"), f"domain://{FOREIGN}"]
)
async def test_links_of_other_domains_are_refused_in_every_name(sender: str, tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        await at.rig.opened("bob")
        await at.operator()
        at.rig.domains.take()
        message = a_message("execute", sender, ADMIN_ADDRESS, {**KICK, "roles": ["operator"]}, id_=7)
        at.rig.bus.from_links.take(FOREIGN, [parsed(message)])
        answers = [one["body"] for one in at.rig.domains.take()]
        assert all(one["code"] == 403 for one in answers)
        await at.rig.opened("cy")  # whatever was started has been done by now
        assert nothing_has_changed(at)


async def test_what_runs_in_the_runtime_of_an_operator_is_no_operator(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops, _bob = await at.operator(), await at.rig.opened("bob")
        hyperty = await ops.allocated("hyperty")
        for name in (hyperty, f"{ops.address}/component"):
            answer = await ask_admin(ops, "kick", arguments=KICK["arguments"], from_=name)
            assert (answer["code"], answer["reason"]) == (403, "policy"), name
        assert nothing_has_changed(at)


# Over HTTPS.


async def test_the_holder_of_the_token_may_do_what_operators_may(tmp_path: Path) -> None:
    async with admin_site(tmp_path) as (at, client, token):
        assert (tmp_path / "admin-token").stat().st_mode & 0o777 == 0o600
        table = (await client.get("/api", headers=bearer(token))).json()["operations"]
        assert {"name": "kick", "changes": True}.items() <= next(one for one in table if one["name"] == "kick").items()
        tried = await client.post("/api", json={**KICK, "dry_run": True}, headers=bearer(token))
        assert (tried.status_code, nothing_has_changed(at)) == (200, True)
        done = await client.post("/api", json=KICK, headers=bearer(token))
        assert (done.json()["result"]["after"]["sessions"], at.has_session("bob")) == ([], False)
        [event] = at.events
        assert (event.actor, event.way) == ("holder of the admin token at 127.0.0.1", "https")
        assert done.headers["cache-control"] == "no-store"
        for body, code in ((b"{", "bad-body"), (b"[" * 50_000, "bad-body"), (b'{"operation": "x"}', "no-such-service")):
            answer = await client.post(
                "/api", content=body, headers=bearer(token) | {"Content-Type": "application/json"}
            )
            assert (answer.status_code // 100, answer.json()["error"]["code"]) == (4, code)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "no-credentials"),
        ({"Authorization": "Basic b3BzOnNlY3JldA=="}, "no-credentials"),
        ({"Cookie": "token={token}"}, "no-credentials"),
        ({"X-Token": "{token}"}, "no-credentials"),
        ({"Authorization": "Bearer"}, "bad-token"),
        ({"Authorization": "Bearer {token}x"}, "bad-token"),
        ({"Authorization": "Bearer secret"}, "bad-token"),
        ({"Authorization": "Bearer {token}", "X-Forwarded-For": "203.0.113.9"}, "policy"),
        ({"Authorization": "Bearer {token}", "Forwarded": "for=127.0.0.1"}, "policy"),
        ({"Authorization": "Bearer {token}", "Via": "1.1 proxy"}, "policy"),
        ({"Authorization": "Bearer {token}", "Content-Type": "text/plain"}, "bad-body"),
        ({"Authorization": "Bearer {token}", "Content-Type": "application/x-www-form-urlencoded"}, "bad-body"),
    ],
)
async def test_requests_without_the_token_or_on_another_way_change_nothing(
    fields: dict[str, str], code: str, tmp_path: Path
) -> None:
    async with admin_site(tmp_path) as (at, client, token):
        headers = {"Content-Type": "application/json"} | {name: one.format(token=token) for name, one in fields.items()}
        answer = await client.post("/api", content=json.dumps(KICK), headers=headers)
        assert (answer.json()["error"]["code"], nothing_has_changed(at)) == (code, True)
        if code != "bad-body":
            answer = await client.get("/api", headers=headers)
            assert (answer.json()["error"]["code"], "operations" in answer.json()) == (code, False)
        assert token not in answer.text


async def test_the_token_in_the_url_is_no_token(tmp_path: Path) -> None:
    async with admin_site(tmp_path) as (at, client, token):
        for path in (f"/api?token={token}", f"/api?access_token={token}", "//api", "/api/../api", "/API"):
            answer = await client.post(path, json=KICK)
            assert answer.status_code in {401, 404, 405}, path
        assert nothing_has_changed(at)


async def test_guessing_is_slowed_down_and_locks_nobody_out(tmp_path: Path) -> None:
    async with admin_site(tmp_path, requests_per_second=1000.0) as (_at, client, token):
        codes = [(await client.get("/api", headers=bearer(f"guess {n}"))).status_code for n in range(FAILURES + 5)]
        assert codes == [401] * FAILURES + [429] * 5
        assert (await client.get("/api", headers=bearer(token))).status_code == 200


async def test_long_bodies_are_cut_off(tmp_path: Path) -> None:
    async with admin_site(tmp_path) as (at, client, token):
        body = json.dumps(KICK) + " " * REQUEST_BYTES
        headers = bearer(token) | {"Content-Type": "application/json"}
        answer = await client.post("/api", content=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"], nothing_has_changed(at)) == (413, "too-large", True)


async def test_a_file_that_others_may_read_or_that_has_gone_opens_nothing_until_it_is_right_again(
    tmp_path: Path,
) -> None:
    async with admin_site(tmp_path, requests_per_second=1000.0) as (_at, client, token):
        file = tmp_path / "admin-token"
        file.chmod(0o640)
        assert (await client.get("/api", headers=bearer(token))).status_code == 401
        file.chmod(0o600)
        assert (await client.get("/api", headers=bearer(token))).status_code == 200
        file.unlink()
        for given in (token, "none"):
            assert (await client.get("/api", headers=bearer(given))).status_code == 401
        newer = "n" * 30
        file.touch(mode=0o600)
        file.write_text(f"{newer}\n")
        assert (await client.get("/api", headers=bearer(token))).status_code == 401
        assert (await client.get("/api", headers=bearer(newer))).status_code == 200


async def test_no_site_is_made_with_a_token_that_others_may_read_or_that_is_short(tmp_path: Path) -> None:
    settings = Settings(node=NodeSettings(domain=DOMAIN, data_dir=tmp_path), admin=AdminSettings(port=0))
    file = tmp_path / "admin-token"
    for content, mode, word in (("n" * 30, 0o644, "chmod 600"), ("short", 0o600, "less than")):
        file.write_text(content)
        file.chmod(mode)
        async with admin_rig(tmp_path) as at:
            with pytest.raises(SettingsError, match=word):
                AdminSite(settings, at.administration)
