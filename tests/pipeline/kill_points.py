"""Ingest and refine killed with SIGKILL, again and again, at other places; nothing may be lost or doubled.

    python -m tests.pipeline.kill_points --points 20 [--store s3|azure]

A parent writes segments, more before every round, and starts a child that ingests and refines them. The child counts
its steps (each call of what changes files or tables) and kills itself at the one it was given. Every other round the
parent kills it after a while instead, wherever it is then. In the end one run is left in peace, and every record of the
segments must be in bronze and silver once, with a ledger that says so.

With a store, spool and lake are in a real object store (`tests.pipeline.object_store`).
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pipeline.jobs import ingest, refine
from pipeline.lake import durable, storage
from pipeline.lake.delta_log import DeltaLog
from pipeline.lake.lake_files import LakeFiles
from pipeline.lake.store_path import Location, StorePath, location
from pipeline.lake.tables import Lake
from pipeline.schemas import BRONZE_LINK_EVENT, BRONZE_MDR, QUARANTINE, SEGMENTS, SILVER_MDR, Table
from pipeline.segments import loading as segment_loading
from pipeline.segments.ledger import Ledger
from pipeline.segments.node_keys import Trust
from pipeline.spark.session import start_session
from protofly.records import RecordKind
from tests.pipeline.moments import Moments
from tests.pipeline.object_store import (
    ObjectStore,
    azure_environment,
    azure_store,
    environment,
    object_store,
    reserved,
)
from tests.pipeline.spools import KEY, NODE, SegmentWriter, link_event, message

ROOT = Path(__file__).parents[2]
SEGMENTS_PER_ROUND = 2
RECORDS_PER_SEGMENT = 40
CHILD_SECONDS = 600.0
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
STEPS: tuple[tuple[Any, str], ...] = (
    (ingest.Ingest, "_pin"),
    (segment_loading, "_write"),
    (segment_loading, "_commit"),
    (Lake, "_move_in"),
    (DeltaLog, "create"),
    (DeltaLog, "commit"),
    (Ledger, "write"),
    (durable, "sync_file"),
    (durable, "sync_folder"),
    (durable, "replace"),
    (Path, "rename"),
    (Path, "unlink"),
    (storage, "copy"),
    (storage, "remove"),
)
"""A round has about 60 of these; each has a moment before and one after."""


def child(spool: Location, lake_folder: Location, kill_at: int) -> None:
    """Ingest and refine; die at the given moment, if it comes."""
    spark = start_session(
        "local[2]",
        memory="1g",
        shuffle_partitions=2,
        input_bytes=0,
        more={"spark.driver.extraJavaOptions": JVM_OPTIONS},
    )
    Moments(kill_at).stand_around(STEPS)
    lake = Lake(lake_folder, spark)
    trust = Trust({(NODE, KEY.key_id): KEY.record()}, requires_signatures=True)
    ingest.run(lake, [spool], trust=trust)
    refine.run(lake)
    spark.stop()


class Traffic:
    """Segments of one node, and what is in them."""

    def __init__(self, spool: Path) -> None:
        self.spool = spool
        self.writers = {kind: SegmentWriter(spool, kind=kind) for kind in (RecordKind.MESSAGE, RecordKind.LINK)}
        self.messages = 0

    def write(self) -> None:
        for _ in range(SEGMENTS_PER_ROUND):
            numbers = range(self.messages + 1, self.messages + RECORDS_PER_SEGMENT + 1)
            self.writers[RecordKind.MESSAGE].seal([message(number) for number in numbers])
            self.messages += RECORDS_PER_SEGMENT
        self.writers[RecordKind.LINK].seal([link_event(self.messages)])


def run_rounds(home: Path, points: int, seed: int = 1, store: ObjectStore | None = None) -> list[str]:
    """Kill so many times, then look. Returns what is wrong, and prints nothing.

    With a store, spool and lake are in there; how to reach it is in the environment.
    """
    chance = random.Random(seed)
    traffic = Traffic(home / "spool")
    where: Location = home if store is None else store.bucket / "kills"

    def write() -> None:
        traffic.write()
        if store is not None and isinstance(where, StorePath):
            store.upload(traffic.spool, where / "spool")

    killed = 0
    while killed < points:
        write()
        is_by_moment = killed % 2 == 0
        # Early moments are setting up, late ones may lie behind the end: then the round was no kill, and is repeated.
        kill_at = chance.randrange(1, 110) if is_by_moment else 0
        killed += _run_child(home, where, kill_at, None if is_by_moment else chance.uniform(5.0, 25.0))
    write()
    if _run_child(home, where, 0, None):
        return ["the run that was left in peace failed"]
    return _mistakes(where / "lake", traffic)


def run_in_store(home: Path, points: int, kind: str) -> list[str]:
    """The same in an object store, `s3` or `azure`, that is started for it."""
    with reserved() as held:
        port = int(held.getsockname()[1])
        found, start = (environment, object_store) if kind == "s3" else (azure_environment, azure_store)
        os.environ.update(found(port))
        with start(home / "store", port) as store:
            return run_rounds(home, points, store=store)


def _run_child(home: Path, where: Location, kill_at: int, seconds: float | None) -> bool:
    """True when it was killed. Raises RuntimeError when it failed otherwise."""
    command = [sys.executable, "-m", "tests.pipeline.kill_points", "--child", str(kill_at), "--home", str(where)]
    with (home / "child.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        try:
            process.wait(seconds or CHILD_SECONDS)
        except subprocess.TimeoutExpired:
            if seconds is None:
                raise
            process.kill()
            process.wait()
        finally:
            _end_group(process.pid)
    if process.returncode not in {0, -signal.SIGKILL}:
        raise RuntimeError((home / "child.log").read_text()[-4000:])
    return process.returncode != 0


def _end_group(group: int) -> None:
    """The machine of Spark outlives its parent for a moment; the next round must not meet it by accident."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _mistakes(folder: Location, traffic: Traffic) -> list[str]:
    """What the lake holds, read without Spark: the caller may have a session of its own."""
    lake = LakeFiles.of(folder)
    expected = list(range(1, traffic.messages + 1))
    mistakes = []
    for table in (BRONZE_MDR, SILVER_MDR):
        found = sorted(row["seq"] for row in _rows(lake, table, "seq"))
        if found != expected:
            lost, doubled = len(set(expected) - set(found)), len(found) - len(set(found))
            mistakes.append(f"{table.name}: {lost} lost, {doubled} doubled of {len(expected)}")
    events = len(_rows(lake, BRONZE_LINK_EVENT, "seq"))
    if events != traffic.writers[RecordKind.LINK].segno:
        mistakes.append(f"{events} link events instead of {traffic.writers[RecordKind.LINK].segno}")
    ledger = _rows(lake, SEGMENTS, "verdict", "findings")
    sealed = sum(writer.segno for writer in traffic.writers.values())
    if len(ledger) != sealed or any(row["verdict"] != "accepted" or row["findings"] for row in ledger):
        mistakes.append(f"the ledger has {len(ledger)} rows for {sealed} segments, or findings")
    if lake.has(QUARANTINE):
        mistakes.append("rows in quarantine")
    return mistakes


def _rows(lake: LakeFiles, table: Table, *columns: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.read_small(table, columns).to_pylist()
    return rows


def main() -> int:
    """The command; exit code 1 when anything was lost or doubled."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--home", type=location, help=argparse.SUPPRESS)
    parser.add_argument("--store", choices=("s3", "azure"), help="in an object store of this kind")
    options = parser.parse_args()
    if options.child is not None:
        child(options.home / "spool", options.home / "lake", options.child)
        return 0
    with tempfile.TemporaryDirectory(prefix="kill-points-") as home:
        started = time.monotonic()
        folder, points = Path(home), options.points
        mistakes = run_in_store(folder, points, options.store) if options.store else run_rounds(folder, points)
    outcome = "; ".join(mistakes) or "0 rows lost, 0 doubled"
    sys.stdout.write(f"{options.points} kills in {time.monotonic() - started:.0f} s: {outcome}\n")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
