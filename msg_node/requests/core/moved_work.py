"""Parked requests and reports that go from one node of a domain to another, behind those for whom they wait.

    giver                           rows of the domain                    taker
    row deleted, given row put  ──▶ "<taker> <giver> …"  ──▶ given row deleted, row of its own put

Each step is one transaction, so a request belongs to one node, or is on its way to one, whatever dies. A node takes
over the work of one that has died in the same way: the engine makes given rows of it. What a sender still waits for,
and what is not stored yet, stays until that has changed. `now` is in seconds since the Unix epoch. Source: message
specification, section 19.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from msg_node.requests.core.delivery_messages import waiting_report
from msg_node.requests.core.inbox import Inboxes, InboxRow, Notice
from msg_node.requests.core.parked import ParkedRow, Sender, from_row, row_key, row_of
from msg_node.requests.core.parking import NUMBERS_PER_SECOND, Parking


def given_prefix(node: str) -> str:
    """The prefix of the keys of rows that are given to a node."""
    return f"{node} "


class MovedWork:
    """Gives work away and takes it in.

    Args:
        node: Our name.
    """

    def __init__(self, node: str, journal: Journal, parking: Parking, inboxes: Inboxes) -> None:
        self._node = node
        self._journal = journal
        self._parking = parking
        self._inboxes = inboxes

    def give_requests(self, queue: str, node: str, now: float) -> int:
        """Give a node the stored requests of a queue; returns how many."""
        given = [one for one in self._parking.queues.entries(queue) if one.is_stored and one not in self._parking.owed]
        for entry in given:
            self._journal.put(Table.GIVEN_PARKED, self._key(node, entry.number, now), row_of(entry))
            self._parking.finish(entry, waiting_report(entry), now)
        return len(given)

    def give_reports(self, owner: str, node: str, now: float) -> int:
        """Give a node the inbox of an address; returns how many reports that has."""
        given = self._inboxes.of_owner(owner)
        for entry in given:
            self._journal.put(Table.GIVEN_INBOX, self._key(node, entry.number, now), entry.row())
        return self._inboxes.acknowledge(owner, [entry.number for entry in given])

    def take_requests(self, rows: Rows, now: float) -> list[str]:
        """Take in requests that were given to us; returns their queues. Raises HostError: STORAGE."""
        queues = []
        decoded = [
            (key, decode_row(raw, ParkedRow, table=Table.GIVEN_PARKED, key=key)) for key, raw in self._ours(rows)
        ]
        for key, row in sorted(decoded, key=lambda one: (one[1].accepted_at, one[1].number)):
            self._journal.delete(Table.GIVEN_PARKED, key)
            if self._parking.find(row.domain, row.request_id) is not None:
                continue
            self._parking.finished.forget(row.domain, row.request_id)
            row = self._renumbered(row)
            name = row_key(row.number)
            self._parking.restore({name: msgspec.json.encode(row)}, now=now)
            self._journal.put(Table.PARKED, name, row)
            queues.append(row.queue)
        return list(dict.fromkeys(queues))

    def take_reports(self, rows: Rows) -> list[str]:
        """Take in reports that were given to us; returns whose they are. Raises HostError: STORAGE."""
        owners = []
        for key, raw in self._ours(rows):
            row = decode_row(raw, InboxRow, table=Table.GIVEN_INBOX, key=key)
            self._journal.delete(Table.GIVEN_INBOX, key)
            newer = self._inboxes.find(row.request_id)
            if newer is not None and (newer.is_final or not row.is_final):
                continue
            sender = Sender(row.runtime_key, row.credential)
            notice = Notice(row.owner, sender, row.request_id, row.queue, bytes(row.body), row.is_final)
            entry = self._inboxes.deposit(notice, row.at)
            if row.is_notified:
                self._inboxes.notified(entry)
            owners.append(row.owner)
        return list(dict.fromkeys(owners))

    def _ours(self, rows: Rows) -> Iterator[tuple[str, bytes]]:
        prefix = given_prefix(self._node)
        return ((key, raw) for key, raw in rows.items() if key.startswith(prefix))

    def _renumbered(self, row: ParkedRow) -> ParkedRow:
        """A row in its place among ours; under an id of its own, if its sender has given that to another open one."""
        number = int(row.accepted_at * NUMBERS_PER_SECOND)
        while number in self._parking.numbers or number in self._parking.finished.stored:
            number += 1
        row = msgspec.structs.replace(row, number=number)
        if from_row(row, row.expires_at).transaction in self._parking.transactions:
            row = msgspec.structs.replace(row, wire_id=msgspec.json.encode(row.request_id).decode())
        return row

    def _key(self, node: str, number: int, now: float) -> str:
        return f"{given_prefix(node)}{self._node} {number} {now!r}"
