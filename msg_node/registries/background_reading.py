"""Entries of catalogues that are read beside the traffic, and used from the moment on at which they are here."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import trio

from msg_node.kernel.catalogue_questions import CatalogueQuestion
from protofly.counters import Counted, Counters
from protofly.errors import Code, HostError, PeerError
from protofly.limits import CATALOGUE_CACHE_SECONDS, CATALOGUE_MISSING_SECONDS, INQUIRY_SECONDS, SCHEMAS_KEPT

logger = logging.getLogger("msg_node")

_Entry = TypeVar("_Entry")
_WAITING = 100
_READERS = 4


class ReadingCounts(NamedTuple):
    """Counters of background reading: read, not read (by code), not asked for."""

    read: Counted
    not_read: Counted
    not_asked: Counted


@dataclass(slots=True)
class _Known(Generic[_Entry]):
    """An answer that was read at an address, and until when it is used (monotonic, seconds)."""

    until: float
    entry: _Entry | None = None


class BackgroundReading(Generic[_Entry]):
    """Cache of catalogue entries by address; reads missing and outdated ones in the background when they are asked for.

    Args:
        noun: What is read, for people.
        question_of: Makes the question for an address and an asker; raises PeerError for what is no such address.
        counts: Which counters count.
        counters: Where.

    Attributes:
        on_read: Called when something was read, or could not be.
    """

    def __init__(
        self,
        noun: str,
        question_of: Callable[[str, str], CatalogueQuestion],
        counts: ReadingCounts,
        counters: Counters,
    ) -> None:
        self._noun = noun
        self._question_of = question_of
        self._counts = counts
        self._counters = counters
        self._known: OrderedDict[str, _Known[_Entry]] = OrderedDict()
        self._wanted, self._coming = trio.open_memory_channel[CatalogueQuestion](_WAITING)
        self.on_read: Callable[[], None] = lambda: None

    def find(self, address: str, asked_by: str) -> _Entry | None:
        """Look up an entry; None while it is unknown. An unknown or outdated one is read in the background."""
        known = self._known.get(address)
        if known is None or time.monotonic() >= known.until:
            self._want(address, asked_by)
        return None if known is None else known.entry

    def _want(self, address: str, asked_by: str) -> None:
        try:
            self._wanted.send_nowait(self._question_of(address, asked_by))
        except trio.WouldBlock:
            self._counters[self._counts.not_asked] += 1
            return
        except PeerError:
            return  # the recipient of the message that named it says what is wrong with it
        known = self._known.get(address)
        if known is None:
            known = self._known[address] = _Known(0.0)
            if len(self._known) > SCHEMAS_KEPT:
                self._known.popitem(last=False)
        known.until = math.inf  # until there is an answer

    async def run(
        self,
        read: Callable[[CatalogueQuestion], Awaitable[_Entry]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Read until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(_READERS):
                nursery.start_soon(self._run_reader, read)
            task_status.started()

    async def _run_reader(self, read: Callable[[CatalogueQuestion], Awaitable[_Entry]]) -> None:
        async for question in self._coming:
            entry, seconds = None, CATALOGUE_MISSING_SECONDS
            try:
                with trio.fail_after(INQUIRY_SECONDS):
                    entry = await read(question)
                seconds = CATALOGUE_CACHE_SECONDS
                self._counters[self._counts.read] += 1
            except (HostError, trio.TooSlowError) as exc:
                word = exc.code.word if isinstance(exc, HostError) else "timeout"
                self._counters[self._counts.not_read.of(word)] += 1
                domain = question.entry.domain
                logger.warning("no %s from %s: %s", self._noun, domain, exc, extra={"domain": domain})
            except Exception:  # what a stranger publishes may cost itself, never the node
                domain = question.entry.domain
                self._counters[self._counts.not_read.of(Code.INTERNAL.word)] += 1
                logger.exception("no %s from %s", self._noun, domain, extra={"domain": domain})
            self._took(question, entry, time.monotonic() + seconds)
            self.on_read()

    def _took(self, question: CatalogueQuestion, entry: _Entry | None, until: float) -> None:
        """An entry that was here stays when its catalogue is away for a while."""
        for address, known in self._known.items():
            if known.until == math.inf and self._question_of(address, "").entry == question.entry:
                known.until = until
                known.entry = known.entry if entry is None else entry
