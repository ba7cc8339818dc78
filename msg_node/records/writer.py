"""Takes records from the message path and writes them to disk, without ever making a message wait.

`append` is a list append. A thread wakes up, waits a moment so that records gather, and has `SegmentWriter` write them.
When the disk fails, records wait and are tried again every second; those that no longer fit into the queue are lost and
counted, and the manifest of the segment says how many. With durability "strict" none is dropped: `is_accepting` turns
false and the node takes no more messages until there is room.

Source: pipeline study, section 8.1; design, section 7.
"""

from __future__ import annotations

import enum
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import trio

from msg_node.kernel.histograms import Histogram
from msg_node.records.record_queue import RecordQueue
from msg_node.records.recovery import lock_spool
from msg_node.records.segment_writer import SegmentOptions, SegmentWriter
from protofly import limits
from protofly.record_runs import MessageRun, Recorded, records_in
from protofly.record_segments import Signer
from protofly.records import RECORD_TYPES, MessageRecord, Record

logger = logging.getLogger("msg_node.records")

Observe = Callable[[Sequence[Recorded], float], None]

RETRY_SECONDS = 1.0
CLOSE_ATTEMPTS = 3


class WriterState(enum.Enum):
    """States of the writer."""

    STARTING = "starting"
    WRITING = "writing"
    DISK_FAILING = "disk-failing"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsStatistics:
    """State and counters of the writer."""

    state: WriterState
    error: str
    waiting: int
    written: int
    lost: int
    sealed_segments: int
    recovered_segments: int
    sealed_bytes: int
    removed_segments: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOptions:
    """Settings of queueing and writing records; times in seconds."""

    is_strict: bool = False
    queue_records: int = limits.RECORD_QUEUE_RECORDS
    sync_seconds: float = limits.RECORD_SYNC_SECONDS
    retry_seconds: float = RETRY_SECONDS
    segments: SegmentOptions = field(default_factory=SegmentOptions)


