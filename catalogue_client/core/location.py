"""Where the documents of a domain are, and what was said about them on the way.

Resolution (DNS, peer entries) produces a `Location`; the client asks it for every URL. Nothing here is trusted: a wrong
location leads to documents that do not verify.

Source: trust and hosts, sections 2.4 and 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import quote, urlsplit

from protofly.documents import DocumentBundle

WELL_KNOWN_PATH: Final = "/.well-known/rethink-mn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Address of the live document of a domain.

    Certificate name, SNI and `Host` are always those of `well_known_url`; `connect_host` and `connect_port` (from
    SVCB or SRV) only say where the line goes, "" and 0 = where the URL says.
    """

    domain: str
    well_known_url: str
    connect_host: str = ""
    connect_port: int = 0
    change_id: str = ""
    """`id=` of the TXT record: a change asks for a refresh."""
    pin_hint: str = ""
    """`k=` of the TXT record: fingerprint of the root key set."""
    pin_is_validated: bool = False
    """True if `pin_hint` came under DNSSEC from a resolver that the operator trusts; else it binds nothing."""
    mode: str = "enforce"
    for_domain: str = ""
    """Whose address rules apply, and who is to blame, where that is another domain: the one that claims this alias."""

    @classmethod
    def of(cls, domain: str) -> Self:
        """The location that needs no look-up: the domain itself, port 443."""
        return cls(domain=domain, well_known_url=f"https://{domain}{WELL_KNOWN_PATH}")

    @property
    def connect_to(self) -> tuple[str, int] | None:
        """Host and port to connect to instead of those in the URL, or None."""
        if not self.connect_host and not self.connect_port:
            return None
        parts = urlsplit(self.well_known_url)
        default_port = parts.port or (80 if parts.scheme == "http" else 443)
        return self.connect_host or parts.hostname or self.domain, self.connect_port or default_port

    def root_url(self, version: int) -> str:
        """URL of one root version."""
        return f"{self.well_known_url}/root/{version}"

    def manifest_url(self, name: str) -> str:
        """URL of the current manifest of the stub called `name`."""
        return f"{self.well_known_url}/manifest/{quote(name, safe='')}"

    def connect_to_for(self, url: str) -> tuple[str, int] | None:
        """`connect_to` if `url` has the authority of the well-known URL, else None: the override is for one host."""
        ours, theirs = urlsplit(self.well_known_url), urlsplit(url)
        return self.connect_to if (ours.scheme, ours.netloc) == (theirs.scheme, theirs.netloc) else None


def kept_location(bundle: DocumentBundle) -> Location | None:
    """Rebuild the location that cached documents were fetched from; None if the bundle has none."""
    if not bundle.well_known_url:
        return None
    return Location(
        domain=bundle.domain,
        well_known_url=bundle.well_known_url,
        connect_host=bundle.connect_host,
        connect_port=bundle.connect_port,
    )
