"""One session, what is stored of it, who asks for one and what he gets. Source: message specification, section 5.1."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import msgspec

from protofly.errors import Code


class Dialect(Enum):
    """How the stub of a runtime speaks to us. Source: message specification, sections 5.1 to 5.3."""

    SESSION_MESSAGES = "a"
    COMMAND_FRAMES = "b"
    QUERY = "c"


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


@dataclass(slots=True)
class Session:
    """One session. `connection` is None while it is parked, `grace_ends` None while it is live."""

    sid: int
    runtime: str
    runtime_key: str
    token_digest: str
    credential: str
    roles: frozenset[str]
    dialect: Dialect
    is_guest: bool
    connection: int | None
    heard_at: float
    grace_ends: float | None = None
    contested_at: float | None = None
    is_displaced: bool = False

    @property
    def is_live(self) -> bool:
        """Whether the session has a connection."""
        return self.connection is not None

    def row(self) -> SessionRow:
        """What is stored of it."""
        return SessionRow(
            sid=self.sid,
            runtime=self.runtime,
            runtime_key=self.runtime_key,
            token_digest=self.token_digest,
            credential=self.credential,
            dialect=self.dialect,
            is_guest=self.is_guest,
            is_displaced=self.is_displaced,
        )


@dataclass(frozen=True, slots=True)
class Opener:
    """Who asks for a session, and what he has proven. `credential` is the digest of a valid one, or ""."""

    runtime: str
    runtime_key: str
    connection: int
    credential: str = ""
    dialect: Dialect = Dialect.SESSION_MESSAGES
    is_guest: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """The session is live on the opener's connection.

    `replaced` is the connection that it left (to be closed with 4001), `ended` are sessions whose holdings are to be
    released.
    """

    sid: int
    is_resumed: bool = False
    replaced: int | None = None
    ended: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenRefused:
    """No session.

    `probe` is a connection to ping: when it stays silent for `retry_after_seconds` a later opener gets through.
    """

    code: Code
    retry_after_seconds: float = 0.0
    probe: int | None = None


def runtime_part(key: str) -> str:
    """The runtime address in front of a canonical key: `runtime://a.example/rt/sm` -> `runtime://a.example/rt`.

    "" for other schemes.
    """
    if not key.startswith("runtime:/"):
        return ""
    start = key.find("/", 10) if key.startswith("//", 8) else 8  # runtime://authority/id, or runtime:/id
    if start < 0:
        return ""
    end = key.find("/", start + 1)
    return key if end < 0 else key[:end]
