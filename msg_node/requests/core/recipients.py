"""For whom a request of ours waits: the queue that it lines up in. Source: message specification, section 19."""

from __future__ import annotations

from msg_node.kernel.registrations import user_named
from msg_node.kernel.resources import is_claimable
from msg_node.kernel.runtime_address import agent_of, runtime_part
from msg_node.node_state import NodeState
from msg_node.registries.core.user_places import hyperty_for
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.message import Message


def recipient_of(state: NodeState, message: Message, origin: int) -> str:
    """The agent that a message of the session or link `origin` is for, as the key of its queue, or another domain.

    Raises:
        PeerError: NO_ROUTE when nobody could ever own that address, NOT_REGISTERED for a user who is not known here.
    """
    user = user_named(message.to_key) if state.rules.resolves_users else None
    if user is not None:
        domain = domain_of(message.to_key)
        is_ours = origin > 0 and not state.other_domain_of(origin)
        elsewhere = domain if is_ours and domain not in state.domains else ""  # never from one domain to a third
        queue = hyperty_for(state, [user], origin) or elsewhere
        if not queue:
            raise PeerError(Code.NOT_REGISTERED, "nobody of that name is registered here")
        return queue
    agent = agent_of(message.to_key)
    if not (is_claimable(agent) or runtime_part(agent) == agent):
        raise PeerError(Code.NO_ROUTE, "nobody can own this address")
    return agent


def has_to_be_found(state: NodeState, message: Message, origin: int) -> bool:
    """Whether a message is for a user of whom our own registry knows nothing."""
    user = user_named(message.to_key) if state.rules.resolves_users else None
    return user is not None and not hyperty_for(state, [user], origin)
