"""Numbers of foreign domains: a link subscribes and sends like a session, under a negative number of its own."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from msg_node.kernel.changes import Journal, Rows, Table, decode_row


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
