"""Removes sealed segments that are older than the operator keeps records of their kind.

A segment is as old as its seal, so each record in it is at least as old. The file of records goes before its manifest,
as when somebody moves them away; what a crash left in between goes the next time. What is still written, the chain, and
files that are no segments stay. Nothing is removed without a rule.

Source: feature row ST-08.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import trio

from protofly.record_segments import ERASED_SUFFIX, MANIFEST_SUFFIX, SEALED_SUFFIXES, SegmentName
from protofly.records import RecordKind

logger = logging.getLogger("msg_node.records")

LOOK_SECONDS: Final = 600.0
DAY_SECONDS: Final = 86_400.0

KeepDays = Callable[[], Mapping[str, float]]
"""For how many days segments of a kind are kept, by the word of the kind; those of others are kept."""


def remove_expired(spool: Path, keep_days: Mapping[str, float], now: float) -> Counter[RecordKind]:
    """Remove segments that are not kept any more; blocks.

    Args:
        spool: The folder.
        keep_days: See `KeepDays`.
        now: Seconds since the Unix epoch.

    Returns:
        How many were removed, by kind.

    Raises:
        OSError: The folder cannot be read, or a file not be removed.
    """
    removed: Counter[RecordKind] = Counter()
    if not keep_days or not spool.is_dir():
        return removed
    for manifest in spool.glob(f"*{MANIFEST_SUFFIX}"):
        name = SegmentName.parse(manifest.name.removesuffix(MANIFEST_SUFFIX))
        if name is None or name.kind.value not in keep_days or not manifest.is_file():
            continue
        if manifest.stat().st_mtime + keep_days[name.kind.value] * DAY_SECONDS > now:
            continue
        for suffix in (*SEALED_SUFFIXES, ERASED_SUFFIX):
            manifest.with_name(f"{name}{suffix}").unlink(missing_ok=True)
        manifest.unlink(missing_ok=True)
        removed[name.kind] += 1
    return removed


class SpoolRetention:
    """Looks every ten minutes what is not kept any more.

    Args:
        spool: The folder.
        keep_days: Asked each time.
        on_removed: Called with the number of segments.
        now: Seconds since the Unix epoch.
    """

    def __init__(
        self,
        spool: Path,
        keep_days: KeepDays,
        on_removed: Callable[[int], None],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._spool = spool
        self._keep_days = keep_days
        self._on_removed = on_removed
        self._now = now

    async def run(self) -> None:
        """Remove what is too old, until cancelled."""
        while True:
            await self.look()
            await trio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Remove what is too old now; an error is logged, and the next look tries again."""
        try:
            removed = await trio.to_thread.run_sync(remove_expired, self._spool, self._keep_days(), self._now())
        except OSError as exc:
            logger.error("old records cannot be removed: %s", exc)
            return
        if removed:
            self._on_removed(removed.total())
            counts = ", ".join(f"{number} of {kind.value}" for kind, number in removed.items())
            logger.info("removed segments that are not kept any more: %s", counts)
