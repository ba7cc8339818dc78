"""What is fetched for a domain, and from where: signed documents, modules, and the unsigned catalogues of old.

Sizes and deadlines are chosen here; how they are kept is the fetcher's business. What comes back is bytes; only a
module is held against its manifest at once, to know whether the next place has to be asked.

Source: trust and hosts, sections 2.4 and 3.6; data formats, section 2.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from catalogue_client.core import legacy
from catalogue_client.core.location import Location
from catalogue_client.core.verify import check_module, check_module_size
from catalogue_client.fetcher import Fetched, Fetcher
from protofly import limits
from protofly.documents import Manifest
from protofly.errors import Code, HostError, PeerError, TransportError

ModuleLookup = Callable[[str], Awaitable[bytes | None]]
"""Asks a cache for the module with this SHA-256 (hex)."""

_SOURCE_PACKAGE_HEADROOM_BYTES: Final = 8 << 10


class Downloads:
    """The fetches of the catalogue client."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    async def document(self, location: Location, url: str, max_bytes: int) -> Fetched:
        """Fetch an envelope.

        Raises:
            PeerError: BAD_REPLY if it is not JSON by its own account, or what the fetcher raises.
            TransportError: Nobody answered.
        """
        fetched = await self._fetch(location, url, max_bytes, limits.FETCH_SECONDS)
        if fetched.content_type != "application/json" and not fetched.content_type.endswith("+json"):
            detail = f"{fetched.content_type[:100]!r} is no JSON document"
            raise PeerError(Code.BAD_REPLY, detail, domain=location.domain)
        return fetched

    async def module(self, location: Location, manifest: Manifest, cached: ModuleLookup) -> bytes:
        """The module from the cache, else from the first of the manifest's places that has the right bytes.

        Raises:
            PeerError: MODULE_LIMITS, or why the last place was refused.
            TransportError: Nobody answered in time.
        """
        check_module_size(manifest)
        found = await cached(manifest.module.sha256)
        if found is not None and _is_module(found, manifest):
            return found
        failure: HostError = PeerError(Code.SERVICE_DECLINED, "the manifest names no place", domain=location.domain)
        with trio.move_on_after(limits.MODULE_FETCH_SECONDS):
            for url in manifest.module.urls:
                try:
                    return await self._module_from(location, manifest, url)
                except (PeerError, TransportError) as error:
                    failure = error
            raise failure
        raise TransportError(Code.FETCH_TIMEOUT, f"module of {manifest.name}", phase="read")

    async def unsigned_stub(self, domain: str, authority: str, name: str) -> tuple[legacy.Descriptor, bytes]:
        """Descriptor and code of a stub of an original catalogue; nothing about them is proven.

        Raises:
            PeerError: ADDRESS_REFUSED if the descriptor points to another host, DOCUMENT_MALFORMED.
            TransportError: Nobody answered.
        """
        location = Location.of(domain)
        url = f"https://{authority}/.well-known/protocolstub/{name}"
        max_bytes = _source_package_bytes(limits.MODULE_BYTES)
        fetched = await self._fetch(location, url, max_bytes, limits.MODULE_FETCH_SECONDS)  # it may embed the package
        descriptor = await trio.to_thread.run_sync(partial(legacy.decode_descriptor, fetched.body, domain=domain))
        package = descriptor.source_package
        if package is None:
            url = legacy.source_package_url(descriptor, authority, domain=domain)
            fetched = await self._fetch(location, url, max_bytes, limits.MODULE_FETCH_SECONDS)
            package = await trio.to_thread.run_sync(partial(legacy.decode_source_package, fetched.body, domain=domain))
        return descriptor, package.code

    async def _module_from(self, location: Location, manifest: Manifest, url: str) -> bytes:
        max_bytes = _source_package_bytes(manifest.module.size)
        body = (await self._fetch(location, url, max_bytes, limits.MODULE_FETCH_SECONDS)).body
        if body[:1] == b"{":
            body = legacy.decode_source_package(body, domain=location.domain).code
        check_module(body, manifest)
        return body

    async def _fetch(self, location: Location, url: str, max_bytes: int, deadline_seconds: float) -> Fetched:
        return await self._fetcher.fetch(
            url,
            domain=location.for_domain or location.domain,
            max_bytes=max_bytes,
            deadline_seconds=deadline_seconds,
            connect_to=location.connect_to_for(url),
        )


def _is_module(found: bytes, manifest: Manifest) -> bool:
    try:
        check_module(found, manifest)
    except PeerError:
        return False
    return True


def _source_package_bytes(module_bytes: int) -> int:
    """The largest answer that can hold the module: as Base64 in JSON, as an original broker serves it."""
    return module_bytes * 4 // 3 + _SOURCE_PACKAGE_HEADROOM_BYTES
