"""What operators have said about nodes that are silent, read from the lake."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

import pyarrow as pa

from pipeline.schemas import NODE_DECLARATION, Table


class ReadsSmall(Protocol):
    """A lake, as declarations are read from it."""

    def read_small(self, table: Table, /) -> pa.Table:
        """Its newest version."""


class Declaration(Enum):
    """A statement about a node."""

    VOUCHED = "vouched"
    """It wrote nothing more up to the end of a day."""
    RETIRED = "retired"
    """It will never write anything again."""
    WITHDRAWN = "withdrawn"
    """What was said before does not count any more."""


def declared_until(lake: ReadsSmall) -> dict[str, int]:
    """Until when operators vouch for which node, in µs; without those about which nothing is said any more."""
    found: dict[str, int | None] = {}
    for row in sorted(lake.read_small(NODE_DECLARATION).to_pylist(), key=lambda row: int(row["entered_us"])):
        found[row["node"]] = row["until_us"]
    return {node: until_us for node, until_us in found.items() if until_us is not None}
