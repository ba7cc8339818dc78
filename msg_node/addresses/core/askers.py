"""Who causes a question to another domain, for bounds: the session, whatever addresses it has."""

from __future__ import annotations

from msg_node.addresses.core.tables import AddressTables
from protofly.address import canonical_key
from protofly.errors import PeerError


def asker_of(state: AddressTables, address: str) -> str:
    """Name who sends from an address: its session, or "nobody", of which there is no end."""
    try:
        sid = state.holders.speaker_of(canonical_key(address))
    except PeerError:
        sid = None
    if sid is None:  # where several nodes serve the domain, of a runtime at another node
        return address if state.rules.shares_domain else "nobody"
    return f"session {sid}"
