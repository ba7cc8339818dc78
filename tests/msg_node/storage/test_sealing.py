"""A sealed state file: nothing of it can be read, moved or opened without its key, and keys are replaced."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from msgspec import Raw

from msg_node.kernel.changes import Table
from msg_node.storage.file_checks import FileError
from msg_node.storage.sealing import (
    MOST_KEYS,
    Sealer,
    StateKeys,
    UnsealedError,
    add_state_key,
    read_state_keys,
)
from msg_node.storage.state_file import StateFile
from protofly.errors import Code, HostError

ROWS = {
    Table.SESSIONS: {"c": b'{"who":"vera"}', "a": b"{}", "b": b"{}"},
    Table.ADDRESSES: {"hyperty://a.example/vera": b'{"n":1}', "x": b"{}"},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


@pytest.fixture
def keys(tmp_path: Path) -> StateKeys:
    return add_state_key(tmp_path / "state.keys")


def written(path: Path, keys: StateKeys | None) -> None:
    file = StateFile(path, keys)
    file.commit({table: {key: Raw(row) for key, row in rows.items()} for table, rows in ROWS.items()})
    gone = {f"vera {number}": Raw(b'{"text":"%s"}' % (b"vera " * 200)) for number in range(50)}
    file.commit({Table.SESSIONS: dict(gone), Table.ADDRESSES: dict(gone)})
    file.commit({Table.SESSIONS: dict.fromkeys(gone), Table.ADDRESSES: dict.fromkeys(gone)})
    file.close()


def rows_in(path: Path, keys: StateKeys | None) -> dict[Table, dict[str, bytes]]:
    file = StateFile(path, keys)
    try:
        return {table: rows for table, rows in file.load().items() if rows}
    finally:
        file.close()


def names_somebody(path: Path) -> bool:
    return any(b"vera" in one.read_bytes() for one in path.parent.glob("state.sqlite*"))


def test_rows_come_back_in_their_order_and_nobody_reads_them_on_the_disk(path: Path, keys: StateKeys) -> None:
    written(path, keys)
    assert not names_somebody(path)
    found = rows_in(path, keys)
    assert found == ROWS
    assert [list(rows) for rows in found.values()] == [list(rows) for rows in ROWS.values()]


def test_a_file_in_plain_text_is_sealed_whole_and_leaves_nothing_behind(path: Path, keys: StateKeys) -> None:
    written(path, None)
    assert names_somebody(path)
    assert rows_in(path, keys) == ROWS
    assert not names_somebody(path)
    file = StateFile(path, keys)
    file.unseal()
    file.close()
    assert rows_in(path, None) == ROWS


def test_a_key_that_is_put_in_front_seals_from_the_next_opening_on(path: Path, keys: StateKeys) -> None:
    written(path, keys)
    newer = add_state_key(keys.file)
    assert newer.ids[1:] == keys.ids
    assert rows_in(path, newer) == ROWS
    newest_alone = StateKeys(keys.file, newer.secrets[:1])
    assert rows_in(path, newest_alone) == ROWS, "the older key is not needed any more"
    with pytest.raises(FileError, match=newer.ids[0]):
        StateFile(path, keys)


def test_what_was_not_scrubbed_is_scrubbed_at_the_next_opening(path: Path, keys: StateKeys) -> None:
    """The process died between the commit that sealed the file and what removes the old pages."""
    written(path, None)

    class DiedError(Exception):
        pass

    def die(_file: StateFile) -> None:
        raise DiedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StateFile, "scrub", die)
        with pytest.raises(DiedError):
            StateFile(path, keys)
    scrubbed: list[None] = []
    with pytest.MonkeyPatch.context() as patch:
        scrub = StateFile.scrub
        patch.setattr(StateFile, "scrub", lambda file: scrubbed.append(scrub(file)))
        assert rows_in(path, keys) == rows_in(path, keys) == ROWS
    assert len(scrubbed) == 1
    assert not names_somebody(path)


def test_a_sealed_file_is_opened_with_its_own_key_only(path: Path, keys: StateKeys, tmp_path: Path) -> None:
    written(path, keys)
    foreign = add_state_key(tmp_path / "other.keys")
    for given, word in ((None, "state-sealed"), (foreign, "state-key-foreign")):
        with pytest.raises(FileError, match=keys.ids[0]) as caught:
            StateFile(path, given)
        assert caught.value.word == word
    assert rows_in(path, keys) == ROWS


@pytest.mark.parametrize(
    "attack",
    [
        "UPDATE sessions SET row = (SELECT row FROM sessions LIMIT 1)",
        "UPDATE sessions SET row = substr(row, 1, length(row) - 1)",
        "UPDATE sessions SET row = x'01'",
        "UPDATE sessions SET row = CAST('{}' AS BLOB)",
        "INSERT INTO sessions SELECT 'c', row FROM sessions LIMIT 1",
        "INSERT INTO registry SELECT key, row FROM sessions",
        "UPDATE addresses_log SET changes = CAST('{}' AS BLOB)",
        "INSERT INTO subscriptions_log (changes) SELECT changes FROM addresses_log",
        "UPDATE sealed SET proof = x'00'",
    ],
)
def test_what_another_wrote_or_moved_is_refused(path: Path, keys: StateKeys, attack: str) -> None:
    written(path, keys)
    database = sqlite3.connect(path)
    database.execute(attack)
    database.commit()
    database.close()
    with pytest.raises(HostError, check=lambda error: error.code is Code.STORAGE):
        rows_in(path, keys)


def test_no_nonce_repeats_and_the_same_text_never_looks_the_same(keys: StateKeys) -> None:
    texts = [sealer.seal(b"text", "here") for sealer in (Sealer(keys), Sealer(keys)) for _ in range(100)]
    assert len({text[:33] for text in texts}) == len(texts) == len(set(texts))
    assert {Sealer(keys).open(text, "here") for text in texts} == {b"text"}
    with pytest.raises(UnsealedError):
        Sealer(keys).open(texts[0], "there")


@pytest.mark.parametrize(
    "content", [b"", b"\n# only words\n", b"x", b"QUJD\n", b"QUJD" * 11, b"\xff\n", (b"A" * 43 + b"=\n") * 2]
)
def test_what_is_no_key_file_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(FileError) as caught:
        read_state_keys(file)
    assert caught.value.word == "state-key-malformed"


def test_a_key_file_is_private_and_bounded(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    for _ in range(MOST_KEYS):
        add_state_key(file)
    assert (file.stat().st_mode & 0o777, len(read_state_keys(file).secrets)) == (0o600, MOST_KEYS)
    with pytest.raises(FileError, match="already"):
        add_state_key(file)
    file.chmod(0o640)
    with pytest.raises(FileError, match="chmod 600"):
        read_state_keys(file)
