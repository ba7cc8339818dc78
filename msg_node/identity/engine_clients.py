"""Clients that operators manage, in the engine that nodes of a domain share: a client opens its session anywhere."""

from __future__ import annotations

from typing import Final

import msgspec

from msg_node.identity.client_store import changed_meanwhile
from msg_node.identity.core.local_clients import LocalClient
from msg_node.kernel.domain_records import DomainRecords

MANAGED: Final = "clients"


class EngineClients:
    """Clients as records of the domain.

    Args:
        records: Those of the domain; who made them closes them.
    """

    def __init__(self, records: DomainRecords) -> None:
        self._records = records

    def close(self) -> None:
        """Nothing to do."""

    def load(self) -> list[LocalClient]:
        """See `Clients`."""
        return [_client(row) for row in self._records.load(MANAGED).values()]

    def replace(self, name: str, before: LocalClient | None, client: LocalClient | None) -> None:
        """See `Clients`."""
        row = self._records.read(MANAGED, name)
        found = None if row is None else _client(row)
        new = None if client is None else msgspec.json.encode(client)
        if found != before or not self._records.replace(MANAGED, name, row, new):
            raise changed_meanwhile(name)


def _client(row: bytes) -> LocalClient:
    return msgspec.json.decode(row, type=LocalClient)
