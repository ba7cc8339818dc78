"""Where the messages of parked requests go: what this package needs of the node's send queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from federation.link_context import Refusal
from msg_node.kernel.congestion import Congestible
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

    def send_abroad(self, domain: str, message: Message, roles: frozenset[str] = frozenset()) -> Refusal | None:
        """Queue for another domain; a refusal is the caller's to answer."""

    def reach(self, domain: str, message: Message, roles: frozenset[str]) -> Refusal | None:
        """Have another domain's link made for a message that is kept meanwhile."""

    def is_live(self, domain: str) -> bool:
        """True if the link to a domain is up."""

    def wake(self) -> None:
        """Have everything that was queued written in this scheduler round."""
