"""What workers read and write of Parquet files by themselves, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.columns.conditions import Condition, held
from pipeline.lake import file_pieces
from pipeline.lake.file_pieces import FilePiece, Reading, read_piece, read_tasks, tasks_of, write_files

COLUMNS = pa.schema({"name": pa.string(), "n": pa.int64(), "id": pa.binary(), "day": pa.string(), "more": pa.string()})
ROWS = [{"name": word, "n": number, "id": bytes([number])} for number, word in enumerate("abcabcabca")]
HERE = {"day": "2026-03-02"}

values = st.integers(0, 9)
conditions = st.lists(
    st.lists(st.tuples(st.sampled_from(["n", "m"]), st.sampled_from(["==", "<", "<=", ">", ">="]), values), min_size=1),
    min_size=1,
    max_size=3,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Ten rows in four row groups; whole numbers are narrower than asked for."""
    schema = pa.schema({"name": pa.string(), "n": pa.int32(), "id": pa.binary()})
    pq.write_table(pa.Table.from_pylist(ROWS, schema=schema), tmp_path / "rows.parquet", row_group_size=3)
    return tmp_path / "rows.parquet"


def read(path: Path, where: Condition | None = None, columns: pa.Schema = COLUMNS) -> list[dict[str, Any]]:
    piece = FilePiece(str(path), 0, path.stat().st_size, HERE)
    return [row for batch in read_piece(piece, Reading(columns, where)) for row in batch.to_pylist()]


def holds(where: Sequence[Sequence[tuple[str, str, Any]]], row: dict[str, int]) -> bool:
    compared = {"==": int.__eq__, "<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__}
    return any(all(compared[how](row[name], value) for name, how, value in every) for every in where)


def test_columns_come_in_the_types_that_were_asked_for_missing_ones_null_and_partitions_from_the_log(
    path: Path,
) -> None:
    assert read(path) == [row | HERE | {"more": None} for row in ROWS]
    [first, *_] = read_piece(FilePiece(str(path), 0, 1 << 40, HERE), Reading(COLUMNS))
    assert first.schema.names == COLUMNS.names
    assert first.schema.field("n").type == pa.int64()
    assert pa.types.is_dictionary(first.schema.field("name").type)


@pytest.mark.parametrize("size", [1, 40, 150, 10**6])
def test_every_row_is_in_one_task_however_files_are_cut(path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_pieces, "TASK_BYTES", size)
    tasks = tasks_of([(str(path), path.stat().st_size, HERE), (str(path), path.stat().st_size, HERE)])
    numbers = pa.record_batch({"id": list(range(len(tasks)))})
    found = [row for batch in read_tasks(tasks, Reading(COLUMNS), [numbers]) for row in batch.to_pylist()]
    assert [row["n"] for row in found] == 2 * [row["n"] for row in ROWS]
    assert len(tasks) == (1 if size == 10**6 else len(tasks)) > 0
    assert (len(tasks) > 2) == (size < 1000)


@pytest.mark.parametrize(
    "where",
    [
        [[("n", ">=", 4), ("n", "<", 7)]],
        [[("name", "==", "b")]],
        [[("id", ">=", b"\x08")], [("n", "==", 0)]],
        [[("day", "==", "2026-03-02")]],
        [[("day", "==", "2026-03-03")]],
        [[("more", "==", "x")]],
        [[("n", ">", 100)]],
    ],
)
def test_rows_are_those_for_which_the_condition_holds(path: Path, where: Condition) -> None:
    table = pa.Table.from_pylist([row | HERE | {"more": None} for row in ROWS], schema=COLUMNS)
    assert read(path, where) == table.filter(pq.filters_to_expression(where)).to_pylist()


def test_row_groups_in_which_a_condition_cannot_hold_are_not_read(path: Path) -> None:
    batches = list(read_piece(FilePiece(str(path), 0, 1 << 40, HERE), Reading(COLUMNS, [[("n", "==", 4)]])))
    assert [batch.num_rows for batch in batches] == [1]
    content = path.read_bytes()
    spoilt = content.replace(content[4:40], bytes(36), 1)  # in the first row group
    path.write_bytes(spoilt)
    assert [row["n"] for row in read(path, [[("n", "==", 4)]])] == [4]
    with pytest.raises((pa.ArrowException, OSError)):
        read(path)


def test_nulls_are_left_out_by_a_condition_that_all_other_values_meet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, None, 1]}), tmp_path / "nulls.parquet")
    assert [row["n"] for row in read(tmp_path / "nulls.parquet", [[("n", "==", 1)]])] == [1, 1]


@given(where=conditions, low=values, high=values)
def test_what_is_said_to_hold_for_all_rows_or_for_none_does(where: Condition, low: int, high: int) -> None:
    low, high = sorted((low, high))
    rows = [{"n": n, "m": m} for n in range(low, high + 1) for m in range(10)]
    said = held(where, {"n": (low, high)})
    found = {holds(where, row) for row in rows}
    assert said is None or found == {said}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("==", [False, None, None, False]),
        ("<", [False, False, None, True]),
        ("<=", [False, None, True, True]),
        (">", [True, None, False, False]),
        (">=", [True, True, None, False]),
    ],
)
def test_what_a_range_says_of_a_value_below_it_at_either_end_and_above(how: str, said: list[bool | None]) -> None:
    assert [held([[("n", how, value)]], {"n": (2, 4)}) for value in (1, 2, 4, 5)] == said


@pytest.mark.parametrize(("value", "said"), [(1, False), (2, True), (3, False)])
def test_a_range_of_one_value_says_whether_rows_have_it(value: int, *, said: bool) -> None:
    assert held([[("n", "==", value)]], {"n": (2, 2)}) is said
    assert held([[("n", "==", value)]], {"m": (2, 2)}) is None


def test_files_are_written_for_each_value_and_listed(tmp_path: Path) -> None:
    schema = pa.schema({"n": pa.int64(), "day": pa.string()})
    batches = [pa.record_batch({"day": ["b", "a", "b"], "n": [1, 2, 3]}), pa.record_batch({"day": ["a"], "n": [4]})]
    [shown] = write_files(tmp_path, "day", schema, batches)
    found = {row["partition"]: row for row in shown.to_pylist()}
    assert {value: row["rows"] for value, row in found.items()} == {"a": 2, "b": 2}
    assert {value: pq.ParquetFile(row["path"]).read().to_pydict() for value, row in found.items()} == {
        "a": {"n": [2, 4]},
        "b": {"n": [1, 3]},
    }


@pytest.mark.parametrize("day", [None, "..", "../up", "a/b", "a\\b"])
def test_a_value_that_is_no_name_of_a_folder_stays_below_the_folder_and_is_reported_as_it_is(
    tmp_path: Path, day: str | None
) -> None:
    schema = pa.schema({"n": pa.int64(), "day": pa.string()})
    rows = pa.record_batch({"n": [1], "day": pa.array([day], pa.string())})
    (tmp_path / "stage").mkdir()
    [shown] = write_files(tmp_path / "stage", "day", schema, [rows])
    [row] = shown.to_pylist()
    assert row["partition"] == (day or "")
    assert Path(row["path"]).resolve().parent.parent == (tmp_path / "stage").resolve()


def test_nothing_to_write_makes_no_file(tmp_path: Path) -> None:
    [shown] = write_files(tmp_path, "", pa.schema({"n": pa.int64()}), [])
    assert shown.num_rows == 0
    assert not list(tmp_path.iterdir())
