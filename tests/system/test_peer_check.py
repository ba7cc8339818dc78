"""`trapezoid peer check`: each step of a first contact is tried with a real domain, and nothing of it is remembered."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio

from catalogue_client.trust_store import TrustStore
from msg_node.settings.load import load_settings
from msg_node.settings.model import Settings
from stubs_cache.store import load_secret
from trapezoid.admin_client import ask_node
from trapezoid.peer_check import Outcome, Report, Verdict, check_domain, check_ourselves
from trapezoid.peer_check.report import STEPS, StepResult

from .systems import running_system

B = "b.example"


def outcomes(report: Report) -> dict[str, Outcome]:
    """The last result of each step."""
    return {one.step: one.outcome for one in report.results}


def remembered(settings: Settings) -> list[str]:
    data_dir = settings.node.data_dir
    with TrustStore(data_dir / "trust.sqlite", secret=load_secret(data_dir / "secret")) as store:
        return store.domains()


async def test_every_step_is_tried_and_nothing_is_remembered(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        settings = load_settings(system.a.folder.settings)
        report = await check_domain(settings, B, connects=True)
        assert list(dict.fromkeys(one.step for one in report.results)) == list(STEPS)
        assert not [one for one in report.results if one.outcome is Outcome.FAILED]
        assert outcomes(report)["authentication"] is Outcome.OK
        assert outcomes(report)["reverse"] is Outcome.OK
        assert remembered(settings) == []
        ours = await check_ourselves(load_settings(system.b.folder.settings))
        assert not [one for one in ours.results if one.outcome is Outcome.FAILED]
        assert [one.code for one in ours.results if one.step == "addresses"] == ["address-refused"]  # a warning here
        anna, bruno = await system.couple()
        assert outcomes(await check_domain(settings, B, connects=False))["authentication"] is Outcome.SKIPPED
        assert outcomes(await check_domain(settings, B, connects=True))["authentication"] is Outcome.OK
        assert (await anna.ask(bruno.hyperty)).is_ok
        assert (await bruno.ask(anna.hyperty)).is_ok
        assert remembered(settings) == [B]


async def test_first_step_that_fails_has_the_code_and_later_ones_are_skipped(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        settings = load_settings(system.a.folder.settings)
        await system.b.stop()
        report = await check_domain(settings, B, connects=True)
        assert report.verdict is Verdict.BROKEN
        [failed] = [one for one in report.results if one.outcome is Outcome.FAILED]
        assert (failed.step, failed.code) == ("tcp", "connect-failed")
        assert outcomes(report)["live"] is Outcome.SKIPPED
        unknown = await check_domain(settings, "nowhere.example", connects=False)
        failures = [one.code for one in unknown.results if one.outcome is Outcome.FAILED]
        assert failures == ["domain-blocked", "no-such-domain"]  # no entry names it, and the rest is tried all the same
        assert unknown.verdict is Verdict.BROKEN
        own = await check_domain(settings, "a.example", connects=False)
        assert [one.code for one in own.results if one.outcome is Outcome.FAILED] == ["own-domain"]


async def test_reverse_step_says_by_which_code_the_partner_would_refuse_us(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        settings = load_settings(system.a.folder.settings)

        async def reverse() -> StepResult:
            report = await check_domain(settings, B, connects=False)
            [result] = [one for one in report.results if one.step == "reverse"]
            assert (report.verdict is Verdict.BROKEN) is (result.outcome is Outcome.FAILED)
            return result

        async def order(operation: str, **arguments: object) -> None:
            await trio.to_thread.run_sync(partial(ask_node, system.b.folder.data, operation, arguments))

        admitted = await reverse()
        assert (admitted.outcome, admitted.code, admitted.hint) == (Outcome.OK, "ok", "")
        assert admitted.milliseconds > 0
        await order("peer block", domain="a.example", reason="a secret of theirs")
        refused = await reverse()
        assert (refused.outcome, refused.code) == (Outcome.FAILED, "auth-policy")
        assert "[[peer]]" in refused.hint
        assert "secret" not in repr(refused)
        await order("peer unblock", domain="a.example")
        assert (await reverse()).outcome is Outcome.OK
        settings_of_b = system.b.folder.settings
        text = settings_of_b.read_text()
        settings_of_b.write_text(text.replace("[site]", "[site]\nreverse_check = false"))
        await order("reload")
        silent = await reverse()
        assert (silent.outcome, silent.code) == (Outcome.SKIPPED, "not-offered")
