"""Recipients of requests, which are the keys of their queues. Source: message specification, section 19."""

from __future__ import annotations

from msg_node.kernel.registrations import user_named
from msg_node.kernel.resources import is_claimable
from msg_node.kernel.runtime_address import agent_of, runtime_part
from msg_node.requests.core.tables import RequestTables
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.message import Message


def recipient_of(tables: RequestTables, message: Message, origin: int) -> str:
    """The agent that a message of the session or link `origin` is for, as the key of its queue, or another domain.

    Raises:
        PeerError: NO_ROUTE when nobody could ever own that address, NOT_REGISTERED for a user who is not known here.
    """
    user = user_named(message.to_key) if tables.rules.resolves_users else None
    if user is not None:
        domain = domain_of(message.to_key)
        is_ours = origin > 0 and not tables.senders.other_domain_of(origin)
        elsewhere = domain if is_ours and domain not in tables.domains else ""  # never from one domain to a third
        queue = tables.users.hyperty_for([user], origin) or elsewhere
        if not queue:
            raise PeerError(Code.NOT_REGISTERED, "nobody of that name is registered here")
        return queue
    agent = agent_of(message.to_key)
    if not (is_claimable(agent) or runtime_part(agent) == agent):
        raise PeerError(Code.NO_ROUTE, "nobody can own this address")
    return agent


def has_to_be_found(tables: RequestTables, message: Message, origin: int) -> bool:
    """True if a message is for a user of whom our own registry knows nothing."""
    user = user_named(message.to_key) if tables.rules.resolves_users else None
    return user is not None and not tables.users.hyperty_for([user], origin)


def is_domain(queue: str) -> bool:
    """True for the name of another domain, False for the key of an address."""
    return ":" not in queue and "/" not in queue and "." in queue
