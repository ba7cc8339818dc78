"""Hashes of whole columns against the plainest code for one value, and that against published ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.columns.hashing import SEED, xxhash64
from tests.pipeline.xxhash import MASK, plain_xxhash64

rows = st.tuples(
    st.none() | st.binary(max_size=70),
    st.none() | st.binary(min_size=16, max_size=16),
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.integers(-(2**31), 2**31 - 1),
)
Row = tuple[bytes | None, bytes | None, int, int | None]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Call me Ishmael. Some years ago--never mind how long precisely-", 0x02A2E85470D6FD96),
    ],
)
def test_the_hash_is_the_published_one(data: bytes, expected: int) -> None:
    assert plain_xxhash64(data, 0) == expected


def test_the_seed_stays_for_what_is_stored_is_compared_by_these_hashes() -> None:
    assert [one & MASK for one in xxhash64(pa.array([b"abc"], pa.binary())).tolist()] == [plain_xxhash64(b"abc", 42)]


@given(found=st.lists(rows, max_size=20), cut=st.integers(0, 20))
def test_hashes_of_columns_are_those_of_each_row_and_pass_over_nulls(found: list[Row], cut: int) -> None:
    columns: list[list[object]] = [list(column) for column in zip(*found, strict=True)] or [[], [], [], []]
    first, second = (pa.array(column, pa.binary()).slice(cut) for column in columns[:2])
    hashes = xxhash64(first, second, np.array(columns[2][cut:], np.int64), pa.array(columns[3], pa.int32()).slice(cut))
    expected = []
    for *texts, number, other in found[cut:]:
        hashed = SEED
        numbers = (None if one is None else one.to_bytes(8, "little", signed=True) for one in (number, other))
        for part in (*texts, *numbers):
            hashed = hashed if part is None else plain_xxhash64(part, hashed)
        expected.append(hashed)
    assert [value & MASK for value in hashes.tolist()] == expected


def test_texts_of_every_length_around_the_stripes_have_their_hash() -> None:
    """From 32 bytes on, four lanes go along; drawn texts are mostly shorter."""
    texts = [bytes((7 * place + length) % 256 for place in range(length)) for length in range(140)]
    for column in (pa.array(texts, pa.binary()), pa.array(texts * 2, pa.binary()).slice(140)):
        hashes = xxhash64(column)
        assert [value & MASK for value in hashes.tolist()] == [plain_xxhash64(text, SEED) for text in texts]
    for column in (pa.array([b"12345678", b"abcdefgh", b"ABCDEFGH"]).slice(1, 1), pa.array([None, None], pa.binary())):
        expected = [SEED if text is None else plain_xxhash64(text, SEED) for text in column.to_pylist()]
        assert [value & MASK for value in xxhash64(column).tolist()] == expected
    alike = pa.array([text for text in texts if len(text) == 96] * 3, pa.binary())
    assert {value & MASK for value in xxhash64(alike).tolist()} == {plain_xxhash64(texts[96], SEED)}
