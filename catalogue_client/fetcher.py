"""The outside as this room sees it: bounded downloads, and lines that go only where they may.

Source: trust and hosts, sections 2.4 to 2.6 (the shape is that of tuf's `FetcherInterface`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import trio


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """One document as it came. `max_age_seconds` is what the server said about caching (0 = do not), None = nothing."""

    body: bytes
    max_age_seconds: float | None = None
    content_type: str = ""


class Fetcher(ABC):
    """Fetches one document, within limits that the caller states."""

    @abstractmethod
    async def fetch(
        self,
        url: str,
        *,
        domain: str,
        max_bytes: int,
        deadline_seconds: float,
        connect_to: tuple[str, int] | None = None,
    ) -> Fetched:
        """GET `url` on behalf of `domain`, the one to blame and whose address rules apply.

        Raises:
            PeerError: REDIRECT_REFUSED, HTTP_STATUS, DOCUMENT_TOO_LARGE, ADDRESS_REFUSED, PORT_REFUSED, TLS_FAILED,
                BAD_REPLY (not HTTP, or not the content that was announced).
            TransportError: DNS_FAILED, CONNECT_FAILED (also for a line that ends before the whole answer is here),
                FETCH_TIMEOUT (also for a drip).
        """


class Dialler(ABC):
    """Opens TCP lines to addresses that were judged. Resolves by itself; nobody else in the node may."""

    @abstractmethod
    async def connect(self, host: str, port: int, *, domain: str) -> trio.SocketStream:
        """Connect to `host`, an address or a name, under the address rules of `domain`.

        Raises:
            PeerError: ADDRESS_REFUSED or PORT_REFUSED.
            TransportError: DNS_FAILED or CONNECT_FAILED.
        """
