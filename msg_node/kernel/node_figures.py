"""The figures of a node that the other nodes of its domain know, and operators see in one place."""

from __future__ import annotations

import msgspec


class NodeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one moment; counts are since the start.

    Attributes:
        uptime_seconds: Since the start.
        memory_bytes: Of the process, in RAM.
        live_sessions: With a connection.
        parked_sessions: That have lost theirs.
        links_up: To other domains, that are up here.
        stored_requests: That are stored until they are done.
        delivered: Messages that went to somebody.
        refused: Messages that were refused.
        problems: What keeps the node from doing all its work.
    """

    uptime_seconds: int = 0
    memory_bytes: int = 0
    live_sessions: int = 0
    parked_sessions: int = 0
    links_up: int = 0
    stored_requests: int = 0
    delivered: int = 0
    refused: int = 0
    problems: int = 0


class FiguresBoard:
    """Passes the newest figures from the node to the thread that renews its lease.

    Attributes:
        newest: A value that is replaced as a whole.
    """

    def __init__(self) -> None:
        self.newest = NodeFigures()
