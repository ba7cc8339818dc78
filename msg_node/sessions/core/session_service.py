"""`mn:/session`: open, re-open, close and ping of dialect A. Source: message specification, section 5.1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from msg_node.kernel.credentials import shown_of
from msg_node.kernel.identifiers import identifiers
from msg_node.kernel.own_names import OwnNames
from msg_node.kernel.proof import Offered, Proven
from msg_node.kernel.registrations import StatusChange
from msg_node.kernel.resources import Members
from msg_node.kernel.runtime_address import runtime_part
from msg_node.kernel.service import (
    Bind,
    CloseCode,
    CloseConnection,
    Effect,
    Ended,
    Notice,
    Parked,
    Probe,
    SessionEventName,
    SessionNews,
)
from msg_node.kernel.session import Dialect, Line, Opened, Opener, OpenRefused, Session
from msg_node.sessions.core.lifecycle import SessionLifecycle
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.late_replies import LATE
from protofly.limits import HTTP_POLL_SECONDS, PING_SECONDS, SESSION_GRACE_SECONDS, UNPROVED_OPENS
from protofly.message import Message

RECONNECTION_FAIL = "Reconnection fail. The token is unknown or has expired."
"""The description that stubs of dialect A look for after a failed reconnection.

Source: message specification, section 5.1.
"""

PROOF_OVER = "Reconnection fail. The credentials of this session have expired; send new ones in body.credentials."


class OpenRefusedError(PeerError):
    """An open that may succeed later. `probe` is a connection to ping meanwhile."""

    def __init__(self, refused: OpenRefused) -> None:
        super().__init__(refused.code, "the runtime has a session" if refused.code is Code.ADDRESS_TAKEN else "")
        self.retry_after_seconds = refused.retry_after_seconds
        self.alternatives = refused.alternatives
        self.probe = refused.probe


class ReconnectionError(PeerError):
    """A re-open that brings nothing back; `detail` is the text that the stub gets."""

    def __init__(self, detail: str) -> None:
        super().__init__(Code.BAD_TOKEN, detail)


Permit = Callable[[Message, frozenset[str]], None]
"""Asks the policies about an open or re-open; they are shown these roles. Raises PeerError when they deny it."""


PermitGuest = Callable[[str, Message], None]
"""Asks the gates about an open or re-open by a runtime of that other domain. Raises PeerError when they deny it."""


def permit_all(_message: Message, _roles: frozenset[str]) -> None:
    """No policy about sessions."""


@dataclass(slots=True)
class SessionStep:
    """The result of a request.

    Attributes:
        members: Body members of the reply; None: no reply.
        status_changes: In the registry.
        effects: See `ServiceResult`.
        notices: See `ServiceResult`.
        news: See `ServiceResult`.
    """

    members: dict[str, object] | None = None
    status_changes: list[StatusChange] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    news: list[SessionNews] = field(default_factory=list)

    def followed_by(self, later: SessionStep) -> SessionStep:
        """This step and a later one as one, with the reply of the later one."""
        return SessionStep(
            later.members,
            self.status_changes + later.status_changes,
            self.effects + later.effects,
            self.notices + later.notices,
            self.news + later.news,
        )


@dataclass(frozen=True, slots=True)
class Announced:
    """Facts about this node for runtimes whose session is opened.

    Attributes:
        functions: Names of functions that not every node has.
        grace_seconds: Time in which a lost session can be re-opened.
        ping_seconds: Interval of our pings.
        poll_seconds: Interval of polls, for runtimes over HTTP.
    """

    functions: tuple[str, ...] = ("federation",)
    grace_seconds: float = SESSION_GRACE_SECONDS
    ping_seconds: float = PING_SECONDS
    poll_seconds: float = HTTP_POLL_SECONDS


class SessionService:
    """Serves the session verbs for connections.

    Args:
        lifecycle: Opens and ends sessions with what they hold.
        own: The names of this node, which no runtime may take.
        announced: Gives what replies say about this node.
        permit: Asks the policies about a runtime of our own.
        permit_guest: Asks the gate `peer` about a guest, who needs a credential besides; None: there are no guests.
        takes_guests: False while there are none, either.
    """

    def __init__(
        self,
        lifecycle: SessionLifecycle,
        own: OwnNames,
        *,
        announced: Callable[[], Announced] = Announced,
        permit: Permit = permit_all,
        permit_guest: PermitGuest | None = None,
        takes_guests: Callable[[], bool] = lambda: True,
    ) -> None:
        self._lifecycle = lifecycle
        self._sessions = lifecycle.sessions
        self._transitions = lifecycle.transitions
        self._own = own
        self._permit_own, self._permit_guest, self._takes_guests = permit, permit_guest, takes_guests
        self._announced = announced
        self._unproved: Counter[int] = Counter()

    # Verbs.

    def open(self, message: Message, members: Members, line: Line, *, now: float, seed: bytes) -> SessionStep:
        """Open a session, or renew the one that the connection has.

        Args:
            message: The request; its `from` is the runtime address.
            members: Its body.
            line: Where it came from. A token in the body goes before that of the connection. In a dialect without
                tokens a second open of the same runtime is answered like the first one.
            now: Seconds since the Unix epoch.
            seed: Fresh randomness for the token.

        Raises:
            PeerError: BAD_HEADER, NOT_OWNER, SPOOFED_SOURCE, NO_CREDENTIALS, BAD_TOKEN, or what the policies say;
                `OpenRefusedError` for what may work later.
        """
        runtime_key = message.from_key
        wants_late = _wants_late(members)
        is_guest = self._is_guest(runtime_key)
        connection, dialect = line.connection, line.dialect
        offered = Offered(offered_token(members) or line.offered.token, line.offered.certificate)
        proven = self._transitions.credentials.check(offered, runtime_key, now=now)
        if is_guest and not proven.credential:
            raise PeerError(Code.NO_CREDENTIALS, "runtimes of other domains need credentials here")
        self._permit(message, proven, is_guest=is_guest)
        opener = Opener(message.from_.strip(), runtime_key, connection, proven, dialect, is_guest)
        token = next(identifiers(seed))
        before = self._session_of(runtime_key)
        if before is not None and before.connection == connection and not (dialect.has_token or proven.credential):
            return SessionStep({"session": self._facts_of(before.sid, now)})
        room = self._make_room(opener, line, now)
        result, status_changes = self._lifecycle.open(opener, token, now=now)
        if isinstance(result, OpenRefused):
            raise OpenRefusedError(result)
        self._transitions.want_late(result.sid, wants=bool(wants_late))
        facts: dict[str, object] = {"session": self._facts_of(result.sid, now)}
        if dialect.has_token:
            facts = {"runtimeToken": token, **facts}
        return room.followed_by(self._opened(result, line, facts, status_changes, before))

    def re_open(self, message: Message, members: Members, line: Line, *, now: float) -> SessionStep:
        """Bring a session back by its session address, or renew the one that the connection has.

        `body.late` says anew whether the runtime wants late replies; without it that stays as it was.
        What came with the connection may have expired meanwhile and is then passed over; what stands in the body is
        judged.

        Raises:
            PeerError: NO_CREDENTIALS, BAD_TOKEN, or what the policies say; `ReconnectionError` when the token is no
                good one, or not any more.
        """
        wants_late = _wants_late(members)
        session = self._sessions.by_session_address(message.from_key)
        if session is None:
            raise ReconnectionError(RECONNECTION_FAIL)
        proven = self._proven_again(session, offered_token(members), line.offered, now)
        self._permit(message, proven or session.proof, is_guest=session.is_guest)
        is_over = session.is_proof_over(now)
        before = self._session_of(session.runtime_key)
        result, status_changes = self._lifecycle.re_open(message.from_key, line.connection, now=now, proven=proven)
        if result is None:
            raise ReconnectionError(PROOF_OVER if is_over else RECONNECTION_FAIL)
        if wants_late is not None:
            self._transitions.want_late(result.sid, wants=wants_late)
        facts: dict[str, object] = {"session": self._facts_of(result.sid, now)}
        return self._opened(result, line, facts, status_changes, before)

    def close(self, connection: int, *, now: float) -> SessionStep:
        """End the session of a connection and close that; no reply."""
        closing = CloseConnection(connection, CloseCode.NORMAL)
        sid = self._sessions.by_connection(connection)
        session = None if sid is None else self._sessions.get(sid)
        if session is None:
            return SessionStep(effects=[closing])
        news = self._end_of(session, "closed")
        changes = self._lifecycle.close(session.sid, now=now)
        return SessionStep(None, changes, [Ended(session.sid), closing], news=[news])

    def remove(self, sids: Iterable[int], *, now: float, closing_code: CloseCode = CloseCode.REMOVED) -> SessionStep:
        """End sessions with all that they hold: no token brings them back here. `closing_code` says why."""
        step = SessionStep()
        for sid in sids:
            session = self._sessions.get(sid)
            if session is None:
                continue
            step.news.append(self._end_of(session, "closed"))
            step.effects.append(Ended(sid))
            if session.connection is not None:
                closing = CloseConnection(session.connection, closing_code)
                step.effects.append(closing)
                step.notices.append(Notice(session.connection, session.runtime, closing.code.word))
            step.status_changes += self._lifecycle.close(sid, now=now)
        return step

    def _make_room(self, opener: Opener, line: Line, now: float) -> SessionStep:
        """End the session that gives way to a new one when all places are taken, if one does; see `crowds`."""
        sessions = self._sessions
        has_place = sessions.by_connection(line.connection) or sessions.by_runtime(opener.runtime_key)
        if has_place or len(sessions) < self._transitions.rules.max_sessions:
            return SessionStep()
        session = sessions.crowds.giving_way(None if opener.proven.credential else line.offered.network)
        ended = () if session is None else (session.sid,)
        return self.remove(ended, now=now, closing_code=CloseCode.CROWDED_OUT)

    def refused(self, message: Message, connection: int, error: PeerError) -> SessionStep:
        """Return the effects of a refusal besides its reply.

        A connection without a session whose proofs fail too often is closed.
        """
        effects: list[Effect] = []
        if isinstance(error, OpenRefusedError) and error.probe is not None:
            effects.append(Probe(error.probe))
        if error.code.status == Code.BAD_TOKEN.status and self._sessions.by_connection(connection) is None:
            self._unproved[connection] += 1
            if self._unproved[connection] >= UNPROVED_OPENS:
                effects.append(CloseConnection(connection, CloseCode.UNPROVED))
        if error.code is Code.BAD_TYPE:
            return SessionStep(effects=effects)
        try:
            runtime_key = runtime_part(message.from_key)
        except PeerError:
            runtime_key = ""
        news = SessionNews("refused", runtime_key, code=error.code.word, detail=error.detail)
        return SessionStep(effects=effects, news=[news])

    # Events.

    def connection_lost(self, connection: int, *, now: float) -> SessionStep:
        """A connection ended without `close`: its session is parked; a guest's has ended."""
        self._unproved.pop(connection, None)
        sid = self._sessions.by_connection(connection)
        session = None if sid is None else self._sessions.get(sid)
        if session is None:
            return SessionStep()
        news = self._end_of(session, "closed") if session.is_guest else SessionNews("lost", session.runtime_key, sid)
        _, status_changes = self._lifecycle.lost(connection, now=now)
        return SessionStep(None, status_changes, [_gone(session)], news=[news])

    def sweep(self, *, now: float) -> SessionStep:
        """End sessions that have expired, and park those that should have renewed their proof."""
        step = SessionStep()
        overdue, status_changes = self._lifecycle.overdue(now=now)
        step.status_changes.extend(status_changes)
        for session, connection in overdue:
            is_proof = session.is_proof_over(now)
            closing = CloseConnection(connection, CloseCode.PROOF_EXPIRED if is_proof else CloseCode.LEASE_OVER)
            step.effects += (_gone(session), closing)
            step.notices.append(Notice(connection, session.runtime, "expired", closing.code.word))
            step.news.append(
                SessionNews(
                    "closed" if session.is_guest else "lost", session.runtime_key, session.sid, closing.code.word
                )
            )
        ended, status_changes = self._lifecycle.expire(now=now)
        step.status_changes.extend(status_changes)
        for session, holdings in ended:
            step.effects.append(Ended(session.sid))
            step.news.append(SessionNews("expired", session.runtime_key, session.sid, "", "", *holdings))
        return step

    # Inner steps.

    def _permit(self, message: Message, proven: Proven, *, is_guest: bool) -> None:
        """Ask the gate `local` about our own, and `peer` about guests, whatever they proved. Raises PeerError."""
        if not is_guest:
            self._permit_own(message, shown_of(proven))
        elif self._permit_guest is not None:
            self._permit_guest(domain_of(message.from_), message)

    def _is_guest(self, runtime_key: str) -> bool:
        """Check a runtime address: one level, so that nobody can open a session above or below that of another."""
        if runtime_part(runtime_key) != runtime_key:
            raise PeerError(Code.BAD_HEADER, "from is to be a runtime address: runtime://<domain>/<id>")
        if runtime_key in self._own.reserved:
            raise PeerError(Code.NOT_OWNER, "this is the address of the node")
        domain = domain_of(runtime_key)
        is_guest = domain != "" and domain not in self._own.domains
        if is_guest and (self._permit_guest is None or not self._takes_guests()):
            raise PeerError(Code.SPOOFED_SOURCE, "this runtime belongs to another domain")
        return is_guest

    def _proven_again(self, session: Session, token: str, offered: Offered, now: float) -> Proven | None:
        """Check the proof of a runtime that comes back, None if it has none."""
        credentials = self._transitions.credentials
        credentials.check_connection(offered)
        if token:
            return credentials.check(Offered(token, offered.certificate), session.runtime_key, now=now)
        try:
            proven = credentials.check(offered, session.runtime_key, now=now)
        except PeerError:
            return None
        return proven if proven.credential else None

    def _session_of(self, runtime_key: str) -> Session | None:
        sid = self._sessions.by_runtime(runtime_key)
        return None if sid is None else self._sessions.get(sid)

    def _facts_of(self, sid: int, now: float) -> dict[str, object]:
        session = self._sessions.get(sid)
        assert session is not None
        node = self._announced()
        facts: dict[str, object] = {
            "grace": node.grace_seconds,
            "ping": node.ping_seconds,
            "functions": list(node.functions),
            "listening": [session.runtime, f"{session.runtime}/sm"],
        }
        if session.dialect is Dialect.HTTPS:
            facts["poll"] = node.poll_seconds
        if session.wants_late:
            facts[LATE] = True
        return facts if session.ends is None else {**facts, "expires": max(int(session.ends - now), 0)}

    def _opened(
        self,
        opened: Opened,
        line: Line,
        members: dict[str, object],
        status_changes: list[StatusChange],
        before: Session | None,
    ) -> SessionStep:
        """Return the effects of a session that is live on a line; `before` held its runtime until now."""
        session, connection = self._sessions.get(opened.sid), line.connection
        assert session is not None
        self._sessions.crowds.move(session, line.offered.network)
        self._unproved.pop(connection, None)
        step = SessionStep(members, status_changes)
        step.effects += [Ended(sid) for sid in opened.ended]
        if opened.replaced is not None and before is not None:
            step.effects.append(CloseConnection(opened.replaced, CloseCode.TAKEN_OVER))
            step.notices.append(Notice(opened.replaced, before.runtime, CloseCode.TAKEN_OVER.word))
            step.news.append(SessionNews("taken-over", session.runtime_key, before.sid))
        step.effects.append(Bind(connection, opened.sid))
        step.news.extend(SessionNews("closed", session.runtime_key, sid) for sid in opened.ended)
        event: SessionEventName = "re-opened" if opened.is_resumed else "opened"
        detail = "renewed" if opened.is_renewed else ""
        step.news.append(SessionNews(event, session.runtime_key, opened.sid, detail=detail))
        return step

    def _end_of(self, session: Session, event: Literal["closed", "expired"]) -> SessionNews:
        """News of the end of a session that still holds what it held."""
        return SessionNews(event, session.runtime_key, session.sid, "", "", *self._lifecycle.holdings(session.sid))


