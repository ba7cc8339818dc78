"""`python -m benchmarks.sessions_of_nodes`: many sessions in a cluster; what a claim takes, and what a session holds.

It starts PostgreSQL from Debian's package and the nodes of one domain, opens sessions at all of them, and has addresses
allocated for each; then one node without an engine gets as many sessions as each of those had. `--all` is 100,000
sessions with 10 addresses at four nodes. Most runtimes hang up and are in grace, for a process may have no more than
some ten thousand connections; so both kinds of node hold the same.

A claim is timed twice, one after the other while all sessions are there: what the directory takes, and a whole request
for an address, from the runtime to the answer, which waits for claim and row.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import trio

from benchmarks.load_client import Connection, ask, connect
from benchmarks.process_time import process_tree, resident_kib
from interop.engine_server import INSTALL, EngineServer, engine_programs
from interop.free_ports import free_ports
from interop.processes import Child
from msg_node.cluster.engine_directory import EngineDirectory
from msg_node.cluster.engine_notices import EngineNotices
from msg_node.cluster.names import Names, NodeFacts
from msg_node.storage.engine import Engine
from msg_node.storage.engine_options import EngineOptions
from protofly.errors import SettingsError

DOMAIN: Final = "alpha.example"
USER: Final = "trapezoid"
ALL_SESSIONS: Final = 100_000
AT_ONCE: Final = 160
KEPT_PER_NODE: Final = 1_000
CLAIMS: Final = 2_000
REQUESTS_PER_NODE: Final = 500
START_SECONDS: Final = 60.0
MOST_CLAIM_MS: Final = 1.0
MOST_MORE_MEMORY: Final = 0.1
SETTINGS: Final = """
[node]
domain = "{domain}"
name = "{name}"
data_dir = "{folder}/{name}"
[listen]
port = 0
insecure_plaintext = true
[limits]
sessions = 200000
[sessions]
grace_seconds = 86400
ping_seconds = 3600
"""
SHARED: Final = """
[storage]
engine = "postgresql://{user}@127.0.0.1:{port}/postgres"
tls = "off"
[cluster]
listen = "unix:{folder}/{name}.sock"
key_file = "{folder}/cluster.key"
"""


@dataclass(frozen=True, slots=True)
class RunningNode:
    """One node, and what it held when it was idle."""

    pid: int
    url: str
    idle_kib: int

    def kib_per_session(self, sessions: int) -> float:
        """The memory that each of so many sessions has added."""
        return (resident_kib(self.pid) - self.idle_kib) / sessions


@dataclass(frozen=True, slots=True)
class Plan:
    """Size of the measurement.

    Attributes:
        sessions: At all nodes of the cluster together.
        addresses: Of each session.
        nodes: Of the cluster.
    """

    sessions: int
    addresses: int
    nodes: int

    @property
    def per_node(self) -> int:
        """Sessions of each node."""
        return self.sessions // self.nodes


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of one kind of node."""

    kib_per_session: float
    opens_per_second: float
    requests_ms: Sequence[float]
    claims_ms: Sequence[float]


def percentiles(times_ms: Sequence[float]) -> str:
    """For people."""
    return f"p50 {median(times_ms):6.2f} ms  p99 {quantiles(times_ms, n=100)[98]:6.2f} ms"


@contextmanager
def running_engine(folder: Path) -> Iterator[EngineServer]:
    """A PostgreSQL with its defaults, which are durable; its password is in the environment of the nodes."""
    programs = engine_programs()
    if programs is None:
        raise SettingsError(f"no PostgreSQL here: {INSTALL}")
    server = EngineServer(folder, free_ports(1)[0], USER)
    os.environ["PGPASSWORD"] = password = secrets.token_hex(16)
    server.create(password)
    server.start(max_connections="200")
    try:
        yield server
    finally:
        server.stop()


@asynccontextmanager
async def running_node(folder: Path, name: str, engine: EngineServer | None) -> AsyncIterator[RunningNode]:
    """Run one node; without an engine it keeps its state in files."""
    config = folder / f"{name}.toml"
    text = SETTINGS.format(domain=DOMAIN, name=name, folder=folder)
    if engine is not None:
        text += SHARED.format(user=USER, port=engine.port, name=name, folder=folder)
    config.write_text(text)
    child = Child(["trapezoid", "serve", "--config", str(config)], log_file=folder / f"{name}.log")
    await child.start()
    try:
        with trio.fail_after(START_SECONDS):
            ready = await child.wait_ready()
        pid = min(process_tree(child.pid))
        yield RunningNode(pid, str(ready["listen"]), resident_kib(pid))
    finally:
        with trio.CancelScope(shield=True):
            await child.stop()


def allocate(connection: Connection, runtime: str, addresses: int, key: str) -> None:
    """Have addresses allocated, all in one request."""
    value = {"number": addresses, "allocationKey": key}
    to = f"domain://msg-node.{DOMAIN}/address-allocation"
    request = {"id": 2, "type": "create", "from": f"{runtime}/address-allocation", "to": to}
    ask(connection, {**request, "body": {"scheme": "hyperty", "value": value}})


