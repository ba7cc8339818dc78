"""`python -m benchmarks.sessions_of_nodes` with few sessions: what it measures, and what its verdict rests on."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import sessions_of_nodes
from benchmarks.sessions_of_nodes import MOST_CLAIM_MS, Measured, Plan, measure, report, running_engine
from tests.support.postgres import needs_postgres

PLAN = Plan(sessions=12, addresses=3, nodes=2)
HELD = Measured(kib_per_session=7.0, opens_per_second=500.0, requests_ms=[2.0] * 10, claims_ms=[0.9] * 10)
ALONE = replace(HELD, kib_per_session=6.5, claims_ms=[])


@pytest.mark.long
async def test_sessions_are_opened_at_all_nodes_and_claims_requests_and_memory_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_postgres()
    monkeypatch.setenv("PGPASSWORD", "")  # the engine sets it, for the nodes
    for name, number in (("CLAIMS", 20), ("REQUESTS_PER_NODE", 4), ("KEPT_PER_NODE", 2)):
        monkeypatch.setattr(sessions_of_nodes, name, number)
    key = tmp_path / "cluster.key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    with tempfile.TemporaryDirectory(prefix="trapezoid-pg-") as files, running_engine(Path(files)) as engine:
        shared = await measure(tmp_path, PLAN, engine)
    (tmp_path / "alone").mkdir()
    alone = await measure(tmp_path / "alone", PLAN, None)
    assert (len(shared.requests_ms), len(shared.claims_ms)) == (4 * PLAN.nodes, 20)
    assert (len(alone.requests_ms), len(alone.claims_ms)) == (4, 0)
    for found in (shared, alone):
        assert min(found.requests_ms) > 0
        assert found.opens_per_second > 0


@pytest.mark.parametrize(
    ("shared", "holds"),
    [
        (HELD, True),
        (replace(HELD, claims_ms=[MOST_CLAIM_MS + 0.1] * 10), False),
        (replace(HELD, kib_per_session=7.2), False),
    ],
)
def test_the_bars_hold_if_claims_are_fast_and_sessions_are_small(
    shared: Measured, holds: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(PLAN, shared, ALONE) is holds
    printed = capsys.readouterr().out
    assert "12 sessions with 3 addresses at 2 nodes, 6 alone" in printed
    assert f"claim in the directory p50   {shared.claims_ms[0]:.2f} ms" in printed
