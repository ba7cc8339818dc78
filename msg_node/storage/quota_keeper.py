"""Keeps what was counted for the quotas of peers and the limits of rules over restarts: one small file.

It is written once a second at most; a node that is killed forgets the last second. Quotas that are used up are reported
once in each period.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import trio

from policy.core.limits import is_of_limit, kept_counts
from policy.core.quotas import Counted, Quotas
from protofly.errors import SettingsError
from stubs_cache.store import write_whole

logger = logging.getLogger("msg_node")

FILE: Final = "quotas.json"
WRITE_SECONDS: Final = 1.0
REPORTED_LIMITS: Final = 10
"""So many counts of limits are reported by name at a time: strangers choose the addresses that are counted."""


class QuotaKeeper:
    """Keeps the counts of one gate.

    Args:
        quotas: Of the gate.
        data_dir: The folder of the file; it exists.
        on_used_up: Gets a name, how many further ones there are, and what was counted.

    Raises:
        SettingsError: The file is there and cannot be read.
    """

    def __init__(
        self, quotas: Quotas, data_dir: Path, on_used_up: Callable[[str, int, Counted], None] = lambda *_: None
    ) -> None:
        self._quotas = quotas
        self._on_used_up = on_used_up
        self._path = data_dir / FILE
        try:
            counted = msgspec.json.decode(self._path.read_bytes(), type=dict[str, Counted])
            quotas.restore(kept_counts(counted, time.time()))
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise SettingsError(f"{self._path}: {exc}; remove it to begin with empty quotas") from exc
        self._written = quotas.counted()
        self._used_up = {name: one.since for name, one in self._written.items() if one.is_used_up}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write what changes until cancelled, and then once more."""
        task_status.started()
        try:
            while True:
                await trio.sleep(WRITE_SECONDS)
                await self._write()
        finally:
            with trio.CancelScope(shield=True):
                await self._write()

    async def _write(self) -> None:
        counted = self._quotas.counted()
        self._report(counted)
        if counted == self._written:
            return
        try:
            await trio.to_thread.run_sync(write_whole, self._path, msgspec.json.encode(counted))
            self._written = counted
        except OSError as exc:
            logger.error("%s: what was counted for quotas cannot be written: %s", self._path, exc.strerror)

    def _report(self, counted: Mapping[str, Counted]) -> None:
        """Report what has been used up since the last time: entries for domains all, of limits some by name."""
        used_up = {name: one.since for name, one in counted.items() if one.is_used_up}
        new = [name for name, since in sorted(used_up.items()) if self._used_up.get(name) != since]
        self._used_up = used_up
        of_limits = [name for name in new if is_of_limit(name)]
        for name in (one for one in new if not is_of_limit(one)):
            self._on_used_up(name, 0, counted[name])
        left_out = len(of_limits) - REPORTED_LIMITS
        for number, name in enumerate(of_limits[:REPORTED_LIMITS], 1):
            self._on_used_up(name, left_out if left_out > 0 and number == REPORTED_LIMITS else 0, counted[name])
