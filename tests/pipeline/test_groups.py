"""Sorting, finding and adding up whole columns: the same as plain Python says."""

from __future__ import annotations

from functools import reduce
from operator import xor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.columns.groups import (
    MASK,
    Rows,
    column,
    dense,
    from_zero,
    group_numbers,
    in_order,
    in_pieces,
    is_word,
    lengths_of,
    run_of_rows,
    runs,
    sums,
    sums_modulo,
    xors,
)

signed = st.integers(-(1 << 63), (1 << 63) - 1)
few_or_wide = st.lists(st.one_of(st.integers(-3, 3), signed), max_size=50)
words = st.sampled_from(["a.example", "b.example", "c.example", None])


@given(values=few_or_wide)
@example(values=[])
@example(values=[(1 << 62) - 1, -(1 << 62), 0])
@example(values=[1 << 61, -(1 << 61), 0])
@example(values=[(1 << 61) - 1, -(1 << 61), 0])
def test_rows_come_in_the_order_of_a_stable_sort(values: list[int]) -> None:
    numbers = np.array(values, np.int64)
    order, ascending = in_order(numbers)
    assert order.tolist() == sorted(range(len(values)), key=values.__getitem__)
    assert ascending.tolist() == sorted(values)


@given(values=few_or_wide)
def test_every_row_knows_the_run_it_is_in(values: list[int]) -> None:
    order, starts = runs(np.array(values, np.int64))
    different = sorted(set(values))
    assert run_of_rows(order, starts).tolist() == [different.index(value) for value in values]
    rank, count = dense(np.array(values, np.int64))
    assert (rank.tolist(), count) == ([different.index(value) for value in values], len(different))


@given(members=st.lists(st.tuples(st.integers(0, 4), signed), max_size=50))
def test_folds_of_runs_are_those_of_a_plain_loop(members: list[tuple[int, int]]) -> None:
    members.sort(key=lambda member: member[0])
    groups = {key: [value for other, value in members if other == key] for key, _ in members}
    order, starts = runs(np.array([key for key, _ in members], np.int64))
    values = np.array([value for _, value in members], np.int64)[order]
    assert xors(values, starts).tolist() == [reduce(xor, group) for group in groups.values()]
    assert [fold & MASK for fold in sums_modulo(values, starts).tolist()] == [
        sum(group) & MASK for group in groups.values()
    ]
    assert lengths_of(starts, len(values)).tolist() == [len(group) for group in groups.values()]


@given(keys=st.lists(st.tuples(words, words), max_size=8), wanted=st.lists(st.tuples(words, words), max_size=8))
def test_the_last_row_with_a_key_is_found_and_none_for_others(
    keys: list[tuple[str | None, str | None]], wanted: list[tuple[str | None, str | None]]
) -> None:
    def columns(pairs: list[tuple[str | None, str | None]]) -> list[pa.Array]:
        return [pa.array([pair[place] for pair in pairs], pa.string()) for place in range(2)]

    last = {pair: row for row, pair in enumerate(keys)}
    assert Rows(*columns(keys)).find(*columns(wanted)).tolist() == [last.get(pair, -1) for pair in wanted]


def test_a_key_of_one_column_is_found() -> None:
    rows = Rows(pa.array(["b", "a", "b"]))
    assert rows.find(pa.array(["a", "x", "b", None])).tolist() == [1, -1, 2, -1]


def test_keys_of_too_many_words_are_refused() -> None:
    many = pa.array([f"{number}" for number in range(1 << 8)])
    with pytest.raises(OverflowError, match="too many"):
        Rows(*[many] * 8)


def test_keys_of_62_bits_are_found_and_longer_ones_refused() -> None:
    yes_or_no = pa.array(["yes", None, "no"]).filter(pa.array([True, True, False]))
    columns = [yes_or_no] * 62
    assert Rows(*columns).find(*columns).tolist() == [0, 1]
    with pytest.raises(OverflowError, match="too many"):
        Rows(*columns, yes_or_no)


@pytest.mark.parametrize("is_list", [False, True], ids=["texts", "numbers in a list"])
def test_null_is_no_word(is_list: bool) -> None:
    texts = pa.array(["out", None, "in", "out"])
    assert is_word(texts.dictionary_encode() if is_list else texts, "out").tolist() == [True, False, False, True]


@given(rows=st.lists(st.tuples(*[st.sampled_from([0, 1, (1 << 39) - 1, (1 << 62) - 1])] * 4), min_size=1, max_size=20))
def test_keys_of_any_size_are_numbered_in_their_order(rows: list[tuple[int, ...]]) -> None:
    """Four columns of up to 2^62 different numbers: no product of them fits into 64 bits."""
    columns = [np.array(values, np.int64) for values in zip(*rows, strict=True)]
    for keys in ([(values, 1 << 62) for values in columns], [from_zero(values) for values in columns]):
        found, count = group_numbers(keys)
        rank = {row: place for place, row in enumerate(sorted(set(rows)))}
        assert dense(found)[0].tolist() == [rank[row] for row in rows]
        assert 0 <= found.min() <= found.max() < count <= 1 << 62


@given(values=few_or_wide)
def test_numbers_from_zero_are_below_their_count_and_in_the_same_order(values: list[int]) -> None:
    found, count = from_zero(np.array(values, np.int64))
    different = sorted(set(values))
    assert dense(found)[0].tolist() == [different.index(value) for value in values]
    assert all(0 <= number < count for number in found.tolist())


@pytest.mark.parametrize(
    "values",
    [
        [9_200_000_000_000_000_000],
        [-9_200_000_000_000_000_000],
        [9_200_000_000_000_000_000, 0],
        [4_600_000_000_000_000_000] * 2,
        [9_200_000_000_000_000_000 // 11] * 11,  # as doubles their sum is larger
    ],
)
def test_sums_close_to_63_bits_are_exact_and_larger_ones_refused(values: list[int]) -> None:
    start = np.zeros(1, np.int64)
    assert sums(np.array(values, np.int64), start).tolist() == [sum(values)]
    with pytest.raises(OverflowError, match="beyond 64 bits"):
        sums(np.array([*values, values[0] // 50, values[0] // 50], np.int64), start)


def test_large_values_of_different_runs_are_no_overflow() -> None:
    values = np.array([1 << 62, -(1 << 62), 1 << 62, 5], np.int64)
    assert sums(values, np.arange(4)).tolist() == values.tolist()
    assert sums(values[:0], values[:0]).tolist() == []


def test_a_column_of_a_batch_or_of_a_table_in_pieces_comes_in_one() -> None:
    batch = pa.record_batch({"text": ["a", None]})
    texts = pa.table({"text": pa.chunked_array([["a"], [None, "b"]])})
    coded = pa.table({"text": pa.chunked_array([pa.array(["a"]), pa.array([None, "b"])]).dictionary_encode()})
    apart = [pa.array(["a"]).dictionary_encode(), pa.array([None, "b"]).dictionary_encode()]
    assert column(batch, "text").to_pylist() == ["a", None]
    for table in (texts, coded, pa.table({"text": pa.chunked_array(apart)})):
        assert column(table, "text").to_pylist() == ["a", None, "b"]


def test_batches_are_put_together_until_they_have_so_many_rows() -> None:
    batches = [pa.record_batch({"n": list(range(size))}) for size in (1, 1, 0, 1, 1, 1)]
    assert [piece.num_rows for piece in in_pieces(batches, 2)] == [2, 2, 1]
    assert [piece.num_rows for piece in in_pieces(batches[:3], 2)] == [2]
