"""Sessions that have proved nothing, by the network that they come from: who gives way when all places are taken.

A stranger has as many runtimes as it likes, and few networks. So when a node has no place left, the network with the
most sessions without a credential loses its oldest one to a runtime with a credential, and to a network that has fewer
and goes on having fewer. Then strangers keep nobody out, and two networks never take turns with one place.
"""

from __future__ import annotations

from collections import OrderedDict

from msg_node.kernel.session import Session


class Crowds:
    """All sessions without a credential."""

    def __init__(self) -> None:
        self._networks: dict[str, OrderedDict[int, Session]] = {}  # in each the oldest first

    def add(self, session: Session) -> None:
        """Count a session where it comes from; one with a credential counts nowhere."""
        if not session.proof.credential:
            self._networks.setdefault(session.network, OrderedDict())[session.sid] = session

    def discard(self, session: Session) -> None:
        """Count a session no more; before its proof or its network changes."""
        some = self._networks.get(session.network, OrderedDict())
        some.pop(session.sid, None)
        if not some:
            self._networks.pop(session.network, None)

    def move(self, session: Session, network: str) -> None:
        """Count a session for another network from now on, as its newest one."""
        if session.network != network:
            self.discard(session)
            session.network = network
            self.add(session)

    def giving_way(self, network: str | None) -> Session | None:
        """The session that has to end for a further one; None if nobody owes a place.

        Args:
            network: Where somebody comes from who has proved nothing; None: they have a credential.
        """
        largest = max(self._networks.values(), key=len, default=OrderedDict())
        fewer = 0 if network is None else len(self._networks.get(network, ()))
        return next(iter(largest.values())) if len(largest) > fewer + 1 else None
