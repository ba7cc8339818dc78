"""What is measured inside one domain: one node, perhaps with a crowd of quiet sessions, and two plain relays."""

from __future__ import annotations

import json
from abc import abstractmethod
from pathlib import Path
from typing import Any, Final

import trio

from benchmarks.domain.node_package import install_ws_relay
from benchmarks.domain.plan import ADDRESSES_PER_SESSION, Allocation, FanOut, PairFlood, Parking
from benchmarks.process_time import resident_kib
from benchmarks.sides import STOP_CLIENTS_SECONDS, Load, Meter, Pair, Run, Side
from benchmarks.variants import Variant
from interop.authority import DevelopmentAuthority
from interop.figures import milliseconds, percentile
from interop.processes import Child

DOMAIN: Final = "a.example"
CLIENT: Final = "benchmarks.domain.client"
CROWD: Final = "benchmarks.domain.crowd"
DELIVERY: Final = "benchmarks.domain.delivery_client"
_SETTLE: Final = Load(count=200, rate=2000.0, body_bytes=100)


class DomainVariant(Variant):
    """One process that all clients connect to."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder, tls=False)
        self._child: Child | None = None
        self._url = ""
        self._fans: dict[int, Pair] = {}

    @abstractmethod
    async def prepare(self) -> Child:
        """The process, not started yet."""

    @abstractmethod
    def url_of(self, ready: dict[str, object]) -> str:
        """URL for clients; `ready` has the facts that the process printed."""

    async def settle(self) -> None:
        """Do what has to be done once the process runs."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the process and keep it until cancelled."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._child = child = await self.prepare()
        try:
            await child.start()
            self._url = self.url_of(await child.wait_ready())
            await self.settle()
            task_status.started()
            await trio.sleep_forever()
        finally:
            await self.stop_clients()
            await child.stop()

    @property
    def domains(self) -> tuple[str, str]:
        """There is one domain."""
        return DOMAIN, DOMAIN

    def urls(self) -> tuple[str, str]:
        """There is one process."""
        return self._url, self._url

    def node_pids(self) -> tuple[int, int]:
        """There is one process."""
        assert self._child is not None
        return self._child.pid, self._child.pid

    async def flood(self, shape: PairFlood) -> Run:
        """One run from runtimes to others."""
        load = Load(count=shape.count_for(self.name), rate=shape.rate, body_bytes=shape.body_bytes)
        return await (await self.pair(shape.width)).run(load, self.pids())

    async def warm_up(self, shape: PairFlood) -> None:
        """Connect the clients and send a little."""
        await (await self.pair(shape.width)).run(_SETTLE, self.pids())

    async def fan_out(self, shape: FanOut) -> Run:
        """One run from one object to its observers."""
        fan = self._fans.get(shape.observers)
        if fan is None:
            await self.stop_pairs()  # a relay would give them everything, too
            fan = self._fans[shape.observers] = await self._make_fan(shape.observers)
            await fan.run(Load(count=20, rate=100.0, body_bytes=shape.body_bytes), self.pids())
        return await fan.run(Load(count=shape.count_for(self.name), rate=0.0, body_bytes=shape.body_bytes), self.pids())

    async def _make_fan(self, observers: int) -> Pair:
        publisher, audience = (
            Side(name, log_file=self.folder / "clients.log", program=CLIENT) for name in ("publisher", "audience")
        )
        for side, connections in ((publisher, 1), (audience, observers)):
            await side.start(url=self._url, ca_file="", domain=DOMAIN, connections=connections, plain=self.is_plain)
        published = f"comm://{DOMAIN}/anything"
        if not self.is_plain:
            published = str((await publisher.do("own_object", domain=DOMAIN))["url"])
            await audience.do("observe", domain=DOMAIN, url=published)
        return Pair(publisher, audience, targets=[f"{published}/changes"], copies=observers, type="update")

    async def stop_clients(self) -> None:
        """End all clients."""
        await super().stop_clients()
        with trio.move_on_after(STOP_CLIENTS_SECONDS, shield=True):
            for fan in self._fans.values():
                await fan.stop()
            self._fans.clear()


