"""Key rings and their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from protofly.errors import SettingsError
from stubkit.keys import ROLES, KeyRing, load_keys, make_key, make_keys, save_keys


def test_saved_keys_come_back_as_they_were_and_nobody_else_may_read_them(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    keys = make_keys()
    files = save_keys(keys, folder)
    assert [path.name.partition("-")[0] for path in files] == list(ROLES)
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    again = load_keys(folder)
    assert [(k.key_id, k.record()) for k in again.all_keys()] == [(k.key_id, k.record()) for k in keys.all_keys()]


@pytest.mark.parametrize("alg", ["ed25519", "p256"])
def test_same_entropy_gives_the_same_key_and_other_entropy_another(alg: str) -> None:
    assert alg in {"ed25519", "p256"}
    first, again, other = (make_key("live", alg=alg, entropy=lambda size, b=b: bytes([b]) * size) for b in (1, 1, 2))  # type: ignore[arg-type,misc]
    assert (first.key_id, first.record()) == (again.key_id, again.record())
    assert first.key_id != other.key_id
    assert first.alg == alg


def test_new_keys_never_share_an_id() -> None:
    assert len({key.key_id for _ in range(20) for key in make_keys().all_keys()}) == 80


def test_existing_key_is_not_overwritten(tmp_path: Path) -> None:
    keys = make_keys()
    (path, *_) = save_keys(keys, tmp_path)
    before = path.read_bytes()
    with pytest.raises(SettingsError, match="File exists"):
        save_keys(keys, tmp_path)
    assert path.read_bytes() == before


def test_partial_ring_is_loaded(tmp_path: Path) -> None:
    save_keys(KeyRing(live=(make_key("live"),), node=(make_key("node"),), token=(make_key("token"),)), tmp_path)
    keys = load_keys(tmp_path)
    assert [len(ring) for ring in (keys.root, keys.live, keys.pkg, keys.node, keys.token)] == [0, 1, 0, 1, 1]


def test_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (path, *_) = save_keys(make_keys(), tmp_path)
    path.chmod(0o640)
    with pytest.raises(SettingsError, match="chmod 600"):
        load_keys(tmp_path)


def test_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SettingsError, match="trapezoid keys init"):
            load_keys(folder)


@pytest.mark.parametrize(("name", "content"), [("mine.pem", b"x"), ("live-1.pem", b"not a key"), ("live-1.pem", b"")])
def test_file_that_is_no_key_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(SettingsError, match=name):
        load_keys(tmp_path)


def test_private_halves_do_not_show() -> None:
    assert "private" not in repr(make_keys())
