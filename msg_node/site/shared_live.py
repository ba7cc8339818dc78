"""The one `live` document of a domain whose nodes share an engine: signed by one of them, served by all.

Readers refuse a document that is older than one they have seen, or has its serial and other content. So nodes agree:
the document is in the engine, replaced by compare-and-set, and a node that finds it due or incomplete signs the next
one. It names the links of all nodes that hold their names, and the keys that prove them. A node whose publication
is older than what the document names leaves that as it is. Source: trust and hosts, section 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from msg_node.cluster.core.published import Published
from msg_node.site.publication import SignedLive
from protofly.documents import ALTERNATES, PINS, Endpoint, Live


class LiveOfDomain(Protocol):
    """Shared `live` document of the nodes of a domain. Blocking; every method raises EngineError."""

    def nodes(self) -> list[Published]:
        """The part that each node that holds its name adds, in the order of the names."""

    def read(self) -> SignedLive | None:
        """The document of now, None before the first."""

    def replace(self, new: SignedLive, old: SignedLive | None) -> bool:
        """Put a document in place of the one that was read; False when another node was faster."""


def joint_endpoint(own: Endpoint, nodes: Sequence[Published]) -> Endpoint:
    """The endpoint of a node with the places of all nodes: the first one's as its URL, the others' as alternates.

    Key pins hold for all places or for none.
    """
    urls = list(dict.fromkeys(one.url for one in nodes))[: ALTERNATES + 1] or [own.url]
    pins = sorted({*own.spki, *(pin for one in nodes for pin in one.pins)})
    has_pins = len(pins) <= PINS and own.spki and all(one.pins for one in nodes)
    return msgspec.structs.replace(own, url=urls[0], alternates=urls[1:], spki=pins if has_pins else [])


def is_behind(ours: Live, newest: Live) -> bool:
    """True if a document names a newer publication than ours: root, stub, or revocations besides ours."""
    if ours.root.version != newest.root.version:
        return ours.root.version < newest.root.version
    serials = {name: stub.serial for name, stub in ours.stubs.items()}
    if any(stub.serial > serials.get(name, stub.serial) for name, stub in newest.stubs.items()):
        return True
    return ours.stubs == newest.stubs and set(ours.revoked.modules) < set(newest.revoked.modules)
