"""The addresses of our runtimes, for stubs whose domains have to be shown them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msg_node.node_state import NodeState
from protofly.address import canonical_key


class AllocatedAddresses:
    """Addresses that runtimes of our domain allocated or claimed; not those lent to them, nor those of guests."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._notified = state.owners.notified

    def __iter__(self) -> Iterator[str]:
        """All addresses that somebody owns now, session by session."""
        state = self._state
        lent = state.owners.pools.keys
        for session in state.sessions:
            for row in state.owners.owned(session.sid):
                if not row.is_guest and canonical_key(row.url) not in lent:
                    yield row.url

    def on_change(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Have `notify` called after each change; returns what ends that."""
        self._notified.append(notify)
        return lambda: self._notified.remove(notify)
