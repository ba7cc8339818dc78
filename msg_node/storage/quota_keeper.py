"""Keeps what was counted for the quotas of peers and the limits of rules over restarts: one small file.

It is written once a second at most; a node that is killed forgets the last second.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Final

import msgspec
import trio

from policy.core.limits import kept_counts
from policy.core.quotas import Counted, Quotas
from protofly.errors import SettingsError
from stubs_cache.store import write_whole

logger = logging.getLogger("msg_node")

FILE: Final = "quotas.json"
WRITE_SECONDS: Final = 1.0


class QuotaKeeper:
    """Keeps the counts of one gate.

    Args:
        quotas: Of the gate.
        data_dir: The folder of the file; it exists.

    Raises:
        SettingsError: The file is there and cannot be read.
    """

    def __init__(self, quotas: Quotas, data_dir: Path) -> None:
        self._quotas = quotas
        self._path = data_dir / FILE
        try:
            counted = msgspec.json.decode(self._path.read_bytes(), type=dict[str, Counted])
            quotas.restore(kept_counts(counted, time.time()))
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise SettingsError(f"{self._path}: {exc}; remove it to begin with empty quotas") from exc
        self._written = quotas.counted()

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
        if counted == self._written:
            return
        try:
            await trio.to_thread.run_sync(write_whole, self._path, msgspec.json.encode(counted))
            self._written = counted
        except OSError as exc:
            logger.error("%s: what was counted for quotas cannot be written: %s", self._path, exc.strerror)
