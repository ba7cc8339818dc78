"""Counts of quotas on the disk: written when they change, and once more at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from msg_node.storage.quota_keeper import FILE, REPORTED_LIMITS, QuotaKeeper
from policy.core.gate import Gate, PeerRule
from policy.core.quotas import Counted, Quota
from policy.core.text import PolicyText, load_policies
from protofly.errors import SettingsError
from tests.support.policies import a_message, some_facts


def gate_of(most: int) -> Gate:
    return Gate(peers={"b.example": PeerRule(quotas=(Quota(per="month", messages=most),))})


async def until(is_so: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not is_so():
            await trio.lowlevel.checkpoint()


async def test_counts_go_on_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msg_node.storage.quota_keeper.WRITE_SECONDS", 0.01)
    gate = gate_of(3)
    async with trio.open_nursery() as nursery:
        await nursery.start(QuotaKeeper(gate.quotas, tmp_path).run)
        gate.judge(some_facts())
        await until((tmp_path / FILE).is_file)
        assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
        gate.judge(some_facts())
        nursery.cancel_scope.cancel()
    after = gate_of(3)
    QuotaKeeper(after.quotas, tmp_path)
    assert [after.judge(some_facts()).permitted for _ in range(2)] == [True, False]


async def test_counts_of_limits_go_on_after_a_restart_and_end_with_their_period(tmp_path: Path) -> None:
    text = 'id = "s"\nlimits.x = { by = "sender", per = "day", messages = 2 }\n[[rules]]\neffect = "permit"\n'
    policies = load_policies([PolicyText("p.toml", f'{text}obligations = {{ limit = "x" }}\n', "toml")])
    gate, now = Gate(policies), time.time()
    async with trio.open_nursery() as nursery:
        await nursery.start(QuotaKeeper(gate.quotas, tmp_path).run)
        gate.judge(some_facts(now=now))
        gate.judge(some_facts(a_message(from_="hyperty://a.example/eve"), now=now - 40 * 86_400))
        nursery.cancel_scope.cancel()
    after = Gate(policies)
    QuotaKeeper(after.quotas, tmp_path)
    assert len(after.quotas.counted()) == 1
    assert [after.judge(some_facts(now=now)).permitted for _ in range(2)] == [True, False]


@pytest.mark.parametrize("text", ["", "[]", '{"x": 1}', "{" * 5000, '{"x": {"messages": "many"}}'])
def test_a_broken_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(SettingsError, match=r"quotas\.json.*remove it"):
        QuotaKeeper(gate_of(1).quotas, tmp_path)


async def test_a_disk_that_fails_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("msg_node.storage.quota_keeper.WRITE_SECONDS", 0.01)
    gate, folder = gate_of(3), tmp_path / "gone"
    async with trio.open_nursery() as nursery:
        await nursery.start(QuotaKeeper(gate.quotas, folder).run)
        gate.judge(some_facts())
        await until(lambda: bool(caplog.records))
        folder.mkdir()
        await until((folder / FILE).is_file)
        nursery.cancel_scope.cancel()


async def test_a_quota_that_is_used_up_is_reported_once_in_its_period_and_not_again_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msg_node.storage.quota_keeper.WRITE_SECONDS", 0.01)
    reported: list[tuple[str, int, int]] = []

    def used_up(name: str, more: int, counted: Counted) -> None:
        reported.append((name, more, counted.messages))

    async def spent(messages: int) -> None:
        gate = gate_of(3)
        async with trio.open_nursery() as nursery:
            await nursery.start(QuotaKeeper(gate.quotas, tmp_path, used_up).run)
            for _ in range(messages):
                gate.judge(some_facts())
            nursery.cancel_scope.cancel()

    await spent(3)
    assert reported == []
    await spent(2)
    await spent(2)
    assert reported == [("b.example out month", 0, 3)]


async def test_of_limits_that_count_addresses_some_are_reported_by_name_and_the_rest_by_their_number(
    tmp_path: Path,
) -> None:
    text = 'id = "s"\nlimits.x = { by = "sender", per = "month", messages = 1 }\n[[rules]]\neffect = "permit"\n'
    policies = load_policies([PolicyText("p.toml", f'{text}obligations = {{ limit = "x" }}\n', "toml")])
    gate, reported = Gate(policies), list[int]()
    async with trio.open_nursery() as nursery:
        await nursery.start(QuotaKeeper(gate.quotas, tmp_path, lambda _name, more, _counted: reported.append(more)).run)
        for number in range(REPORTED_LIMITS + 5):
            for _ in range(2):
                gate.judge(some_facts(a_message(from_=f"hyperty://a.example/h{number}"), now=time.time()))
        nursery.cancel_scope.cancel()
    assert reported == [0] * (REPORTED_LIMITS - 1) + [5]
