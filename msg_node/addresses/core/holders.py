"""Who answers for an address: its owner, the session of the runtime or of the address above it, or its reporter."""

from __future__ import annotations

from msg_node.addresses.core.allocation import Owners
from msg_node.addresses.core.subscriptions import Listeners
from msg_node.kernel.directories import SessionDirectory
from msg_node.kernel.own_names import OwnNames
from msg_node.kernel.runtime_address import runtime_part

NODE_ITSELF = -1
"""Stands for this node where the number of a session is asked for."""


class Holders:
    """Finds who answers for an address. It keeps nothing of its own."""

    def __init__(self, owners: Owners, listeners: Listeners, sessions: SessionDirectory, own: OwnNames) -> None:
        self.owners = owners
        self.listeners = listeners
        self.sessions = sessions
        self._own = own

    def speaker_of(self, key: str) -> int | None:
        """The session that owns an address, or one above it; None when no session of ours does."""
        holder = self.holder(key)
        return holder if holder is not None and holder > 0 else None

    def reporter_of(self, object_key: str) -> int | None:
        """The number of who speaks for an object or entity: its owner, the owner of what is above, or its reporter.

        `NODE_ITSELF` for this node's own address.
        """
        holder = self.holder(object_key)
        return self.listed_reporter_of(object_key) if holder is None else holder

    def holder(self, key: str) -> int | None:
        """The owner of an address, or of what is above it; `NODE_ITSELF`; None when nobody holds it."""
        owner = self.owners.owner(key)
        return self.holder_above(key) if owner is None else owner

    def holder_above(self, key: str) -> int | None:
        """The session of the runtime that an address is below, or the owner of an address above."""
        runtime_key = runtime_part(key)
        if runtime_key and runtime_key not in self._own.reserved:
            return self.sessions.by_runtime(runtime_key)
        above = self.owners.owner_above(key)
        if above is not None:
            return above[0]
        return NODE_ITSELF if runtime_key in self._own.nodes else None  # P2P stubs: nobody's until they are announced

    def listed_reporter_of(self, key: str) -> int | None:
        """Return the reporter of an object that nobody owns: the first that subscribed to its `subscription`."""
        base = key.partition("/children/")[0].removesuffix("/subscription").removesuffix("/changes")
        return next(iter(self.listeners.targets(base + "/subscription")), None)

    def is_of_node(self, key: str) -> bool:
        """True if an address is that of this node, or below it: its status, its stubs."""
        return runtime_part(key) in self._own.nodes
