"""One session, its row, a request for one, and the outcome. Source: message specification, section 5.1."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import msgspec

from msg_node.kernel.proof import ANONYMOUS, NOTHING_OFFERED, Offered, Proven
from protofly.errors import Code

_WITH_TOKEN = frozenset({"a", "a/https", "a/mqtt"})
_WITH_DESC = _WITH_TOKEN | {"a/socket.io"}
_OF_OLD_NODES = frozenset({"a", "a/socket.io", "b", "c"})


class Dialect(Enum):
    """The dialects of runtimes. Source: message specification, sections 5.1 to 5.3.

    `SOCKET_IO` is dialect A in the framing of the Node.js node, whose stubs get no token and keep their plain
    runtime address. `HTTPS` is dialect A in requests and a return channel, `MQTT` through a broker.
    """

    SESSION_MESSAGES = "a"
    SOCKET_IO = "a/socket.io"
    HTTPS = "a/https"
    MQTT = "a/mqtt"
    COMMAND_FRAMES = "b"
    QUERY = "c"

    def __init__(self, word: str) -> None:
        self.has_token = word in _WITH_TOKEN
        """True if the runtime gets a token, with which it can bring its session back."""
        self.reads_desc = word in _WITH_DESC
        """True if the runtime reads descriptions as `desc`. Source: message specification, section 4."""
        self.is_of_old_nodes = word in _OF_OLD_NODES
        """True if published stubs of the reference nodes speak it."""


class SessionRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session as it is stored: no token, no connection."""

    sid: int
    runtime: str
    runtime_key: str
    token_digest: str
    credential: str = ""
    dialect: Dialect = Dialect.SESSION_MESSAGES
    is_guest: bool = False
    is_displaced: bool = False
    roles: tuple[str, ...] = ()
    proof_ends: float | None = None
    login: str = ""
    wants_late: bool = False

    def parked_session(self, roles: frozenset[str], *, now: float) -> Session:
        """The session as it is after a restart: parked, with the roles that its credential has now."""
        return Session(
            sid=self.sid,
            runtime=self.runtime,
            runtime_key=self.runtime_key,
            token_digest=self.token_digest,
            proof=Proven(self.credential, roles, self.proof_ends, login=self.login),
            dialect=self.dialect,
            is_guest=self.is_guest,
            connection=None,
            heard_at=now,
            is_displaced=self.is_displaced,
            wants_late=self.wants_late,
        )


@dataclass(slots=True)
class Session:
    """One session. Times are seconds since the Unix epoch.

    Attributes:
        proof: What its runtime proved when it was opened or renewed.
        connection: None while it is parked.
        heard_at: Last sign of life, as far as that was asked for.
        grace_ends: When it expires; None while it is live.
        contested_at: Since when an opener without a proof waits for the connection to be silent.
        is_displaced: Another session speaks for its runtime; its token brings it back.
        lease_ends: When it is to be renewed at the latest; None: never.
        wants_late: Its runtime asked for late replies.
        network: Whom it counts for while it has proved nothing, see `Offered`; "" after a restart.
    """

    sid: int
    runtime: str
    runtime_key: str
    token_digest: str
    proof: Proven
    dialect: Dialect
    is_guest: bool
    connection: int | None
    heard_at: float
    grace_ends: float | None = None
    contested_at: float | None = None
    is_displaced: bool = False
    lease_ends: float | None = None
    wants_late: bool = False
    network: str = ""

    @property
    def ends(self) -> float | None:
        """Unix seconds at which the proof or the lease of a live session ends, unless renewed; None: never."""
        return min((end for end in (self.proof.expires_at, self.lease_ends) if end is not None), default=None)

    def is_proof_over(self, now: float) -> bool:
        """True when what its runtime proved has expired."""
        return self.proof.expires_at is not None and self.proof.expires_at <= now

    @property
    def is_live(self) -> bool:
        """True when the session has a connection."""
        return self.connection is not None

    def row(self) -> SessionRow:
        """The session as it is stored."""
        return SessionRow(
            sid=self.sid,
            runtime=self.runtime,
            runtime_key=self.runtime_key,
            token_digest=self.token_digest,
            credential=self.proof.credential,
            dialect=self.dialect,
            is_guest=self.is_guest,
            is_displaced=self.is_displaced,
            roles=tuple(sorted(self.proof.roles)),
            proof_ends=self.proof.expires_at,
            login=self.proof.login,
            wants_late=self.wants_late,
        )


@dataclass(frozen=True, slots=True)
class Line:
    """The connection that a request for a session came over.

    Attributes:
        connection: Number, given by the connector and never used twice.
        offered: Proofs that came with the connection itself.
        dialect: How the runtime speaks.
    """

    connection: int
    offered: Offered = NOTHING_OFFERED
    dialect: Dialect = Dialect.SESSION_MESSAGES


@dataclass(frozen=True, slots=True)
class Opener:
    """A request for a session, with what the runtime has proven."""

    runtime: str
    runtime_key: str
    connection: int
    proven: Proven = ANONYMOUS
    dialect: Dialect = Dialect.SESSION_MESSAGES
    is_guest: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """The session is live on the opener's connection.

    `replaced` is the connection that it left (to be closed with 4001), `ended` are sessions whose holdings are to be
    released. `is_renewed`: it stays where it is, and was only renewed.
    """

    sid: int
    is_resumed: bool = False
    replaced: int | None = None
    ended: tuple[int, ...] = ()
    is_renewed: bool = False


@dataclass(frozen=True, slots=True)
class OpenRefused:
    """No session.

    `probe` is a connection to ping: when it stays silent for `retry_after_seconds` a later opener gets through.
    `alternatives` are URLs where the domain opens sessions meanwhile.
    """

    code: Code
    retry_after_seconds: float = 0.0
    probe: int | None = None
    alternatives: tuple[str, ...] = ()
