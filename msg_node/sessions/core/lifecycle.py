"""The life of a session together with what it holds: addresses, subscriptions, leases and registry entries.

Each step leaves its changes in the journal. Source: message specification, sections 5.4, 20.1 and 20.3.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from msg_node.kernel.proof import Proven
from msg_node.kernel.registrations import StatusChange
from msg_node.kernel.session import Opened, Opener, OpenRefused, Session
from msg_node.sessions.core.guests import Guests
from msg_node.sessions.core.transitions import SessionTransitions
from protofly.limits import RELEASED_AT_ONCE


class Holdings(NamedTuple):
    """The numbers of addresses and subscriptions that a session holds."""

    addresses: int
    subscriptions: int


class HeldTables(Protocol):
    """The tables of other subjects in which sessions hold something."""

    def count(self, sid: int) -> Holdings:
        """Count what a session holds now."""

    def bind(self, runtime_key: str, sid: int) -> None:
        """Let a session answer for the address of its runtime."""

    def unbind(self, runtime_key: str, sid: int) -> None:
        """Let it answer for it no more."""

    def release(self, sid: int, *, now: float) -> list[StatusChange]:
        """Free everything that a session holds; returns which registry entries are disconnected by it."""


class SessionLifecycle:
    """Opens, parks and ends sessions, each with all that it holds. Nothing of a session that has ended stays held."""

    def __init__(self, transitions: SessionTransitions, guests: Guests, held: HeldTables) -> None:
        self.transitions = transitions
        self.sessions = transitions.sessions
        self._guests = guests
        self._held = held
        self.holdings = held.count

    def open(self, opener: Opener, token: str, *, now: float) -> tuple[Opened | OpenRefused, list[StatusChange]]:
        """Open or resume a session; see `SessionTransitions.open`.

        Registry entries of sessions that ended with it come back as changes.
        """
        result = self.transitions.open(opener, token, now=now)
        if isinstance(result, OpenRefused):
            return result, []
        return result, self._settle_opened(result, now=now)

    def re_open(
        self, session_address: str, connection: int, *, now: float, proven: Proven | None = None
    ) -> tuple[Opened | None, list[StatusChange]]:
        """Bring a session back; see `SessionTransitions.re_open`."""
        result = self.transitions.re_open(session_address, connection, now=now, proven=proven)
        return result, [] if result is None else self._settle_opened(result, now=now)

    def close(self, sid: int, *, now: float) -> list[StatusChange]:
        """End a session: addresses are freed, subscriptions removed, registry entries disconnected."""
        session = self.transitions.close(sid)
        return [] if session is None else self._end(session, now=now)

    def lost(self, connection: int, *, now: float) -> tuple[int | None, list[StatusChange]]:
        """Park the session of a connection that has ended; a guest's session ends with it.

        Returns:
            The session that it had, and what changed in the registry.
        """
        session = self.transitions.lost(connection, now=now)
        if session is None:
            return None, []
        return session.sid, self._end(session, now=now) if session.is_guest else []

    def overdue(self, *, now: float) -> tuple[list[tuple[Session, int]], list[StatusChange]]:
        """Park the sessions that should have been renewed; see `SessionTransitions.overdue`. Guests have ended."""
        lost, changes = self.transitions.overdue(now=now), []
        for session, _ in lost:
            if session.is_guest:
                changes += self._end(session, now=now)
        return lost, changes

    def expire(self, *, now: float) -> tuple[list[tuple[Session, Holdings]], list[StatusChange]]:
        """End some of the sessions whose grace has expired; call again until it returns no session.

        Returns:
            The sessions with what they held, and what changed in the registry. What they hold is freed in slices.
        """
        ended: list[tuple[Session, Holdings]] = []
        changes: list[StatusChange] = []
        released = 0
        while released < RELEASED_AT_ONCE and (session := self.transitions.expire(now=now)) is not None:
            holdings = self.holdings(session.sid)
            ended.append((session, holdings))
            changes += self._end(session, now=now)
            released += 1 + sum(holdings)
        return ended, changes

    def restored(self) -> None:
        """Bind the sessions that were restored to the addresses of their runtimes."""
        for session in self.sessions:  # of our own domain: see `SessionTransitions.restore`
            if not session.is_displaced:
                self._held.bind(session.runtime_key, session.sid)

    def _end(self, session: Session, *, now: float) -> list[StatusChange]:
        self._held.unbind(session.runtime_key, session.sid)
        return self._release(session.sid, now=now)

    def _release(self, sid: int, *, now: float) -> list[StatusChange]:
        self._guests.went(sid)
        return self._held.release(sid, now=now)

    def _settle_opened(self, opened: Opened, *, now: float) -> list[StatusChange]:
        session = self.sessions.get(opened.sid)
        assert session is not None
        changes: list[StatusChange] = []
        for sid in opened.ended:
            changes += self._release(sid, now=now)
        self._held.bind(session.runtime_key, opened.sid)
        self._guests.came(session)
        return changes
