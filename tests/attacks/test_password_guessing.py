"""Somebody guesses passwords of local users: from one address with many runtimes, and for many users.

After each attack the users log in from elsewhere as if nothing had happened, and what was refused is counted.
"""

from __future__ import annotations

import ipaddress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from msg_node.connectors.proxies import Proxies
from msg_node.identity.core.password_attempts import FREE_ATTEMPTS, NETWORK_ATTEMPTS
from msg_node.wiring.identity import IdentityServices
from tests.support.local_users import PASSWORD, folder_with_ana, log_in, node_with_users, user
from tests.support.runtime_rig import SESSION, Runtime, RuntimeRig, a_message, code_and_reason
from wire.core.websocket import ClientWebSocket

EVE = "127.0.0.66"
PROXY = "127.0.0.9"
OK = 200, ""
WRONG = 401, "bad-token"
WAIT = 429, "too-many-attempts"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_with_ana(tmp_path)


def counted(services: IdentityServices) -> tuple[int, int]:
    tokens: Any = services.status()["tokens"]
    return tokens["wrong passwords"], tokens["paused attempts"]


async def guesses_of_eve(rig: RuntimeRig, names: list[str], *, runtimes: int) -> list[tuple[int, str]]:
    """What Eve is answered, with a runtime of another name again and again."""
    replies, numbers = [], count()
    for number in range(runtimes):
        eve = await rig.opened(f"eve-{number}", address=EVE)
        replies += [code_and_reason(await log_in(eve, name, f"guess {next(numbers)}")) for name in names]
        await eve.wire.cut()
    return replies


async def test_a_guesser_with_many_runtimes_locks_a_user_out_nowhere_else(folder: Path) -> None:
    async with node_with_users(folder) as (rig, services):
        replies = await guesses_of_eve(rig, ["ana", "Ana", "ana@alpha.example"], runtimes=8)
        assert replies[:FREE_ATTEMPTS] == [WRONG] * FREE_ATTEMPTS
        assert set(replies[FREE_ATTEMPTS:]) <= {WAIT, WRONG}
        looked_at, waited = counted(services)
        assert looked_at < 2 * FREE_ATTEMPTS
        assert looked_at + waited == len(replies)
        assert code_and_reason(await log_in(await rig.opened("ana"))) == OK
        eve = await rig.opened("eve-0", address=EVE)
        assert code_and_reason(await log_in(eve, "ana", PASSWORD)) == WAIT, "not even the right one is looked at"


async def test_a_guesser_who_takes_a_users_runtime_address_does_not_make_that_runtime_wait(folder: Path) -> None:
    async with node_with_users(folder) as (rig, _):
        eve = await rig.opened("ana", address=EVE)
        for number in range(2 * FREE_ATTEMPTS):
            await log_in(eve, "ana", f"guess {number}")
        await eve.say(a_message("close", eve.address, SESSION))
        assert await eve.close_code() == 1000
        assert code_and_reason(await log_in(await rig.opened("ana"))) == OK


async def test_a_guesser_who_tries_many_users_gets_a_rate_and_others_none(folder: Path) -> None:
    assert user(folder, "add", "bob", "--stdin", typed=PASSWORD) == 0
    async with node_with_users(folder) as (rig, services):
        replies = await guesses_of_eve(rig, [f"user{number}" for number in range(2 * NETWORK_ATTEMPTS)], runtimes=1)
        assert replies[:NETWORK_ATTEMPTS] == [WRONG] * NETWORK_ATTEMPTS
        assert replies.count(WAIT) >= NETWORK_ATTEMPTS - 5, "one more every ten seconds"
        assert counted(services) == (replies.count(WRONG), replies.count(WAIT))
        for name in ("ana", "bob"):
            assert code_and_reason(await log_in(await rig.opened(name), name)) == OK


async def test_guesses_from_all_addresses_of_one_ipv6_network_are_those_of_one_guesser(folder: Path) -> None:
    """A proxy says who the clients are, so that they can have any address."""
    async with node_with_users(folder) as (rig, services):
        assert rig.listener is not None
        rig.listener.proxies = Proxies([ipaddress.ip_network(PROXY)])
        replies = []
        for number in range(3 * FREE_ATTEMPTS):
            eve = await through_proxy(rig, f"2001:db8:0:66::{number:x}")
            assert code_and_reason(await eve.open(f"eve-{number}")) == OK
            replies.append(code_and_reason(await log_in(eve, "ana", f"guess {number}")))
            await eve.wire.cut()
        assert replies[:FREE_ATTEMPTS] == [WRONG] * FREE_ATTEMPTS
        assert counted(services)[0] < 2 * FREE_ATTEMPTS
        ana = await through_proxy(rig, "2001:db8:0:67::1")
        assert code_and_reason(await ana.open("ana")) == OK
        assert code_and_reason(await log_in(ana)) == OK


async def through_proxy(rig: RuntimeRig, client: str) -> Runtime:
    """A WebSocket of that client."""
    headers = {"X-Forwarded-For": client}
    websocket = ClientWebSocket("ws://localhost/ws", is_binary=False, headers=headers, max_bytes=1 << 20)
    runtime = Runtime(await rig.connect(address=PROXY), websocket)
    await runtime.shake_hands()
    return runtime
