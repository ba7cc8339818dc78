"""What tests of whole systems share: an engine for nodes of one domain, and two of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres import PASSWORD, Postgres, running_postgres
from tests.system.pair import Pair


@pytest.fixture(scope="module")
def engine() -> Iterator[Postgres]:
    """A server of the tests of one file."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def pair(tmp_path: Path, engine: Postgres, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """Two nodes of one domain, with a database of their own."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    return Pair(tmp_path, engine, engine.new_database())
