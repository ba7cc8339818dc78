"""Where an identity provider says that the stub of a user's domain is, held against where this node gets it.

A provider may vouch for more than a name: for the place that publishes the user's messaging service. If that is another
place than the one this node has found for the domain, then either the provider or the way to that place lies, and a
message in that user's name is not believed.
Source: feature row HM-05; message specification, section 13.3; data formats, section 2.4.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from catalogue_client.core.catalogue_entry import entry_of
from protofly.errors import PeerError

_CATALOGUE = "hyperty-catalogue:"
_DEFAULT_PORTS = {"https": 443, "http": 80}


def names_stub_of(claim: str, domain: str, well_known_url: str) -> bool:
    """True if a claim names the stub of a domain at the place that is used for it.

    Args:
        claim: A catalogue address, or a URL below the well-known place of the domain.
        domain: The domain of the user.
        well_known_url: Where this node asks for what the domain publishes.
    """
    if claim[: len(_CATALOGUE)].lower() == _CATALOGUE:
        try:
            entry = entry_of(claim)
        except PeerError:
            return False
        return entry.kind == "protocolstub" and entry.domain == domain
    try:
        named, used = urlsplit(claim), urlsplit(well_known_url)
        is_same_place = _origin(named) == _origin(used)
    except ValueError:
        return False
    return is_same_place and named.path.startswith("/.well-known/") and "@" not in named.netloc


def _origin(url: SplitResult) -> tuple[str, str, int | None]:
    return url.scheme, (url.hostname or "").removesuffix("."), url.port or _DEFAULT_PORTS.get(url.scheme)