class OneNode(DomainVariant):
    """A node of its own, with `sessions` quiet runtimes that own addresses and listen to each other.

    Attributes:
        site: URL of its site while it runs, if it has one.
    """

    def __init__(self, name: str, folder: Path, *, sessions: int = 0, has_site: bool = False) -> None:
        super().__init__(name, folder)
        self.site = ""
        self._sessions = sessions
        self._has_site = has_site
        self._crowd: Side | None = None
        self._allocator: Side | None = None
        self._waiter: Side | None = None
        self._runs = 0
        self.session_kib: float | None = None

    async def prepare(self) -> Child:
        """A node with the settings that it has by itself, but for how much may wait; an empty data directory."""
        data = self.folder / "data"
        for name in ("state.sqlite", "state.sqlite-wal", "state.sqlite-shm"):
            (data / name).unlink(missing_ok=True)
        settings = self.folder / "node.toml"
        settings.write_text(
            f'[node]\ndomain = "{DOMAIN}"\ndata_dir = {json.dumps(str(data))}\n\n'
            '[listen]\nhost = "127.0.0.1"\nport = 0\ninsecure_plaintext = true\n\n'
            "[delivery]\nper_agent = 20_000\nper_sender = 20_000\n" + (self._site_settings() if self._has_site else "")
        )
        data.mkdir(exist_ok=True, mode=0o700)
        return Child(["trapezoid", "serve", "--config", str(settings)], log_file=self.folder / "node.log")

    def _site_settings(self) -> str:
        certificate, key = DevelopmentAuthority(self.folder / "authority").certificate_for(DOMAIN)
        files = f"certificate = {json.dumps(str(certificate))}\nkey = {json.dumps(str(key))}\n"
        return f'\n[site]\nhost = "127.0.0.1"\nport = 0\n{files}'

    def url_of(self, ready: dict[str, object]) -> str:
        """The listener for runtimes."""
        self.site = str(ready.get("site", ""))
        return str(ready["listen"])

    async def settle(self) -> None:
        """Let the crowd join, and see what it weighs."""
        if not self._sessions:
            return
        pid = self.node_pids()[0]
        self._crowd = crowd = Side("crowd", log_file=self.folder / "clients.log", program=CROWD)
        await crowd.start_process()
        before = resident_kib(pid)
        await crowd.do(
            "join",
            url=self._url,
            ca_file="",
            domain=DOMAIN,
            name="quiet",
            count=self._sessions,
            addresses=ADDRESSES_PER_SESSION,
        )
        self.session_kib = round((resident_kib(pid) - before) / self._sessions, 1)

    async def missing_sessions(self) -> int:
        """Count the sessions of the crowd that were lost meanwhile."""
        if self._crowd is None:
            return 0
        return self._sessions - int((await self._crowd.do("report"))["members"])

    async def allocate(self, shape: Allocation) -> Run:
        """One run of a new runtime that has addresses allocated."""
        if self._allocator is None:
            self._allocator = Side("allocator", log_file=self.folder / "clients.log", program=CLIENT)
            await self._allocator.start_process()
        self._runs += 1
        pids = self.pids()
        meter = Meter(pids, {self._allocator.pid})
        answer: dict[str, Any] = await self._allocator.do(
            "allocate",
            url=self._url,
            ca_file="",
            domain=DOMAIN,
            name=f"allocator-{self._runs}",
            count=shape.count,
            window=shape.window,
        )
        cpu, foreign_cores = meter.read()
        await self._allocator.do("release", domain=DOMAIN)
        return run_of(answer, cpu, foreign_cores)

    async def park(self, shape: Parking) -> Run:
        """One run of a sender whose agent is away, or of the agent's return."""
        if self._waiter is None:
            self._waiter = Side("waiter", log_file=self.folder / "clients.log", program=DELIVERY)
            await self._waiter.start_process()
        self._runs += 1
        agent, sender = f"agent-{self._runs}", f"sender-{self._runs}"
        node = {"url": self._url, "ca_file": "", "domain": DOMAIN}
        meter = Meter(self.pids(), {self._waiter.pid})
        answer = await self._waiter.do(
            "park", session=node | {"name": sender}, agent=agent, count=shape.count, window=shape.window
        )
        if shape.drains:
            meter = Meter(self.pids(), {self._waiter.pid})
            answer = await self._waiter.do(
                "drain", session=node | {"name": f"{agent}-runtime"}, agent=agent, count=shape.count, sender=sender
            )
        return run_of(answer, *meter.read())

    async def stop_clients(self) -> None:
        """End all clients."""
        await super().stop_clients()
        with trio.move_on_after(STOP_CLIENTS_SECONDS, shield=True):
            for side in (self._allocator, self._waiter, self._crowd):
                if side is not None:
                    await side.stop()


def run_of(answer: dict[str, Any], cpu_ns: int, foreign_cores: float) -> Run:
    """The figures of a run, from the answer of a client that asks and waits."""
    turns = answer["turns_ns"]
    return Run(
        messages_per_second=round(answer["answered"] / answer["nanoseconds"] * 1e9),
        p50_ms=milliseconds(percentile(turns, 0.5)),
        p99_ms=milliseconds(percentile(turns, 0.99)),
        longest_ms=milliseconds(max(turns, default=None)),
        cpu_us_per_message=round(cpu_ns / 1e3 / max(answer["answered"], 1), 2),
        lost=answer["lost"],
        duplicated=answer["duplicated"],
        reordered=answer["reordered"],
        refused=answer["refused"],
        foreign_cores=foreign_cores,
    )


class BroadcastRelay(DomainVariant):
    """A relay that gives every message to every other client: with trio-websocket, or in Node.js with ws."""

    def __init__(self, name: str, folder: Path, *, in_node_js: bool) -> None:
        super().__init__(name, folder)
        self._in_node_js = in_node_js

    @property
    def is_plain(self) -> bool:
        """Relays know no sessions."""
        return True

    async def prepare(self) -> Child:
        """The relay.

        Raises:
            TransportError: Node.js or its package cannot be had.
        """
        log_file = self.folder / "relay.log"
        if not self._in_node_js:
            return Child(["benchmarks.domain.broadcast_relay"], log_file=log_file)
        script = await install_ws_relay(self.folder / "package")
        return Child([str(script)], log_file=log_file, program=("node",))

    def url_of(self, ready: dict[str, object]) -> str:
        """Any path will do."""
        return f"ws://127.0.0.1:{ready['port']}/ws"
