"""Show what an original reTHINK catalogue offers, for a domain that publishes nothing signed.

Source: data formats, sections 2.3 to 2.7; trust and hosts, section 3.5 (level `unsigned`).
"""

from __future__ import annotations

import hashlib

from catalogue_client.client import CatalogueClient
from catalogue_client.http_fetcher import HttpFetcher
from catalogue_client.trust_store import TrustStore
from federation.discovery.dialler import Dialler
from federation.discovery.name_client import DnsClient
from msg_node.settings.model import Settings
from msg_node.wiring.meaning import allowed_addresses, client_context
from protofly.address import valid_domain

_WASM = b"\0asm"


async def describe(settings: Settings, store: TrustStore, domain: str, authority: str, name: str) -> dict[str, object]:
    """Fetch the facts of a stub of a domain, under the connection rules of the settings.

    Args:
        settings: Name servers, certificate authorities, and the addresses allowed.
        store: Stored trust: a domain that has signed before is refused here.
        domain: Domain of the catalogue.
        authority: Host and port of the server; empty for that of the specification.
        name: Of the entry.

    Raises:
        PeerError: UNSIGNED_REFUSED, ADDRESS_REFUSED, NAME_INVALID, DOCUMENT_MALFORMED and what fetching raises.
        TransportError: The server did not answer.
    """
    valid_domain(domain)
    dialler = Dialler(DnsClient(settings.discovery.nameservers), allow_addresses=allowed_addresses(settings))
    fetcher = HttpFetcher(dialler, client_context(settings))
    client = CatalogueClient(fetcher, store, our_domain=settings.node.domain)
    descriptor, code = await client.read_unsigned(domain, authority, name)
    pinned = next((peer.sha256 for peer in settings.peer if peer.domain == domain), "")
    digest = hashlib.sha256(code).hexdigest()
    return {
        "domain": domain,
        "url": f"https://{authority or f'catalogue.{domain}'}/.well-known/protocolstub/{name}",
        "signed": False,
        "pinned": {"": "no", digest: "yes"}.get(pinned, f"no, but {pinned}"),
        "stub": descriptor.object_name,
        "version": descriptor.version,
        "language": descriptor.language,
        "interworking": descriptor.is_interworking,
        "hyperty_types": list(descriptor.hyperty_types),
        "constraints": [name for name, is_set in descriptor.constraints.items() if is_set],
        "configuration": [f"{name} = {value}" for name, value in descriptor.configuration.items()],
        "code_bytes": len(code),
        "code_sha256": digest,
        "webassembly": code.startswith(_WASM),
    }
