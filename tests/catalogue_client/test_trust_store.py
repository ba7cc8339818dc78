"""The trust store: durable before it returns, private, and clear about what it cannot do."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest

from catalogue_client.core.state import FailedModule, StubMark, TrustState, retrusted
from catalogue_client.trust_store import TrustStore
from protofly.documents import Permissions, TrustLevel
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


def newer(**changed: object) -> TrustState:
    return msgspec.structs.replace(STATE, **changed)


NEWER_LIVE = newer(live_serial=9, live_sha256="9" * 64)
NEW_ROOT = newer(root=b"root 4", root_version=4, fingerprints=["f", "g"], live_serial=1)


@pytest.mark.parametrize(
    ("theirs", "remembered", "is_theirs_behind"),
    [
        (STATE, STATE, False),
        (NEWER_LIVE, NEWER_LIVE, False),
        (NEW_ROOT, NEW_ROOT, False),
        (newer(root_version=2), STATE, True),
        (newer(root_version=9, fingerprints=["x"]), STATE, False),
        (newer(root_version=9, fingerprints=["x", "f"]), STATE, False),
        (retrusted(STATE, "b.example", "x"), STATE, False),
        (newer(root_version=0), STATE, False),
    ],
)
async def test_another_node_raises_marks_of_those_whose_key_sets_were_followed_and_lowers_none(
    tmp_path: Path, theirs: TrustState, remembered: TrustState, *, is_theirs_behind: bool
) -> None:
    with TrustStore(tmp_path / "trust.sqlite", secret=SECRET) as store:
        await store.save(STATE)
        assert store.learn(theirs) == (STATE if is_theirs_behind else None)
        assert store.load("b.example") == remembered


async def test_what_an_operator_has_decided_here_and_what_stubs_may_do_stays(tmp_path: Path) -> None:
    mark = StubMark(serial=1, manifest_sha256="a" * 64, permissions=Permissions())
    ours = newer(stubs={"link": mark}, failed_modules={"b" * 64: FailedModule(code="trap")})
    with TrustStore(tmp_path / "trust.sqlite", secret=SECRET) as store:
        await store.save(ours)
        store.learn(newer(live_serial=9, stubs={"link": msgspec.structs.replace(mark, approved=["c" * 64])}))
        assert store.load("b.example") == msgspec.structs.replace(ours, live_serial=9)
        await store.retrust("b.example", "x")
        pending = store.load("b.example")
        assert store.learn(newer(root_version=99)) is None
        assert store.load("b.example") == pending


async def test_a_domain_that_was_never_met_begins_with_what_another_node_remembers(tmp_path: Path) -> None:
    with TrustStore(tmp_path / "trust.sqlite", secret=SECRET) as store:
        assert store.learn(NEW_ROOT) is None
        assert store.load("b.example") == NEW_ROOT


async def test_what_was_forgotten_comes_back_from_another_node_only_if_an_operator_decided_later_there(
    tmp_path: Path,
) -> None:
    with TrustStore(tmp_path / "trust.sqlite", secret=SECRET) as store:
        assert store.decided_at("b.example") == 0.0
        await store.save(STATE)
        await store.forget("b.example")
        decided = store.decided_at("b.example")
        for at in (0.0, decided - 1.0):
            assert store.learn(STATE, decided_at=at) is None
            assert store.load("b.example") is None
        assert store.learn(STATE, decided_at=decided + 1.0) is None
        assert (store.load("b.example"), store.decided_at("b.example")) == (STATE, decided + 1.0)
        assert store.learn(newer(domain="c.example")) is None
        assert store.decided_at("c.example") == 0.0
