"""Takes changed credentials over while the node runs: new ones count at once, and sessions of those that are gone end.

A session goes on while its credential is accepted for its runtime, with the roles that it has now. One whose credential
is not in the settings any more ends with all that it holds, live or parked: who has the token may know more than
the token. Tokens of an issuer whose keys have changed are not asked for again before they expire.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from msg_node.bus.bus import Bus
from msg_node.kernel.credentials import Credentials, shown_of
from msg_node.kernel.session import Session
from msg_node.node_state import NodeState, drop_operators_subscriptions


def sessions_without_proof(state: NodeState, credentials: Credentials, *, takes_guests: bool = True) -> list[int]:
    """Sessions that would end if these credentials counted, and if guests were welcome or not."""
    return [
        one.sid
        for one in state.sessions
        if not credentials.is_valid(one.proof.credential, one.runtime_key) or (one.is_guest and not takes_guests)
    ]


def take_credentials_over(state: NodeState, bus: Bus, credentials: Credentials, *, takes_guests: bool = True) -> None:
    """Let these credentials count from now on, for sessions that are open as well; what changes is stored.

    Where guests are not welcome any more, their sessions end.
    """
    state.transitions.credentials.replace(credentials)
    bus.runtimes.remove([one.sid for one in state.sessions if one.is_guest and not takes_guests])
    settle_sessions(state, bus)


def settle_sessions(state: NodeState, bus: Bus) -> None:
    """End the sessions whose credential is gone, and give others the roles that theirs has now."""
    accepted = state.transitions.credentials
    ended = sessions_without_proof(state, accepted)
    for session, roles in list(_other_roles(state, accepted)):
        session.proof = replace(session.proof, roles=roles)
        state.sessions.save(session)
        port = bus.send_queues.ports.get(session.sid)
        if port is not None and not session.is_guest:
            port.roles = shown_of(session.proof)
    drop_operators_subscriptions(state)
    bus.runtimes.remove(ended)
    bus.effects.store_rest()
    bus.send_queues.wake()


def _other_roles(state: NodeState, credentials: Credentials) -> Iterator[tuple[Session, frozenset[str]]]:
    """Sessions whose credential has other roles now."""
    for session in state.sessions:
        roles = credentials.roles(session.proof.credential, session.runtime_key, session.proof.roles)
        if roles != session.proof.roles:
            yield session, roles
