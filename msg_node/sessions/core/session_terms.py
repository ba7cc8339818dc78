"""When sessions end: the grace of parked ones, the leases and proofs of live ones.

Both terms hold when the clock is set back: no grace and no lease ends later than one that began now. When it is set
ahead, they move along (`clock_set_ahead`), other than the end that a token names. Times are seconds since the Unix
epoch. Source: message specification, section 5.1.
"""

from __future__ import annotations

from itertools import islice

from msg_node.kernel.session import Session
from protofly.limits import OVERDUE_AT_ONCE


class SessionTerms:
    """Deadlines of all sessions of a node.

    Args:
        grace_seconds: How long a parked session waits for its runtime.
        lease_seconds: How long a live session lasts without being renewed; None: without end.
    """

    def __init__(self, grace_seconds: float, lease_seconds: float | None) -> None:
        self.grace_seconds = grace_seconds
        self.lease_seconds = lease_seconds
        self._parked: dict[int, Session] = {}
        self._ends: dict[int, tuple[float, Session]] = {}  # when live sessions have to have been renewed

    def begin_lease(self, session: Session, now: float) -> None:
        """A session is live, on a connection or another one: it has a new lease, and no grace."""
        self.forget(session)
        session.grace_ends = None
        session.lease_ends = None if self.lease_seconds is None else now + self.lease_seconds
        if (ends := session.ends) is not None:
            self._ends[session.sid] = ends, session

    def begin_grace(self, session: Session, now: float) -> None:
        """A session has lost its connection: it waits for its runtime."""
        self.forget(session)
        session.grace_ends = now + self.grace_seconds
        self._parked[session.sid] = session

    def forget(self, session: Session) -> None:
        """A session has no term any more."""
        self._parked.pop(session.sid, None)
        self._ends.pop(session.sid, None)

    def end_now(self, session: Session, now: float) -> None:
        """A live session should have been renewed by now; no effect on a parked one."""
        if session.is_live:
            self._ends[session.sid] = now, session

    def overdue(self, now: float) -> list[Session]:
        """At most `OVERDUE_AT_ONCE` live sessions that should have been renewed."""
        if self.lease_seconds is not None:
            self._shorten_leases(now + self.lease_seconds)
        return list(islice((session for ends, session in self._ends.values() if ends <= now), OVERDUE_AT_ONCE))

    def out_of_grace(self, now: float) -> Session | None:
        """One parked session whose grace has ended, if there is one."""
        latest = now + self.grace_seconds
        for session in self._parked.values():
            assert session.grace_ends is not None
            if session.grace_ends <= now:
                return session
            if session.grace_ends > latest:  # the clock was set back
                session.grace_ends = latest
        return None

    def clock_set_ahead(self, seconds: float) -> None:
        """Let the graces and leases that run end so much later: as late as if nobody had set the clock."""
        for session in self._parked.values():
            assert session.grace_ends is not None
            session.grace_ends += seconds
        for sid, (_, session) in self._ends.items():
            if session.lease_ends is not None:
                session.lease_ends += seconds
            assert session.ends is not None
            self._ends[sid] = session.ends, session

    def _shorten_leases(self, latest: float) -> None:
        for sid, (ends, session) in self._ends.items():
            if session.lease_ends is not None and session.lease_ends > latest:
                session.lease_ends = latest
                self._ends[sid] = min(ends, latest), session
