"""How rows of many keys are found in the engine: by digests that are part of the question, and so many at a time.

The engine chooses its way by statistics that may be minutes old. Of a node that owned nothing then it expects one row;
so it may read all rows of the node for each question, and compare each of ten thousand with each of ten thousand keys.
So the names of nodes stand where it cannot look them up there: in `(SELECT ...)`, for which it takes an average, or
where they are no way to the rows at all (`node || ''`). Then what a statement costs grows with its keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import Final, TypeVar

_Item = TypeVar("_Item")

ROWS_AT_A_TIME: Final = 2_000
"""Most of one statement: an engine of `ROWS_A_SECOND` has done it before its `statement_timeout`."""


def digests(keys: Collection[bytes]) -> list[bytes]:
    """The digests that stand for these keys in rows and claims."""
    return [hashlib.sha256(key).digest() for key in keys]


def in_order(keys: Collection[str]) -> list[bytes]:
    """Keys as bytes, by their digests: locks are taken in this order, so nodes do not wait for each other in turn."""
    return sorted((key.encode() for key in keys), key=lambda key: hashlib.sha256(key).digest())


def portions(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """Items for one statement after the other."""
    for first in range(0, len(items), ROWS_AT_A_TIME):
        yield items[first : first + ROWS_AT_A_TIME]
