"""Local users: log-ins with a password, what attackers win by trying, and what a command changes at a running node."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from typer.testing import CliRunner

from msg_node.identity.core.password_login import Attempts, LocalAccounts, PasswordQuestion
from msg_node.identity.password_check import PasswordCheck
from msg_node.identity.password_hash import HashCost, is_acceptable, is_right
from msg_node.identity.user_store import USERS_FILE, LocalUser, UserStore
from msg_node.kernel.service import Service
from msg_node.node_state import NodeState
from msg_node.settings.identity import IdentitySettings, PasswordSettings, TokenSettings
from msg_node.settings.model import ListenSettings, NodeSettings, SessionSettings, Settings
from msg_node.settings.sessions import build_credentials
from msg_node.wiring.identity import IdentityServices
from protofly.documents import SigningKey
from stubkit.keys import KeyRing, make_key, save_keys
from tests.support.runtime_rig import (
    DOMAIN,
    FOREIGN,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_rig,
)
from trapezoid.commands import app

IDM = f"domain://idm.{DOMAIN}"
COST = HashCost(19_456, 2)
PASSWORD = "correct horse"
NOW = 1000.0
ACCOUNTS = LocalAccounts("a.example", frozenset({"a.example", "alias.example"}))


def settings_in(folder: Path) -> Settings:
    return Settings(
        node=NodeSettings(domain=DOMAIN, data_dir=folder),
        listen=ListenSettings(insecure_plaintext=True),
        sessions=SessionSettings(anonymous=True),
        identity=IdentitySettings(
            tokens=TokenSettings(keys_dir=folder / "keys"),
            passwords=PasswordSettings(memory_kib=COST.memory_kib, passes=COST.passes),
        ),
    )


@asynccontextmanager
async def node(folder: Path) -> AsyncIterator[tuple[RuntimeRig, IdentityServices]]:
    settings, made = settings_in(folder), list[IdentityServices]()

    def services(state: NodeState) -> dict[str, Service]:
        made.append(IdentityServices(settings, state, SigningKey.from_seed("node-1", bytes(32))))
        return dict(made[0].services)

    async with (
        runtime_rig(folder, credentials=build_credentials(settings), services_at=services) as rig,
        trio.open_nursery() as nursery,
    ):
        made[0].connect(rig.bus)
        await nursery.start(made[0].run)
        yield rig, made[0]
        nursery.cancel_scope.cancel()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of a node with the user ana, and its settings as a file."""
    save_keys(KeyRing(token=(make_key("token"),)), tmp_path / "keys")
    (tmp_path / "node.toml").write_text(
        f'[node]\ndomain = "{DOMAIN}"\ndata_dir = "{tmp_path}"\n[listen]\nport = 0\ninsecure_plaintext = true\n'
        f'[identity.tokens]\nkeys_dir = "{tmp_path / "keys"}"\n'
        f"[identity.passwords]\nmemory_kib = {COST.memory_kib}\npasses = {COST.passes}\n"
    )
    assert user(tmp_path, "add", "ana", "--role", "guard", "--stdin", typed=PASSWORD) == 0
    return tmp_path


def user(folder: Path, *arguments: str, typed: str = "") -> int:
    config = ["--config", str(folder / "node.toml"), "--json"]
    return CliRunner().invoke(app, ["user", *arguments, *config], input=f"{typed}\n").exit_code


async def log_in(runtime: Runtime, name: str = "ana", password: object = PASSWORD) -> Json:
    credentials = {"kind": "password", "user": name, "password": password}
    return await runtime.ask("execute", IDM, {"method": "login", "params": {"credentials": credentials}})


async def test_a_user_logs_in_and_the_session_is_the_users_until_a_command_ends_it(folder: Path) -> None:
    async with node(folder) as (rig, services):
        ana = await rig.opened("ana")
        hyperty = await ana.allocated("hyperty")
        for name in ("ana", f"Ana@{DOMAIN}", f"user://{DOMAIN}/ana"):
            value: Any = (await log_in(ana, name))["body"]["value"]
            assert (value["subject"], value["roles"]) == (f"{IDM} user://{DOMAIN}/ana", ["guard"])
        bearer = {"credentials": {"kind": "bearer", "token": value["token"]}}
        assert code_and_reason(await ana.open("ana", bearer)) == (200, "")
        assert services.identify is not None
        message = parsed(a_message("create", hyperty, f"hyperty://{FOREIGN}/x", {}, id_=1))
        identified = services.identify(message, DOMAIN, time.time())
        assert (identified.is_verified, identified.user) == (True, f"user://{DOMAIN}/ana")
        assert user(folder, "disable", "ana") == 0
        with trio.fail_after(10):
            while services.status()["tokens"]["remembered"] == 0:  # type: ignore[index]
                await trio.lowlevel.checkpoint()
        rig.bus.effects.sweep_sessions()
        rig.bus.send_queues.wake()
        assert await ana.close_code() == 4401
        later = await rig.runtime()
        assert code_and_reason(await later.open("ana", bearer)) == (401, "bad-token")
        bob = await rig.opened("bob")
        assert code_and_reason(await log_in(bob)) == (401, "bad-token")


