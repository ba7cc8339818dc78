"""Whether the executors of a cluster see the folders that this process sees.

Workers open files by path, or reach the store by themselves. One that does not see a spool or the lake, or sees another
folder under the same path, would
find segments missing and write where nobody looks. So before anything else each executor shows what it sees.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from pipeline.lake import storage
from pipeline.lake.lake_mark import MARK_NAME
from pipeline.lake.store_path import Location, location
from pipeline.lake.table_log import LakeError
from protofly.record_segments import MANIFEST_SUFFIX

_TASKS_PER_CORE: Final = 2
"""So that no core is likely to be left out."""
_BYTES: Final = 1 << 16


class Proof(NamedTuple):
    """A path, and what is there: the hash of the beginning of a file, or `folder`."""

    path: str
    content: str


def proofs_of(lake: Location, spools: Iterable[Location]) -> list[Proof]:
    """Collect proofs that a process sees these folders: the lake's mark, and a manifest of each spool that has one."""
    folders = [spool.absolute() for spool in spools]
    shown = [lake / MARK_NAME, *map(_shown, folders)]
    return [Proof(str(path), seen) for path in shown if (seen := _seen(path))]


def check_sight(spark: SparkSession, proofs: Sequence[Proof]) -> None:
    """Let every executor show that it sees the same.

    Raises:
        LakeError: One does not; the message names the machine and the path.
    """
    tasks = spark.sparkContext.defaultParallelism * _TASKS_PER_CORE
    blind = spark.sparkContext.parallelize(range(tasks), tasks).flatMap(lambda _: unseen(proofs)).collect()
    if blind:
        machine, path = min(blind)
        raise LakeError(
            f"the executor on {machine} does not see {path} as it is here: mount spools and lake under the same paths "
            "on all machines, or give executors the way into the store; nothing was read or written"
        )


def unseen(proofs: Iterable[Proof]) -> list[tuple[str, str]]:
    """Paths that are not the same here, each with the name of this machine."""
    return [(socket.gethostname(), proof.path) for proof in proofs if _seen(location(proof.path)) != proof.content]


def _shown(spool: Location) -> Location:
    """A manifest of a spool, if it has one; of a store, which has each name once, the spool."""
    return next(iter(spool.rglob(f"*{MANIFEST_SUFFIX}")), spool) if isinstance(spool, Path) else spool


def _seen(path: Location) -> str:
    """What is there; empty for nothing."""
    try:
        return sha256(storage.read_bytes(path, _BYTES)).hexdigest()
    except OSError:
        with suppress(OSError):
            return "folder" if storage.exists(path) else ""
    return ""
