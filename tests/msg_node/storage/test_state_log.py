"""Logged tables of the state file: what a dictionary would hold, after any history, rewriting, failure and upgrade."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from msg_node.kernel.changes import LOGGED, Table
from msg_node.storage import state_log
from msg_node.storage.state_file import StateFile
from msg_node.storage.state_log import StateLog
from protofly.errors import Code, HostError

TABLE = Table.ADDRESSES
KEYS = st.sampled_from(["hyperty://a/1", "hyperty://a/2", 'thing://a/"quoted"', "ünïcode", "", "comm://a/\\u0000"])
ROWS = st.none() | st.integers(0, 9).map(lambda number: b'{"sid":%d}' % number)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    yield connection
    connection.close()


def a_log(connection: sqlite3.Connection) -> StateLog:
    log = StateLog(connection, TABLE)
    log.create()
    log.load()
    return log


def apply(rows: dict[str, bytes | None], *, to: dict[str, bytes]) -> None:
    """What a commit does to a dictionary."""
    for key, row in rows.items():
        if row is None:
            to.pop(key, None)
        else:
            to[key] = row


def entries(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM addresses_log").fetchone()[0])


@given(commits=st.lists(st.dictionaries(KEYS, ROWS, max_size=4), max_size=30), reopens=st.integers(0, 30))
def test_any_history_leaves_what_a_dictionary_would_hold(commits: list[dict[str, bytes | None]], reopens: int) -> None:
    connection = sqlite3.connect(":memory:")
    log = a_log(connection)
    expected: dict[str, bytes] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_log, "DEAD_ROWS", 3)
        patch.setattr(state_log, "DEAD_SHARE", 1)
        for number, rows in enumerate(commits):
            if number == reopens:
                log = a_log(connection)
            log.append({key: None if row is None else Raw(row) for key, row in rows.items()})
            apply(rows, to=expected)
    assert list(log.load().items()) == list(expected.items())
    connection.close()


def test_log_of_rows_that_are_gone_is_written_anew_and_stays_short(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_log, "DEAD_ROWS", 50)
    log = a_log(connection)
    log.append({"stays": Raw(b"{}")})
    for number in range(500):
        log.append({f"comes {number}": Raw(b"{}")})
        log.append({f"comes {number}": None})
    assert entries(connection) < 120
    assert log.load() == {"stays": b"{}"}


def test_rewriting_a_long_log_keeps_rows_in_blocks_and_in_order(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log(connection)
    log.append({f"{number}": Raw(b"{}") for number in range(2_500)})
    monkeypatch.setattr(state_log, "DEAD_ROWS", -1)
    monkeypatch.setattr(state_log, "DEAD_SHARE", 0)
    log.append({"1": Raw(b'{"is":"new"}')})
    assert entries(connection) == 3
    assert list(log.load()) == [f"{number}" for number in range(2_500)]
    assert log.load()["1"] == b'{"is":"new"}'


def test_rows_of_a_file_of_version_1_move_into_the_logs(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    connection = sqlite3.connect(path)
    for table in LOGGED:
        connection.execute(f"CREATE TABLE {table.value} (key TEXT NOT NULL UNIQUE, row BLOB NOT NULL)")
        connection.executemany(
            f"INSERT INTO {table.value} VALUES (?, ?)",
            [(f"{table.value} {number}", b'{"n":%d}' % number) for number in range(1_500)],
        )
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()
    for _ in range(2):  # moved once, and no more
        file = StateFile(path)
        rows = file.load()
        left = {name for (name,) in file._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        file.close()
        for table in LOGGED:
            assert list(rows[table].items()) == [(f"{table.value} {n}", b'{"n":%d}' % n) for n in range(1_500)]
            assert table.value not in left


def test_commit_that_failed_is_neither_in_the_log_nor_in_its_counts(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    file = StateFile(path)
    file.commit({TABLE: {"before": Raw(b"{}")}})
    file._connection.execute("PRAGMA query_only = ON")
    counts = file._logs[TABLE].counts
    with pytest.raises(HostError, check=lambda error: error.code is Code.STORAGE):
        file.commit({TABLE: {"refused": Raw(b"{}"), "before": None}})
    assert file._logs[TABLE].counts == counts
    file.close()
    again = StateFile(path)
    assert again.load()[TABLE] == {"before": b"{}"}
    again.close()


@pytest.mark.parametrize("text", [b"[]", b"{", b'"x"', b"\xff", None, 7])
def test_log_that_is_not_ours_is_a_storage_error(connection: sqlite3.Connection, text: object) -> None:
    log = a_log(connection)
    connection.execute("INSERT INTO addresses_log (changes) VALUES (?)", (text,))
    with pytest.raises(HostError, check=lambda error: error.code is Code.STORAGE):
        log.load()
