"""The makes of foreign nodes that our stubs speak to, for tests that hold for each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from interop.foreign.nodejs import NodejsNode
from interop.foreign.nomatrix import NomatrixNode
from interop.foreign.simulator import ForeignNode, LocalRuntime
from interop.foreign.vertx import VertxNode


@dataclass(frozen=True)
class Dialect:
    """A make of nodes: its simulator, and the stub for it."""

    stub: str
    make: Callable[[str], ForeignNode]


DIALECTS = [
    Dialect("vertx_peer", VertxNode),
    Dialect("nomatrix_peer", NomatrixNode),
    Dialect("nodejs_peer", NodejsNode),
]

each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.stub)


async def bruno_of(node: ForeignNode) -> tuple[LocalRuntime, str]:
    """A runtime of the foreign domain, and its hyperty."""
    bruno = LocalRuntime(node, "bruno")
    address = f"domain://msg-node.{node.domain}/address-allocation"
    answer = await bruno.ask("create", bruno.url, address, {"scheme": "hyperty", "value": {"number": 1}})
    [hyperty] = answer["value"]["allocated"]
    return bruno, hyperty
