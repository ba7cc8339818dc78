"""What is known of the recipients of our own domains: the facts `dstStatus` and `dstPresence` of policies.

A few dictionary hits each, and only for rules that ask. Source: message specification, sections 12.1 and 15.3.
"""

from __future__ import annotations

from typing import Final

from msg_node.bus.core.tables import BusTables
from msg_node.kernel.registrations import Status, user_named
from msg_node.kernel.runtime_address import agent_of
from protofly.address import canonical_key, domain_of, scheme_of
from protofly.errors import PeerError

LIVE, PARKED, ABSENT = "live", "parked", "absent"
_ELEMENTS: Final = frozenset({"domain", "global", "mn"})
_THINGS: Final = "thing://"


class KnownRecipients:
    """Recipients as the tables of this node have them. See `policy.core.model.Recipients`.

    Args:
        state: The tables.
        is_alone: No other node of the domain has sessions: who is not here is nowhere.
    """

    def __init__(self, state: BusTables, *, is_alone: bool) -> None:
        self._state = state
        self._absent = ABSENT if is_alone else None

    def status(self, address: str) -> str | None:
        """See `Recipients`. A user is as live as the best of the hyperties that are registered for that name."""
        key = self._own_key(address)
        if key is None:
            return None
        if scheme_of(key) in _ELEMENTS:
            return LIVE
        user = user_named(key)
        if user is None:
            return self._status_of(agent_of(key) if key.startswith(_THINGS) else key)
        entries = self._state.users.hyperties_of([user])
        found = {self._status_of(entry.key, entry.sid) for entry in entries if entry.is_connected}
        return next((one for one in (LIVE, PARKED) if one in found), self._absent)

    def presence(self, address: str) -> str | None:
        """See `Recipients`. A user is present with any entry that is."""
        key = self._own_key(address)
        if key is None:
            return None
        user = user_named(key)
        if user is None:
            entry = self._state.registry.get(key)
            return None if entry is None else entry.status.value
        found = {entry.status for entry in self._state.users.hyperties_of([user])}
        return next((one.value for one in (Status.LIVE, Status.CREATED, *found) if one in found), None)

    def _own_key(self, address: str) -> str | None:
        try:
            key = canonical_key(address)
            return key if domain_of(address) in self._state.domains else None
        except PeerError:
            return None

    def _status_of(self, key: str, registrant: int = 0) -> str | None:
        sid = self._state.holders.speaker_of(key) or registrant
        session = self._state.sessions.get(sid)
        if session is not None:
            return LIVE if session.is_live else PARKED
        return LIVE if self._state.listeners.is_heard(key) else self._absent
