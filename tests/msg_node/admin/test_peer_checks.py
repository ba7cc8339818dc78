"""The federation tester beside a running node: one check at a time, a few a minute, for operators alone."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from msg_node.admin.administration import Actor, Administration
from msg_node.admin.core.operations import AdminRequest
from msg_node.admin.peer_checks import PeerChecks
from msg_node.process_tuning import BESIDE_NICE
from protofly.errors import Code, PeerError, SettingsError
from tests.support.admin_rig import admin_rig, ask_admin
from tests.support.runtime_rig import DOMAIN, FOREIGN
from trapezoid.peer_check.beside import check_beside

OPS = Actor("ops", "socket", "user 0")


async def test_an_operator_gets_the_report_and_nobody_else(tmp_path: Path) -> None:
    asked: list[str] = []

    async def check(domain: str) -> dict[str, object]:
        asked.append(domain)
        return {"domain": domain, "verdict": "ok", "steps": []}

    async with admin_rig(tmp_path) as at:
        administration = Administration(dataclasses.replace(at.node, checks=PeerChecks(check)))
        request = AdminRequest(operation="peer check", arguments={"domain": FOREIGN})
        assert await administration.perform(request, OPS) == {"domain": FOREIGN, "verdict": "ok", "steps": []}
        assert asked == [FOREIGN]
        plain = await at.operator(token="plain")
        reply = await ask_admin(plain, "peer check", "read", arguments={"domain": FOREIGN})
        assert (reply["code"], reply["reason"]) == (403, "policy")


async def test_a_node_without_the_tester_says_so(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        with pytest.raises(PeerError) as caught:
            await at.administration.perform(AdminRequest(operation="peer check", arguments={"domain": FOREIGN}), OPS)
        assert caught.value.code is Code.NO_SUCH_SERVICE


async def nothing_found(domain: str) -> dict[str, object]:
    return {"domain": domain}


async def test_checks_have_a_rate_of_their_own() -> None:
    now = [100.0]
    checks = PeerChecks(nothing_found, monotonic=lambda: now[0])
    for _ in range(5):
        await checks.run(FOREIGN)
    with pytest.raises(PeerError, match="ask again in 5 s") as caught:
        await checks.run(FOREIGN)
    assert caught.value.code is Code.RATE
    now[0] += 5.0
    await checks.run(FOREIGN)


async def test_one_check_is_made_at_a_time_and_a_failed_one_ends() -> None:
    begun, other = trio.Event(), trio.Event()

    async def check(_domain: str) -> dict[str, object]:
        begun.set()
        await other.wait()
        raise PeerError(Code.NAME_INVALID, "x")

    checks = PeerChecks(check)

    async def first() -> None:
        with pytest.raises(PeerError, match="x"):
            await checks.run(FOREIGN)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await begun.wait()
        with pytest.raises(PeerError, match="under way"):
            await checks.run(FOREIGN)
        other.set()
    with pytest.raises(PeerError, match="x"):
        await checks.run(FOREIGN)


async def test_the_steps_of_the_command_run_in_a_process_of_their_own(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(f'[node]\ndomain = "{DOMAIN}"\ndata_dir = "data"\n[listen]\ninsecure_plaintext = true\n')
    report = await PeerChecks(partial(check_beside, config)).run(DOMAIN)
    assert report["verdict"] == "broken"
    steps = report["steps"]
    assert isinstance(steps, list)
    assert (steps[0]["step"], steps[0]["code"]) == ("name", "own-domain")
    assert {one["outcome"] for one in steps[1:]} == {"skipped"}
    config.write_text("[node")
    with pytest.raises(SettingsError, match="without a report"):
        await check_beside(config, FOREIGN)


def priorities_of_children() -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(os.getpriority(os.PRIO_PROCESS, int(stat.parent.name)))
    return found


async def test_a_check_under_way_has_a_lower_priority_than_the_node_and_ends_with_it(tmp_path: Path) -> None:
    config, lower = tmp_path / "node.toml", min(19, os.getpriority(os.PRIO_PROCESS, 0) + BESIDE_NICE)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as never_answers:
        never_answers.bind(("127.0.0.1", 0))
        config.write_text(
            f'[node]\ndomain = "{DOMAIN}"\ndata_dir = "data"\n[listen]\ninsecure_plaintext = true\n'
            f'[discovery]\nnameservers = ["127.0.0.1:{never_answers.getsockname()[1]}"]\n'
            f'[[peer]]\ndomain = "{FOREIGN}"\n'
        )
        with trio.fail_after(60):
            await _cancel_when(partial(check_beside, config, FOREIGN), lambda: lower in priorities_of_children())
    assert lower not in priorities_of_children()


async def _cancel_when(run: Callable[[], Awaitable[object]], condition: Callable[[], bool]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        while not condition():
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
