"""What operators have said about nodes that are silent, read from the lake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Protocol

import pyarrow as pa

from pipeline.core.completeness import GRACE_S
from pipeline.core.stretches import Stretch
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


def declared_until(lake: ReadsSmall, stretches: Iterable[Stretch]) -> dict[str, int]:
    """Until when operators vouch for which node, in µs; without those about which nothing is said any more.

    Args:
        lake: Its `node_declaration` is read.
        stretches: Of segments of any kind: a node that has written since it was retired does not count as retired.
    """
    rows = _newest(lake)
    back = _back(rows, stretches)
    return {node: row["until_us"] for node, row in rows.items() if row["until_us"] is not None and node not in back}


def written_again(lake: ReadsSmall, stretches: Iterable[Stretch]) -> frozenset[str]:
    """Names of the nodes that were retired and have written since."""
    return _back(_newest(lake), stretches)


def _newest(lake: ReadsSmall) -> dict[str, Mapping[str, Any]]:
    rows = sorted(lake.read_small(NODE_DECLARATION).to_pylist(), key=lambda row: int(row["entered_us"]))
    return {row["node"]: row for row in rows}


def _back(rows: Mapping[str, Mapping[str, Any]], stretches: Iterable[Stretch]) -> frozenset[str]:
    retired_us = {
        # The clock of a node may be ahead of the operator's.
        node: max(row["entered_us"], row["seen_us"] or 0) + GRACE_S * 1_000_000
        for node, row in rows.items()
        if row["declaration"] == Declaration.RETIRED.value
    }
    return frozenset(
        one.node for one in stretches if one.node in retired_us and one.newest_closed_us > retired_us[one.node]
    )
