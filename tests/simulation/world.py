"""The world of a scene in one process: the nodes of all domains, their disks, and the network between them."""

from __future__ import annotations

import json
import logging
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio
import trustme

from interop.domain_files import DomainFolder
from interop.domain_folders import DomainFolders, DomainTerms
from interop.hostile.domain import HostileDomain
from interop.lab.actors import Notes
from interop.lab.clients import NewClient
from interop.lab.core.scene import Fault, LabScene
from interop.lab.policy_change import change_policy
from interop.lab.world import clock_course
from interop.name_server import NameServer
from msg_node.app import serve
from msg_node.settings.load import load_settings
from msg_node.storage.state_file import Rows, StateFile
from protofly.errors import Code, HostError, TransportError
from sandbox.engine import Engine
from tests.simulation.clients import simulated_clients
from tests.simulation.guests import Compiler, SimulatedSandbox
from tests.simulation.network import Network
from tests.simulation.virtual_process import Host, Simulation, current_host, is_disk_full

DOMAINS: Final = ("a.example", "b.example", "c.example")
_START_SECONDS: Final = 30.0
_RELOAD_SECONDS: Final = 2.0
"""A node that gets the signal has taken its files over by then."""
_DNS_PORT: Final = 5300
_ZONES: Final = "zones.json"
_HERE: Final = "@FOLDER@"
_VERIFY_FLOWS: Final = """
[debug]
flows = "verify"
"""
_RECORDS: Final = """
[records]
sync_seconds = 60.0  # each round costs as much as a message, and records are looked at when all is over
"""


async def make_template(folder: Path) -> None:
    """Make keys, certificates, documents and settings of all domains, once for all seeds."""
    _make_certificates(folder / "authority")
    folders = DomainFolders(folder, DOMAINS, DomainTerms(tls=False))
    await folders.make()
    folders.write_settings(dict.fromkeys(DOMAINS, _DNS_PORT))
    (folder / _ZONES).write_text(json.dumps(folders.zones()))
    for one in folders.folders.values():
        one.settings.write_text(one.settings.read_text().replace(str(folder), _HERE) + _RECORDS)


def _make_certificates(folder: Path) -> None:
    """As `DevelopmentAuthority` does, with keys whose signatures all have one size: the bytes of a handshake count."""
    folder.mkdir(parents=True)
    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    authority.cert_pem.write_to_path(str(folder / "development-ca.pem"))
    authority.private_key_pem.write_to_path(str(folder / "development-ca.key.pem"))
    for domain in DOMAINS:
        leaf = authority.issue_cert(domain, f"mn.{domain}", "127.0.0.1", key_type=trustme.KeyType.RSA)
        leaf.private_key_pem.write_to_path(str(folder / f"{domain}.key.pem"))
        (folder / f"{domain}.pem").write_bytes(b"".join(one.bytes() for one in leaf.cert_chain_pems))


def epoch_of(template: Path) -> float:
    """When the certificates of a template were made: simulations of it begin then."""
    return float(int((template / _ZONES).stat().st_mtime))


def _copy(template: Path, folder: Path, further: str) -> None:
    shutil.copytree(template, folder, dirs_exist_ok=True)
    for settings in folder.glob("*/node.toml"):
        settings.write_text(settings.read_text().replace(_HERE, str(folder)) + further)


