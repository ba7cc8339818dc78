"""Files on their way into a table.

On a disk they are in a folder that their writer holds a lock on, and that goes away with it. In a store, where nothing
can be renamed, they are written where they will stay, under names that nobody else uses; what no commit names in the
end is removed by `Lake.vacuum`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow.parquet as pq

from pipeline.lake import storage
from pipeline.lake.durable import FILE_MODE
from pipeline.lake.store_path import Location, StorePath
from pipeline.schemas import Table

_LITTER_SECONDS: Final = 3600.0
_LOCK_NAME: Final = ".lock"
STAGE_NAME: Final = "_stage"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file that was written and that no table has yet."""

    path: Location
    rows: int
    partition: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Stage:
    """Place where writers put files of tables; on a disk a folder of its own, in a store the lake."""

    folder: Location

    def of(self, table: Table, name: str) -> Location:
        """Folder for rows of a table, in subfolders by partition; `name` is used once in a stage."""
        return self.folder / name if isinstance(self.folder, Path) else _place(self.folder, table, {})

    def new_file(self, table: Table, partition: Mapping[str, str]) -> Location:
        """Unused location for one more file of a table."""
        name = f"part-{uuid4().hex}.parquet"
        if isinstance(self.folder, Path):
            return self.folder / name
        return _place(self.folder, table, partition) / name


def _place(lake: StorePath, table: Table, partition: Mapping[str, str]) -> StorePath:
    inside = "/".join(f"{column}={value}" for column, value in {**table.place, **partition}.items())
    return lake / table.folder / inside if inside else lake / table.folder


class Stages:
    """All stages of a lake; on a disk folders of the same file system as its tables."""

    def __init__(self, lake: Location) -> None:
        self._lake = lake

    @contextmanager
    def make(self) -> Iterator[Stage]:
        """A new stage; on a disk gone afterwards, and after a crash when the next one is made."""
        if not isinstance(self._lake, Path):
            yield Stage(self._lake)
            return
        self.clear()
        folder = self._lake / STAGE_NAME / f"{os.getpid()}-{uuid4().hex[:12]}"
        folder.mkdir(parents=True)
        lock = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield Stage(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)

    def clear(self) -> None:
        """Take away what writers that are no more have left behind."""
        stages = self._lake / STAGE_NAME
        if not isinstance(stages, Path) or not stages.is_dir():
            return
        for folder in stages.iterdir():
            try:
                lock = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                # Just being made or just being removed by its owner: only an old one is litter.
                if storage.age_s(folder) > _LITTER_SECONDS:
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
