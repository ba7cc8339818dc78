"""Operators manage local users and clients by message: what counts at once, what ends, and what no record has."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from msg_node.identity.client_store import CLIENTS_FILE, ClientStore
from msg_node.identity.local_clients import stored_credentials
from msg_node.kernel.credentials import digest_of
from msg_node.settings.tables.identity import IdentitySettings, PasswordSettings, TokenSettings
from msg_node.wiring.accounts import clients_of
from policy.core.session_class import roles_in
from stubkit.keys import KeyRing, make_key, save_keys
from tests.support.admin_rig import AdminRig, admin_rig, ask_admin
from tests.support.local_users import COST, IDM, PASSWORD, log_in
from tests.support.runtime_rig import DOMAIN, Json, Runtime, code_and_reason, runtime_address

OK = 200, ""
OTHER = "another password"


@asynccontextmanager
async def with_users(folder: Path) -> AsyncIterator[AdminRig]:
    save_keys(KeyRing(token=(make_key("token"),)), folder / "keys")
    identity = IdentitySettings(
        tokens=TokenSettings(keys_dir=folder / "keys"),
        passwords=PasswordSettings(memory_kib=COST.memory_kib, passes=COST.passes),
    )
    async with admin_rig(folder, identity=identity) as at:
        yield at


async def change(ops: Runtime, operation: str, **arguments: object) -> Json:
    reply = await ask_admin(ops, operation, arguments=arguments)
    assert reply["code"] == 200, reply
    result: Json = reply["value"]
    return result


async def refusal(ops: Runtime, operation: str, **arguments: object) -> tuple[int, str]:
    reply = await ask_admin(ops, operation, arguments=arguments)
    return reply["code"], reply.get("reason", "")


async def rows(ops: Runtime, operation: str) -> list[Json]:
    found: list[Json] = (await ask_admin(ops, operation, "read"))["value"]["rows"]
    return found


async def opened_with(at: AdminRig, name: str, token: str) -> tuple[Runtime, Json]:
    runtime = await at.rig.runtime(bearer=token)
    return runtime, await runtime.open(name)


async def enrol(device: Runtime) -> Json:
    reply: Json = (await device.ask("execute", IDM, {"method": "enrol"}))["body"]
    return reply


# Users.


async def test_an_operator_manages_users_while_the_node_runs(tmp_path: Path) -> None:
    async with with_users(tmp_path) as at:
        ops, ana = await at.operator(), await at.rig.opened("ana")
        await change(ops, "user add", name="ana", password=PASSWORD, roles="guard, night")
        assert await rows(ops, "users") == [{"user": "ana", "roles": ["guard", "night"], "state": "enabled"}]
        value: Any = (await log_in(ana))["body"]["value"]
        assert value["roles"] == ["guard", "night"]
        bearer = {"credentials": {"kind": "bearer", "token": value["token"]}}
        assert code_and_reason(await ana.open("ana", bearer)) == OK

        await change(ops, "user change", name="ana", roles="porter")
        assert (await log_in(ana))["body"]["value"]["roles"] == ["porter"]
        await change(ops, "user password", name="ana", password=OTHER)
        at.rig.bus.effects.sweep_sessions(time.time())
        at.rig.bus.send_queues.wake()
        assert await ana.close_code() == 4401, "log-ins with the old password have ended"
        ana = await at.rig.opened("ana-2")
        assert code_and_reason(await log_in(ana)) == (401, "bad-token")
        assert code_and_reason(await log_in(ana, password=OTHER)) == OK
        await change(ops, "user disable", name="ana")
        assert code_and_reason(await log_in(ana, password=OTHER)) == (401, "bad-token")
        await change(ops, "user enable", name="ana")
        assert code_and_reason(await log_in(ana, password=OTHER)) == OK
        await change(ops, "user remove", name="ana")
        assert await rows(ops, "users") == []
        assert code_and_reason(await log_in(ana, password=OTHER)) == (401, "bad-token")


async def test_no_record_and_no_line_of_the_log_has_a_password_or_a_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with with_users(tmp_path) as at:
        ops = await at.operator()
        await change(ops, "user add", name="ana", password=PASSWORD)
        await refusal(ops, "user add", name="bob", password=12345678)
        await refusal(ops, "user add", name="bob", passwort=OTHER)
        await refusal(ops, "user password", name="carol", password=OTHER)
        given = [(await change(ops, "client add", name="lamp", kind="device"))["answer"]["token"]]
        given += [(await change(ops, "client token", name="lamp"))["answer"]["token"]]
        given += [(await change(ops, "client enrol", name="gauge", kind="device"))["answer"]["code"]]
        written = json.dumps([str(one) for one in at.events]) + caplog.text
        assert len(at.events) == 7
        for secret in (PASSWORD, OTHER, "12345678", *given, *map(digest_of, given)):
            assert secret not in written
        assert [json.loads(one.arguments) for one in at.events[:3]] == [
            {"name": "ana"},
            {"name": "bob"},
            {"name": "bob"},
        ]


async def test_users_are_refused_where_there_are_none_and_what_is_wrong_changes_nothing(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        assert await refusal(ops, "user add", name="ana", password=PASSWORD) == (501, "connector-off")
    async with with_users(tmp_path) as at:
        ops = await at.operator()
        await change(ops, "user add", name="ana", password=PASSWORD)
        assert await refusal(ops, "user add", name="ana", password=OTHER) == (409, "duplicate")
        for wrong in ({"name": "Ana"}, {"name": "bob", "password": "short"}, {"name": "bob", "roles": "a b"}):
            assert await refusal(ops, "user add", **{"password": OTHER, **wrong}) == (400, "bad-body")
        assert await refusal(ops, "user change", name="ana") == (400, "bad-body")
        assert await refusal(ops, "user remove", name="bob") == (404, "not-registered")
        tried = await ask_admin(ops, "user remove", arguments={"name": "ana"}, dryRun=True)
        assert tried["value"]["dry_run"]
        assert [one["user"] for one in await rows(ops, "users")] == ["ana"]


async def test_a_user_changes_the_own_password_with_the_old_one_only(tmp_path: Path) -> None:
    async def wish(runtime: Runtime, old: str, new: object) -> tuple[int, str]:
        params = {"user": "ana", "password": old, "newPassword": new}
        return code_and_reason(await runtime.ask("execute", IDM, {"method": "changePassword", "params": params}))

    async with with_users(tmp_path) as at:
        ops, ana = await at.operator(), await at.rig.opened("ana")
        await change(ops, "user add", name="ana", password=PASSWORD)
        token = (await log_in(ana))["body"]["value"]["token"]
        for new in ("short", "", None, 7, "x" * 1025):
            assert await wish(ana, PASSWORD, new) == (400, "bad-body")
        assert await wish(ana, "wrong one", OTHER) == (401, "bad-token")
        assert await wish(ana, PASSWORD, OTHER) == OK
        assert code_and_reason(await log_in(ana)) == (401, "bad-token")
        assert code_and_reason(await log_in(ana, password=OTHER)) == OK
        bearer = {"credentials": {"kind": "bearer", "token": token}}
        assert code_and_reason(await ana.open("ana", bearer)) == (401, "bad-token"), "older log-ins have ended"
        guesses = [await wish(ana, f"guess {number}", PASSWORD) for number in range(7)]
        assert guesses[-1] == (429, "too-many-attempts"), "the same bounds as for log-ins"


# Clients.


async def test_a_client_opens_its_sessions_with_its_token_until_it_gets_another(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        added = await change(ops, "client add", name="lamps", kind="agent", roles="night")
        assert (added["before"], added["after"]["state"]) == (None, "enabled")
        agent, reply = await opened_with(at, "lamps", added["answer"]["token"])
        assert code_and_reason(reply) == OK
        assert roles_in(at.rig.port_of("lamps").roles) == {"agent", "night"}
        _, reply = await opened_with(at, "other", added["answer"]["token"])
        assert code_and_reason(reply) == (401, "bad-token"), "it is for another runtime"

        await change(ops, "client change", name="lamps", roles="day")
        assert roles_in(at.rig.port_of("lamps").roles) == {"agent", "day"}
        token = (await change(ops, "client token", name="lamps"))["answer"]["token"]
        assert await agent.close_code() == 4403, "sessions with the old one have ended"
        _, reply = await opened_with(at, "lamps", added["answer"]["token"])
        assert code_and_reason(reply) == (401, "bad-token")
        agent, reply = await opened_with(at, "lamps", token)
        assert code_and_reason(reply) == OK
        await change(ops, "client disable", name="lamps")
        assert await agent.close_code() == 4403
        assert [one["state"] for one in await rows(ops, "clients")] == ["disabled"]
        await change(ops, "client enable", name="lamps")
        agent, reply = await opened_with(at, "lamps", token)
        assert code_and_reason(reply) == OK
        await change(ops, "client remove", name="lamps")
        assert await agent.close_code() == 4403
        assert await rows(ops, "clients") == []


async def test_clients_and_their_sessions_are_there_after_a_restart(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        token = (await change(ops, "client add", name="lamps", kind="agent"))["answer"]["token"]
        lamps, reply = await opened_with(at, "lamps", token)
        assert code_and_reason(reply) == OK
        address, session_token = lamps.address, lamps.token
        await lamps.heard()
    with ClientStore(tmp_path / CLIENTS_FILE) as store:
        assert token not in str(store.load())
    assert (tmp_path / CLIENTS_FILE).stat().st_mode & 0o777 == 0o600
    assert [one.digest for one in stored_credentials(clients_of(tmp_path, None))] == [digest_of(token)]
    async with admin_rig(tmp_path) as at:
        at.rig.restore()
        lamps = await at.rig.runtime(bearer=token)
        lamps.address = address
        body = {"runtimeToken": session_token}
        assert (
            code_and_reason(await lamps.ask("re-open", "mn:/session", body, from_=f"{address}/{session_token}")) == OK
        )
        assert roles_in(at.rig.port_of("lamps").roles) == {"agent"}


async def test_a_token_ends_when_it_was_said_to(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        given = await change(ops, "client add", name="lamps", kind="agent", **{"for": "1h"})
        _, reply = await opened_with(at, "lamps", given["answer"]["token"])
        assert code_and_reason(reply) == OK
        sid = at.rig.state.sessions.by_runtime(runtime_address("lamps"))
        assert sid is not None
        session = at.rig.state.sessions.get(sid)
        assert session is not None
        assert session.proof.expires_at == pytest.approx(time.time() + 3600, abs=60)
        later = time.time() + 3601
        at.rig.clocks.now = lambda: later
        assert [one["state"] for one in await rows(ops, "clients")] == ["expired"]
        _, reply = await opened_with(at, "lamps", given["answer"]["token"])
        assert code_and_reason(reply) == (401, "bad-token")


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "Lamps"},
        {"kind": "king"},
        {"runtime": "*"},
        {"runtime": "runtime://evil.example/*"},
        {"runtime": f"runtime://{DOMAIN}*"},
        {"runtime": f"hyperty://{DOMAIN}/x"},
        {"roles": "enrolling"},
        {"roles": ",".join(f"r{number}" for number in range(40))},
        {"for": "soon"},
    ],
)
async def test_a_client_that_cannot_be_is_refused(wrong: dict[str, str], tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        assert (await refusal(ops, "client add", **{"name": "lamps", "kind": "agent", **wrong}))[0] == 400
        assert await rows(ops, "clients") == []
        assert not (tmp_path / CLIENTS_FILE).exists()


async def test_only_operators_manage_clients_and_a_name_is_given_once(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops, bob = await at.operator(), await at.rig.opened("bob")
        assert await refusal(bob, "client add", name="lamps", kind="agent") == (403, "policy")
        await change(ops, "client add", name="lamps", kind="agent")
        assert await refusal(ops, "client add", name="lamps", kind="service") == (409, "duplicate")
        assert await refusal(ops, "client token", name="nobody") == (404, "not-registered")


# Enrolment.


async def test_a_device_gets_its_token_for_a_code_and_goes_on(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        wish = {"name": "gauge", "kind": "device", "roles": "night", "for": "1d"}
        code = (await change(ops, "client enrol", **wish))["answer"]["code"]
        assert [one["state"] for one in await rows(ops, "clients")] == ["to be enrolled"]
        gauge, reply = await opened_with(at, "gauge", code)
        assert code_and_reason(reply) == OK
        assert roles_in(at.rig.port_of("gauge").roles) == {"enrolling"}
        enrolled = await enrol(gauge)
        value = enrolled["value"]
        assert (enrolled["code"], value["runtime"], value["roles"]) == (200, gauge.address, ["device", "night"])
        assert value["expires"] == pytest.approx(time.time() + 86_400, abs=60)
        assert roles_in(at.rig.port_of("gauge").roles) == {"device", "night"}, "its session goes on"
        assert (await enrol(gauge))["reason"] == "bad-token", "a code counts once"
        _, reply = await opened_with(at, "gauge", code)
        assert code_and_reason(reply) == (401, "bad-token")
        await gauge.wire.cut()
        _, reply = await opened_with(at, "gauge", value["token"])
        assert code_and_reason(reply) == OK
        assert [one["state"] for one in await rows(ops, "clients")] == ["enabled"]


async def test_of_two_who_use_a_code_at_once_one_gets_a_token(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        code = (await change(ops, "client enrol", name="gauge", kind="device"))["answer"]["code"]
        gauge, _ = await opened_with(at, "gauge", code)
        codes: list[int] = []
        with trio.fail_after(30):
            for number in range(4):
                await gauge.say(
                    {"id": number, "type": "execute", "from": gauge.address, "to": IDM, "body": {"method": "enrol"}}
                )
            codes += [(await gauge.next())["body"]["code"] for _ in range(4)]
        assert sorted(codes) == [200, 401, 401, 401]
        assert len(stored_credentials(clients_of(tmp_path, None))) == 1


async def test_nobody_is_enrolled_without_a_code_that_counts(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops, bob = await at.operator(), await at.rig.opened("bob")
        assert (await enrol(bob))["reason"] == "bad-token"
        assert (await enrol(ops))["reason"] == "bad-token"
        code = (await change(ops, "client enrol", name="gauge", kind="device"))["answer"]["code"]
        _, reply = await opened_with(at, "window", code)
        assert code_and_reason(reply) == (401, "bad-token"), "it is for another runtime"
        gauge, _ = await opened_with(at, "gauge", code)
        await change(ops, "client disable", name="gauge")
        assert await gauge.close_code() == 4403
        pattern = {"name": "gauges", "kind": "device", "runtime": f"runtime://{DOMAIN}/gauge-*"}
        assert await refusal(ops, "client enrol", **pattern) == (400, "bad-body")
        assert await refusal(ops, "client enrol", name="gate", kind="device", within="8d") == (400, "bad-body")
