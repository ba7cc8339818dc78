"""Where a case is played: the node, the manner, and one connected participant after the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import trio

from interop.conformance.engine_io import EngineIoLine
from interop.conformance.jsontext import Json, shorten, write
from interop.conformance.model import Dialect
from interop.conformance.wire import Line, Target, WebSocketLine

TRANSCRIPT_LINES: Final = 60
PATHS: Final = {Dialect.A: "/ws", Dialect.B: "/stub/connect", Dialect.C: "/stub/connect"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The node under test, and what the suite knows about it.

    `token` is a bearer token valid for the runtimes of the suite; `runtime_prefix` begins their names.
    `is_anonymous_welcome` says whether sessions may be opened without it. `patience_seconds` bounds each wait.
    """

    target: Target
    domain: str
    token: str = ""
    is_anonymous_welcome: bool = True
    runtime_prefix: str = "conformance-"
    patience_seconds: float = 5.0


@dataclass(slots=True)
class Participant:
    """One connection, and what was last said on it."""

    name: str
    runtime: str
    line: Line
    token: str = ""
    sent: Json = None
    heard: Json = None
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def session(self) -> str:
        """Session address: with the token where there is one."""
        return f"{self.runtime}/{self.token}" if self.token else self.runtime


@dataclass(slots=True)
class Transcript:
    """Messages of a run, in order: the beginning of each text, and only the last lines of all."""

    lines: list[str] = field(default_factory=list)

    def note(self, who: str, arrow: str, what: Json) -> None:
        """One line."""
        text = what if isinstance(what, str) else write(what)
        self.lines.append(f"{who} {arrow} {shorten(text)}")
        del self.lines[:-TRANSCRIPT_LINES]


async def connect(
    nursery: trio.Nursery, node: Node, dialect: Dialect, runtime: str, *, bearer: str = "", is_direct: bool = False
) -> Line:
    """A connection in the manner of a dialect, with nothing said on it yet. `is_direct`: socket.io without polling.

    Raises:
        TransportError: nothing listens.
        LineRefusedError: the node refuses the upgrade.
        WireFaultError: the handshake is not what it has to be.
    """
    if not dialect.has_frames:
        is_upgrading = dialect is Dialect.SOCKETIO
        return await EngineIoLine.connect(nursery, node.target, is_upgrading=is_upgrading, is_direct=is_direct)
    resource, authorization = PATHS[dialect], ""
    if dialect is Dialect.C:
        resource += f"?runtimeURL={quote(runtime, safe='')}"
        resource += f"&access_token={quote(bearer, safe='')}" if bearer else ""
    if dialect is Dialect.B and bearer:
        authorization = f"Bearer {bearer}"
    return await WebSocketLine.connect(nursery, node.target, resource, authorization=authorization)
