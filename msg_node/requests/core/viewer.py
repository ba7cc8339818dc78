"""Who asks where requests stand, in words that each node of the domain can judge.

Source: message specification, section 19.3.
"""

from __future__ import annotations

import msgspec

from msg_node.kernel.service import Caller
from msg_node.requests.core.parked import Sender
from msg_node.requests.core.tables import RequestTables, is_of_sender
from protofly.address import canonical_key


class Viewer(msgspec.Struct, frozen=True, kw_only=True):
    """A caller of the service.

    Attributes:
        domain: The one that a link is of, "" for a session of ours.
        runtime_key: Of its session, "" without one.
        credential: That the session was opened with, as it is stored.
        addresses: Canonical keys that the session owns.
        is_operator: It sees every request.
    """

    domain: str = ""
    runtime_key: str = ""
    credential: str = ""
    addresses: frozenset[str] = frozenset()
    is_operator: bool = False

    def has_sent(self, tables: RequestTables, sender: Sender, key: str) -> bool:
        """True if a request is its own that `sender` handed in under the name `key`; see `is_sender`."""
        if self.domain:
            return sender.domain == self.domain
        if not self.runtime_key:
            return False
        owns = True if key in self.addresses else None if tables.owners.owner(key) is None else False
        return is_of_sender(self.runtime_key, self.credential, sender, owns=owns)


def viewer_of(tables: RequestTables, caller: Caller) -> Viewer:
    """The caller of a request that came to this node."""
    if caller.is_link:
        return Viewer(domain=caller.domain)
    session = tables.sessions.get(caller.number)
    if session is None:
        return Viewer(is_operator=caller.is_operator)
    owned = {canonical_key(row.url) for row in tables.owners.owned(caller.number)}
    if tables.owners.owner(session.runtime_key) == caller.number:
        owned.add(session.runtime_key)
    return Viewer(
        runtime_key=session.runtime_key,
        credential=session.proof.credential,
        addresses=frozenset(owned),
        is_operator=caller.is_operator,
    )
