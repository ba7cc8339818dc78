"""Local users: log-ins with a password, what attackers win by trying, and what a command changes at a running node."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from msg_node.identity.core.password_login import LocalAccounts, PasswordQuestion, is_acceptable
from msg_node.identity.password_check import PasswordCheck
from msg_node.identity.password_hash import HashCost, is_right
from msg_node.identity.user_store import USERS_FILE, LocalUser, UserStore
from msg_node.settings.tables.identity import PasswordSettings
from msg_node.wiring.identity import load_providers
from tests.support.local_users import (
    COST,
    IDM,
    PASSWORD,
    folder_with_ana,
    log_in,
    node_with_users,
    settings_in,
    user,
)
from tests.support.runtime_rig import DOMAIN, FOREIGN, a_message, code_and_reason, parsed

ACCOUNTS = LocalAccounts("a.example", frozenset({"a.example", "alias.example"}))


@contextmanager
def check_in(
    folder: Path, *, network: str | None = "192.0.2.1", now: Callable[[], float] = time.time
) -> Iterator[tuple[UserStore, PasswordCheck]]:
    """Checks of passwords for the user ana, who is in that network."""
    with UserStore(folder / USERS_FILE) as users:
        users.replace(None, LocalUser(name="ana", hash=COST.hash(PASSWORD)))
        check = PasswordCheck(users, end_user=lambda _user, _moment: None, network_of=lambda _session: network, now=now)
        check.follow(COST)
        try:
            yield users, check
        finally:
            check.hashing.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_with_ana(tmp_path)


async def test_a_user_logs_in_and_the_session_is_the_users_until_a_command_ends_it(folder: Path) -> None:
    async with node_with_users(folder) as (rig, services):
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
        rig.bus.effects.sweep_sessions(time.time())
        rig.bus.send_queues.wake()
        assert await ana.close_code() == 4401
        later = await rig.runtime()
        assert code_and_reason(await later.open("ana", bearer)) == (401, "bad-token")
        bob = await rig.opened("bob")
        assert code_and_reason(await log_in(bob)) == (401, "bad-token")


async def test_what_is_wrong_is_refused_alike_and_more_attempts_have_to_wait(folder: Path) -> None:
    async with node_with_users(folder) as (rig, services):
        ana = await rig.opened("ana")
        wrong = [("ana", "wrong"), ("nobody", "wrong"), ("", "x"), ("ana@b.example", PASSWORD), ("ana' --", PASSWORD)]
        replies = [(await log_in(ana, name, password))["body"] for name, password in wrong]
        replies += [(await log_in(ana, "ana", f"guess {number}"))["body"] for number in range(4)]
        assert len({str(body) for body in replies}) == 1
        assert (replies[0]["code"], replies[0]["reason"]) == (401, "bad-token")
        refused = (await log_in(ana))["body"]
        assert (refused["code"], refused["reason"], refused["retryAfter"]) == (429, "too-many-attempts", 1)
        tokens: Any = services.status()["tokens"]
        assert (tokens["wrong passwords"], tokens["paused attempts"]) == (9, 1)
        for password in (None, 7, "", "x" * 1025):
            assert code_and_reason(await log_in(ana, "ana", password))[0] == 400


async def test_a_flood_of_attempts_from_one_network_is_hashed_one_by_one(tmp_path: Path) -> None:
    """A hundred at once for one user: five are looked at."""
    verdicts = []
    with trio.fail_after(60), check_in(tmp_path) as (_, check):

        async def attempt(number: int) -> None:
            verdicts.append(await check.ask(PasswordQuestion("ana", f"guess {number}", 7)))

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(attempt, number)
        assert [one.is_right for one in verdicts] == [False] * 100
        assert sum(1 for one in verdicts if one.pause is None) == 5


async def test_a_log_in_began_before_what_happened_to_its_user_while_it_was_checked(
    tmp_path: Path,
) -> None:
    clock = [1000.0]
    with check_in(tmp_path, now=lambda: clock[0]) as (users, check):
        compare = check.hashing.is_right

        def slow(password: str, text: str) -> bool:
            clock[0] += 5.0
            ana = users.find("ana")
            assert ana is not None
            users.replace(ana, replace(ana, is_disabled=True, ended_at=clock[0]))
            clock[0] += 5.0
            return compare(password, text)

        check.hashing.is_right = slow  # type: ignore[method-assign]
        verdict = await check.ask(PasswordQuestion("ana", PASSWORD, 7))
    assert (verdict.is_right, verdict.began) == (True, 1000.0), "so its log-in ends with those before 1005"


async def test_nothing_is_looked_at_for_a_session_that_has_left(tmp_path: Path) -> None:
    with check_in(tmp_path, network=None) as (_, check):
        verdict = await check.ask(PasswordQuestion("ana", PASSWORD, 7))
        assert not verdict.is_right
        assert verdict.pause is not None


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
    with check_in(tmp_path) as (users, check):
        users.replace(users.known("ana"), LocalUser(name="ana", hash=HashCost(19_456, 1).hash(PASSWORD)))
        assert (await check.ask(PasswordQuestion("ana", PASSWORD, 7))).is_right
        assert COST.is_of(users.known("ana").hash)
        assert (await check.ask(PasswordQuestion("ana", PASSWORD, 7))).is_right


async def test_passwords_are_switched_off_and_on_and_cost_more_while_the_node_runs(folder: Path) -> None:
    async with node_with_users(folder) as (rig, services):
        ana = await rig.opened("ana")
        value: Any = (await log_in(ana))["body"]["value"]
        bearer = {"credentials": {"kind": "bearer", "token": value["token"]}}
        settings = settings_in(folder)
        off = replace(settings, identity=replace(settings.identity, passwords=None))
        services.follow(off, load_providers(off))
        identifies = [services.identify is not None]
        assert code_and_reason(await log_in(ana)) == (401, "bad-token")
        assert code_and_reason(await ana.open("ana", bearer)) == (401, "bad-token")
        dearer = PasswordSettings(memory_kib=COST.memory_kib, passes=3, checks=2)
        on = replace(settings, identity=replace(settings.identity, passwords=dearer))
        services.follow(on, load_providers(on))
        identifies.append(services.identify is not None)
        assert identifies == [False, True]
        assert code_and_reason(await log_in(ana)) == (200, "")
        with UserStore(folder / USERS_FILE) as users:
            assert HashCost(COST.memory_kib, 3).is_of(users.known("ana").hash)
        assert code_and_reason(await ana.open("ana", bearer)) == (200, "")


def test_hashes_are_salted_and_compare_what_was_typed() -> None:
    text = COST.hash("Grün")
    assert text != COST.hash("Grün")
    assert is_right("Gru\u0308n", text)
    assert not is_right("Grun", text)
    assert not is_right("x", "no hash")
    assert not is_right("x", "")
    assert COST.is_of(COST.hash_of_nobody())
    assert not is_right("x", COST.hash_of_nobody())
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
