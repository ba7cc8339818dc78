"""The addresses of the node itself, which no runtime may take."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from msg_node.kernel.resources import P2P_NAMES


@dataclass(frozen=True, slots=True)
class OwnNames:
    """Names of this node.

    Attributes:
        domains: Our domain and its aliases.
        nodes: Canonical keys of the node's own runtime address.
        reserved: Runtime keys that no session may open: those of the node, and of P2P stubs.
    """

    domains: frozenset[str]
    nodes: frozenset[str]
    reserved: frozenset[str]

    @classmethod
    def of(cls, domains: Collection[str], nodes: Collection[str] = ()) -> OwnNames:
        """The names of a node of these domains."""
        p2p = {f"runtime://{domain}/{name}" for domain in domains for name in P2P_NAMES}
        return cls(frozenset(domains), frozenset(nodes), frozenset(nodes) | p2p)
