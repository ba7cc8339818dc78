"""`mn:/session`: open, re-open, close and ping of dialect A. Source: message specification, section 5.1."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from msg_node.core.identifiers import identifiers
from msg_node.core.node_state import NodeState
from msg_node.core.registry import StatusChange
from msg_node.core.resources import Members, object_of, text_of
from msg_node.core.service import Bind, CloseCode, CloseConnection, Effect, Ended, Probe
from msg_node.core.session import Opened, Opener, OpenRefused, runtime_part
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.limits import PING_SECONDS, SESSION_GRACE_SECONDS
from protofly.message import Message

RECONNECTION_FAIL = "Reconnection fail. The token is unknown or has expired."
"""What stubs of dialect A look for. Source: message specification, section 5.1."""


class OpenRefusedError(PeerError):
    """An open that may succeed later. `probe` is a connection to ping meanwhile."""

    def __init__(self, refused: OpenRefused) -> None:
        super().__init__(refused.code, "the runtime has a session" if refused.code is Code.ADDRESS_TAKEN else "")
        self.retry_after_seconds = refused.retry_after_seconds
        self.probe = refused.probe


@dataclass(frozen=True, slots=True)
class SessionStep:
    """What came of a request: body members of the reply (None: no reply), status changes in the registry, effects."""

    members: dict[str, object] | None
    status_changes: list[StatusChange]
    effects: list[Effect]


class SessionService:
    """Serves the session verbs for connections.

    Args:
        state: The durable state.
        functions: What the open reply tells about this node.
        grace_seconds: Told to runtimes as the time in which a lost session can be re-opened.
        ping_seconds: Told to runtimes as the rhythm of our pings.
        allows_guests: Runtimes of foreign domains may open sessions.
    """

    def __init__(
        self,
        state: NodeState,
        *,
        functions: Collection[str] = ("federation",),
        grace_seconds: float = SESSION_GRACE_SECONDS,
        ping_seconds: float = PING_SECONDS,
        allows_guests: bool = False,
    ) -> None:
        self._state = state
        self._allows_guests = allows_guests
        self._told = {"grace": grace_seconds, "ping": ping_seconds, "functions": list(functions)}

    def open(
        self, message: Message, members: Members, connection: int, *, now: float, seed: bytes, bearer: str = ""
    ) -> SessionStep:
        """Open a session.

        Args:
            message: The request; its `from` is the runtime address.
            members: Its body.
            connection: Where it came from.
            now: Seconds since the Unix epoch.
            seed: Fresh randomness for the token.
            bearer: Token of the `Authorization` header of the upgrade, if there was one.

        Raises:
            PeerError: BAD_HEADER, NOT_OWNER, SPOOFED_SOURCE, NO_CREDENTIALS, BAD_TOKEN; `OpenRefusedError` for what
                may work later.
        """
        runtime_key = message.from_key
        is_guest = self._is_guest(runtime_key)
        credential = self._state.sessions.credentials.check(_token(members) or bearer, runtime_key)
        opener = Opener(message.from_.strip(), runtime_key, connection, credential, is_guest=is_guest)
        token = next(identifiers(seed))
        result, status_changes = self._state.open(opener, token, now=now)
        if isinstance(result, OpenRefused):
            raise OpenRefusedError(result)
        return SessionStep({"runtimeToken": token, "session": self._told}, status_changes, _effects(result, connection))

    def re_open(self, message: Message, connection: int, *, now: float) -> SessionStep | None:
        """Bring a session back by its session address; None when the token is no (longer a) good one."""
        result, status_changes = self._state.re_open(message.from_key, connection, now=now)
        if result is None:
            return None
        return SessionStep({"session": self._told}, status_changes, _effects(result, connection))

    def close(self, connection: int, *, now: float) -> SessionStep:
        """End the session of a connection and close that; no reply."""
        effects: list[Effect] = [CloseConnection(connection, CloseCode.NORMAL)]
        sid = self._state.sessions.by_connection(connection)
        if sid is None:
            return SessionStep(None, [], effects)
        return SessionStep(None, self._state.close(sid, now=now), [Ended(sid), *effects])

    def _is_guest(self, runtime_key: str) -> bool:
        """Check a runtime address: one level, so that nobody can open a session above or below that of another."""
        if runtime_part(runtime_key) != runtime_key or not runtime_key:
            raise PeerError(Code.BAD_HEADER, "from is to be a runtime address: runtime://<domain>/<id>")
        if runtime_key in self._state.reserved:
            raise PeerError(Code.NOT_OWNER, "this is the address of the node")
        domain = domain_of(runtime_key)
        is_guest = domain != "" and domain not in self._state.domains
        if is_guest and not self._allows_guests:
            raise PeerError(Code.SPOOFED_SOURCE, "this runtime belongs to another domain")
        return is_guest


def _effects(opened: Opened, connection: int) -> list[Effect]:
    effects: list[Effect] = [Ended(sid) for sid in opened.ended]
    if opened.replaced is not None:
        effects.append(CloseConnection(opened.replaced, CloseCode.TAKEN_OVER))
    return [*effects, Bind(connection, opened.sid)]


def probe_effects(error: PeerError) -> list[Effect]:
    """What a refused open asks of the bus."""
    if isinstance(error, OpenRefusedError) and error.probe is not None:
        return [Probe(error.probe)]
    return []


def _token(members: Members) -> str:
    """The bearer token of `body.credentials`, "" when there is none."""
    credentials = object_of(members, "credentials")
    kind = text_of(credentials, "kind")
    if kind == "anonymous":
        return ""
    if kind not in ("", "bearer"):
        raise PeerError(Code.BAD_TOKEN, "credentials of this kind are not known")
    return text_of(credentials, "token")