def _gone(session: Session) -> Effect:
    return Ended(session.sid) if session.is_guest else Parked(session.sid)


def _wants_late(members: Members) -> bool | None:
    """Read `body.late`: True if late replies are wanted, None if it is absent.

    Source: message specification, section 3, rule 3.
    """
    wants = members.get(LATE)
    if wants is not None and not isinstance(wants, bool):
        raise PeerError(Code.BAD_BODY, "`late` is true or false")
    return wants


def offered_token(members: Members) -> str:
    """The bearer token of `body.credentials`, "" when there are none or they say `anonymous`.

    Credentials that cannot be read are refused: who sends some does not want to be nobody.
    """
    credentials = members.get("credentials")
    if credentials is None:
        return ""
    if not isinstance(credentials, dict):
        raise PeerError(Code.BAD_TOKEN, "credentials are an object with `kind` and `token`")
    kind = credentials.get("kind", "bearer")
    if kind == "anonymous":
        return ""
    if kind != "bearer":
        raise PeerError(Code.BAD_TOKEN, "credentials of this kind are not known")
    token = credentials.get("token")  # longer than any address: `Credentials` bounds it
    if not isinstance(token, str) or not token:
        raise PeerError(Code.BAD_TOKEN, "credentials of the kind `bearer` have a `token`, which is a text")
    return token
