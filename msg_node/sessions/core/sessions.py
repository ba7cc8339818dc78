"""All sessions of a node, by everything they are looked up by. Only `transitions.SessionTransitions` changes them.

Each runtime key has at most one session that speaks for it, and any number of displaced ones, which wait for their
token. A session is found by number and token while it exists, by connection while it is live. `save` and `remove`
journal the row; changes of the connection are not stored. Source: message specification, section 5.1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msg_node.kernel.changes import Journal, Table
from msg_node.kernel.credentials import digest_of
from msg_node.kernel.proof import Proven
from msg_node.kernel.runtime_address import runtime_part
from msg_node.kernel.session import Session
from msg_node.sessions.core.crowds import Crowds


class Sessions:
    """All sessions by number, runtime key, session address, connection and login.

    Attributes:
        crowds: Those without a credential, by network.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._sessions: dict[int, Session] = {}
        self._by_runtime: dict[str, int] = {}
        self._by_token: dict[str, int] = {}
        self._by_connection: dict[int, int] = {}
        self._displaced: dict[str, set[int]] = {}
        self._of_login: dict[str, set[int]] = {}
        self.crowds = Crowds()

    # Look-ups.

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def get(self, sid: int) -> Session | None:
        """The session of that number; no session has the number 0."""
        return self._sessions.get(sid)

    def by_runtime(self, key: str) -> int | None:
        """The session, live or parked, that speaks for a runtime key."""
        return self._by_runtime.get(key)

    def by_connection(self, connection: int) -> int | None:
        """The session that lives on a connection."""
        return self._by_connection.get(connection)

    def by_session_address(self, session_address: str) -> Session | None:
        """The session with that address, `<runtime>/<token>`. Only the runtime that was given the token knows it."""
        runtime_key, _, token = session_address.rpartition("/")
        session = self._sessions.get(self._by_token.get(digest_of(token), 0))
        return session if session is not None and session.runtime_key == runtime_key else None

    def below(self, key: str) -> int | None:
        """The session to whose runtime address `key` belongs: itself, a component, its session address."""
        return self._by_runtime.get(runtime_part(key))

    def of_runtime(self, sid: int) -> frozenset[int]:
        """All sessions of the same runtime as `sid`, displaced ones included; empty for an unknown number."""
        session = self._sessions.get(sid)
        if session is None:
            return frozenset()
        holder = self._by_runtime.get(session.runtime_key)
        others: Collection[int] = self._displaced.get(session.runtime_key, ())
        return frozenset({sid, *others} if holder is None else {sid, holder, *others})

    def displaced(self, runtime_key: str) -> list[Session]:
        """The displaced sessions of a runtime, oldest first."""
        return [self._sessions[sid] for sid in sorted(self._displaced.get(runtime_key, ()))]

    def of_login(self, login: str) -> list[Session]:
        """All sessions that were opened with a login at our identity manager."""
        return [self._sessions[sid] for sid in self._of_login.get(login, ())]

    # Changes.

    def add(self, session: Session) -> None:
        """Take a new or restored session into all tables; `save` stores it."""
        self._sessions[session.sid] = session
        self._by_token[session.token_digest] = session.sid
        _join(self._of_login, session.proof.login, session.sid)
        self.crowds.add(session)
        if session.is_displaced:
            _join(self._displaced, session.runtime_key, session.sid)
        else:
            self._by_runtime[session.runtime_key] = session.sid
        if session.connection is not None:
            self._by_connection[session.connection] = session.sid

    def remove(self, session: Session) -> None:
        """Take an ended session out of all tables and out of the store."""
        del self._sessions[session.sid]
        del self._by_token[session.token_digest]
        _leave(self._of_login, session.proof.login, session.sid)
        self.crowds.discard(session)
        if session.connection is not None:
            del self._by_connection[session.connection]
        if session.is_displaced:
            _leave(self._displaced, session.runtime_key, session.sid)
        else:
            del self._by_runtime[session.runtime_key]
        self._journal.delete(Table.SESSIONS, str(session.sid))

    def save(self, session: Session) -> None:
        """Store a session as it is now."""
        self._journal.put(Table.SESSIONS, str(session.sid), session.row())

    def connect(self, session: Session, connection: int | None) -> None:
        """Move a session to another connection, or with None away from the one it has."""
        if session.connection is not None:
            del self._by_connection[session.connection]
        session.connection = connection
        if connection is not None:
            self._by_connection[connection] = session.sid

    def renew_token(self, session: Session, token_digest: str) -> None:
        """Give a session another token; the old one brings nothing back any more."""
        del self._by_token[session.token_digest]
        session.token_digest = token_digest
        self._by_token[token_digest] = session.sid

    def prove(self, session: Session, proof: Proven) -> None:
        """Replace what the runtime of a session proved."""
        _leave(self._of_login, session.proof.login, session.sid)
        self.crowds.discard(session)
        session.proof = proof
        _join(self._of_login, proof.login, session.sid)
        self.crowds.add(session)

    def displace(self, session: Session) -> None:
        """Let another session speak for its runtime from now on."""
        session.is_displaced = True
        del self._by_runtime[session.runtime_key]
        _join(self._displaced, session.runtime_key, session.sid)

    def reinstate(self, session: Session) -> None:
        """Let a displaced session speak for its runtime again, which no other session does."""
        _leave(self._displaced, session.runtime_key, session.sid)
        session.is_displaced = False
        self._by_runtime[session.runtime_key] = session.sid


def _join(groups: dict[str, set[int]], name: str, sid: int) -> None:
    if name:
        groups.setdefault(name, set()).add(sid)


def _leave(groups: dict[str, set[int]], name: str, sid: int) -> None:
    members = groups.get(name)
    if members is not None:
        members.discard(sid)
        if not members:
            del groups[name]