class Defects(logging.Handler):
    """What nodes report as their own defects: exceptions that nobody foresaw, and flows that would go another way."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        if record.exc_info or getattr(record, "code", "") == Code.FLOW_DIFFERS.word:
            self.found.append(logging.Formatter().format(record))


@dataclass(eq=False)
class _Machine:
    """One domain: its host, its disk, and its node while that runs."""

    host: Host
    folder: DomainFolder
    listen_url: str = ""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    has_ended: trio.Event = field(default_factory=trio.Event)
    failure: str = ""
    lives: list[DomainFolder] = field(default_factory=list)
    """For each kill: what the node would have left if it had been stopped, which has all its records."""

    def lost_data(self) -> Path:
        """Where the data of one more killed node go."""
        one = DomainFolder(path=self.folder.path / f"killed-{len(self.lives)}")
        one.path.mkdir()
        self.lives.append(one)
        return one.data


class SimulatedWorld:
    """Domains with their nodes, running. Made by `simulated_world`."""

    def __init__(
        self, scene: LabScene, simulation: Simulation, folder: Path, engine: Engine, nursery: trio.Nursery
    ) -> None:
        self.hostile: list[HostileDomain] = []
        self._scene = scene
        self.network = Network(simulation.random, simulation.clock)
        self.machines = {domain: _Machine(Host(domain), DomainFolder(path=folder / domain)) for domain in DOMAINS}
        self._engine = engine
        self._compiler = Compiler(engine, folder.parent)
        self._nursery = nursery

    def clients_of(self, domain: str) -> NewClient:
        """See `PlayedWorld`."""
        return simulated_clients(lambda: self.machines[domain].listen_url)

    async def introduce(self, addresses: Sequence[str]) -> None:
        """See `PlayedWorld`: these nodes need not know."""

    async def hops(self, domain: str) -> dict[str, list[tuple[str, float]]]:  # noqa: ARG002 - nobody asks a node
        """See `PlayedWorld`."""
        return {}

    async def start(self, domain: str) -> None:
        """Start a node and wait until it is ready. Raises TransportError."""
        machine = self.machines[domain]
        machine.scope, machine.has_ended, machine.failure = trio.CancelScope(), trio.Event(), ""
        with trio.move_on_after(_START_SECONDS) as limit:
            await self._nursery.start(self._serve, machine)
        if limit.cancelled_caught or machine.failure:
            raise TransportError(Code.CONNECT_FAILED, f"{domain} does not start: {machine.failure or 'too slow'}")

    async def _serve(self, machine: _Machine, *, task_status: trio.TaskStatus[None]) -> None:
        current_host.set(machine.host)
        settings = load_settings(machine.folder.settings)

        def ready(facts: dict[str, object]) -> None:
            machine.listen_url = str(facts["listen"])
            task_status.started()

        try:
            with machine.scope:
                await serve(settings, on_ready=ready, sandbox=SimulatedSandbox(self._engine, self._compiler))
        except Exception:
            logging.getLogger("simulation").exception("the node of %s has failed", machine.host.name)
            machine.failure = "it failed"
        machine.has_ended.set()

    async def running(self, domain: str) -> dict[str, str]:  # noqa: ARG002 - nobody asks a node
        """See `PlayedWorld`."""
        return {}

    async def suffer(self, fault: Fault, notes: Notes) -> None:
        """See `PlayedWorld`."""
        if fault.does == "policy":
            machine = self.machines[fault.domain or ""]
            await change_policy(fault, self._scene, machine.folder.policy, lambda: _reloaded(machine), notes)
            return
        if fault.domain is not None:
            await self._hit_node(fault, self.machines[fault.domain])
            return
        line = self.network.line(*fault.domains)
        match fault.does:
            case "drop":
                line.drop()
                return
            case "cut":
                line.cut()
            case "half-open":
                line.is_silent = True
            case "delay":
                line.delay_seconds = fault.milliseconds / 1e3
            case "throttle":
                line.bytes_per_second = fault.bytes_per_second
            case "reorder":
                await line.reorder(fault.milliseconds / 1e3)
                return
        await trio.sleep(fault.lasts)
        line.heal()

    async def _hit_node(self, fault: Fault, machine: _Machine) -> None:
        match fault.does:
            case "kill":
                await self._kill(machine)
            case "restart":
                machine.host.signal(signal.SIGTERM)
                await machine.has_ended.wait()
            case "full-disk":
                machine.host.disk_is_full = True
                await trio.sleep(fault.lasts)
                machine.host.disk_is_full = False
                return
            case "clock-step" | "clock-drift":
                async for machine.host.clock_offset_seconds in clock_course(fault):
                    pass
                machine.host.clock_offset_seconds = 0.0
                return
            case _:
                raise HostError(Code.INTERNAL, f"{fault.does} cannot be simulated")
        await trio.sleep(fault.lasts)
        await self.start(machine.host.name)

    async def _kill(self, machine: _Machine) -> None:
        """End a node as SIGKILL does: nothing leaves it any more, and its disk stays as it is in this moment."""
        self.network.unplug(machine.host)
        data = machine.folder.data
        left = data.with_name("data-left")
        shutil.copytree(data, left, symlinks=True, ignore=lambda _, names: [name for name in names if "sock" in name])
        machine.scope.cancel()
        await machine.has_ended.wait()
        data.rename(machine.lost_data())
        left.rename(data)

    async def stop(self) -> None:
        """End all nodes."""
        for machine in self.machines.values():
            machine.scope.cancel()
        for machine in self.machines.values():
            if machine.listen_url:
                await machine.has_ended.wait()


async def _reloaded(machine: _Machine) -> None:
    machine.host.signal(signal.SIGHUP)
    await trio.sleep(_RELOAD_SECONDS)


@asynccontextmanager
async def simulated_world(
    scene: LabScene, simulation: Simulation, template: Path, folder: Path, engine: Engine
) -> AsyncIterator[SimulatedWorld]:
    """The world of a scene in an empty folder, ready; leaving stops everything."""
    _copy(template, folder, _VERIFY_FLOWS if simulation.verifies_flows else "")
    async with trio.open_nursery() as nursery:
        world = SimulatedWorld(scene, simulation, folder, engine, nursery)
        await nursery.start(world.network.run)
        names = NameServer(json.loads((folder / _ZONES).read_text()))
        await nursery.start(_serve_names, names)
        for domain in scene.our_domains:
            await world.start(domain)
        yield world
        await world.stop()
        nursery.cancel_scope.cancel()


async def _serve_names(names: NameServer, *, task_status: trio.TaskStatus[None]) -> None:
    current_host.set(Host("names"))
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda *, task_status: names.run(port=_DNS_PORT, task_status=task_status))
        task_status.started()


def let_disks_fill_up() -> None:
    """Let commits of a host with a full disk fail."""
    genuine = StateFile.commit

    def commit(self: StateFile, rows: Rows) -> None:
        if is_disk_full():
            raise HostError(Code.STORAGE, "database or disk is full")
        genuine(self, rows)

    StateFile.commit = commit  # type: ignore[method-assign]
