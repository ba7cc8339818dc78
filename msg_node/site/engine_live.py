"""The `live` document of a domain in the engine that its nodes share."""

from __future__ import annotations

from typing import Final

from msg_node.cluster.core.published import Published
from msg_node.cluster.names import Names
from msg_node.site.publication import SignedLive
from msg_node.storage.engine_documents import EngineDocuments
from protofly.documents import decode_envelope, decode_live
from protofly.errors import PeerError

DOCUMENT: Final = "live"


class EngineLive:
    """See `LiveOfDomain`; one thread uses it at a time.

    Args:
        domain: Whose document it is.
        names: Over a connection of its own.
        documents: Over another one.
    """

    def __init__(self, domain: str, names: Names, documents: EngineDocuments) -> None:
        self._domain = domain
        self._names = names
        self._documents = documents

    def nodes(self) -> list[Published]:
        """See `LiveOfDomain`."""
        rows = self._names.rows()
        return [facts.published for _, (row, facts) in sorted(rows.items()) if row.is_held and facts.published.url]

    def read(self) -> SignedLive | None:
        """See `LiveOfDomain`. What cannot be read is replaced like a document that is due."""
        raw = self._documents.read(DOCUMENT)
        if raw is None:
            return None
        try:
            return SignedLive(raw, decode_live(decode_envelope(raw).payload, domain=self._domain))
        except PeerError:
            return None

    def replace(self, new: SignedLive, old: SignedLive | None) -> bool:
        """See `LiveOfDomain`."""
        return self._documents.replace(DOCUMENT, new.envelope, None if old is None else old.envelope)

    def close(self) -> None:
        """Close both connections."""
        self._names.close()
        self._documents.close()
