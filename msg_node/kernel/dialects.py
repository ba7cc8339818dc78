"""Which dialect a connection speaks, read from the target of its first request.

| target | entry |
|---|---|
| `/ws` | dialect A, a message in each text frame |
| `/socket.io/` | dialect A in Engine.IO and socket.io framing |
| `/stub/connect` | dialect B: the first frame is a command |
| `/stub/connect?runtimeURL=…` | dialect C |
| `/messages`, `/twin` | dialect A in HTTP requests |
| `/link` | the stub of another domain |

Source: message specification, sections 5.1 to 5.3; reference nodes, sections 3.1 and 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from urllib.parse import parse_qsl

RUNTIME_PATH: Final = "/ws"
LINK_PATH: Final = "/link"
MATRIX_PATH: Final = "/stub/connect"
MESSAGES_PATH: Final = "/messages"
TWIN_PATH: Final = "/twin"
ENGINE_PATHS: Final = frozenset({"/socket.io/", "/socket.io"})
BAD_PATH: Final = "Invalid request path!"
NO_RUNTIME: Final = "runtimeURL Parameter is missing!"
_PARAMETERS: Final = 16


class EntryPoint(Enum):
    """The kinds of connections, by their path."""

    SESSION_MESSAGES = "session-messages"
    ENGINE_IO = "engine.io"
    COMMAND_FRAMES = "command-frames"
    QUERY = "query"
    HTTPS = "https"
    LINK = "link"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Arrival:
    """The purpose of the first request of a connection.

    Attributes:
        parameters: Of the query, those given exactly once.
        status: The HTTP status of the refusal; 0 unless `entry` is NOBODY.
        text: What the refusal says.
    """

    entry: EntryPoint
    parameters: dict[str, str] = field(default_factory=dict)
    status: int = 0
    text: str = ""


def arrival_at(target: str) -> Arrival:
    """Return the entry point of a request target, path and query as they came."""
    path, _, query = target.partition("?")
    if path == RUNTIME_PATH:
        return Arrival(EntryPoint.SESSION_MESSAGES)
    if path == LINK_PATH:
        return Arrival(EntryPoint.LINK)
    if path in (MESSAGES_PATH, TWIN_PATH):
        return Arrival(EntryPoint.HTTPS)
    if path in ENGINE_PATHS:
        return Arrival(EntryPoint.ENGINE_IO, parameters_of(query))
    if path == MATRIX_PATH:
        return _matrix_arrival(query)
    if path.startswith("/stub"):
        return Arrival(EntryPoint.NOBODY, status=403, text=BAD_PATH)
    return Arrival(
        EntryPoint.NOBODY, status=404, text="runtimes connect to /ws, /socket.io/, /stub/connect or /messages"
    )


def _matrix_arrival(query: str) -> Arrival:
    parameters = parameters_of(query)
    if "runtimeURL" not in query:
        return Arrival(EntryPoint.COMMAND_FRAMES, parameters)
    if not parameters.get("runtimeURL"):
        return Arrival(EntryPoint.NOBODY, status=403, text=NO_RUNTIME)
    return Arrival(EntryPoint.QUERY, parameters)


def parameters_of(query: str) -> dict[str, str]:
    """Decode a query; a parameter given twice is in doubt and left out, a query of too many parts is empty."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_PARAMETERS)
    except ValueError:
        return {}
    names = [name for name, _ in pairs]
    return {name: value for name, value in pairs if names.count(name) == 1}
