"""Fetches descriptors for local runtimes.

It does so as this node fetches everything foreign: judged addresses, verified TLS, bounded bytes and time, no
redirects. Nothing is asked of a domain that we do not talk to, and no runtime asks without end. What was found is given
again for a while, and so is that nothing was. Source: data formats, sections 2.4 and 2.8; trust and hosts, section 2.6.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

import trio

from catalogue_client.core.catalogue_entry import CatalogueEntry, decode_entry, places
from catalogue_client.core.location import Location
from catalogue_client.fetcher import Fetched, Fetcher
from federation.core.lookup_rates import LookupRates
from msg_node.backends.backend_http import BackendHttp
from msg_node.kernel.catalogue_questions import CatalogueQuestion
from protofly.errors import Code, HostError, PeerError
from protofly.limits import (
    CATALOGUE_CACHE_SECONDS,
    CATALOGUE_CACHED,
    CATALOGUE_MISSING_SECONDS,
    CATALOGUE_PLACE_SECONDS,
    CATALOGUE_READS_PER_MINUTE,
    CATALOGUE_READS_PER_MINUTE_AND_ASKER,
    DESCRIPTOR_BYTES,
)

_LONGEST_SECONDS = 86_400.0
_FINAL = frozenset({Code.DOMAIN_BLOCKED, Code.RATE})

Resolve = Callable[[str, str], Awaitable[Location]]
"""Finds where a domain publishes, on behalf of somebody."""
Published = Callable[[str, str], Awaitable[dict[str, object] | None]]
"""What this node publishes itself, by kind and name; the same object as long as it has not changed."""


_Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class _Kept:
    """A cached descriptor, or with `descriptor` None the error, and until when it is used."""

    until: float
    descriptor: dict[str, object] | None
    code: Code = Code.NOT_REGISTERED
    detail: str = ""


@dataclass(frozen=True, slots=True)
class OwnCatalogue:
    """Sources of the catalogue entries of our own domains.

    Attributes:
        domains: Domains whose catalogue is ours.
        server: Our own catalogue, when the settings name one.
        published: Entries that this node publishes; others are asked for.
    """

    domains: Collection[str]
    server: BackendHttp | None = None
    published: Published | None = None


class CatalogueReader:
    """Answers questions of `catalogue_service`.

    Args:
        fetcher: The node's way to documents of others.
        resolve: Finds a domain that we talk to.
        own: What is ours.
        cache_seconds: How long a descriptor is given again when its server says nothing.
        asker_of: Who asks, by the address that a question is from: a runtime may have thousands, and its share once.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        resolve: Resolve,
        own: OwnCatalogue,
        cache_seconds: float = CATALOGUE_CACHE_SECONDS,
        asker_of: Callable[[str], str] = str,
    ) -> None:
        self._fetcher = fetcher
        self._resolve = resolve
        self._own_domains = frozenset(own.domains)
        self._own = own.server
        self._published = own.published
        self._cache_seconds = cache_seconds
        self._asker_of = asker_of
        self.clock: Callable[[], float] = time.monotonic
        self._rates = LookupRates(CATALOGUE_READS_PER_MINUTE, CATALOGUE_READS_PER_MINUTE_AND_ASKER)
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._locks: weakref.WeakValueDictionary[_Key, trio.Lock] = weakref.WeakValueDictionary()

    def follow(self, server: BackendHttp | None, *, cache_seconds: float) -> None:
        """Look for our own entries elsewhere, and use answers for another time; those of before are asked for again."""
        self._own, self._cache_seconds = server, cache_seconds
        self._kept.clear()

    async def __call__(self, question: CatalogueQuestion) -> dict[str, object]:
        """The descriptor of an entry.

        Raises:
            HostError: DOMAIN_BLOCKED, RATE; NOT_REGISTERED when no place has it; what the last place did wrong.
        """
        entry = question.entry
        if self._published is not None and entry.domain in self._own_domains:
            published = await self._published(entry.kind, entry.name)
            if published is not None:
                return published
        key = entry.domain, entry.authority, entry.kind, entry.name
        async with self._locks.setdefault(key, trio.Lock()):  # who wants the same waits for the first one's answer
            kept = self._kept.get(key)
            if kept is None or time.time() >= kept.until:
                kept = await self._look(entry, question.asked_by)
                self._keep(key, kept)
        if kept.descriptor is None:
            raise PeerError(kept.code, kept.detail, domain=entry.domain)
        return kept.descriptor

    async def _look(self, entry: CatalogueEntry, asked_by: str) -> _Kept:
        is_own = entry.domain in self._own_domains
        if not is_own:
            self._count(entry.domain, asked_by)
        location = None if is_own else await self._find(entry.domain, asked_by)
        own = self._own if is_own else None
        urls = places(
            entry,
            well_known_url=location.well_known_url if location is not None else "",
            own_url=own.base_url if own is not None else "",
        )
        error: HostError = PeerError(Code.NOT_REGISTERED, "no catalogue has this entry", domain=entry.domain)
        for url in urls:
            try:
                fetched = await self._fetch(url, entry, location, own)
                descriptor = decode_entry(fetched.body, domain=entry.domain)
            except HostError as exc:
                error = _worse(error, exc)
                continue
            life_seconds = self._cache_seconds if fetched.max_age_seconds is None else fetched.max_age_seconds
            return _Kept(time.time() + min(life_seconds, _LONGEST_SECONDS), descriptor)
        return _Kept(time.time() + CATALOGUE_MISSING_SECONDS, None, error.code, error.detail)

    def _count(self, domain: str, asked_by: str) -> None:
        """Bound what is asked of other domains for one asker, and for all. Raises PeerError: RATE."""
        asker = self._asker_of(asked_by) if asked_by else ""
        wait_seconds = self._rates.take(asker, is_peer=False, now=self.clock())
        if wait_seconds:
            text = f"too many entries of catalogues were asked for: again in {math.ceil(wait_seconds)} s"
            raise PeerError(Code.RATE, text, domain=domain)

    async def _find(self, domain: str, asked_by: str) -> Location | None:
        """Find where a domain publishes; None if it has no node: its catalogue may exist nevertheless."""
        try:
            return await self._resolve(domain, asked_by)
        except HostError as error:
            if error.code in _FINAL:
                raise
            return None

    async def _fetch(
        self, url: str, entry: CatalogueEntry, location: Location | None, own: BackendHttp | None
    ) -> Fetched:
        if own is not None:
            answer = await own.ask("GET", url.removeprefix(own.base_url), seconds=CATALOGUE_PLACE_SECONDS)
            if answer.status != 200:
                raise PeerError(Code.HTTP_STATUS, str(answer.status), domain=entry.domain)
            return Fetched(body=answer.body)
        return await self._fetcher.fetch(
            url,
            domain=entry.domain,
            max_bytes=DESCRIPTOR_BYTES,
            deadline_seconds=CATALOGUE_PLACE_SECONDS,
            connect_to=location.connect_to_for(url) if location is not None else None,
        )

    def _keep(self, key: _Key, kept: _Kept) -> None:
        self._kept[key] = kept
        self._kept.move_to_end(key)
        if len(self._kept) > CATALOGUE_CACHED:
            self._kept.popitem(last=False)


def _worse(known: HostError, found: HostError) -> HostError:
    """Return the error to report when several places failed: what a server did wrong, before that nobody was there.

    Original catalogues answer 500 for an unknown name; a status says no more than that it is not there.
    """
    if found.code is Code.HTTP_STATUS or (found.code is Code.NO_SUCH_DOMAIN and known.code is not Code.NOT_REGISTERED):
        return known
    return found
