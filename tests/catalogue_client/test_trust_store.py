"""The trust store: durable before it returns, private, and clear about what it cannot do."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from catalogue_client.core.state import TrustState
from catalogue_client.trust_store import TrustStore
from protofly.documents import TrustLevel
from protofly.errors import Code, HostError, PeerError
from tests.support.open_files import is_open
from tests.support.repository import SECRET

STATE = TrustState(domain="b.example", level=TrustLevel.WEB, root=b"\0root", root_version=3, fingerprints=["f"])


async def test_state_is_there_for_another_process_as_soon_as_save_returns(tmp_path: Path) -> None:
    with TrustStore(tmp_path / "trust.sqlite", secret=SECRET) as store:
        await store.save(STATE)
        with TrustStore(tmp_path / "trust.sqlite", secret=SECRET) as other:
            assert other.load("b.example") == STATE
            assert other.domains() == ["b.example"]
        assert store.load("c.example") is None


async def test_file_is_for_its_owner_only(tmp_path: Path) -> None:
    with TrustStore(tmp_path / "deep" / "trust.sqlite", secret=SECRET) as store:
        await store.save(STATE)
    assert stat.S_IMODE((tmp_path / "deep" / "trust.sqlite").stat().st_mode) == 0o600


async def test_states_written_under_another_secret_are_not_believed(tmp_path: Path) -> None:
    with TrustStore(tmp_path / "trust.sqlite", secret=b"other") as store:
        await store.save(STATE)
    with TrustStore(tmp_path / "trust.sqlite", secret=SECRET) as store, pytest.raises(PeerError) as caught:
        store.load("b.example")
    assert caught.value.code is Code.CACHE_TAMPERED


def test_file_that_is_no_database_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "trust.sqlite").write_bytes(b"not a database at all, but long enough to be read as one" * 40)
    with pytest.raises(HostError) as caught:
        TrustStore(tmp_path / "trust.sqlite", secret=SECRET)
    assert caught.value.code is Code.STORAGE
    assert not is_open(tmp_path / "trust.sqlite")


async def test_write_that_fails_is_a_storage_error(tmp_path: Path) -> None:
    store = TrustStore(tmp_path / "trust.sqlite", secret=SECRET)
    store.close()
    with pytest.raises(HostError) as caught:
        await store.save(STATE)
    assert caught.value.code is Code.STORAGE


async def test_approval_of_what_is_not_held_is_refused(tmp_path: Path) -> None:
    with TrustStore(tmp_path / "trust.sqlite", secret=SECRET) as store:
        with pytest.raises(HostError) as caught:
            await store.approve("b.example", "bNodeStub")
        assert caught.value.code is Code.NOT_REGISTERED
