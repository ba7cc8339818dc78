"""The token of the SQL server: made once, closed to others, and text that a header can carry."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from pipeline.spark.sql_server import token_of
from protofly.errors import SettingsError


def test_a_missing_file_is_made_for_its_owner_only_and_read_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = token_of(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token_of(path) == token


@pytest.mark.parametrize("content", [b"short", b"\0" * 64, b"\xff" * 64, b"t" * 40 + b"\n" + b"t" * 40, b""])
def test_what_is_no_token_is_refused_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(SettingsError, match="remove the file for a new one"):
        token_of(path)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("t" * 64)
    path.chmod(0o640)
    with pytest.raises(SettingsError, match="others can read this file"):
        token_of(path)
