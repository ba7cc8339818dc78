"""A partner that refuses us is named in log and status, with its word and what to do."""

from __future__ import annotations

from pathlib import Path

from .systems import System, running_system, wait_until


async def problem_of(system: System) -> str:
    """What a.example says is wrong with its link."""
    return (await system.link(system.a)).problem


async def test_a_partner_that_refuses_us_is_named_in_log_and_status_until_it_does_not(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        anna, _ = await system.couple()
        await system.change_settings(system.b, old="[policy]\n", new='[policy]\ndeny = ["a.example"]\n')
        answer = await anna.ask("hyperty://b.example/h-1")
        assert answer.code == 504
        problem = await wait_until(lambda: problem_of(system), lambda one: "auth-policy" in one)
        assert problem.startswith('b.example refuses our link: its word is "auth-policy"; they do not admit our domain')
        log = system.a.folder.log.read_text()
        assert log.count('its word is "auth-policy"') == 1  # although it was refused again and again
        await system.change_settings(system.b, old='deny = ["a.example"]\n', new="")
        await system.wait_link(system.a, lambda one: one.state == "live", seconds=40)
        assert await problem_of(system) == ""
