"""Takes records from the message path and puts them on disk, without ever making a message wait.

`append` is a list append. A thread of its own wakes up, waits a moment so that records gather, numbers and encodes
them, writes checksummed frames, syncs, and seals segments by size and age. When the disk fails, what is waiting is kept
and tried again every second; what no longer fits into the queue is lost and counted, and the manifest of the segment
says how much. With durability "strict" nothing is dropped: `is_accepting` turns false and the node takes no more
messages until there is room.

Source: pipeline study, section 8.1; design, section 7.
"""

from __future__ import annotations

import enum
import logging
import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from msg_node.records.recovery import Chain, lock_spool, newest_boot, recover
from msg_node.records.stream import ENCODING_ERRORS, Stream, encodable
from protofly import limits
from protofly.errors import MisuseError, SettingsError
from protofly.record_segments import Signer
from protofly.records import RECORD_TYPES, Closure, Record, hash_address
from protofly.remembered import remembered

logger = logging.getLogger("msg_node.records")

RETRY_SECONDS = 1.0
CLOSE_ATTEMPTS = 3
_CACHED_HASHES = 65_536


class WriterState(enum.Enum):
    """Whether records reach the disk."""

    STARTING = "starting"
    WRITING = "writing"
    DISK_FAILING = "disk-failing"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsStatistics:
    """What an operator wants to know about the records."""

    state: WriterState
    error: str
    waiting: int
    written: int
    lost: int
    sealed_segments: int
    recovered_segments: int
    sealed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOptions:
    """How to write. Sizes in raw bytes before compression, times in seconds."""

    is_strict: bool = False
    queue_records: int = limits.RECORD_QUEUE_RECORDS
    segment_bytes: int = limits.SEGMENT_BYTES
    segment_seconds: float = limits.SEGMENT_SECONDS
    sync_seconds: float = limits.RECORD_SYNC_SECONDS
    retry_seconds: float = RETRY_SECONDS
    address_key: bytes | None = None
    """Secret for `hash_address`, 16 to 64 bytes; None writes addresses, and texts of others, as they are."""


