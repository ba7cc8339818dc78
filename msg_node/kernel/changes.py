"""Changes that must survive `kill -9`, as rows.

The cores write changes into a journal, the state store commits them, `restore` reads them back.

A row is JSON text of a frozen Struct (fields may be added with defaults), so that an operator can read the file with
any tool and an older file opens in a newer node. The text is made when it is written, many rows at once; so nothing
that a row holds may change. A change is the whole row or its absence: replaying one twice does no harm, and of several
changes to one row only the last one matters. Source: design, section 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

import msgspec

from protofly.errors import Code, HostError


class Table(Enum):
    """Tables of the state store; the value is the name in the file."""

    SESSIONS = "sessions"
    ADDRESSES = "addresses"
    SUBSCRIPTIONS = "subscriptions"
    REGISTRY = "registry"
    LINK_NUMBERS = "link_numbers"
    QOS_LEASES = "qos_leases"
    PARKED = "parked"
    INBOX = "inbox"
    AGENT_QUEUES = "agent_queues"
    TWIN_THINGS = "twin_things"
    TWIN_VALUES = "twin_values"
    PUSH_TARGETS = "push_targets"
    EXPULSIONS = "expulsions"
    OBJECT_POLICIES = "object_policies"
    RESTRICTIONS = "restrictions"
    BLOCK_LISTS = "block_lists"
    GIVEN_PARKED = "given_parked"
    GIVEN_INBOX = "given_inbox"
    GIVEN_SESSIONS = "given_sessions"
    PROPOSALS = "proposals"

    __hash__ = object.__hash__  # every change is looked up by it, and the usual one is Python


LOGGED = frozenset({Table.ADDRESSES, Table.SUBSCRIPTIONS})
"""Tables of small rows that come and go in great numbers: the store keeps them as logs."""


FOLLOWED = frozenset({Table.AGENT_QUEUES, Table.PUSH_TARGETS, Table.PROPOSALS})
"""Shared tables that each node has in memory: where several nodes share an engine, each hears which rows change."""


GIVEN = frozenset({Table.GIVEN_PARKED, Table.GIVEN_INBOX, Table.GIVEN_SESSIONS})
"""Shared tables of what is on its way from one node to another."""


SHARED = frozenset({Table.RESTRICTIONS, Table.BLOCK_LISTS}) | GIVEN | FOLLOWED
"""Tables whose rows belong to the domain: where several nodes share an engine, each of them reads and writes all."""


NewRow = msgspec.Struct | msgspec.Raw
"""A row to be stored: a frozen Struct, or its JSON text."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """Put a row, or with `row` None delete it."""

    table: Table
    key: str
    row: NewRow | None


Rows = Mapping[str, bytes]
"""All rows of one table by key, as JSON text."""

_Row = TypeVar("_Row", bound=msgspec.Struct)


class Journal:
    """Collects the changes of one step; the shell that drives the cores takes them and has them committed."""

    def __init__(self) -> None:
        self._changes: list[Change] = []

    def put(self, table: Table, key: str, row: msgspec.Struct) -> None:
        """Record that `row` is now what `table` holds under `key`."""
        self._changes.append(Change(table, key, row))

    def delete(self, table: Table, key: str) -> None:
        """Record that `table` holds nothing under `key` any more."""
        self._changes.append(Change(table, key, None))

    def take(self) -> list[Change]:
        """Return what was recorded since the last call, in order."""
        changes, self._changes = self._changes, []
        return changes


def decode_row(row: bytes, type_: type[_Row], *, table: Table, key: str) -> _Row:
    """Decode one stored row.

    Raises:
        HostError: STORAGE, when the row is not what this node writes.
    """
    try:
        return msgspec.json.decode(row, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise HostError(Code.STORAGE, f"state row {table.value}/{key[:80]} cannot be read") from exc
