"""A standalone Spark cluster of this machine, out of the PySpark package: one master, two workers with a core each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from benchmarks.process_time import process_tree

HOME = Path(pyspark.__file__).parent
_EXECUTOR = b"CoarseGrainedExecutorBackend"
_SECONDS_TO_END = 20.0


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs.

    Attributes:
        master: Its URL.
        folder: Where workers keep what executors write, a folder for each worker.
    """

    master: str
    folder: Path
    workers: tuple[int, ...]

    def kill_executor(self) -> int:
        """End one executor at once, as a machine that fails would; returns its process id."""
        executors = [
            pid
            for worker in self.workers
            for pid in sorted(process_tree(worker) - {worker})
            if _EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        assert executors, "no executor is at work"
        os.kill(executors[0], signal.SIGKILL)
        return executors[0]

    def executors_started(self) -> int:
        """How many executors there have been, those that were killed included."""
        return sum(folder.is_dir() for folder in self.folder.glob("*/app-*/*"))


@contextmanager
def cluster(folder: Path, programs: Path | None = None) -> Iterator[Cluster]:
    """Start master and workers on loopback, on ports of their choice; end them afterwards.

    Workers find programs in the folder `programs` first.
    """
    path = os.environ["PATH"] if programs is None else f"{programs}:{os.environ['PATH']}"
    with ExitStack() as ended:
        master = ended.enter_context(_started("master.Master", path, "--port", "0"))
        url = _line_with(master, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        workers = []
        for number in range(2):
            work = folder / f"worker-{number}"
            options = ("--cores", "1", "--memory", "2g", "--port", "0", "--work-dir", str(work), url)
            workers.append(ended.enter_context(_started("worker.Worker", path, *options)))
        for worker in workers:
            _line_with(worker, r"(Successfully registered with master)")
        yield Cluster(url, folder, tuple(worker.pid for worker in workers))


@contextmanager
def _started(name: str, path: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1"]
    environment = {**os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "512m"}
    environment["PATH"] = path
    log = subprocess.PIPE
    process = subprocess.Popen(
        [*command, "--webui-port", "0", *options], env=environment, stdout=subprocess.DEVNULL, stderr=log, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _line_with(process: subprocess.Popen[str], pattern: str) -> str:
    """Read the output of the process up to this text. What comes later fits into the pipe: a daemon prints little."""
    assert process.stderr is not None
    shown = []
    for line in process.stderr:
        shown.append(line)
        found = re.search(pattern, line)
        if found:
            return found[1]
    raise AssertionError("".join(shown))
