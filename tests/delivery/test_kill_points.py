"""The short form of `python -m tests.delivery.kill_points`, and what its ledger takes for a fault."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.delivery.killed_node import Ledger, run_trial
from tests.support.postgres import Postgres, engine_settings


@pytest.mark.long
async def test_a_node_killed_amid_traffic_loses_nothing_acknowledged_and_hands_nothing_over_after_its_end(
    tmp_path: Path,
) -> None:
    with trio.fail_after(120):
        ledger = await run_trial(tmp_path, points=4, seed=7)
    assert ledger.faults() == []
    assert ledger.acknowledged
    assert ledger.registered


@pytest.mark.long
async def test_node_killed_amid_traffic_goes_on_elsewhere_with_all_that_was_acknowledged(
    tmp_path: Path, postgres: Postgres
) -> None:
    with trio.fail_after(240):
        ledger = await run_trial(tmp_path, points=2, seed=5, storage=engine_settings(postgres))
    assert ledger.faults() == []
    assert ledger.acknowledged
    assert ledger.registered


def final(status: str = "completed", request_id: str = "d-1") -> dict[str, str | int]:
    return {"requestId": request_id, "status": status, "code": 200}


def parked(ledger: Ledger) -> None:
    ledger.answered({"id": 1, "body": {"code": 202, "requestId": "d-1", "status": "pending"}})


def test_what_was_acknowledged_and_never_ended_is_a_fault() -> None:
    ledger = Ledger()
    parked(ledger)
    assert ledger.faults() == ["1 acknowledged actions never ended: ['d-1']"]
    ledger.ended(final("delivered"))
    assert len(ledger.faults()) == 1
    ledger.ended(final())
    assert ledger.faults() == []


def test_two_different_ends_are_a_fault() -> None:
    ledger = Ledger()
    ledger.ended(final())
    ledger.ended(final())
    assert ledger.faults() == []
    ledger.ended(final("expired"))
    assert ledger.faults() == ["1 actions ended in two ways: ['d-1']"]


def test_an_end_that_is_reported_twice_is_a_fault() -> None:
    ledger = Ledger()
    for _ in range(2):
        ledger.answered({"id": 1, "body": final()})
    assert ledger.faults() == ["1 ends were reported twice: ['d-1']"]


def test_handing_over_after_the_end_or_twice_to_one_session_is_a_fault_and_after_a_kill_it_is_none() -> None:
    ledger = Ledger(life=1)
    ledger.handed_over("d-1")
    ledger.life = 2
    ledger.handed_over("d-1")
    assert ledger.faults() == []
    ledger.handed_over("d-1")
    assert ledger.faults() == ["1 actions were handed over twice to one session: ['d-1']"]
    ledger.ended(final())
    ledger.life = 3
    ledger.handed_over("d-1")
    assert ledger.faults()[-1] == "1 actions were handed over after their end was known"
