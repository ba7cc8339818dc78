"""Where the messages of parked requests go: what this package needs of the node's send queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msg_node.kernel.congestion import Congestible
from msg_node.kernel.links import OutboundLinks
from protofly.errors import Code
from protofly.message import Message


class Receiver(Protocol):
    """A connected runtime."""

    @property
    def connection(self) -> int:
        """The number of its connection, never used twice."""

    @property
    def queue(self) -> Congestible:
        """Its queue."""


class OutboundQueues(Protocol):
    """Queues towards runtimes and other domains."""

    @property
    def ports(self) -> Mapping[int, Receiver]:
        """The connected runtimes by session."""

    @property
    def links(self) -> OutboundLinks:
        """The links to other domains."""

    def to_listeners(
        self,
        numbers: tuple[int, ...],
        message: Message,
        blockers: set[Congestible],
        roles: frozenset[str] = frozenset(),
    ) -> Code | None:
        """Queue for sessions and links; a code only when none of them could be given the message."""

    def reply_to(self, sid: int, message: Message) -> None:
        """Queue an answer for a session, if it is still connected."""

    def wake(self) -> None:
        """Have everything that was queued written in this scheduler round."""
