"""What is measured: whole trapezoids, one without sandbox, plain relays, a plain peer. One runs, the others idle."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

import msgspec
import trio

from benchmarks.process_time import process_tree
from benchmarks.relay import RelaySettings
from benchmarks.sides import STOP_CLIENTS_SECONDS, Pair, Side
from interop.authority import DevelopmentAuthority
from interop.laboratory import Laboratory, LaboratoryPlan
from interop.processes import Child

DOMAINS: Final = ("a.example", "b.example")
_PLAIN_SETTINGS: Final = """
[node]
domain = "{ours}"
data_dir = "data"
[listen]
port = 0
insecure_plaintext = true
[[peer]]
domain = "{theirs}"
stub = "vertx_peer"
endpoint = "{url}"
class = "plain"
stay_connected = true
insecure_plaintext = true
allow_addresses = ["127.0.0.0/8"]
"""
BARE_NODE: Final = ("benchmarks.bare_node",)  # a node whose sandbox is replaced by nothing


def remove_records(folder: Path) -> None:
    """Remove what nodes of an earlier benchmark have written down; keys and caches stay."""
    for records in folder.glob("*/data/records"):
        shutil.rmtree(records)


class Variant(ABC):
    """One thing to measure. Use: `await nursery.start(variant.run)`, then `pair()`."""

    def __init__(self, name: str, folder: Path, *, tls: bool) -> None:
        self.name = name
        self.tls = tls
        self.folder = folder
        self.ca_file = ""
        self._pairs: dict[int, Pair] = {}

    @abstractmethod
    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the nodes and keep them until cancelled."""

    @abstractmethod
    def urls(self) -> tuple[str, str]:
        """URLs for clients of the first and of the second domain."""

    @abstractmethod
    def node_pids(self) -> tuple[int, int]:
        """The two nodes."""

    @property
    def domains(self) -> tuple[str, str]:
        """Domains of the senders and of the receivers."""
        return DOMAINS

    @property
    def is_plain(self) -> bool:
        """True if clients name their address when they connect and open no sessions."""
        return False

    async def contradiction(self) -> str:
        """Reason why traffic does not go the way that this variant is named for, or ""; asked during traffic."""
        return ""

    def pids(self) -> set[int]:
        """Every process whose CPU time counts: nodes with their workers."""
        first, second = self.node_pids()
        return process_tree(first) | process_tree(second)

    async def pair(self, width: int) -> Pair:
        """The clients with `width` connections on each side; connected when they are first asked for."""
        if width not in self._pairs:
            sides = []
            for name, domain, url in zip(("out", "in"), self.domains, self.urls(), strict=True):
                side = Side(f"{name}-{width}", log_file=self.folder / "clients.log")
                await side.start(url=url, ca_file=self.ca_file, domain=domain, connections=width, plain=self.is_plain)
                sides.append(side)
            self._pairs[width] = Pair(*sides)
        return self._pairs[width]

    async def stop_clients(self) -> None:
        """End all clients."""
        await self.stop_pairs()

    async def stop_pairs(self) -> None:
        """End the clients that `pair` connected."""
        with trio.move_on_after(STOP_CLIENTS_SECONDS, shield=True):
            for pair in self._pairs.values():
                await pair.stop()
            self._pairs.clear()


class TrapezoidVariant(Variant):
    """Two real nodes. With `is_bare` the sandbox is replaced by nothing, and all else is the same."""

    def __init__(self, name: str, folder: Path, *, tls: bool, is_bare: bool) -> None:
        super().__init__(name, folder, tls=tls)
        self._is_bare = is_bare
        serve = BARE_NODE if is_bare else ("trapezoid", "serve")
        self.laboratory = Laboratory(LaboratoryPlan(state_dir=folder, domains=DOMAINS, tls=tls, serve=serve))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the laboratory and keep it until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.laboratory.run)
            self.ca_file = str(DevelopmentAuthority(self.folder / "authority").ca_file) if self.tls else ""
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                await self.stop_clients()

    async def contradiction(self) -> str:
        """A comparison would lie if the sandbox ran where there should be none, or the other way round."""
        node = self.laboratory.nodes[DOMAINS[0]]
        link = (await node.status()).link_to(DOMAINS[1])
        worker = link.worker_pid if link is not None else None
        has_sandbox = bool(worker) and worker != node.pid
        wants_sandbox = not self._is_bare
        if has_sandbox == wants_sandbox:
            return ""
        return f"a sandbox worker runs (pid {worker})" if has_sandbox else "no sandbox worker runs"

    def urls(self) -> tuple[str, str]:
        """URLs for clients of the first and of the second domain."""
        first, second = (self.laboratory.nodes[domain].listen_url for domain in DOMAINS)
        return first, second

    def node_pids(self) -> tuple[int, int]:
        """The two nodes."""
        first, second = (self.laboratory.nodes[domain].pid for domain in DOMAINS)
        return first, second


