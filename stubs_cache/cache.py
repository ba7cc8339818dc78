"""The stubs cache: modules, documents and compiled code of foreign domains, for a warm start.

The cache is a convenience, not an authority: a module is hashed again at each read, documents are verified again by
anyone who asks, compiled code and documents carry this node's seal. What does not hold is dropped, counted and
reported as missing, and so fetched or compiled again.

Source: trust and hosts, section 3.6, step 7; section 7, rows 26 and 27.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import trio

from protofly import limits
from protofly.documents import DocumentBundle
from protofly.errors import Code, PeerError
from stubs_cache.core.entry import SEAL_BYTES, CacheKind, compiled_key, documents_key, seal, unseal
from stubs_cache.core.eviction import CACHE_BYTES, Eviction, choose_evictions
from stubs_cache.store import FileStore

_COMPILED_BYTES: Final = 64 << 20
_DOCUMENTS_BYTES: Final = 4 << 20
_logger = logging.getLogger("trapezoid.stubs_cache")


@dataclass(slots=True)
class CacheStatistics:
    """Counts since the start; `size_bytes` is what lay on disk at the last sweep, and what was written since."""

    size_bytes: int = 0
    hits: int = 0
    misses: int = 0
    writes: int = 0
    evictions: int = 0
    tampered: int = 0


class StubsCache:
    """Everything kept about foreign stubs. All calls use a thread for the disk."""

    def __init__(
        self, folder: Path, *, secret: bytes, max_bytes: int = CACHE_BYTES, clock: Callable[[], float] = time.time
    ) -> None:
        """`secret` is this node's own, kept outside `folder` (see `store.load_secret`).

        Raises:
            HostError: STORAGE.
        """
        self._store = FileStore(folder)
        self._secret = hashlib.sha256(b"trapezoid stubs cache\0" + secret).digest()
        self.max_bytes = max_bytes
        self._clock = clock
        self._statistics = CacheStatistics()
        self._written_bytes = 0
        self._is_full = trio.Event()

    def statistics(self) -> CacheStatistics:
        """The counts."""
        return self._statistics

    async def get_module(self, sha256: str) -> bytes | None:
        """The module with this hash (hex), hashed again, or None."""
        return await trio.to_thread.run_sync(self._read, CacheKind.MODULE, sha256, limits.MODULE_BYTES)

    async def put_module(self, module: bytes) -> str:
        """Keep a module; returns its hash.

        Raises:
            HostError: STORAGE.
        """
        key = hashlib.sha256(module).hexdigest()
        await self._put(CacheKind.MODULE, key, module)
        return key

    async def get_documents(self, domain: str) -> DocumentBundle | None:
        """The documents kept of a domain, or None. To be verified by `CatalogueClient.restore`."""
        key = documents_key(domain)
        raw = await trio.to_thread.run_sync(self._read, CacheKind.DOCUMENTS, key, _DOCUMENTS_BYTES)
        return msgspec.msgpack.decode(raw, type=DocumentBundle) if raw is not None else None

    async def put_documents(self, bundle: DocumentBundle) -> None:
        """Keep the documents of a domain instead of those kept before.

        Raises:
            HostError: STORAGE.
        """
        await self._put(CacheKind.DOCUMENTS, documents_key(bundle.domain), msgspec.msgpack.encode(bundle))

    async def drop_documents(self, domain: str) -> None:
        """Forget the documents of a domain."""
        await trio.to_thread.run_sync(self._store.remove, CacheKind.DOCUMENTS, documents_key(domain))

    async def get_compiled(self, code_sha256: str, engine_fingerprint: str) -> bytes | None:
        """Machine code that this node made from the code with this hash (hex) with this very engine, or None."""
        key = compiled_key(code_sha256, engine_fingerprint)
        return await trio.to_thread.run_sync(self._read, CacheKind.COMPILED, key, _COMPILED_BYTES)

    async def put_compiled(self, code_sha256: str, engine_fingerprint: str, code: bytes) -> None:
        """Keep compiled code, made from the code with this hash (hex).

        Raises:
            HostError: STORAGE.
        """
        await self._put(CacheKind.COMPILED, compiled_key(code_sha256, engine_fingerprint), code)

    async def evict(self, *, kept: Collection[str] = ()) -> list[Eviction]:
        """Remove what was unused for long or does not fit; `kept` are keys of what running stubs were started from.

        Raises:
            HostError: STORAGE.
        """
        self._is_full = trio.Event()
        written_before = self._written_bytes
        evictions, remaining_bytes = await trio.to_thread.run_sync(self._evict, frozenset(kept))
        self._statistics.evictions += len(evictions)
        self._statistics.size_bytes = remaining_bytes
        if self._written_bytes > written_before:
            self._grew(self._written_bytes - written_before)  # perhaps not seen any more: better counted twice
        return evictions

    async def wait_full(self) -> None:
        """Wait until more has been written since the last `evict` than there is room for."""
        await self._is_full.wait()

    async def _put(self, kind: CacheKind, key: str, data: bytes) -> None:
        await trio.to_thread.run_sync(self._write, kind, key, data)
        self._statistics.writes += 1
        self._written_bytes += len(data)
        self._grew(len(data))

    def _grew(self, size_bytes: int) -> None:
        self._statistics.size_bytes += size_bytes
        if self._statistics.size_bytes > self.max_bytes:
            self._is_full.set()

    def _read(self, kind: CacheKind, key: str, max_bytes: int) -> bytes | None:
        stored = self._store.read(kind, key, max_bytes=max_bytes + SEAL_BYTES)
        if stored is None:
            self._statistics.misses += 1
            return None
        try:
            data = self._checked(kind, key, stored)
        except PeerError as error:
            # The way out is the way in: without the entry the caller fetches or compiles again.
            self._store.remove(kind, key)
            self._statistics.tampered += 1
            self._statistics.misses += 1
            _logger.warning("%s; the entry was dropped", error)
            return None
        self._statistics.hits += 1
        return data

    def _checked(self, kind: CacheKind, key: str, stored: bytes) -> bytes:
        if kind is CacheKind.MODULE:
            data = stored if hashlib.sha256(stored).hexdigest() == key else None
        else:
            data = unseal(self._secret, kind, key, stored)
        if data is None:
            raise PeerError(Code.CACHE_TAMPERED, f"{kind.value}/{key[:16]} was not written by this node")
        return data

    def _write(self, kind: CacheKind, key: str, data: bytes) -> None:
        self._store.write(kind, key, data if kind is CacheKind.MODULE else seal(self._secret, kind, key, data))

    def _evict(self, kept: frozenset[str]) -> tuple[list[Eviction], int]:
        entries = self._store.entries()
        evictions = choose_evictions(entries, now=self._clock(), max_bytes=self.max_bytes, kept=kept)
        for eviction in evictions:
            self._store.remove(eviction.entry.kind, eviction.entry.key)
        gone_bytes = sum(eviction.entry.size_bytes for eviction in evictions)
        return evictions, sum(entry.size_bytes for entry in entries) - gone_bytes
