"""Finding, fetching and verifying what a foreign domain publishes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protofly.public_names import public_names

__all__ = [
    "CatalogueClient",
    "DomainTrust",
    "Fetcher",
    "HttpFetcher",
    "Location",
    "TrustAnchor",
    "TrustStore",
]

if TYPE_CHECKING:
    from catalogue_client.client import CatalogueClient
    from catalogue_client.core.location import Location
    from catalogue_client.core.state import DomainTrust, TrustAnchor
    from catalogue_client.fetcher import Fetcher
    from catalogue_client.http_fetcher import HttpFetcher
    from catalogue_client.trust_store import TrustStore
else:
    __getattr__ = public_names(
        __name__,
        {
            "CatalogueClient": "catalogue_client.client",
            "DomainTrust": "catalogue_client.core.state",
            "Fetcher": "catalogue_client.fetcher",
            "HttpFetcher": "catalogue_client.http_fetcher",
            "Location": "catalogue_client.core.location",
            "TrustAnchor": "catalogue_client.core.state",
            "TrustStore": "catalogue_client.trust_store",
        },
    )
