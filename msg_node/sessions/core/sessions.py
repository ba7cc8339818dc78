"""Who is connected: the sessions of local runtimes, their tokens, loss, grace, return and take-over.

Theory of operation. A session is a number (`sid`) that addresses, subscriptions and registry entries hang on. It is
*live* while it has a connection and *parked* while it waits, for `grace_seconds`, for its runtime to come back. The
token made at `open` is the proof for `re-open`; only its digest is kept. A credential that names a runtime proves as
much; one that only covers it by a pattern speaks for what the same credential opened, or nobody with a proof. Who
proves nothing never gets at what another session holds: he waits until the other one is silent, and then gets a session
of his own; the older one stays parked as *displaced* until its grace ends, and its token still brings it back, at the
expense of the newcomer. A session that was opened with a credential is never displaced by somebody without one. Where
the operator wants it (`returns_by_address`), the address alone brings back what was opened without a proof in a dialect
without a token, for who proves nothing in such a dialect either: there it is all that a runtime has to come back with.

What somebody proved may expire, and a session may carry a lease. When either is over (`overdue`) the session loses its
connection and is parked like any lost one. A lease begins anew with each open and re-open; an expired proof has to be
replaced by a new one. `now` is in seconds since the Unix epoch throughout.

After a restart every stored session is parked with a new grace. Source: message specification, sections 5.1 and 5.4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from msg_node.kernel.credentials import Credentials, digest_of
from msg_node.kernel.proof import Proven
from msg_node.kernel.runtime_address import runtime_part
from msg_node.kernel.session import Opened, Opener, OpenRefused, Session, SessionRow
from protofly.errors import Code
from protofly.limits import (
    OVERDUE_AT_ONCE,
    PARKED_PER_RUNTIME,
    SESSION_GRACE_SECONDS,
    SESSIONS,
    TAKE_OVER_GRACE_SECONDS,
)


class Sessions:
    """All sessions by number, runtime key, token digest and connection."""

    def __init__(
        self,
        journal: Journal,
        credentials: Credentials | None = None,
        *,
        grace_seconds: float = SESSION_GRACE_SECONDS,
        take_over_grace_seconds: float = TAKE_OVER_GRACE_SECONDS,
        lease_seconds: float | None = None,
        max_sessions: int = SESSIONS,
        returns_by_address: bool = False,
    ) -> None:
        self.credentials = Credentials() if credentials is None else credentials
        self._journal = journal
        self._grace_seconds = grace_seconds
        self._take_over_grace_seconds = take_over_grace_seconds
        self._lease_seconds = lease_seconds
        self._max_sessions = max_sessions
        self._returns_by_address = returns_by_address
        self._next_sid = 1
        self._sessions: dict[int, Session] = {}
        self._by_runtime: dict[str, int] = {}
        self._by_token: dict[str, int] = {}
        self._by_connection: dict[int, int] = {}
        self._parked: dict[int, float] = {}  # when grace ends
        self._ends: dict[int, float] = {}  # when live sessions have to have been renewed
        self._displaced: dict[str, set[int]] = {}
        self._of_login: dict[str, set[int]] = {}

    # Look-ups.

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def get(self, sid: int) -> Session | None:
        """The session of that number."""
        return self._sessions.get(sid)

    def by_runtime(self, key: str) -> int | None:
        """The session, live or parked, that speaks for a runtime key."""
        return self._by_runtime.get(key)

    def by_connection(self, connection: int) -> int | None:
        """The session that lives on a connection."""
        return self._by_connection.get(connection)

    def below(self, key: str) -> int | None:
        """The session to whose runtime address `key` belongs: itself, a component, its session address."""
        return self._by_runtime.get(runtime_part(key))

    def of_runtime(self, sid: int) -> frozenset[int]:
        """All sessions of the same runtime as `sid`, displaced ones included."""
        session = self._sessions.get(sid)
        if session is None:
            return frozenset()
        holder = self._by_runtime.get(session.runtime_key)
        others: Collection[int] = self._displaced.get(session.runtime_key, ())
        return frozenset({sid, *others} if holder is None else {sid, holder, *others})

    # What happens to sessions.

    def open(self, opener: Opener, token: str, *, now: float) -> Opened | OpenRefused:
        """Open a session, resume one that the opener has proven to be his, or refuse.

        Args:
            opener: Who asks; the caller has checked the credential and the form of the address.
            token: A fresh random token; it is given to nobody else.
            now: Seconds since the Unix epoch.

        Source: message specification, section 5.1.
        """
        session = self._session_of_runtime(opener.runtime_key)
        if opener.connection in self._by_connection:
            is_renewal = session is not None and session.connection == opener.connection and opener.proven.credential
            if session is None or not is_renewal or not self._may_take(session, opener.proven, now):
                return OpenRefused(Code.DUPLICATE)
        if session is None:
            return self._start(opener, token, now=now)
        if self._may_take(session, opener.proven, now):
            return self._resume(session, opener, token, now=now)
        if session.credential:
            return OpenRefused(Code.ADDRESS_TAKEN, self._grace_seconds, session.connection)
        if session.is_live and (refused := self._contest(session, now)):
            return refused
        if self._returns_by_address and not (session.dialect.has_token or opener.dialect.has_token):
            return self._resume(session, opener, token, now=now)
        if session.is_guest:
            self._remove(session)
            return self._start(opener, token, now=now, replaced=session.connection, ended=(session.sid,))
        ended: tuple[int, ...] = ()
        if len(self._displaced.get(session.runtime_key, ())) >= PARKED_PER_RUNTIME:
            lost = self._beyond_return(session.runtime_key)
            if lost is None:
                return OpenRefused(Code.QUOTA, self._grace_seconds)
            self._remove(lost)
            ended = (lost.sid,)
        replaced = session.connection
        self._displace(session, now=now)
        return self._start(opener, token, now=now, replaced=replaced, ended=ended)

    def by_session_address(self, session_address: str) -> Session | None:
        """The session with that address, `<runtime>/<token>`: who knows it may re-open it."""
        runtime_key, _, token = session_address.rpartition("/")
        session = self._sessions.get(self._by_token.get(digest_of(token), 0))
        return session if session is not None and session.runtime_key == runtime_key else None

    def re_open(
        self, session_address: str, connection: int, *, now: float, proven: Proven | None = None
    ) -> Opened | None:
        """Bring a session back by its session address; None when there is none (any more) or its proof is over.

        Args:
            session_address: See `by_session_address`.
            connection: Where it goes on.
            now: Seconds since the Unix epoch.
            proven: What its runtime proved this time, None when it offered nothing. It takes the place of what it
                proved before, if it is as good as that.

        Source: message specification, section 5.1.
        """
        session = self.by_session_address(session_address)
        if session is None or self._by_connection.get(connection, session.sid) != session.sid:
            return None
        runtime_key = session.runtime_key
        is_proven_anew = proven is not None and self._may_take(session, proven, now)
        if proven is not None and is_proven_anew:
            self._prove(session, proven)
        elif session.is_proof_over(now) or not self.credentials.is_valid(session.credential, runtime_key):
            return None
        if session.connection == connection:
            self._attach(session, connection, now=now)
            if is_proven_anew:
                self._store(session)
            return Opened(session.sid, is_resumed=True, is_renewed=True)
        ended: tuple[int, ...] = ()
        replaced = session.connection
        if session.is_displaced:
            usurper = self._session_of_runtime(runtime_key)
            if usurper is not None:
                replaced, ended = usurper.connection, (usurper.sid,)
                self._remove(usurper)
            self._reinstate(session)
        self._attach(session, connection, now=now)
        if is_proven_anew:
            self._store(session)
        return Opened(session.sid, is_resumed=True, replaced=replaced, ended=ended)

    def close(self, sid: int) -> Session | None:
        """End a session and return it; the caller releases what it held. None when there was none."""
        session = self._sessions.get(sid)
        if session is not None:
            self._remove(session)
        return session

    def lost(self, connection: int, *, now: float) -> Session | None:
        """A connection is gone: return its session, parked, or None when it had none.

        A guest's has ended: guests have no grace.
        """
        sid = self._by_connection.get(connection)
        if sid is None:
            return None
        session = self._sessions[sid]
        if session.is_guest:
            self._remove(session)
        else:
            self._park(session, now=now)
        return session

    def want_late(self, sid: int, *, wants: bool) -> None:
        """The runtime of a session says whether it is to be given late replies."""
        session = self._sessions.get(sid)
        if session is not None and session.wants_late is not wants:
            session.wants_late = wants
            self._store(session)

    def heard(self, sid: int, *, now: float) -> None:
        """The connection of a session gave a sign of life: a pong or a frame."""
        session = self._sessions.get(sid)
        if session is not None:
            session.heard_at = now

    def overdue(self, *, now: float) -> list[tuple[Session, int]]:
        """Park live sessions that should have been renewed; return them with the connections to be closed.

        A guest's has ended: guests have no grace. At most `OVERDUE_AT_ONCE`: whoever gets some asks again.
        """
        if self._lease_seconds is not None:
            self._shorten_leases(now + self._lease_seconds)
        due = islice((sid for sid, ends in self._ends.items() if ends <= now), OVERDUE_AT_ONCE)
        over = [self._sessions[sid] for sid in due]
        lost = [(session, session.connection) for session in over if session.connection is not None]
        for _, connection in lost:
            self.lost(connection, now=now)
        return lost

    def end_login(self, login: str, *, now: float) -> None:
        """What a login proved is over now, for every session that was opened with it; see `overdue`."""
        for sid in self._of_login.get(login, ()):
            self._end_proof(self._sessions[sid], now)

    def end_credential(self, credential: str, *, now: float) -> None:
        """The same for all that one credential has opened. Looks at every session: for operators."""
        for session in self._sessions.values():
            if session.credential == credential:
                self._end_proof(session, now)

    def expire(self, *, now: float) -> Session | None:
        """End one session whose grace is over and return it, if there is one; the caller releases what it held."""
        latest = now + self._grace_seconds
        for sid, grace_ends in self._parked.items():
            if grace_ends <= now:
                session = self._sessions[sid]
                self._remove(session)
                return session
            if grace_ends > latest:  # the clock was set back
                self._parked[sid] = self._sessions[sid].grace_ends = latest
        return None

    def restore(self, rows: Rows, *, now: float) -> None:
        """Take over what was stored: every session is parked, with a new grace. Guests end with the process.

        Raises:
            HostError: STORAGE.
        """
        for key, raw in rows.items():
            row = decode_row(raw, SessionRow, table=Table.SESSIONS, key=key)
            self._next_sid = max(self._next_sid, row.sid + 1)
            if row.is_guest:
                self._journal.delete(Table.SESSIONS, key)
                continue
            self._insert(self._from_row(row, now=now))

    # Inner steps.

    def _session_of_runtime(self, runtime_key: str) -> Session | None:
        sid = self._by_runtime.get(runtime_key)
        return None if sid is None else self._sessions[sid]

    def _beyond_return(self, runtime_key: str) -> Session | None:
        """The oldest displaced session that nothing can bring back, since its dialect knows no token."""
        displaced = [self._sessions[sid] for sid in sorted(self._displaced[runtime_key])]
        return next((session for session in displaced if not session.dialect.has_token), None)

    def _start(
        self, opener: Opener, token: str, *, now: float, replaced: int | None = None, ended: tuple[int, ...] = ()
    ) -> Opened | OpenRefused:
        if len(self._sessions) >= self._max_sessions:
            return OpenRefused(Code.OVERLOAD)
        session = Session(
            sid=self._next_sid,
            runtime=opener.runtime,
            runtime_key=opener.runtime_key,
            token_digest=digest_of(token),
            credential=opener.proven.credential,
            roles=opener.proven.roles,
            dialect=opener.dialect,
            is_guest=opener.is_guest,
            connection=opener.connection,
            heard_at=now,
            proof_ends=opener.proven.expires_at,
            login=opener.proven.login,
        )
        self._next_sid += 1
        self._insert(session)
        self._attach(session, opener.connection, now=now)
        self._store(session)
        return Opened(session.sid, replaced=replaced, ended=ended)

    def _resume(self, session: Session, opener: Opener, token: str, *, now: float) -> Opened:
        """The opener has proven that the session is his: he gets it, under a new token."""
        replaced = session.connection if session.connection != opener.connection else None
        del self._by_token[session.token_digest]
        session.token_digest = digest_of(token)
        self._by_token[session.token_digest] = session.sid
        session.runtime, session.dialect = opener.runtime, opener.dialect
        self._prove(session, opener.proven)
        is_renewed = session.connection == opener.connection
        self._attach(session, opener.connection, now=now)
        self._store(session)
        return Opened(session.sid, is_resumed=True, replaced=replaced, is_renewed=is_renewed)

    def _may_take(self, session: Session, proven: Proven, now: float) -> bool:
        """Whether a proof is good enough for what a session holds."""
        if not proven.credential:
            return False
        if proven.is_in_full or session.credential in ("", proven.credential):
            return True
        return session.is_proof_over(now) or not self.credentials.is_valid(session.credential, session.runtime_key)

    def _prove(self, session: Session, proven: Proven) -> None:
        session.credential, session.roles, session.proof_ends = proven.credential, proven.roles, proven.expires_at
        self._leave_login(session)
        session.login = proven.login
        self._join_login(session)

    def _join_login(self, session: Session) -> None:
        if session.login:
            self._of_login.setdefault(session.login, set()).add(session.sid)

    def _leave_login(self, session: Session) -> None:
        others = self._of_login.get(session.login)
        if others is not None:
            others.discard(session.sid)
            if not others:
                del self._of_login[session.login]

    def _end_proof(self, session: Session, now: float) -> None:
        session.proof_ends = now if session.proof_ends is None else min(session.proof_ends, now)
        if session.is_live:
            self._ends[session.sid] = now
        self._store(session)

    def _shorten_leases(self, latest: float) -> None:
        """No lease ends later than one that began now: the clock was set back."""
        for sid in self._ends:
            session = self._sessions[sid]
            if session.lease_ends is not None and session.lease_ends > latest:
                session.lease_ends = latest
                self._ends[sid] = latest if session.proof_ends is None else min(latest, session.proof_ends)

    def _contest(self, session: Session, now: float) -> OpenRefused | None:
        """Refuse an unproven opener while the old connection may be alive; None when it kept silent long enough."""
        contested_at = session.contested_at
        if (
            contested_at is None or not session.heard_at <= contested_at <= now
        ):  # heard since, or the clock was set back
            contested_at = session.contested_at = now
        remaining = contested_at + self._take_over_grace_seconds - now
        if remaining <= 0 and contested_at < now:
            return None
        return OpenRefused(Code.ADDRESS_TAKEN, max(remaining, 0.0), session.connection)

    def _attach(self, session: Session, connection: int, *, now: float) -> None:
        if session.connection is not None:
            del self._by_connection[session.connection]
        self._parked.pop(session.sid, None)
        session.connection, session.grace_ends, session.contested_at, session.heard_at = connection, None, None, now
        self._by_connection[connection] = session.sid
        session.lease_ends = None if self._lease_seconds is None else now + self._lease_seconds
        self._ends.pop(session.sid, None)
        if session.ends is not None:
            self._ends[session.sid] = session.ends

    def _park(self, session: Session, *, now: float) -> None:
        if session.connection is not None:
            del self._by_connection[session.connection]
            session.connection = None
            self._ends.pop(session.sid, None)
            session.grace_ends = self._parked[session.sid] = now + self._grace_seconds

    def _displace(self, session: Session, *, now: float) -> None:
        self._park(session, now=now)
        session.is_displaced = True
        session.contested_at = None
        del self._by_runtime[session.runtime_key]
        self._displaced.setdefault(session.runtime_key, set()).add(session.sid)
        self._store(session)

    def _reinstate(self, session: Session) -> None:
        self._forget_displaced(session)
        session.is_displaced = False
        self._by_runtime[session.runtime_key] = session.sid
        self._store(session)

    def _insert(self, session: Session) -> None:
        self._sessions[session.sid] = session
        self._by_token[session.token_digest] = session.sid
        self._join_login(session)
        if session.is_displaced:
            self._displaced.setdefault(session.runtime_key, set()).add(session.sid)
        else:
            self._by_runtime[session.runtime_key] = session.sid
        if session.connection is not None:
            self._by_connection[session.connection] = session.sid
        if session.grace_ends is not None:
            self._parked[session.sid] = session.grace_ends

    def _remove(self, session: Session) -> None:
        del self._sessions[session.sid]
        del self._by_token[session.token_digest]
        self._leave_login(session)
        self._parked.pop(session.sid, None)
        self._ends.pop(session.sid, None)
        if session.connection is not None:
            del self._by_connection[session.connection]
        if session.is_displaced:
            self._forget_displaced(session)
        else:
            del self._by_runtime[session.runtime_key]
        self._journal.delete(Table.SESSIONS, str(session.sid))

    def _forget_displaced(self, session: Session) -> None:
        others = self._displaced[session.runtime_key]
        others.discard(session.sid)
        if not others:
            del self._displaced[session.runtime_key]

    def _store(self, session: Session) -> None:
        self._journal.put(Table.SESSIONS, str(session.sid), session.row())

    def _from_row(self, row: SessionRow, *, now: float) -> Session:
        return Session(
            sid=row.sid,
            runtime=row.runtime,
            runtime_key=row.runtime_key,
            token_digest=row.token_digest,
            credential=row.credential,
            roles=self.credentials.roles(row.credential, row.runtime_key, frozenset(row.roles)),
            dialect=row.dialect,
            is_guest=row.is_guest,
            connection=None,
            heard_at=now,
            grace_ends=now + self._grace_seconds,
            is_displaced=row.is_displaced,
            proof_ends=row.proof_ends,
            login=row.login,
            wants_late=row.wants_late,
        )
