"""Marks of logins on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from msg_node.identity.token_store import TokenStore
from protofly.errors import Code, HostError
from tests.support.open_files import is_open


def test_a_file_that_is_no_database_is_a_storage_error_and_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "tokens.sqlite"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(HostError) as caught:
        TokenStore(path)
    assert caught.value.code is Code.STORAGE
    assert not is_open(path)


def test_a_store_holds_its_file_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "tokens.sqlite"
    store = TokenStore(path)
    assert store.load() == []
    assert is_open(path)
    store.close()
    assert not is_open(path)
