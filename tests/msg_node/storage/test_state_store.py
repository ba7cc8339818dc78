"""The state store: durable before anybody is answered, back after `kill -9`, honest when the disk refuses."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import trio
import trio.testing
from msgspec import Raw, Struct

from msg_node.kernel.changes import Change, Table
from msg_node.storage import state_store
from msg_node.storage.state_file import StateFile
from msg_node.storage.state_store import DurableRows, StateStore
from protofly.errors import Code, HostError, MisuseError
from protofly.limits import STATE_GATHER_SECONDS
from tests.support.postgres import held_rows


def put(key: str, row: bytes = b"{}", table: Table = Table.SESSIONS) -> Change:
    return Change(table, key, Raw(row))


RowsAt = Callable[[], DurableRows]


def rows_on_disk(rows_at: RowsAt) -> dict[str, bytes]:
    """What another process finds after this one is gone."""
    rows = rows_at()
    found = rows.load()[Table.SESSIONS]
    rows.close()
    return found


@asynccontextmanager
async def running(store: StateStore) -> AsyncIterator[StateStore]:
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        yield store
        nursery.cancel_scope.cancel()


async def commit(store: StateStore, *changes: Change) -> None:
    done = trio.Event()
    store.submit(changes, done.set)
    with trio.fail_after(10):
        await done.wait()


def kept_again(store: StateStore) -> None:
    """Block, for microseconds, until the writer thread has put back what the disk refused."""
    with store._lock:
        while not store._waiting.count():
            store._lock.wait(0.0005)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


@pytest.fixture(params=["file", "engine"])
def rows_at(request: pytest.FixtureRequest, path: Path) -> RowsAt:
    """Opens the same rows, as one process after the other does."""
    if request.param == "file":
        return lambda: StateFile(path)
    options = request.getfixturevalue("shared_database")
    epochs = count(1)
    return lambda: held_rows(options, str(path), next(epochs))


async def test_committed_rows_are_there_in_the_next_process(rows_at: RowsAt) -> None:
    async with running(StateStore(rows_at())) as store:
        await commit(store, put("1", b'{"a":1}'), put("2"), put("x", b"raw", Table.PARKED))
        await commit(store, put("1", b'{"a":2}'), Change(Table.SESSIONS, "2", None))
    again = rows_at()
    loaded = again.load()
    again.close()
    assert loaded[Table.SESSIONS] == {"1": b'{"a":2}'}
    assert loaded[Table.PARKED] == {"x": b"raw"}
    assert set(loaded) == set(Table)


async def test_rows_come_back_in_the_order_in_which_they_came(rows_at: RowsAt) -> None:
    async with running(StateStore(rows_at())) as store:
        await commit(store, *[put(key) for key in ("c", "a", "b")])
        await commit(store, put("a", b"new"))
    assert list(rows_on_disk(rows_at)) == ["c", "a", "b"]


async def test_last_change_of_a_row_wins_within_one_commit(rows_at: RowsAt) -> None:
    async with running(StateStore(rows_at())) as store:
        await commit(store, put("1", b"old"), Change(Table.SESSIONS, "1", None), put("1", b"new"), put("2"))
        await commit(store, Change(Table.SESSIONS, "2", None), put("2", b"again"), Change(Table.SESSIONS, "2", None))
    assert rows_on_disk(rows_at) == {"1": b"new"}


async def test_what_gathers_during_a_commit_goes_into_the_next_one(
    rows_at: RowsAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StateStore(rows_at())
    gate, is_writing = threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()
    write = store._commit

    def slow(batch: state_store._Waiting) -> HostError | None:
        token.run_sync_soon(is_writing.set)
        gate.wait(10)
        return write(batch)

    monkeypatch.setattr(store, "_commit", slow)
    order: list[int] = []
    async with running(store):
        store.submit([put("0")], lambda: order.append(0))
        await is_writing.wait()
        for number in range(1, 1000):
            store.submit([put(str(number))], lambda number=number: order.append(number))  # type: ignore[misc]
        assert order == []
        gate.set()
        await commit(store)
        assert order == list(range(1000))
        assert store.statistics().commits <= 3
        assert store.statistics().changes == 1000


async def test_requests_of_one_scheduler_round_share_one_commit(rows_at: RowsAt) -> None:
    store = StateStore(rows_at())
    async with running(store):
        for number in range(700):
            store.submit([put(str(number))], lambda: None)
        await commit(store)
        assert store.statistics().commits == 1
    assert len(rows_on_disk(rows_at)) == 700


@pytest.mark.parametrize("count", [1, 3, 4, 5, 63, 64, 255, 256, 257, 341, 1000])
async def test_blocks_of_every_size_are_written_and_deleted_in_full(rows_at: RowsAt, count: int) -> None:
    store = StateStore(rows_at())
    async with running(store):
        await commit(store, *[put(f"{number}", b"old") for number in range(count)], put("stays"))
        await commit(store, *[put(f"{number}", b"new") for number in range(count)])
        assert store.load()[Table.SESSIONS] == {**{f"{number}": b"new" for number in range(count)}, "stays": b"{}"}
        await commit(store, *[Change(Table.SESSIONS, f"{number}", None) for number in range(count)])
    assert list(rows_on_disk(rows_at)) == ["stays"]


async def test_changes_that_nobody_waits_for_share_a_commit_over_many_rounds(
    rows_at: RowsAt, autojump_clock: trio.testing.MockClock
) -> None:
    store = StateStore(rows_at())
    durable = trio.Event()
    async with running(store):
        for number in range(40):
            store.submit([put(str(number))], lambda: None, is_awaited=False)
            await trio.sleep(STATE_GATHER_SECONDS / 50)
        assert store.statistics().commits == 0
        store.submit([put("last")], durable.set, is_awaited=False)
        autojump_clock.autojump_threshold = float("inf")  # from here on a thread works, in its own time
        autojump_clock.jump(STATE_GATHER_SECONDS)
        await durable.wait()
        assert store.statistics().commits == 1
    assert len(rows_on_disk(rows_at)) == 41


async def test_change_that_somebody_waits_for_takes_those_along_that_nobody_does(
    rows_at: RowsAt, mock_clock: trio.testing.MockClock
) -> None:
    store = StateStore(rows_at())
    order: list[str] = []
    async with running(store):
        store.submit([put("1")], lambda: order.append("patient"), is_awaited=False)
        await trio.testing.wait_all_tasks_blocked()
        await commit(store, put("2"))  # the clock stands still
        assert order == ["patient"]
        assert store.statistics().commits == 1
    assert list(rows_on_disk(rows_at)) == ["1", "2"]


async def test_nobody_is_answered_before_the_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = StateFile(path)
    store = StateStore(file)
    seen: list[bool] = []

    def on_durable() -> None:
        connection_rows = file._connection.execute("SELECT count(*) FROM sessions").fetchone()[0]
        seen.append(connection_rows == 1 and not file._connection.in_transaction)

    async with running(store):
        store.submit([put("1")], on_durable)
        await commit(store)
    assert seen == [True]


async def test_cancelled_store_writes_what_is_left(rows_at: RowsAt) -> None:
    reported: list[str] = []
    async with running(StateStore(rows_at())) as store:
        store.submit([put("last")], lambda: reported.append("durable"))
    assert reported == ["durable"]
    assert list(rows_on_disk(rows_at)) == ["last"]
    with pytest.raises(MisuseError):
        store.submit([put("too late")], lambda: None)


@pytest.mark.parametrize("is_refused", [False, True])
async def test_callback_that_fails_leaves_those_that_wait_for_the_same_commit(
    rows_at: RowsAt, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_refused: bool
) -> None:
    monkeypatch.setattr(state_store, "STATE_RETRY_SECONDS", 0.01)
    settled: list[int] = []
    failed: list[int] = []

    def broken(*_: object) -> None:
        failed.append(1)
        raise MisuseError("a bug in the bus")

    rows = rows_at()
    store = StateStore(rows)
    commit_rows = rows.commit

    def refuse_once(_: object) -> None:
        monkeypatch.setattr(rows, "commit", commit_rows)
        raise HostError(Code.STORAGE, "full")

    if is_refused:
        monkeypatch.setattr(rows, "commit", refuse_once)
    store.on_called_back = broken
    async with running(store):
        store.submit([put("1")], broken, broken)
        store.submit([put("2")], partial(settled.append, 2), lambda _: settled.append(2))
        with trio.fail_after(10):
            while not store.is_settled:
                await trio.lowlevel.checkpoint()
        store.on_called_back = lambda: None
        await commit(store)
    assert settled == [2]
    assert len(failed) >= 2
    assert sorted(rows_on_disk(rows_at)) == ["1", "2"]
    assert [str(one.exc_info[1]) for one in caplog.records if one.exc_info] == ["internal: a bug in the bus"] * len(
        failed
    )


# A disk that refuses.


async def test_full_disk_is_reported_and_the_rows_follow_when_there_is_room(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_store, "STATE_RETRY_SECONDS", 0.01)
    file = StateFile(path)
    store = StateStore(file)
    pages = file._connection.execute("PRAGMA page_count").fetchone()[0]
    file._connection.execute(f"PRAGMA max_page_count = {pages}")  # a real SQLITE_FULL, without filling a disk
    big = b"x" * 100_000
    failed, durable = trio.Event(), trio.Event()
    errors: list[HostError] = []

    def on_failed(error: HostError) -> None:
        errors.append(error)
        failed.set()

    async with running(store):
        store.submit([put("big", big)], durable.set, on_failed)
        with trio.fail_after(10):
            await failed.wait()
        assert errors[0].code is Code.STORAGE
        assert "full" in errors[0].detail
        assert "full" in store.statistics().last_error
        store.submit([put("later", b"1"), put("big", big + b"2")], lambda: None, lambda _: None)
        with store._lock:
            file._connection.execute("PRAGMA max_page_count = 1073741823")
        await commit(store)
        assert store.statistics().last_error == ""
        assert not durable.is_set()  # the answer "not durable" is not changed later
        assert len(errors) == 1
    assert rows_on_disk(lambda: StateFile(path)) == {"big": big + b"2", "later": b"1"}


async def test_what_came_during_a_failing_commit_follows_it(rows_at: RowsAt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_store, "STATE_RETRY_SECONDS", 0.01)
    store = StateStore(rows_at())
    gate, is_writing = threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()
    write = store._commit
    batches: list[state_store._Waiting] = []

    def fails_once(batch: state_store._Waiting) -> HostError | None:
        batches.append(batch)
        if len(batches) > 1:
            return write(batch)
        token.run_sync_soon(is_writing.set)
        gate.wait(10)
        return HostError(Code.STORAGE, "refused")

    monkeypatch.setattr(store, "_commit", fails_once)
    async with running(store):
        store.submit([put("1", b"old"), put("2")], lambda: None)
        await is_writing.wait()
        store.submit([put("1", b"new"), put("3")], lambda: None)
        gate.set()
        await commit(store)
    assert rows_on_disk(rows_at) == {"1": b"new", "2": b"{}", "3": b"{}"}


async def test_failed_commit_leaves_the_file_as_it_was(path: Path) -> None:
    file = StateFile(path)
    store = StateStore(file)
    failed = trio.Event()
    async with running(store):
        await commit(store, put("before"))
        pages = file._connection.execute("PRAGMA page_count").fetchone()[0]
        file._connection.execute(f"PRAGMA max_page_count = {pages}")
        changes = [Change(Table.SESSIONS, "before", None), put("big", b"x" * 100_000)]
        store.submit(changes, lambda: None, lambda _: failed.set())
        with trio.fail_after(10):
            await failed.wait()
    assert list(rows_on_disk(lambda: StateFile(path))) == ["before"]


class Odd(Struct, frozen=True):
    """A row of our own making."""

    text: object


@pytest.mark.parametrize("table", [Table.SESSIONS, Table.ADDRESSES])
@pytest.mark.parametrize(("key", "row"), [("x", Odd("\ud800")), ("\ud800", Odd("")), ("x", Odd(object()))])
async def test_row_that_has_no_text_costs_its_maker_and_no_other_row(
    rows_at: RowsAt, monkeypatch: pytest.MonkeyPatch, table: Table, key: str, row: Odd
) -> None:
    monkeypatch.setattr(state_store, "STATE_RETRY_SECONDS", 0.01)
    store = StateStore(rows_at())
    failed = trio.Event()
    errors: list[HostError] = []

    def on_failed(error: HostError) -> None:
        errors.append(error)
        failed.set()

    async with running(store):
        store.submit([put("before"), Change(table, key, row)], lambda: None, on_failed)
        with trio.fail_after(10):
            await failed.wait()
        assert f"{table.value}/{key!a}" in errors[0].detail
        await commit(store, put("after"))
        assert store.statistics().last_error == ""
    assert list(rows_on_disk(rows_at)) == ["before", "after"]


async def test_too_much_waiting_for_a_broken_disk_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_store, "STATE_WAITING_ROWS", 3)
    monkeypatch.setattr(state_store, "STATE_RETRY_SECONDS", 60.0)
    file = StateFile(path)
    store = StateStore(file)
    failed = trio.Event()
    async with running(store):
        file._connection.execute("PRAGMA query_only = ON")
        store.submit([put("1"), put("2")], lambda: None, lambda _: failed.set())
        with trio.fail_after(10):
            await failed.wait()
        kept_again(store)
        with pytest.raises(HostError, check=lambda error: error.code is Code.STORAGE):
            store.submit([put("3"), put("4")], lambda: None)
        assert store.statistics().waiting_rows == 2
        assert store.statistics().failures == 1
        file._connection.execute("PRAGMA query_only = OFF")
    assert list(rows_on_disk(lambda: StateFile(path))) == ["1", "2"]


# Files that cannot be used.


def test_file_of_a_running_node_is_refused(path: Path) -> None:
    file = StateFile(path)
    with pytest.raises(HostError, match="in use by a running node"):
        StateFile(path)
    file.close()


def test_file_that_is_no_database_is_refused_and_kept(path: Path) -> None:
    path.write_bytes(b"not a database at all, but precious" * 100)
    with pytest.raises(HostError, check=lambda error: error.code is Code.STORAGE):
        StateFile(path)
    assert path.read_bytes().startswith(b"not a database")


def test_file_of_a_newer_version_is_refused(path: Path) -> None:
    StateFile(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(HostError, match="newer version"):
        StateFile(path)


def test_missing_folder_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(HostError, check=lambda error: error.code is Code.STORAGE):
        StateFile(tmp_path / "nowhere" / "state.sqlite")


def test_file_is_for_its_owner_only(path: Path) -> None:
    file = StateFile(path)
    assert path.stat().st_mode & 0o077 == 0
    assert path.with_name("state.sqlite-wal").stat().st_mode & 0o077 == 0
    file.close()


# kill -9.

_VICTIM = """
import sys
from pathlib import Path
import trio
from msgspec import Raw
from msg_node.kernel.changes import Change, Table
from msg_node.storage.state_file import StateFile
from msg_node.storage.state_store import StateStore

async def main():
    store = StateStore(StateFile(Path(sys.argv[1])))
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        for number in range(1_000_000):
            done = trio.Event()
            def reported(number=number, done=done):
                sys.stdout.write(f"{number}\\n")
                sys.stdout.flush()
                done.set()
            store.submit([Change(Table.SESSIONS, str(number), Raw(b"{}"))], reported)
            if number % 4 == 0:
                await done.wait()

trio.run(main)
"""


def test_everything_acknowledged_is_there_after_kill_9(path: Path) -> None:
    root = Path(state_store.__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", _VICTIM, str(path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
    ) as victim:
        assert victim.stdout is not None
        acknowledged = [int(victim.stdout.readline()) for _ in range(40)]
        victim.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in victim.stdout.read().splitlines(keepends=True) if line.endswith(b"\n")]
    rows = rows_on_disk(lambda: StateFile(path))
    assert {str(number) for number in acknowledged} <= rows.keys()
    assert sorted(map(int, rows)) == list(range(len(rows)))  # and no gaps: commits keep their order
