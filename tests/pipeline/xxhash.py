"""XXH64 in plain Python, out of its specification: what hashes of whole columns are held against."""

from __future__ import annotations

import struct
from typing import Final

MASK: Final = 2**64 - 1
P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def plain_xxhash64(data: bytes, seed: int) -> int:
    """Hash of any bytes."""
    rest = len(data)
    if rest < 32:
        state = (seed + P5) & MASK
    else:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        for stripe in struct.iter_unpack("<4Q", data[: rest - rest % 32]):
            lanes = [_round(lane, word) for lane, word in zip(lanes, stripe, strict=True)]
        state = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            state = ((state ^ _round(0, lane)) * P1 + P4) & MASK
        data = data[rest - rest % 32 :]
    state = (state + rest) & MASK
    while len(data) >= 8:
        state ^= _round(0, int.from_bytes(data[:8], "little"))
        state, data = (_rotated(state, 27) * P1 + P4) & MASK, data[8:]
    if len(data) >= 4:
        state ^= int.from_bytes(data[:4], "little") * P1 & MASK
        state, data = (_rotated(state, 23) * P2 + P3) & MASK, data[4:]
    for byte in data:
        state = _rotated(state ^ byte * P5 & MASK, 11) * P1 & MASK
    for shift, prime in ((33, P2), (29, P3)):
        state = (state ^ state >> shift) * prime & MASK
    return state ^ state >> 32


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * P2) & MASK, 31) * P1 & MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK
