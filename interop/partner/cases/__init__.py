"""All partner cases, by chapter."""

from __future__ import annotations

from typing import Final

from interop.partner.cases import delivery, discovery, documents, handshakes, own_documents, senders, stubs
from interop.partner.model import PartnerCase

GROUPS: Final = {
    "own-documents": "its own documents",
    "discovery": "discovery",
    "documents": "documents of a partner",
    "handshake": "handshake",
    "senders": "who may speak for whom",
    "delivery": "delivery and resumption",
    "stubs": "stubs of a partner",
}
CASES: Final[tuple[PartnerCase, ...]] = (
    *own_documents.CASES,
    *discovery.CASES,
    *documents.CASES,
    *handshakes.CASES,
    *senders.CASES,
    *delivery.CASES,
    *stubs.CASES,
)
