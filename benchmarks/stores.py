"""`python -m benchmarks.stores [--config node.toml]`: what a durable change costs in a file, and in an engine.

Each variant keeps so many changes waiting at a time, as so many runtimes do that each wait for their answer. With a
settings file its `[storage] engine` is measured as well, under a name of its own that is removed afterwards.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio
from msgspec import Raw

from msg_node.cluster.names import Names, NodeFacts
from msg_node.kernel.changes import Change, Table
from msg_node.settings.load import load_settings
from msg_node.settings.model import Settings
from msg_node.storage.engine_rows import EngineRows
from msg_node.storage.state_file import StateFile
from msg_node.storage.state_store import DurableRows, StateStore
from msg_node.wiring.cluster import open_engine
from protofly.errors import SettingsError

SECONDS = 5.0
WAITING = (1, 16, 256)
ROW = Raw(b'{"url":"hyperty://a.example/0f8fad5b-d9cb-469f-a165-70867728950e","sid":1}')
NAME = "benchmark"


async def measure(rows: DurableRows, waiting: int) -> tuple[float, list[float]]:
    """Commit for some seconds. Returns changes per second, and the seconds that each one took, sorted."""
    took: list[float] = []
    store = StateStore(rows)

    async def commit_on(task: int) -> None:
        number = 0
        while True:
            done, began = trio.Event(), time.perf_counter()
            number += 1
            store.submit([Change(Table.ADDRESSES, f"{task}/{number}", ROW)], done.set)
            await done.wait()
            took.append(time.perf_counter() - began)

    async with trio.open_nursery() as services:
        await services.start(store.run)
        began = time.perf_counter()
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = trio.current_time() + SECONDS
            for task in range(waiting):
                nursery.start_soon(commit_on, task)
        rate = len(took) / (time.perf_counter() - began)
        services.cancel_scope.cancel()
    return rate, sorted(took)


@contextmanager
def engine_rows(settings: Settings) -> Iterator[EngineRows]:
    """Rows under a name of our own."""
    engine, names_engine = open_engine(settings), open_engine(settings)
    if engine is None or names_engine is None:
        raise SettingsError("there is no storage.engine in these settings")
    names = Names(names_engine)
    epoch = names.take(NAME, names.read(NAME), "benchmark", NodeFacts())
    assert epoch is not None, "another benchmark runs"
    yield EngineRows(engine, NAME, epoch)
    with names_engine.transaction() as connection:
        connection.execute("DELETE FROM trapezoid_row WHERE node = %s", (NAME,))
    names.leave(NAME, epoch)
    names.remove(NAME)
    names.close()


def report(variant: str, waiting: int, result: tuple[float, list[float]]) -> None:
    """One line."""
    rate, took = result
    p50, p99 = (1000 * took[int(len(took) * share)] for share in (0.5, 0.99))
    sys.stdout.write(f"{variant:8} {waiting:4} waiting  {rate:8.0f} changes/s  p50 {p50:6.2f} ms  p99 {p99:6.2f} ms\n")


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description="Measure what a durable change costs.")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings with an engine to measure as well")
    parser.add_argument("--dir", type=Path, help="where the file is made; the disk decides about it")
    arguments = parser.parse_args()
    for waiting in WAITING:
        with tempfile.TemporaryDirectory(dir=arguments.dir) as folder:
            report("file", waiting, trio.run(measure, StateFile(Path(folder) / "state.sqlite"), waiting))
        if arguments.config is not None:
            with engine_rows(load_settings(arguments.config)) as rows:
                report("engine", waiting, trio.run(measure, rows, waiting))


if __name__ == "__main__":
    main()
