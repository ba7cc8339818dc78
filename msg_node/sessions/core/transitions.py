"""How sessions begin and end: open, loss, grace, return and take-over.

A session is a number (`sid`) on which addresses, subscriptions and registry entries depend. It is *live* while it has a
connection, and *parked* while it waits, for a grace, for its runtime to come back:

    open ──▶ live ──lost, overdue──▶ parked ──grace ends──▶ expired
              ▲  ◀──open, re-open──    │ another runtime opens the address
              └───────re-open───── displaced ──grace ends──▶ expired

Who may take over what a session holds, strongest claim first:

1. The token made at `open` proves `re-open`; only its digest is kept.
2. A credential that names the runtime itself brings its session back. One that covers the runtime only by a pattern
   brings back what the same credential opened, or what was opened without a proof.
3. Without a proof, the address alone brings a session back only where the operator wants that (`returns_by_address`),
   only what was opened without a proof, and only between dialects without a token: there a runtime has nothing else.
   With `second_open_takes_over` it brings back live sessions as well, in every dialect of the reference nodes.
4. Anybody else waits until the other one is silent, and then gets a session of its own. The older one stays parked as
   *displaced* until its grace ends, and its token still brings it back, at the expense of the newcomer. A session
   that was opened with a credential is never displaced by an opener without one.

What a runtime proved may expire, and a session may carry a lease. When either has ended (`overdue`), the session loses
its connection and is parked like any lost one. A lease begins anew with each open and re-open; an expired proof has to
be replaced by a new one. Guests have no grace: their sessions end with their connections.

After a restart every stored session is parked with a new grace. `now` is in seconds since the Unix epoch throughout.
Source: message specification, sections 5.1 and 5.4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from msg_node.kernel.credentials import Credentials, digest_of
from msg_node.kernel.proof import Proven
from msg_node.kernel.session import Opened, Opener, OpenRefused, Session, SessionRow
from msg_node.sessions.core.session_terms import SessionTerms
from msg_node.sessions.core.sessions import Sessions
from protofly.errors import Code
from protofly.limits import PARKED_PER_RUNTIME, SESSION_GRACE_SECONDS, SESSIONS, TAKE_OVER_GRACE_SECONDS


@dataclass(frozen=True, slots=True)
class SessionRules:
    """Settings of sessions.

    Attributes:
        grace_seconds: How long a lost session waits for its runtime.
        take_over_grace_seconds: How long a contested connection may be silent.
        lease_seconds: How long a session lasts without being renewed; None: without end.
        max_sessions: How many there may be, parked ones included.
        returns_by_address: See the module.
        second_open_takes_over: See the module.
    """

    grace_seconds: float = SESSION_GRACE_SECONDS
    take_over_grace_seconds: float = TAKE_OVER_GRACE_SECONDS
    lease_seconds: float | None = None
    max_sessions: int = SESSIONS
    returns_by_address: bool = False
    second_open_takes_over: bool = False


class SessionTransitions:
    """All changes of sessions. What a session that ended held is for the caller to release.

    Attributes:
        sessions: The sessions, for look-ups.
        credentials: What proofs are checked against.
        rules: Settings of sessions.
        terms: When sessions end.
        next_sid: The number of the next session.
    """

    def __init__(
        self, journal: Journal, credentials: Credentials | None = None, rules: SessionRules | None = None
    ) -> None:
        self.sessions = Sessions(journal)
        self.credentials = Credentials() if credentials is None else credentials
        self._journal = journal
        self.rules = SessionRules() if rules is None else rules
        self.terms = SessionTerms(self.rules.grace_seconds, self.rules.lease_seconds)
        self.next_sid = 1

    # Begin.

    def open(self, opener: Opener, token: str, *, now: float) -> Opened | OpenRefused:
        """Open a session, resume one to which the opener has a right, or refuse.

        Args:
            opener: Who asks; the caller has checked the credential and the form of the address.
            token: A fresh random token; it is given to nobody else.
            now: Seconds since the Unix epoch.

        Source: message specification, section 5.1.
        """
        sessions, proven = self.sessions, opener.proven
        session = sessions.get(sessions.by_runtime(opener.runtime_key) or 0)
        held = sessions.by_connection(opener.connection)
        may_take = session is not None and (
            self.may_take(session, proven, now) or _takes_over(self.rules, session, opener)
        )
        if held is not None and (session is None or session.sid != held or not may_take):
            return OpenRefused(Code.DUPLICATE)
        if session is None:
            return self._start(opener, token, now=now)
        if may_take:
            return self._resume(session, opener, token, now=now)
        if session.proof.credential:
            return OpenRefused(Code.ADDRESS_TAKEN, self.rules.grace_seconds, session.connection)
        if session.is_live and (refused := contest(session, now, self.rules.take_over_grace_seconds)):
            return refused
        if self.rules.returns_by_address and not (session.dialect.has_token or opener.dialect.has_token):
            return self._resume(session, opener, token, now=now)
        return self._take_over(session, opener, token, now=now)

    def re_open(
        self, session_address: str, connection: int, *, now: float, proven: Proven | None = None
    ) -> Opened | None:
        """Bring a session back by its session address; None when there is none (any more) or its proof has expired.

        Args:
            session_address: See `Sessions.by_session_address`.
            connection: Where it goes on.
            now: Seconds since the Unix epoch.
            proven: What its runtime proved this time, None when it offered nothing. It replaces what was proved
                before, if it is as good as that.

        Source: message specification, section 5.1.
        """
        sessions = self.sessions
        session = sessions.by_session_address(session_address)
        if session is None or sessions.by_connection(connection) not in (None, session.sid):
            return None
        anew = proven if proven is not None and self.may_take(session, proven, now) else None
        if anew is not None:
            sessions.prove(session, anew)
        elif session.is_proof_over(now) or not self.credentials.is_valid(session.proof.credential, session.runtime_key):
            return None
        is_renewed = session.connection == connection
        replaced = None if is_renewed else session.connection
        ended: tuple[int, ...] = ()
        if session.is_displaced:
            newcomer = sessions.get(sessions.by_runtime(session.runtime_key) or 0)
            if newcomer is not None:
                replaced, ended = newcomer.connection, (newcomer.sid,)
                self._remove(newcomer)
            sessions.reinstate(session)
            sessions.save(session)
        self._attach(session, connection, now=now)
        if anew is not None:
            sessions.save(session)
        return Opened(session.sid, is_resumed=True, replaced=replaced, ended=ended, is_renewed=is_renewed)

    def want_late(self, sid: int, *, wants: bool) -> None:
        """Note that the runtime of a session wants late replies, or does not."""
        session = self.sessions.get(sid)
        if session is not None and session.wants_late is not wants:
            session.wants_late = wants
            self.sessions.save(session)

    def heard(self, sid: int, *, now: float) -> None:
        """Note a sign of life of a session's connection: a pong or a frame."""
        session = self.sessions.get(sid)
        if session is not None:
            session.heard_at = now

    # End.

    def close(self, sid: int) -> Session | None:
        """End a session and return it; None when there was none."""
        session = self.sessions.get(sid)
        if session is not None:
            self._remove(session)
        return session

    def lost(self, connection: int, *, now: float) -> Session | None:
        """Park the session of a connection that has ended, and return it; end it if it is a guest's."""
        session = self.sessions.get(self.sessions.by_connection(connection) or 0)
        if session is not None and session.is_guest:
            self._remove(session)
        elif session is not None:
            self._park(session, now=now)
        return session

    def overdue(self, *, now: float) -> list[tuple[Session, int]]:
        """Park live sessions that should have been renewed; return them with the connections to be closed.

        At most `OVERDUE_AT_ONCE`: call again until none is returned. Sessions of guests have ended.
        """
        lost: list[tuple[Session, int]] = []
        for session in self.terms.overdue(now):
            assert session.connection is not None  # else it is parked and has a grace
            lost.append((session, session.connection))
            self.lost(session.connection, now=now)
        return lost

    def end_login(self, login: str, *, now: float) -> None:
        """Let all that was proved by a login expire now; the sessions are `overdue` then."""
        for session in self.sessions.of_login(login):
            self._end_proof(session, now)

    def end_credential(self, credential: str, *, now: float) -> None:
        """Let all that a credential has opened expire now. Looks at every session: for operators."""
        for session in self.sessions:
            if session.proof.credential == credential:
                self._end_proof(session, now)

    def expire(self, *, now: float) -> Session | None:
        """End one session whose grace has ended and return it, if there is one.

        Where the operator gives a longer grace than usual, that is only while there is room: when nine tenths of all
        sessions are taken, those that were lost for the usual grace end, longest lost first. So strangers who open
        sessions and drop them keep others out no longer than with the usual grace.
        """
        session = self.terms.out_of_grace(now)
        if session is None and 10 * len(self.sessions) > 9 * self.rules.max_sessions:
            session = self.terms.out_of_grace(now + max(self.rules.grace_seconds - SESSION_GRACE_SECONDS, 0.0))
        if session is not None:
            self._remove(session)
        return session

    def restore(self, rows: Rows, *, now: float) -> None:
        """Take over what was stored: every session is parked, with a new grace. Guests ended with the process.

        Raises:
            HostError: STORAGE.
        """
        for key, raw in rows.items():
            row = decode_row(raw, SessionRow, table=Table.SESSIONS, key=key)
            self.next_sid = max(self.next_sid, row.sid + 1)
            if row.is_guest:
                self._journal.delete(Table.SESSIONS, key)
                continue
            roles = self.credentials.roles(row.credential, row.runtime_key, frozenset(row.roles))
            session = row.parked_session(roles, now=now)
            self.sessions.add(session)
            self.terms.begin_grace(session, now)

    # Inner steps.

    def _start(
        self, opener: Opener, token: str, *, now: float, replaced: int | None = None, ended: tuple[int, ...] = ()
    ) -> Opened | OpenRefused:
        if len(self.sessions) >= self.rules.max_sessions:
            return OpenRefused(Code.OVERLOAD)
        session = Session(
            sid=self.next_sid,
            runtime=opener.runtime,
            runtime_key=opener.runtime_key,
            token_digest=digest_of(token),
            proof=opener.proven,
            dialect=opener.dialect,
            is_guest=opener.is_guest,
            connection=opener.connection,
            heard_at=now,
        )
        self.next_sid += 1
        self.sessions.add(session)
        self.terms.begin_lease(session, now)
        self.sessions.save(session)
        return Opened(session.sid, replaced=replaced, ended=ended)

    def _resume(self, session: Session, opener: Opener, token: str, *, now: float) -> Opened:
        """Give an opener the session to which it has a right, under a new token."""
        is_renewed = session.connection == opener.connection
        replaced = None if is_renewed else session.connection
        self.sessions.renew_token(session, digest_of(token))
        session.runtime, session.dialect = opener.runtime, opener.dialect
        self.sessions.prove(session, opener.proven)
        self._attach(session, opener.connection, now=now)
        self.sessions.save(session)
        return Opened(session.sid, is_resumed=True, replaced=replaced, is_renewed=is_renewed)

    def _take_over(self, session: Session, opener: Opener, token: str, *, now: float) -> Opened | OpenRefused:
        """Start a session for an opener in place of one whose connection is silent, which is displaced or ends."""
        replaced = session.connection
        if session.is_guest:
            self._remove(session)
            return self._start(opener, token, now=now, replaced=replaced, ended=(session.sid,))
        ended: tuple[int, ...] = ()
        displaced = self.sessions.displaced(session.runtime_key)
        if len(displaced) >= PARKED_PER_RUNTIME:  # then the oldest that has no token to come back with ends
            lost = next((one for one in displaced if not one.dialect.has_token), None)
            if lost is None:
                return OpenRefused(Code.QUOTA, self.rules.grace_seconds)
            self._remove(lost)
            ended = (lost.sid,)
        self._park(session, now=now)
        self.sessions.displace(session)
        self.sessions.save(session)
        return self._start(opener, token, now=now, replaced=replaced, ended=ended)

    def may_take(self, session: Session, proven: Proven, now: float) -> bool:
        """True when a proof is good enough for what a session holds; `now` as everywhere here."""
        if not proven.credential:
            return False
        if proven.is_in_full or session.proof.credential in ("", proven.credential):
            return True
        return session.is_proof_over(now) or not self.credentials.is_valid(
            session.proof.credential, session.runtime_key
        )

    def _attach(self, session: Session, connection: int, *, now: float) -> None:
        self.sessions.connect(session, connection)
        session.contested_at, session.heard_at = None, now
        self.terms.begin_lease(session, now)

    def _park(self, session: Session, *, now: float) -> None:
        if session.is_live:
            self.sessions.connect(session, None)
            self.terms.begin_grace(session, now)

    def _end_proof(self, session: Session, now: float) -> None:
        ends = session.proof.expires_at
        session.proof = replace(session.proof, expires_at=now if ends is None else min(ends, now))
        self.terms.end_now(session, now)
        self.sessions.save(session)

    def _remove(self, session: Session) -> None:
        self.sessions.remove(session)
        self.terms.forget(session)


def _takes_over(rules: SessionRules, session: Session, opener: Opener) -> bool:
    """True when the address of a runtime alone gives its session to a second opener, even while it is live."""
    if not rules.second_open_takes_over or session.proof.credential:
        return False
    return session.dialect.is_of_old_nodes and opener.dialect.is_of_old_nodes


def take_rules_over(transitions: SessionTransitions, rules: SessionRules) -> None:
    """Let other rules count from now on.

    A shorter grace or lease counts for sessions that have one already; a longer one from when they get their next.
    """
    transitions.rules = rules
    transitions.terms.grace_seconds, transitions.terms.lease_seconds = rules.grace_seconds, rules.lease_seconds


def contest(session: Session, now: float, silence_seconds: float) -> OpenRefused | None:
    """Refuse an unproven opener while the old connection may be alive; None when it kept silent long enough."""
    contested_at = session.contested_at
    if contested_at is None or not session.heard_at <= contested_at <= now:
        # there was none, or it was heard since, or the clock was set back
        contested_at = session.contested_at = now
    remaining = contested_at + silence_seconds - now
    if remaining <= 0 and contested_at < now:
        return None
    return OpenRefused(Code.ADDRESS_TAKEN, remaining, session.connection)