def open_sessions(node: RunningNode, name: str, plan: Plan) -> list[tuple[Connection, str]]:
    """Open the sessions of one node; returns those that stay connected, with their runtimes."""

    def begin(number: int) -> tuple[Connection, str] | None:
        runtime = f"runtime://{DOMAIN}/{name}-{number}"
        connection = connect(node.url, "", "")
        ask(connection, {"id": 1, "type": "open", "from": runtime, "to": "mn:/session"})
        allocate(connection, runtime, plan.addresses, "")
        if number < KEPT_PER_NODE:
            return connection, runtime
        connection.socket.close()
        return None

    with ThreadPoolExecutor(AT_ONCE // plan.nodes) as threads:
        return [kept for kept in threads.map(begin, range(plan.per_node)) if kept is not None]


async def claims_ms(engine: EngineServer) -> list[float]:
    """Claim one address after the other in the directory that the nodes use, under a name of its own."""
    options = EngineOptions(
        hosts=(("127.0.0.1", engine.port),), user=USER, password=os.environ["PGPASSWORD"], database="postgres",
        domain=DOMAIN, application="trapezoid benchmark", tls="off",
    )  # fmt: skip
    names, times = Names(Engine(options)), list[float]()
    epoch = names.take("benchmark", None, "benchmark", NodeFacts())
    names.close()
    assert epoch is not None
    directory = EngineDirectory(Engine(options), EngineNotices(Engine(options)), "benchmark", epoch)
    try:
        for number in range(CLAIMS):
            began = time.perf_counter()
            await directory.claim([f"hyperty://{DOMAIN}/benchmark-{number}"])
            times.append((time.perf_counter() - began) * 1000)
    finally:
        await directory.close()
    return times


def requests_ms(kept: Sequence[tuple[Connection, str]]) -> Iterator[float]:
    """Have one address after the other allocated, from the request to its answer: claim and row are durable then."""
    for number in range(REQUESTS_PER_NODE):
        connection, runtime = kept[number % len(kept)]
        began = time.perf_counter()
        allocate(connection, runtime, 1, "")
        yield (time.perf_counter() - began) * 1000


async def measure(folder: Path, plan: Plan, engine: EngineServer | None) -> Measured:
    """Fill the nodes of a cluster, or one node without an engine, and look at them."""
    names = [f"n{number}" for number in range(plan.nodes if engine is not None else 1)]
    kept: dict[str, list[tuple[Connection, str]]] = {}
    async with AsyncExitStack() as stack:
        nodes = {name: await stack.enter_async_context(running_node(folder, name, engine)) for name in names}

        async def fill(name: str) -> None:
            kept[name] = await trio.to_thread.run_sync(open_sessions, nodes[name], name, plan)

        began = time.monotonic()
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(fill, name)
        rate = plan.per_node * len(names) / (time.monotonic() - began)
        memory = median(node.kib_per_session(plan.per_node) for node in nodes.values())
        times = await trio.to_thread.run_sync(lambda: list(chain.from_iterable(map(requests_ms, kept.values()))))
        claims = [] if engine is None else await claims_ms(engine)
        for connection, _ in chain.from_iterable(kept.values()):
            connection.socket.close()
    return Measured(memory, rate, times, claims)


def report(plan: Plan, shared: Measured, alone: Measured) -> bool:
    """Print what was found; whether both bars hold."""
    _show(f"{plan.sessions:,} sessions with {plan.addresses} addresses at {plan.nodes} nodes, {plan.per_node:,} alone")
    for name, found in (("cluster", shared), ("embedded", alone)):
        _show(
            f"{name:8}  request for an address {percentiles(found.requests_ms)}"
            f"  {found.kib_per_session:6.2f} KiB per session  {found.opens_per_second:7,.0f} opens/s"
        )
    more = shared.kib_per_session / alone.kib_per_session - 1
    _show(f"claim in the directory {percentiles(shared.claims_ms)}  (at most {MOST_CLAIM_MS} at p50)")
    _show(f"memory of a session   {more:+.1%}  (at most {MOST_MORE_MEMORY:+.0%})")
    _show(f"load of the machine   {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return median(shared.claims_ms) <= MOST_CLAIM_MS and more <= MOST_MORE_MEMORY


def _show(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description="Measure claims and memory of many sessions in a cluster.")
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--all", action="store_true", help=f"{ALL_SESSIONS:,} sessions")
    parser.add_argument("--addresses", type=int, default=10, help="of each session")
    parser.add_argument("--nodes", type=int, default=4)
    arguments = parser.parse_args()
    plan = Plan(ALL_SESSIONS if arguments.all else arguments.sessions, arguments.addresses, arguments.nodes)
    with tempfile.TemporaryDirectory(prefix="trapezoid-") as text, tempfile.TemporaryDirectory() as files:
        folder = Path(text)
        key = folder / "cluster.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(32))
        with running_engine(Path(files)) as engine:
            shared = trio.run(measure, folder, plan, engine)
        (folder / "alone").mkdir()
        alone = trio.run(measure, folder / "alone", plan, None)
    return 0 if report(plan, shared, alone) else 1


if __name__ == "__main__":
    sys.exit(main())