class RecordsWriter:
    """The service: `append` from the trio thread, `run` in a nursery, `statistics` for people.

    Args:
        spool: Folder for segments; one node at a time.
        node: Name of this node, unique among all domains.
        signer: Signs manifests; without it they are unsigned.
    """

    def __init__(
        self, spool: Path, node: str, *, signer: Signer | None = None, options: WriterOptions | None = None
    ) -> None:
        self._spool = spool
        self._node = node
        self._signer = signer
        self._options = options or WriterOptions()
        self._is_strict = self._options.is_strict
        self._state = WriterState.STARTING
        self._error = ""
        # Shared with the writer's thread: every single operation on these is atomic.
        self._queue: list[Record] = []
        self._room_records = self._options.queue_records
        self._dropped = dict.fromkeys(RECORD_TYPES.values(), 0)
        self._is_awake = False
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._room = trio.Event()
        # The writer's thread only.
        self._pending: deque[tuple[Stream, list[Record]]] = deque()
        self._dropped_told = dict.fromkeys(RECORD_TYPES.values(), 0)
        self._boot = time.time_ns() // 1_000_000
        self._streams: dict[type[Record], Stream] = {}
        self._chain: Chain | None = None
        self._written = self._sealed = self._recovered = self._sealed_bytes = 0
        self._hash = remembered(_CACHED_HASHES)(partial(hash_address, key=self._options.address_key or b""))

    def append(self, record: Record) -> None:
        """Hand over a record; the caller must not touch it again. Never waits, never raises."""
        if len(self._queue) >= self._room_records and not self._is_strict:
            self._dropped[record.__class__] += 1
            return
        self._queue.append(record)
        if not self._is_awake:
            self._is_awake = True
            self._wake.set()

    @property
    def is_accepting(self) -> bool:
        """False when a strict writer has no room or no disk: take no more messages, answer with `Code.STORAGE`."""
        if not self._is_strict:
            return True
        return self._state is not WriterState.DISK_FAILING and len(self._queue) < self._room_records

    async def wait_accepting(self) -> None:
        """Wait until `is_accepting`."""
        await trio.lowlevel.checkpoint()
        while not self.is_accepting:
            await self._room.wait()

    def statistics(self) -> RecordsStatistics:
        """Counters since the start."""
        return RecordsStatistics(
            state=self._state,
            error=self._error,
            waiting=len(self._queue) + self._options.queue_records - self._room_records,
            written=self._written,
            lost=sum(self._dropped.values()),
            sealed_segments=self._sealed,
            recovered_segments=self._recovered,
            sealed_bytes=self._sealed_bytes,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled; then write what is waiting and seal. Raises SettingsError: the spool is unusable."""
        lock = lock_spool(self._spool)
        try:
            self._prepare_streams()
            async with trio.open_nursery() as nursery:
                try:
                    # A thread that was cancelled before it ran would leave everything behind, so wait for it.
                    await nursery.start(self._run_thread)
                    task_status.started()
                    await trio.sleep_forever()
                finally:
                    self._stop.set()
                    self._wake.set()
        finally:
            os.close(lock)

    async def _run_thread(self, *, task_status: trio.TaskStatus[None]) -> None:
        token = trio.lowlevel.current_trio_token()

        def run() -> None:
            token.run_sync_soon(task_status.started)
            self._write_until_stopped(token)

        await trio.to_thread.run_sync(run, limiter=trio.CapacityLimiter(1))

    def _prepare_streams(self) -> None:
        if self._streams:
            raise MisuseError("a records writer runs once")
        try:
            self._boot = max(self._boot, newest_boot(self._spool) + 1)
        except OSError as exc:
            raise SettingsError(f"records spool {self._spool}: {exc.strerror}") from exc
        for kind, record_type in RECORD_TYPES.items():
            self._streams[record_type] = Stream(kind, self._spool, self._node, self._boot)

    # From here on: the writer's thread.

    def _write_until_stopped(self, token: trio.lowlevel.TrioToken) -> None:
        failures_at_close = 0
        while self._state is not WriterState.CLOSED:
            is_stopping = self._wait_for_work()
            try:
                self._work(is_stopping=is_stopping)
            except OSError as exc:
                self._note_failure(exc)
                failures_at_close += is_stopping
                if failures_at_close >= CLOSE_ATTEMPTS:
                    self._give_up()
            else:
                self._note_success(is_stopping=is_stopping)
            if self._is_strict and self.is_accepting:
                token.run_sync_soon(self._tell_room, idempotent=True)

    def _tell_room(self) -> None:
        self._room.set()
        self._room = trio.Event()

    def _wait_for_work(self) -> bool:
        """Sleep until there is work, then a moment so that more gathers. True when the writer is to stop."""
        if self._state is WriterState.DISK_FAILING:
            self._stop.wait(self._options.retry_seconds)
        elif self._state is WriterState.WRITING and not self._stop.is_set():
            self._wake.wait(self._seconds_until_due())
            if self._queue:
                self._stop.wait(self._options.sync_seconds)
        is_stopping = self._stop.is_set()
        self._wake.clear()
        self._is_awake = False
        return is_stopping

    def _seconds_until_due(self) -> float | None:
        opened = [stream.opened_at for stream in self._streams.values() if stream.segment is not None]
        if not opened:
            return None
        return max(0.0, min(opened) + self._options.segment_seconds - time.monotonic())

    def _work(self, *, is_stopping: bool) -> None:
        if self._chain is None:
            chain, sealed = recover(self._spool, signer=self._signer)
            self._chain, self._recovered = chain, len(sealed)
        self._write_pending(self._chain)  # kept from a failed round, goes first
        self._take_queue()
        self._write_pending(self._chain)
        for record_type, stream in self._streams.items():
            self._tell_dropped(record_type, stream, is_stopping=is_stopping)
            self._sync_or_seal(stream, self._chain, is_stopping=is_stopping)

    def _take_queue(self) -> None:
        """Cut what is waiting into frames. Copying and deleting are each atomic against appends of the other thread."""
        batch = self._queue[:]
        self._room_records = self._options.queue_records - len(batch)
        del self._queue[: len(batch)]
        by_type: dict[type[Record], list[Record]] = {record_type: [] for record_type in self._streams}
        for record in batch:
            record.v = record.schema_version
            record.node = self._node
            record.boot = self._boot
            by_type[record.__class__].append(record)
        if self._options.address_key is not None:
            self._hash_addresses(batch)
        for record_type, records in by_type.items():
            for start in range(0, len(records), limits.RECORD_FRAME_RECORDS):
                frame = records[start : start + limits.RECORD_FRAME_RECORDS]
                self._pending.append((self._streams[record_type], frame))

    def _hash_addresses(self, batch: list[Record]) -> None:
        for record in batch:
            for member in record.free_members:
                setattr(record, member, None)
            for member in record.address_members:
                address = getattr(record, member)
                if address is not None:
                    setattr(record, member, self._hash(address))

    def _write_pending(self, chain: Chain) -> None:
        while self._pending:
            stream, records = self._pending[0]
            segment = stream.segment
            if segment is not None and (stream.is_closing or segment.raw_bytes >= self._options.segment_bytes):
                self._seal(stream, "size", chain)
            try:
                stream.write(records)
            except ENCODING_ERRORS as exc:
                self._pending[0] = (stream, self._without_broken(records, exc))
                continue
            self._pending.popleft()
            self._written += len(records)
            self._room_records += len(records)

    def _without_broken(self, records: list[Record], exc: Exception) -> list[Record]:
        sound = encodable(records)
        if len(sound) == len(records):
            sound = []  # not the lines are at fault: give the whole frame up rather than try for ever
        broken = len(records) - len(sound)
        logger.error("%d records are not JSON and are dropped: %s", broken, exc)
        self._dropped[records[0].__class__] += broken
        self._room_records += broken
        return sound

    def _tell_dropped(self, record_type: type[Record], stream: Stream, *, is_stopping: bool) -> None:
        dropped = self._dropped[record_type] - self._dropped_told[record_type]
        if dropped:
            stream.lose(dropped)
            self._dropped_told[record_type] += dropped
        if is_stopping and stream.has_untold_losses:
            stream.open_segment().write_frame(b"")

    def _sync_or_seal(self, stream: Stream, chain: Chain, *, is_stopping: bool) -> None:
        segment = stream.segment
        if segment is None:
            return
        if is_stopping:
            self._seal(stream, "shutdown", chain)
        elif segment.raw_bytes >= self._options.segment_bytes:
            self._seal(stream, "size", chain)
        elif stream.is_closing or time.monotonic() - stream.opened_at >= self._options.segment_seconds:
            self._seal(stream, "time", chain)
        else:
            segment.sync()

    def _seal(self, stream: Stream, closure: Closure, chain: Chain) -> None:
        size_bytes = stream.segment.whole_bytes if stream.segment else 0
        stream.seal(closure, chain, self._signer)
        self._sealed += 1
        self._sealed_bytes += size_bytes

    def _note_failure(self, exc: OSError) -> None:
        self._error = exc.strerror or str(exc)
        if self._state is not WriterState.DISK_FAILING:
            logger.error("records cannot be written (%s): waiting ones are kept, trying again", self._error)
        self._state = WriterState.DISK_FAILING

    def _note_success(self, *, is_stopping: bool) -> None:
        if self._state is WriterState.DISK_FAILING:
            logger.warning("records are written again; %d were lost so far", sum(self._dropped.values()))
        self._error = ""
        self._state = WriterState.CLOSED if is_stopping and not self._queue else WriterState.WRITING

    def _give_up(self) -> None:
        for record in [*(record for _, records in self._pending for record in records), *self._queue]:
            self._dropped[record.__class__] += 1
        self._pending.clear()
        self._queue.clear()
        self._room_records = self._options.queue_records
        for stream in self._streams.values():
            if stream.segment is not None:
                stream.segment.abandon()
        self._state = WriterState.CLOSED
        logger.error("records: %s until the end; lost in all: %d", self._error, sum(self._dropped.values()))
