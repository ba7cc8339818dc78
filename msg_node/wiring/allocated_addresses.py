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

    def now(self, domain: str) -> Iterator[str]:  # noqa: ARG002  a domain is shown all that are here, and judged later
        """See `OurAddresses`: all that somebody owns here, session by session."""
        state = self._state
        lent = state.owners.pools.keys
        for session in state.sessions:
            for row in state.owners.owned(session.sid):
                if not row.is_guest and canonical_key(row.url) not in lent:
                    yield row.url

    def follow(self, domain: str, notify: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
        """See `OurAddresses`."""
        self._notified.append(notify)
        return lambda: self._notified.remove(notify)
