"""`python -m benchmarks.engines` with short runs: what it takes for acknowledged, and what for lost."""

from __future__ import annotations

import shutil

import pytest

from benchmarks import engines
from benchmarks.engines import LEAST_CLAIMS, VARIANTS, measure_loss, servers_of
from tests.support.postgres import needs_postgres

pytestmark = pytest.mark.long

KEPT = ["PostgreSQL, synchronous_commit on", "PostgreSQL, replica, synchronous"]
KEPT_BY_REDIS = ["Redis, appendfsync always", "Redis, replica, always and WAIT 1"]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "SECONDS", 0.5)
    monkeypatch.setattr(engines, "CUT_SECONDS", 0.5)


def loss(name: str) -> tuple[int, int]:
    """Claims acknowledged and lost; also that an address is claimed once."""
    needs_postgres()
    if name.startswith("Redis") and shutil.which("redis-server") is None:
        pytest.skip("no Redis here: apt-get install -y --no-install-recommends redis-server")
    [variant] = [one for one in VARIANTS if one.name == name]
    with servers_of(variant) as servers:
        claim = servers[0].connect()
        assert [claim("hyperty://a.example/one") for _ in range(2)] == [True, False]
        return measure_loss(servers)


@pytest.mark.parametrize("name", [*KEPT, *KEPT_BY_REDIS])
def test_a_claim_that_waited_for_the_disk_or_for_a_replica_is_there_after_the_failure(name: str) -> None:
    acknowledged, lost = loss(name)
    assert acknowledged >= LEAST_CLAIMS
    assert lost == 0


def test_claims_that_are_in_memory_only_are_all_lost() -> None:
    acknowledged, lost = loss("Redis, no log")
    assert lost == acknowledged >= LEAST_CLAIMS
