"""The federation tester beside a running node: one check at a time, a few a minute, for operators alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import trio

from msg_node.admin.administration import Actor, Administration
from msg_node.admin.core.operations import AdminRequest
from msg_node.admin.peer_checks import PeerChecks
from msg_node.settings.model import NodeSettings, Settings
from protofly.errors import Code, PeerError
from tests.support.admin_rig import admin_rig, ask_admin
from tests.support.runtime_rig import DOMAIN, FOREIGN
from trapezoid.peer_check.beside import check_beside

OPS = Actor("ops", "socket", "user 0")


def settings_of(folder: Path) -> Settings:
    return Settings(node=NodeSettings(domain=DOMAIN, data_dir=folder))


async def test_an_operator_gets_the_report_and_nobody_else(tmp_path: Path) -> None:
    asked: list[str] = []

    def check(settings: Settings, domain: str) -> dict[str, object]:
        asked.append(f"{settings.node.domain} {domain}")
        return {"domain": domain, "verdict": "ok", "steps": []}

    async with admin_rig(tmp_path) as at:
        administration = Administration(dataclasses.replace(at.node, checks=PeerChecks(check)))
        request = AdminRequest(operation="peer check", arguments={"domain": FOREIGN})
        assert await administration.perform(request, OPS) == {"domain": FOREIGN, "verdict": "ok", "steps": []}
        assert asked == [f"{DOMAIN} {FOREIGN}"]
        plain = await at.operator(token="plain")
        reply = await ask_admin(plain, "peer check", "read", arguments={"domain": FOREIGN})
        assert (reply["code"], reply["reason"]) == (403, "policy")


async def test_a_node_without_the_tester_says_so(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        with pytest.raises(PeerError) as caught:
            await at.administration.perform(AdminRequest(operation="peer check", arguments={"domain": FOREIGN}), OPS)
        assert caught.value.code is Code.NO_SUCH_SERVICE


async def test_checks_have_a_rate_of_their_own(tmp_path: Path) -> None:
    now = [100.0]
    checks = PeerChecks(lambda _settings, domain: {"domain": domain}, monotonic=lambda: now[0])
    for _ in range(5):
        await checks.run(settings_of(tmp_path), FOREIGN)
    with pytest.raises(PeerError, match="ask again in 5 s") as caught:
        await checks.run(settings_of(tmp_path), FOREIGN)
    assert caught.value.code is Code.RATE
    now[0] += 5.0
    await checks.run(settings_of(tmp_path), FOREIGN)


async def test_one_check_is_made_at_a_time_and_a_failed_one_ends(tmp_path: Path) -> None:
    begun = trio.Event()

    def check(_settings: Settings, _domain: str) -> dict[str, object]:
        trio.from_thread.run_sync(begun.set)
        trio.from_thread.run(other.wait)
        raise PeerError(Code.NAME_INVALID, "x")

    checks, other = PeerChecks(check), trio.Event()

    async def first() -> None:
        with pytest.raises(PeerError, match="x"):
            await checks.run(settings_of(tmp_path), FOREIGN)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await begun.wait()
        with pytest.raises(PeerError, match="under way"):
            await checks.run(settings_of(tmp_path), FOREIGN)
        other.set()
    with pytest.raises(PeerError, match="x"):
        await checks.run(settings_of(tmp_path), FOREIGN)


async def test_the_steps_of_the_command_run_in_a_thread_of_a_running_node(tmp_path: Path) -> None:
    report = await PeerChecks(check_beside).run(settings_of(tmp_path), "not a name")
    assert report["verdict"] == "broken"
    steps = report["steps"]
    assert isinstance(steps, list)
    assert (steps[0]["step"], steps[0]["code"]) == ("name", "name-invalid")
    assert {one["outcome"] for one in steps[1:]} == {"skipped"}