class PlainVariant(Variant):
    """Our node with `vertx_peer` for a domain that publishes nothing, and a stand-in for that domain's node."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder, tls=False)
        self._nodes: list[Child] = []
        self._urls = ("", "")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the foreign node, then ours, and keep both until cancelled."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            theirs = await self._start("benchmarks.foreign_node", DOMAINS[1])
            their_url = f"ws://127.0.0.1:{theirs['port']}/ws"
            settings = self.folder / "node.toml"
            settings.write_text(_PLAIN_SETTINGS.format(ours=DOMAINS[0], theirs=DOMAINS[1], url=their_url))
            ours = await self._start("trapezoid", "serve", "--config", str(settings))
            self._urls = str(ours["listen"]), their_url
            task_status.started()
            await trio.sleep_forever()
        finally:
            await self.stop_clients()
            for node in reversed(self._nodes):
                await node.stop()

    async def _start(self, *command: str) -> dict[str, object]:
        node = Child([*command], log_file=self.folder / "nodes.log")
        self._nodes.append(node)
        await node.start()
        return await node.wait_ready()

    def urls(self) -> tuple[str, str]:
        """URLs for clients of the first and of the second domain."""
        return self._urls

    def node_pids(self) -> tuple[int, int]:
        """Our node, and the stand-in."""
        theirs, ours = self._nodes
        return ours.pid, theirs.pid


class RelayVariant(Variant):
    """Two plain relays in series, with trio-websocket."""

    def __init__(self, name: str, folder: Path, *, tls: bool) -> None:
        super().__init__(name, folder, tls=tls)
        self._relays: list[Child] = []
        self._ports: list[int] = []

    @property
    def domains(self) -> tuple[str, str]:
        """Domains of the senders and of the receivers."""
        return DOMAINS

    @property
    def is_plain(self) -> bool:
        """Relays know no sessions."""
        return True

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the last relay, then the first, and keep both until cancelled."""
        self.folder.mkdir(parents=True, exist_ok=True)
        settings: dict[str, str] = {}
        if self.tls:
            authority = DevelopmentAuthority(self.folder / "authority")
            certificate, key = authority.certificate_for("relay.example")
            self.ca_file = str(authority.ca_file)
            settings = {"certificate": str(certificate), "key": str(key), "ca_file": self.ca_file}
        try:
            last = await self._start_relay(settings)
            await self._start_relay({**settings, "next_hop": f"{self._scheme}://127.0.0.1:{last}/link"})
            task_status.started()
            await trio.sleep_forever()
        finally:
            await self.stop_clients()
            for relay in reversed(self._relays):
                await relay.stop()

    @property
    def _scheme(self) -> str:
        return "wss" if self.tls else "ws"

    async def _start_relay(self, members: dict[str, str]) -> int:
        text = msgspec.json.encode(RelaySettings(**members)).decode()
        relay = Child(["benchmarks.relay", text], log_file=self.folder / "relay.log")
        self._relays.append(relay)
        await relay.start()
        port = int(str((await relay.wait_ready())["port"]))
        self._ports.append(port)
        return port

    def urls(self) -> tuple[str, str]:
        """Clients of the first domain connect to the first relay, which was started last."""
        last, first = self._ports
        return f"{self._scheme}://127.0.0.1:{first}/ws", f"{self._scheme}://127.0.0.1:{last}/ws"

    def node_pids(self) -> tuple[int, int]:
        """The two relays."""
        last, first = self._relays
        return first.pid, last.pid