async def test_what_is_wrong_is_refused_alike_and_more_attempts_have_to_wait(folder: Path) -> None:
    async with node(folder) as (rig, services):
        ana, bob = await rig.opened("ana"), await rig.opened("bob")
        wrong = [("ana", "wrong"), ("nobody", "wrong"), ("", "x"), ("ana@b.example", PASSWORD), ("ana' --", PASSWORD)]
        replies = [(await log_in(ana, name, password))["body"] for name, password in wrong]
        assert len({str(body) for body in replies}) == 1
        assert (replies[0]["code"], replies[0]["reason"]) == (401, "bad-token")
        refused = (await log_in(ana))["body"]
        assert (refused["code"], refused["reason"], refused["retryAfter"]) == (429, "rate", 1)
        assert code_and_reason(await log_in(bob)) == (200, ""), "another runtime, and few failures of the user"
        assert services.status()["tokens"]["wrong passwords"] == 5  # type: ignore[index]
        for password in (None, 7, "", "x" * 1025):
            assert code_and_reason(await log_in(bob, "ana", password))[0] == 400


async def test_a_flood_of_attempts_is_hashed_one_by_one_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    """A hundred at once for one user, from as many runtimes: five are looked at."""
    verdicts = []
    with UserStore(tmp_path / USERS_FILE) as users, trio.fail_after(60):
        users.put(LocalUser(name="ana", hash=COST.hash(PASSWORD)))
        check = PasswordCheck(users, COST, most=1, end_user=lambda _user, _moment: None)

        async def attempt(number: int) -> None:
            verdicts.append(await check.ask(PasswordQuestion("ana", f"guess {number}", f"r{number}")))

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(attempt, number)
        assert [one.is_right for one in verdicts] == [False] * 100
        assert sum(1 for one in verdicts if not one.retry_seconds) == 5


def test_attempts_wait_twice_as_long_each_time_and_are_forgotten() -> None:
    attempts, waits, now = Attempts(), [], NOW
    for _ in range(20):
        wait = attempts.admit(["user ana"], now)
        waits.append(wait)
        now += wait
        if wait:
            assert attempts.admit(["user ana"], now) == 0.0
    assert waits[:5] == [0.0] * 5
    assert waits[5:9] == [1.0, 2.0, 4.0, 8.0]
    assert max(waits) == 300.0
    assert attempts.admit(["user ana"], now + 3601) == 0.0
    assert attempts.admit(["user ana"], now + 3601) == 0.0
    attempts.succeeded("user ana")
    assert len(attempts) == 0
    assert attempts.admit(["user ana"], now - 10_000) == 0.0, "the clock was set back"


def test_who_has_an_account_cannot_so_try_others() -> None:
    attempts = Attempts()
    for number in range(5):
        assert attempts.admit([f"user {number}", "runtime evil"], NOW) == 0.0
        if attempts.admit(["user evil", "runtime evil"], NOW) == 0.0:
            attempts.succeeded("user evil")
            attempts.not_failed("runtime evil")
    assert attempts.admit(["user 7", "runtime evil"], NOW) > 0


def test_counts_are_bounded() -> None:
    attempts = Attempts(most=10)
    for number in range(100):
        attempts.admit([f"user {number}", f"runtime {number}"], NOW)
    assert len(attempts) == 10


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ana", "ana"),
        (" Ana ", "ana"),
        ("ana@a.example", "ana"),
        ("ana@ALIAS.example", "ana"),
        ("user://a.example/ana", "ana"),
        ("user://b.example/ana", ""),
        ("hyperty://a.example/ana", ""),
        ("ana@b.example", ""),
        ("user://a.example/ana/x", ""),
        ("", ""),
        ("-ana", ""),
        ("ana ana", ""),
        ("a" * 65, ""),
        ("anä", ""),
        ("user://", ""),
    ],
)
def test_users_are_named_in_three_ways(text: str, name: str) -> None:
    assert ACCOUNTS.name_in(text) == name


async def test_a_password_in_an_older_hash_is_hashed_anew_at_a_log_in(tmp_path: Path) -> None:
    with UserStore(tmp_path / USERS_FILE) as users:
        users.put(LocalUser(name="ana", hash=HashCost(19_456, 1).hash(PASSWORD)))
        check = PasswordCheck(users, COST, most=1, end_user=lambda _user, _moment: None)
        assert (await check.ask(PasswordQuestion("ana", PASSWORD, "r"))).is_right
        assert COST.is_of(users.known("ana").hash)
        assert (await check.ask(PasswordQuestion("ana", PASSWORD, "r"))).is_right


def test_hashes_are_salted_and_compare_what_was_typed() -> None:
    text = COST.hash("Grün")
    assert text != COST.hash("Grün")
    assert is_right("Gru\u0308n", text)
    assert not is_right("Grun", text)
    assert not is_right("x", "no hash")
    assert not is_right("x", "")
    assert [is_acceptable(one) for one in ("1234567", "12345678", "x" * 1025)] == [False, True, False]


def test_commands_change_users_and_refuse_what_is_wrong(folder: Path) -> None:
    for arguments in (
        ("add", "ana"),
        ("add", "Ana"),
        ("password", "bob"),
        ("disable", "bob"),
        ("enable", "bob"),
        ("remove", "bob"),
    ):
        assert user(folder, *arguments, typed=PASSWORD) != 0, arguments
    assert user(folder, "add", "bob", "--stdin", typed="short") == 2
    assert user(folder, "password", "ana", "--stdin", typed="another one") == 0
    with UserStore(folder / USERS_FILE) as users:
        assert is_right("another one", users.known("ana").hash)
        assert users.known("ana").ended_at > 0
        assert (folder / USERS_FILE).stat().st_mode & 0o777 == 0o600
        assert user(folder, "remove", "ana") == 0
        assert user(folder, "add", "ana", "--stdin", typed=PASSWORD) == 0
        assert users.known("ana").ended_at > 0, "tokens from before do not come back with the name"