class RecordsWriter:
    """The service: `append` from the trio thread, `run` in a nursery, `statistics` for operators.

    Args:
        spool: Folder for segments; one node at a time.
        node: Name of this node, unique among all domains.
        signer: Signs manifests; without it they are unsigned.
        observe: Sees each batch of records before it is written, in the thread that writes; with the time in seconds
            since the Unix epoch.
    """

    def __init__(
        self,
        spool: Path,
        node: str,
        *,
        signer: Signer | None = None,
        options: WriterOptions | None = None,
        observe: Observe | None = None,
    ) -> None:
        self._observe = observe
        self.write_times = Histogram()
        """Of the rounds in which records were written."""
        self._options = options or WriterOptions()
        self._segments = SegmentWriter(spool, node, signer, self._options.segments)
        self._is_strict = self._options.is_strict
        self._state = WriterState.STARTING
        self._error = ""
        # Shared with the writer's thread: every single operation on these is atomic.
        self._queue = RecordQueue(self._options.queue_records)
        self._dropped = dict.fromkeys(RECORD_TYPES.values(), 0)
        self._is_awake = False
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._room = trio.Event()
        self._reported = dict.fromkeys(RECORD_TYPES.values(), 0)
        """Of the dropped ones, those that `_segments` knows. The writer's thread only."""

    def append(self, record: Record) -> None:
        """Hand over a record; the caller must not touch it again. Never waits, never raises."""
        if self._queue.is_full and not self._is_strict:
            self._dropped[record.__class__] += 1
            return
        self._queue.append(record)
        if not self._is_awake:
            self._is_awake = True
            self._wake.set()

    def append_run(self, run: MessageRun) -> None:
        """Hand over a run, which waits or is dropped as a whole; otherwise as `append`."""
        if self._queue.is_full and not self._is_strict:
            self._dropped[MessageRecord] += len(run)
            return
        self._queue.append(run)
        if not self._is_awake:
            self._is_awake = True
            self._wake.set()

    @property
    def is_accepting(self) -> bool:
        """False when a strict writer has no room or no disk: take no more messages, answer with `Code.STORAGE`."""
        if not self._is_strict:
            return True
        return self._state is not WriterState.DISK_FAILING and not self._queue.is_full

    async def wait_accepting(self) -> None:
        """Wait until `is_accepting`."""
        await trio.lowlevel.checkpoint()
        while not self.is_accepting:
            await self._room.wait()

    def statistics(self) -> RecordsStatistics:
        """Counters since the start."""
        segments = self._segments
        return RecordsStatistics(
            state=self._state,
            error=self._error,
            waiting=len(self._queue) + self._options.queue_records - self._queue.room_records,
            written=segments.written,
            lost=sum(self._dropped.values()),
            sealed_segments=segments.sealed,
            recovered_segments=segments.recovered,
            sealed_bytes=segments.sealed_bytes,
            removed_segments=segments.removed,
        )

    def removed(self, segments: int) -> None:
        """Count segments that are not kept any more."""
        self._segments.removed += segments

    def follow(self, options: WriterOptions) -> None:
        """Wait and seal by other bounds from the next round on; the form of records and their durability stay."""
        chosen = options.segments
        bounds = (chosen.segment_bytes, chosen.segment_seconds)
        self._options = replace(self._options, queue_records=options.queue_records, sync_seconds=options.sync_seconds)
        self._segments.bound(*bounds)
        self._wake.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled; then write what is waiting and seal. Raises SettingsError: the spool is unusable."""
        lock = lock_spool(self._segments.spool)
        try:
            self._segments.prepare()
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
                token.run_sync_soon(self._notify_of_room, idempotent=True)

    def _notify_of_room(self) -> None:
        self._room.set()
        self._room = trio.Event()

    def _wait_for_work(self) -> bool:
        """Sleep until there is work, then a moment so that more gathers. True when the writer is to stop."""
        if self._state is WriterState.DISK_FAILING:
            self._stop.wait(self._options.retry_seconds)
        elif self._state is WriterState.WRITING and not self._stop.is_set():
            self._wake.wait(min(self._segments.seconds_until_due(), limits.RECORD_LIFE_SECONDS))
            if self._queue:
                self._stop.wait(self._options.sync_seconds)
        is_stopping = self._stop.is_set()
        self._wake.clear()
        self._is_awake = False
        return is_stopping

    def _work(self, *, is_stopping: bool) -> None:
        """One round. Raises OSError; then the next round goes on where this one failed."""
        segments, began_ns, has_work = self._segments, time.time_ns(), bool(self._queue)
        segments.recover()
        self._write_frames()  # kept from a failed round, goes first
        self._take_queue()
        self._write_frames()
        for record_type, dropped in self._dropped.items():
            if dropped > self._reported[record_type]:
                segments.lose(record_type, dropped - self._reported[record_type])
                self._reported[record_type] = dropped
        segments.settle(is_stopping=is_stopping)
        segments.note_written(began_ns)
        if has_work:
            self.write_times.observe(max(0, time.time_ns() - began_ns) // 1000)

    def _take_queue(self) -> None:
        """Take all that waits, and show it to the observer."""
        batch, count = self._queue.take()
        self._queue.room_records = self._options.queue_records - count
        if self._observe is not None and batch:
            try:
                self._observe(batch, time.time())
            except Exception:  # a defect there costs figures, never records
                logger.exception("a batch of records is not in the figures")
        self._segments.take(batch)

    def _write_frames(self) -> None:
        """Write all frames that wait; each makes room in the queue. Raises OSError."""
        while (done := self._segments.write_next()) is not None:
            record_type, written, broken = done
            self._dropped[record_type] += broken
            self._queue.room_records += written + broken

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
        if self._state is WriterState.CLOSED:
            with suppress(OSError):  # the next start then takes it for a crash, which proves less and nothing wrong
                self._segments.note_end()

    def _give_up(self) -> None:
        for record_type, waiting in self._segments.abandon().items():
            self._dropped[record_type] += waiting
        for record in records_in(self._queue.take()[0]):
            self._dropped[record.__class__] += 1
        self._queue.room_records = self._options.queue_records
        self._state = WriterState.CLOSED
        logger.error("records: %s until the end; lost in all: %d", self._error, sum(self._dropped.values()))
