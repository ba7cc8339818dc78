"""Random bytes are each given once, however many are asked for at a time."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from protofly.random_stock import STOCK_BYTES, RandomStock


@given(st.lists(st.integers(1, STOCK_BYTES), max_size=40))
def test_each_byte_is_given_once_and_as_many_as_asked(counts: list[int]) -> None:
    numbers = count()

    def read(size: int) -> bytes:
        return b"".join(next(numbers).to_bytes(4, "little") for _ in range(size // 4))

    stock = RandomStock(read)
    taken = [stock.take(one) for one in counts]
    assert [len(one) for one in taken] == counts
    unbounded = b"".join(number.to_bytes(4, "little") for number in range(next(numbers)))
    position = 0
    for one in taken:
        position = unbounded.index(one, position) + len(one)
