"""Links to other domains as services see them: what sends over them, and their numbers.

A link subscribes and sends like a session, under a negative number of its own. So does another node of our own domain,
under a number that this process gives it (`is_node`), and a name that no domain has: `@` and its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from federation.links.link_context import Refusal
from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from protofly.message import Message

NODES = -(1 << 40)
"""The numbers of nodes of our own domain are this one and those below."""
_NODE_MARK = "@"


def is_node(number: int) -> bool:
    """True for the number of another node of our domain."""
    return number <= NODES


def node_name(domain: str) -> str:
    """The name of the node of ours that stands in place of a domain, "" for a real domain."""
    return domain[1:] if domain.startswith(_NODE_MARK) else ""


class OutboundLinks(Protocol):
    """Links to other domains."""

    def send(self, domain: str, message: Message, roles: frozenset[str] = frozenset()) -> Refusal | None:
        """Queue for another domain; a refusal is the caller's to answer. `roles` are those of the sender's session."""

    def reach(self, domain: str, message: Message, roles: frozenset[str]) -> Refusal | None:
        """Have another domain's link made for a message that is kept meanwhile; a refusal says that it may not go."""

    def is_live(self, domain: str) -> bool:
        """True if the link to a domain is up."""


class HasLinks(Protocol):
    """Something that gets its links before anything runs."""

    @property
    def links(self) -> OutboundLinks:
        """The links to other domains."""


class LinkRow(msgspec.Struct, frozen=True):
    """The listener number of a foreign domain as it is stored."""

    domain: str
    number: int


class LinkNumbers:
    """The number of each foreign domain; once given it never changes, across restarts too."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._numbers: dict[str, int] = {}
        self._domains: dict[int, str] = {}
        self._nodes: dict[str, int] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._domains)

    def number(self, domain: str) -> int:
        """The (negative) number of a foreign domain; a new one is kept."""
        number = self._numbers.get(domain)
        if number is None:
            number = -1 - len(self._numbers)
            self._remember(LinkRow(domain, number))
            self._journal.put(Table.LINK_NUMBERS, domain, LinkRow(domain, number))
        return number

    def of_node(self, name: str) -> int:
        """The number of another node of our domain, for as long as this process lives."""
        return self._nodes.get(name) or self._name_node(name)

    def _name_node(self, name: str) -> int:
        number = self._nodes[name] = NODES - len(self._nodes)
        self._domains[number] = _NODE_MARK + name
        return number

    def known_number(self, domain: str) -> int:
        """The number of a foreign domain, 0 for one that has none."""
        return self._numbers.get(domain, 0)

    def domain(self, number: int) -> str:
        """The foreign domain behind a number, "" for an unknown one."""
        return self._domains.get(number, "")

    def restore(self, rows: Rows) -> None:
        """Take over what was stored.

        Raises:
            HostError: STORAGE.
        """
        for key, raw in rows.items():
            self._remember(decode_row(raw, LinkRow, table=Table.LINK_NUMBERS, key=key))

    def _remember(self, row: LinkRow) -> None:
        self._numbers[row.domain] = row.number
        self._domains[row.number] = row.domain
