"""The 64-bit hash that stands for a message in set folds, over whole columns: Spark's `xxhash64` in numpy.

XXH64 with seed 42; the hash of one column is the seed of the next, and a null leaves it as it is. So folds that a
worker makes are those that SQL would make, of any lake and in a partner's file. A test holds both against each other.

Source: specification of xxHash (Spark has it in `org.apache.spark.sql.catalyst.expressions.XXH64`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
_Hashes = NDArray[np.uint64]

SEED: Final = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
_STRIPE: Final = 32
_BLOCK: Final = 1 << 14
"""Rows whose numbers stay in the processor's cache."""


def xxhash64(*columns: pa.Array | Numbers, after: Numbers | None = None) -> Numbers:
    """Hash of each row over these columns: binary ones, or whole numbers, which count as 64 bits.

    Args:
        columns: At least one.
        after: What this function has given for columns before these.
    """
    hashes = np.full(len(columns[0]), SEED, np.uint64) if after is None else after.view(np.uint64).copy()
    for column in columns:
        if isinstance(column, np.ndarray):
            _add_numbers(column, hashes)
        elif pa.types.is_integer(column.type):
            before = hashes.copy() if column.null_count else None
            _add_numbers(column.fill_null(0).to_numpy().astype(np.int64, copy=False), hashes)
            if before is not None:
                np.copyto(hashes, before, where=np.asarray(column.is_null()))
        else:
            for chosen, rows in binary_rows(column):
                picked = hashes[chosen]
                _add_bytes(rows, picked)
                hashes[chosen] = picked
    return hashes.view(np.int64)


def binary_rows(column: pa.Array) -> Iterator[tuple[slice | NDArray[np.intp], NDArray[np.uint8]]]:
    """Values that are not null, of each length together: which rows they are in, and one row of bytes for each."""
    _, offset_buffer, data = column.buffers()
    if not len(column):
        return
    offsets = np.frombuffer(offset_buffer, np.int32, len(column) + 1, column.offset * 4)
    lengths = np.diff(offsets)
    content = np.frombuffer(b"" if data is None else data, np.uint8)
    if not column.null_count and lengths.min() == lengths.max():
        length = int(lengths[0])
        yield slice(None), content[offsets[0] : offsets[0] + length * len(lengths)].reshape(len(lengths), length)
        return
    present = np.asarray(pc.is_valid(column))
    for length in np.unique(lengths[present]).tolist():
        chosen = np.flatnonzero((lengths == length) & present)
        yield chosen, content[offsets[chosen][:, None] + np.arange(length)]


def _add_numbers(numbers: Numbers, hashes: _Hashes) -> None:
    _add_words(numbers.astype("<u8", casting="unsafe", copy=False).reshape(-1, 1), hashes)


def _add_bytes(rows: NDArray[np.uint8], hashes: _Hashes) -> None:
    """Go on with rows of bytes, each as long as the others."""
    count, length = rows.shape
    if length % 8 == 0 and 0 < length < _STRIPE:
        _add_words(np.ascontiguousarray(rows).view("<u8"), hashes)
        return
    whole = length - length % 8
    words = np.ascontiguousarray(rows[:, :whole]).view("<u8") if whole else np.zeros((count, 0), np.uint64)
    with np.errstate(over="ignore"):
        done = length - length % _STRIPE
        state = _striped(words[:, : done // 8], hashes) if done else hashes + _P5
        state += np.uint64(length)
        for place in range(done // 8, whole // 8):
            _mix(state, words[:, place])
        if length - whole >= 4:
            state ^= np.ascontiguousarray(rows[:, whole : whole + 4]).view("<u4")[:, 0].astype(np.uint64) * _P1
            state[:] = _rotated(state, 23) * _P2 + _P3
            whole += 4
        for place in range(whole, length):
            state ^= rows[:, place].astype(np.uint64) * _P5
            state[:] = _rotated(state, 11) * _P1
        _finish(state)
    hashes[:] = state


def _add_words(words: NDArray[np.uint64], hashes: _Hashes) -> None:
    """The same for what all messages have, one to three words."""
    with np.errstate(over="ignore"):
        for begin in range(0, len(hashes), _BLOCK):
            state = hashes[begin : begin + _BLOCK]
            state += _P5 + np.uint64(8 * words.shape[1])
            for place in range(words.shape[1]):
                _mix(state, words[begin : begin + _BLOCK, place])
            _finish(state)


def _striped(words: NDArray[np.uint64], seeds: _Hashes) -> _Hashes:
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
    for place in range(words.shape[1]):
        lane = lanes[place % 4]
        lane[:] = _rotated(lane + words[:, place] * _P2, 31) * _P1
    state = np.zeros_like(seeds)
    for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True):
        state += _rotated(lane, bits)
    for lane in lanes:
        state = (state ^ _rotated(lane * _P2, 31) * _P1) * _P1 + _P4
    return state


def _mix(state: _Hashes, words: NDArray[np.uint64]) -> None:
    state ^= _rotated(words * _P2, 31) * _P1
    state[:] = _rotated(state, 27)
    state *= _P1
    state += _P4


def _finish(state: _Hashes) -> None:
    state ^= state >> np.uint64(33)
    state *= _P2
    state ^= state >> np.uint64(29)
    state *= _P3
    state ^= state >> np.uint64(32)


def _rotated(values: _Hashes, bits: int) -> _Hashes:
    return values << np.uint64(bits) | values >> np.uint64(64 - bits)
