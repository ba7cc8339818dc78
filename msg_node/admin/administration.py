"""The admin service of a running node: performs the operations of the table, whatever way they came in.

Operations run in the event loop of the node, each whole: nothing of it waits in the middle, so no message sees half of
a change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from msg_node.admin import views
from msg_node.admin.administered import Administered
from msg_node.admin.core.operations import AdminRequest, Value, find_operation, read_arguments
from msg_node.admin.core.pages import Page, Row, page_of

logger = logging.getLogger("msg_node")

Arguments = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks, proved by the way in.

    Attributes:
        name: A user of this machine, a runtime, or the holder of a token.
        way: `socket`, `message` or `https`.
    """

    name: str
    way: str


_LISTS: Final[Mapping[str, Callable[[Administered], Iterable[Row]]]] = {
    "sessions": views.sessions,
    "addresses": views.addresses,
    "subscriptions": views.subscriptions,
    "links": views.links,
    "stubs": views.stubs,
    "peers": views.peers,
    "quotas": views.quotas,
    "queues": views.queues,
}


class Administration:
    """Performs operations on one node.

    Args:
        node: Its parts.
    """

    def __init__(self, node: Administered) -> None:
        self._node = node
        self._performers: dict[str, Callable[[Arguments], object]] = {
            "status": lambda _arguments: node.status(),
            "log": self._log,
            **{name: partial(self._list, rows) for name, rows in _LISTS.items()},
        }

    async def perform(self, request: AdminRequest, actor: Actor) -> object:
        """Perform one operation.

        Args:
            request: As the way in has read it.
            actor: Has been found to be an operator.

        Returns:
            What JSON can say: a page of rows, or facts.

        Raises:
            PeerError: NO_SUCH_SERVICE for an unknown operation, BAD_BODY or NAME_INVALID for its arguments.
        """
        operation = find_operation(request.operation)
        arguments = read_arguments(operation, request.arguments)
        logger.debug("%s by %s asks for %s", actor.name, actor.way, operation.name)
        return self._performers[operation.name](arguments)

    def _list(self, rows: Callable[[Administered], Iterable[Row]], arguments: Arguments) -> Page:
        return page_of(rows(self._node), arguments)

    def _log(self, arguments: Arguments) -> Page:
        return page_of(self._node.log.lines(str(arguments.get("level", ""))), arguments)
