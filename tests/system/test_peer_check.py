"""`trapezoid peer check`: each step of a first contact is tried with a real domain, and nothing of it is remembered."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

from catalogue_client.trust_store import TrustStore
from interop.laboratory import POLICIES
from msg_node.settings.load import load_settings
from msg_node.settings.model import Settings
from stubs_cache.store import load_secret
from trapezoid.admin_client import ask_node
from trapezoid.peer_check import Outcome, PeerVerdict, Report, check_domain, check_ourselves
from trapezoid.peer_check.report import STEPS, StepResult

from .systems import running_system, wait_until

B = "b.example"
NO_READS = """
[[rules]]
id = "no-reads-of-the-node"
effect = "deny"
condition = { hook = { equals = "in" }, msgTo = { equals = "domain://msg-node.b.example" } }
"""


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
        [start, trip] = [one for one in report.results if one.step in ("start", "round-trip")]
        assert re.search(r"contract 1; compiled in \d+ ms, .* [\d,]+ bytes of memory, fuel [\d,]+$", start.observed)
        assert re.match(r"they answer 200 after \d+\.\d ms$", trip.observed), trip.observed
        assert remembered(settings) == []
        ours = await check_ourselves(load_settings(system.b.folder.settings))
        assert not [one for one in ours.results if one.outcome is Outcome.FAILED]
        assert [one.code for one in ours.results if one.step == "addresses"] == ["address-refused"]  # a warning here
        anna, bruno = await system.couple()
        by_the_node = await check_domain(settings, B, connects=False)
        assert outcomes(by_the_node)["authentication"] is Outcome.SKIPPED
        [trip] = [one for one in by_the_node.results if one.step == "round-trip"]
        assert (trip.subject, trip.outcome) == ("over the link of the running node", Outcome.OK)
        assert trip.observed.startswith("they answer 200 after ")
        beside_the_node = outcomes(await check_domain(settings, B, connects=True))
        assert (beside_the_node["authentication"], beside_the_node["round-trip"]) == (Outcome.OK, Outcome.OK)
        assert (await anna.ask(bruno.hyperty)).is_ok
        assert (await bruno.ask(anna.hyperty)).is_ok
        assert remembered(settings) == [B]


async def test_first_step_that_fails_has_the_code_and_later_ones_are_skipped(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        settings = load_settings(system.a.folder.settings)
        await system.b.stop()
        report = await check_domain(settings, B, connects=True)
        assert report.verdict is PeerVerdict.BROKEN
        [failed] = [one for one in report.results if one.outcome is Outcome.FAILED]
        assert (failed.step, failed.code) == ("tcp", "connect-failed")
        assert outcomes(report)["live"] is Outcome.SKIPPED
        unknown = await check_domain(settings, "nowhere.example", connects=False)
        failures = [one.code for one in unknown.results if one.outcome is Outcome.FAILED]
        assert failures == ["domain-blocked", "no-such-domain"]  # no entry names it, and the rest is tried all the same
        assert unknown.verdict is PeerVerdict.BROKEN
        own = await check_domain(settings, "a.example", connects=False)
        assert [one.code for one in own.results if one.outcome is Outcome.FAILED] == ["own-domain"]


async def test_what_operators_decided_at_the_running_node_fails_the_step_policy(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        settings = load_settings(system.a.folder.settings)

        async def ask(operation: str, **arguments: object) -> Any:
            return await trio.to_thread.run_sync(partial(ask_node, system.a.folder.data, operation, arguments))

        async def refusal() -> tuple[str, str]:
            report = await check_domain(settings, B, connects=False)
            [failed] = [one for one in report.results if one.outcome is Outcome.FAILED]
            assert (failed.step, failed.subject, report.verdict) == ("policy", "the running node", PeerVerdict.BROKEN)
            assert failed.hint
            return failed.code, failed.observed

        await ask("stub forbid", domain=B)
        assert await refusal() == ("stub-forbidden", "an operator has forbidden its stub until that is lifted")
        await ask("peer block", domain=B, reason="their key is stolen")
        code, observed = await refusal()
        assert (code, "their key is stolen" in observed) == ("domain-blocked", True)
        await ask("peer unblock", domain=B)
        await ask("stub allow", domain=B)
        report = await check_domain(settings, B, connects=False)
        assert not [one for one in report.results if one.outcome is Outcome.FAILED]
        module = next(one.subject for one in report.results if one.step == "module")
        await ask("stub forbid", module=module, reason="advisory 7")
        report = await check_domain(settings, B, connects=False)
        [failed] = [one for one in report.results if one.outcome is Outcome.FAILED]
        assert (failed.step, failed.code, "advisory 7" in failed.observed) == ("stub", "stub-forbidden", True)
        assert module in failed.hint
        await ask("stub allow", module=module)
        entry = msgspec.structs.replace(settings.peer[0], domain="c.example", default="permit")
        edited = msgspec.structs.replace(settings, peer=[*settings.peer, entry])  # and not reloaded
        report = await check_domain(edited, "c.example", connects=False)
        policy = next(one for one in report.results if one.step == "policy")
        assert (policy.outcome, policy.subject, policy.code) == (Outcome.FAILED, "the running node", "domain-blocked")
        assert "node reload" in policy.hint


async def test_without_a_link_the_round_trip_is_left_out_and_their_refusal_is_one_as_well(tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    shutil.copytree(POLICIES, policies)
    policy = policies / "b.example.policy.toml"
    policy.write_text(policy.read_text().replace("\n[[rules]]", f"{NO_READS}\n[[rules]]", 1))
    async with running_system(tmp_path / "laboratory", policies=policies) as system:
        settings = load_settings(system.a.folder.settings)

        async def trip(*, connects: bool) -> StepResult:
            report = await check_domain(settings, B, connects=connects)
            [result] = [one for one in report.results if one.step == "round-trip"]
            return result

        left_out = await trip(connects=False)
        assert (left_out.outcome, "no link to b.example is up" in left_out.observed) == (Outcome.SKIPPED, True)
        refused = await trip(connects=True)
        assert (refused.outcome, refused.observed[:29]) == (Outcome.OK, "they answer 403 policy after ")
        await system.a.stop()
        assert "no node runs" in (await trip(connects=False)).observed


async def test_messages_that_come_while_a_stub_is_tried_are_not_lost(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        anna, bruno = await system.couple()
        is_over = trio.Event()
        asked: list[bool] = []

        async def ask_on() -> None:
            while not is_over.is_set():
                asked.append((await bruno.ask(anna.hyperty)).is_ok)

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(ask_on)
            for _ in range(3):
                report = await check_domain(load_settings(system.a.folder.settings), B, connects=True)
                assert outcomes(report)["authentication"] is Outcome.OK
                assert outcomes(report)["round-trip"] is Outcome.OK
                before = len(asked)
                await wait_until(lambda before=before: _is_longer(asked, before + 8), bool)  # type: ignore[misc]
            is_over.set()
        assert all(asked)


async def _is_longer(some: list[bool], length: int) -> bool:
    return len(some) > length


async def test_reverse_step_says_by_which_code_the_partner_would_refuse_us(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        settings = load_settings(system.a.folder.settings)

        async def reverse() -> StepResult:
            report = await check_domain(settings, B, connects=False)
            [result] = [one for one in report.results if one.step == "reverse"]
            assert (report.verdict is PeerVerdict.BROKEN) is (result.outcome is Outcome.FAILED)
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
