"""The connector of the global registry: asks it, believes only what a record proves, and remembers that.

    ask ─▶ in memory, or on disk and checked again? ─▶ else REST ─▶ all checks ─▶ held against the mark ─▶ remembered

A remembered record is used for `cache_seconds`, and only while it is usable by its own words. When a revoked record has
been seen, that is the answer for ever, whatever the registry says later. One GUID is asked for once at a time, and
checks, some milliseconds of CPU each, are done in a few threads.

Source: data formats, sections 4.1 to 4.3; message specification, section 12.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal, Protocol, TypeVar

import trio

from msg_node.kernel.counts import GlobalRegistryCount
from msg_node.registries.core.global_registry_service import GuidQuestion
from msg_node.registries.guid_store import Guids
from protofly.counters import Counters
from protofly.errors import Code, PeerError
from protofly.guid_record import Flaw, GuidRecord, RecordError, advance, check_usable, read_record
from protofly.limits import GLOBAL_REGISTRY_CACHE_SECONDS, GUID_CHECKS_AT_ONCE, GUID_RECORDS_IN_MEMORY

logger = logging.getLogger("msg_node.global_registry")

_ALWAYS_REFUSED = frozenset({Flaw.REVOKED})
"""Flaws for which runtimes get no record even where flaws only warn: the holder has ended the GUID."""

Verify = Literal["enforce", "warn"]
_T = TypeVar("_T")


class RecordServer(Protocol):
    """A global registry: reads and stores records, and is not believed."""

    async def read(self, guid: str) -> str:
        """The record of a GUID; raises HostError."""

    async def write(self, guid: str, jwt: str) -> None:
        """Store a record; raises HostError."""


class GlobalRegistry:
    """Asks a global registry.

    Args:
        server: The registry.
        store: Where records and marks are remembered.
        verify: `warn` hands records that fail to runtimes as they are, and says so in the log. Nothing else of this
            node ever uses such a record.
        cache_seconds: How long a record is used before it is asked for again.
        clock: Seconds since the Unix epoch.
    """

    def __init__(
        self,
        server: RecordServer,
        store: Guids,
        *,
        verify: Verify = "enforce",
        cache_seconds: float = GLOBAL_REGISTRY_CACHE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._server = server
        self._store = store
        self._verify = verify
        self._cache_seconds = cache_seconds
        self._clock = clock
        self._checks = trio.CapacityLimiter(GUID_CHECKS_AT_ONCE)
        self._proved: OrderedDict[str, tuple[GuidRecord, str, float]] = OrderedDict()
        self._under_way: dict[str, tuple[trio.Lock, int]] = {}
        self._changes = 0
        self.counters = Counters(GlobalRegistryCount)

    def follow(self, server: RecordServer, *, verify: Verify, cache_seconds: float) -> None:
        """Use another registry and other settings from the next question on; what is proved stays proved."""
        self._server, self._verify, self._cache_seconds = server, verify, cache_seconds

    async def ask(self, question: GuidQuestion) -> str:
        """Answer what a runtime wants to know or to store.

        Raises:
            HostError: Why there is no record, or why it is not stored.
        """
        if question.jwt:
            return await self._write(question.guid, question.jwt)
        try:
            return (await self._read(question.guid))[1]
        except _UnbelievedError as exc:
            if self._verify == "warn" and exc.error.flaw not in _ALWAYS_REFUSED:
                logger.warning("record of %s is handed on unbelieved: %s", question.guid, exc.error.detail)
                return exc.jwt
            raise exc.error from exc

    async def record(self, guid: str) -> GuidRecord:
        """The record of a GUID, proved and usable now.

        Raises:
            HostError: Why there is none; a RecordError when the record is the reason.
        """
        try:
            return (await self._read(guid))[0]
        except _UnbelievedError as exc:
            raise exc.error from exc

    def changed(self, guids: Iterable[str] | None) -> None:
        """Drop the results in memory for some GUIDs, or for all (None), because their records may have changed."""
        self._changes += 1
        if guids is None:
            self._proved.clear()
        for guid in guids or ():
            self._proved.pop(guid, None)

    async def _read(self, guid: str) -> tuple[GuidRecord, str]:
        async with self._one_at_a_time(guid):
            now, changes = self._clock(), self._changes
            found = self._proved.get(guid)
            if found is None or found[2] + self._cache_seconds <= now:
                found = await self._in_thread(partial(self._remembered, guid, now))
            if found is None:
                self.counters[GlobalRegistryCount.ASKED] += 1
                jwt = await self._server.read(guid)
                found = await self._in_thread(partial(self._check, guid, jwt, self._clock()))
            else:
                self.counters[GlobalRegistryCount.REMEMBERED] += 1
            record, jwt, _ = found
            if self._changes == changes:
                self._remember(guid, found)
            try:
                check_usable(record, now=self._clock())
            except RecordError as exc:
                raise _UnbelievedError(exc, jwt) from exc
            return record, jwt

    def _remembered(self, guid: str, now: float) -> tuple[GuidRecord, str, float] | None:
        """A record from the disk that still proves itself; a revoked one for ever, others for a while."""
        kept = self._store.load(guid)
        if kept is None or not kept.jwt:
            return None
        is_fresh = kept.mark.is_revoked or kept.seen_at <= now < kept.seen_at + self._cache_seconds
        try:
            return (read_record(kept.jwt, guid=guid), kept.jwt, kept.seen_at) if is_fresh else None
        except RecordError:
            logger.warning("the record of %s on disk is damaged: asking again", guid)
            return None

    def _check(self, guid: str, jwt: str, now: float) -> tuple[GuidRecord, str, float]:
        """Believe a record that the registry gave, and remember it."""
        try:
            record = read_record(jwt, guid=guid)
            self._store.accept(record, jwt, now=now)
        except RecordError as exc:
            self.counters[GlobalRegistryCount.UNBELIEVED.of(exc.flaw.value)] += 1
            logger.warning("record of %s: %s", guid, exc.detail)
            raise _UnbelievedError(exc, jwt) from exc
        return record, jwt, now

    async def _write(self, guid: str, jwt: str) -> str:
        try:
            async with self._one_at_a_time(guid):
                record = await self._in_thread(partial(self._check_own, guid, jwt))
                self.counters[GlobalRegistryCount.STORED] += 1
                await self._server.write(guid, jwt)
                now = self._clock()
                await self._in_thread(partial(self._store.accept, record, jwt, now=now))
                self._remember(guid, (record, jwt, now))
        except RecordError as exc:
            raise exc.of_writer() from exc
        return jwt

    def _check_own(self, guid: str, jwt: str) -> GuidRecord:
        """Check a record before it is written, so that a registry that checks nothing gets no false one."""
        now = self._clock()
        record = read_record(jwt, guid=guid)
        if not record.is_complete:
            raise PeerError(Code.BAD_BODY, "the record has no `schemaVersion` or no `defaults`")
        kept = self._store.load(guid)
        advance(record, None if kept is None else kept.mark, now=now)
        try:
            check_usable(record, now=now)
        except RecordError as exc:
            if exc.flaw is Flaw.EXPIRED:
                raise
        return record

    def _remember(self, guid: str, found: tuple[GuidRecord, str, float]) -> None:
        self._proved[guid] = found
        self._proved.move_to_end(guid)
        if len(self._proved) > GUID_RECORDS_IN_MEMORY:
            self._proved.popitem(last=False)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await trio.to_thread.run_sync(work, limiter=self._checks)

    @asynccontextmanager
    async def _one_at_a_time(self, guid: str) -> AsyncIterator[None]:
        lock, users = self._under_way.get(guid, (trio.Lock(), 0))
        self._under_way[guid] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._under_way.pop(guid)
            if users > 1:
                self._under_way[guid] = lock, users - 1


class _UnbelievedError(Exception):
    """A record that is not to be believed or of no use, beside why."""

    def __init__(self, error: RecordError, jwt: str) -> None:
        super().__init__(error.detail)
        self.error = error
        self.jwt = jwt
