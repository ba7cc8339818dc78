"""Files on their way into a table: folders that their writer holds a lock on, and that go away with it."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow.parquet as pq

from pipeline.durable import FILE_MODE

_LITTER_SECONDS: Final = 3600.0
_LOCK_NAME: Final = ".lock"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file that was written and that no table has yet."""

    path: Path
    rows: int
    partition: Mapping[str, str]


class Stages:
    """The folder of all stages of a lake, on the same file system as its tables."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def make(self) -> Iterator[Path]:
        """A new stage; gone afterwards, and after a crash when the next one is made."""
        self.clear()
        folder = self._folder / f"{os.getpid()}-{uuid4().hex[:12]}"
        folder.mkdir(parents=True)
        lock = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)

    def clear(self) -> None:
        """Take away what writers that are no more have left behind."""
        if not self._folder.is_dir():
            return
        for folder in self._folder.iterdir():
            try:
                lock = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                # Just being made or just being removed by its owner: only an old one is litter.
                if age_s(folder) > _LITTER_SECONDS:
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            except OSError:
                continue  # its owner lives
            finally:
                os.close(lock)


def list_staged(folder: Path) -> list[StagedFile]:
    """The Parquet files below a folder that have rows, with the partitions of each."""
    staged = []
    for path in sorted(folder.rglob("*.parquet")):
        partition = dict(part.split("=", 1) for part in path.relative_to(folder).parts[:-1])
        rows = pq.read_metadata(path).num_rows
        if rows:
            staged.append(StagedFile(path, rows, partition))
    return staged


def age_s(path: Path) -> float:
    """Seconds since it was changed; 0 when it is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
