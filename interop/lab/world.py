"""The world of a scene: nodes, the lines between them, what each finds in the DNS, and hostile partners."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from interop.domain_files import HOST
from interop.domain_folders import DomainFolders, DomainTerms, Preparation
from interop.free_ports import free_ports
from interop.lab.core.scene import Domain, Fault, LabScene
from interop.lab.hostile import HostileDomain
from interop.lab.line_proxy import Line
from interop.laboratory import LaboratoryNode
from interop.name_server import NameServer
from interop.participant import AccessPoint
from interop.processes import STOPPED_SECONDS
from protofly.errors import SettingsError, TransportError

_LINE_NETWORK: Final = "127.42"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    """Where a scene runs, and how its nodes are run: module and arguments."""

    folder: Path
    serve: tuple[str, ...] = ("trapezoid", "serve")
    policies: Path | None = None


class World:
    """Domains with their nodes, running. Made by `running_world`."""

    def __init__(self, scene: LabScene, plan: WorldPlan, folders: DomainFolders) -> None:
        self.nodes = {
            domain: LaboratoryNode(domain, folders.ports[domain], folders.folders[domain], folders.authority)
            for domain in folders.domains
        }
        self.lines: dict[tuple[str, str], Line] = {}
        self.hostile: list[HostileDomain] = []
        self.scene = scene
        self._plan = plan
        for near, source in enumerate(folders.domains, 1):
            for far, target in enumerate(folders.domains, 1):
                ports = folders.ports[target]
                if source != target:
                    self.lines[source, target] = Line(f"{_LINE_NETWORK}.{near}.{far}", (ports.listen, ports.site))

    def view_of(self, domain: str) -> Callable[[str], str]:
        """At which address a domain reaches each other one."""
        return lambda target: HOST if target == domain else self.lines[domain, target].address

    def access_to(self, domain: str) -> Callable[[], AccessPoint]:
        """Where the runtimes of a domain connect now."""
        return lambda: self.nodes[domain].access_point

    async def hops(self, domain: str) -> dict[str, list[tuple[str, float]]]:
        """For each message that a node traced lately, its places and their times; nothing while the node is down."""
        node = self.nodes[domain]
        if not node.pid:
            return {}
        try:
            status = await node.status()
        except TransportError:
            return {}  # it is down, or stopped: that is the scene
        return {trace.id: [(hop.name, hop.at_us / 1e6) for hop in trace.hops] for trace in status.traces}

    async def start(self, domain: str) -> None:
        """Start one node and wait until it is ready."""
        await self.nodes[domain].start(self._plan.serve, {})

    async def start_all(self) -> None:
        """Start all nodes side by side."""
        async with trio.open_nursery() as nursery:
            for domain in self.nodes:
                nursery.start_soon(self.start, domain)

    async def stop_all(self) -> None:
        """Stop all nodes, and wait for their ends."""
        async with trio.open_nursery() as nursery:
            for node in self.nodes.values():
                nursery.start_soon(node.stop)

    async def suffer(self, fault: Fault) -> None:
        """Let a fault happen, for as long as it lasts; returns when what it hit is whole again.

        Raises:
            HostError: A node did not come back.
            OSError: The process could not be touched.
        """
        if fault.domain is not None:
            await self._hit_node(fault, fault.domain)
            return
        lines = [line for pair, line in self.lines.items() if set(pair) == set(fault.domains)]
        for line in lines:
            _hurt(line, fault)
        if fault.does != "drop":
            await trio.sleep(fault.lasts)
            for line in lines:
                line.heal()

    async def _hit_node(self, fault: Fault, domain: str) -> None:
        node = self.nodes[domain]
        match fault.does:
            case "kill" | "restart":
                if fault.does == "kill":
                    os.kill(node.pid, signal.SIGKILL)
                await node.stop()
                await trio.sleep(fault.lasts)
                await self.start(domain)
            case "pause":
                pid = node.pid
                os.kill(pid, signal.SIGSTOP)
                try:
                    await trio.sleep(fault.lasts)
                finally:
                    os.kill(pid, signal.SIGCONT)
            case "full-disk":
                await _fill_disk(node.pid, fault.lasts)


def _hurt(line: Line, fault: Fault) -> None:
    match fault.does:
        case "drop":
            line.drop()
        case "cut":
            line.cut()
        case "half-open":
            line.silence()
        case "delay":
            line.delay_seconds = fault.milliseconds / 1e3
        case "throttle":
            line.bytes_per_second = fault.bytes_per_second


async def _fill_disk(pid: int, seconds: float) -> None:
    """Let no file of a process grow or change for a time: writing fails as on a full disk, with another error code."""
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        await trio.sleep(seconds)
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


@asynccontextmanager
async def running_world(
    scene: LabScene, plan: WorldPlan, on_prepared: Callable[[Preparation], None] = lambda _: None
) -> AsyncIterator[World]:
    """The world of a scene, ready; leaving stops everything.

    Raises:
        SettingsError: A policy is missing, or a command failed.
        TransportError: A node did not become ready.
    """
    domains = [one.name for one in scene.domain]
    folders = DomainFolders(plan.folder, domains, DomainTerms(), on_prepared=on_prepared)
    await folders.make()
    world = World(scene, plan, folders)
    async with trio.open_nursery() as nursery:
        ports: dict[str, int] = {}
        for domain in domains:
            ports[domain] = await nursery.start(NameServer(folders.zones(world.view_of(domain))).run)
        folders.write_settings(ports)
        for line in world.lines.values():
            await nursery.start(line.run)
        for one in scene.domain:
            _use_policy(one, folders, plan.policies)
            if one.kind == "hostile":
                world.hostile.append(await _hostile(one, world, folders, nursery))
        try:
            with folders.preparing(f"{len(domains)} nodes are ready"):
                await world.start_all()
            yield world
        finally:
            with trio.move_on_after(STOPPED_SECONDS, shield=True):
                await world.stop_all()
        nursery.cancel_scope.cancel()


def _use_policy(domain: Domain, folders: DomainFolders, source: Path | None) -> None:
    if domain.policy:
        try:
            text = ((source or Path()) / domain.policy).read_text(encoding="utf-8")
        except OSError as exc:
            raise SettingsError(f"domain {domain.name}: {exc.filename}: {exc.strerror}") from exc
        folders.folders[domain.name].policy.write_text(text, encoding="utf-8")


async def _hostile(domain: Domain, world: World, folders: DomainFolders, nursery: trio.Nursery) -> HostileDomain:
    """A partner whose documents are genuine, and name its own endpoint instead of its node's."""
    folder = folders.folders[domain.name]
    [port] = free_ports(1)
    genuine = f"wss://mn.{domain.name}:{folders.ports[domain.name].listen}/link"
    settings = folder.settings.read_text()
    folder.settings.write_text(settings.replace(genuine, f"wss://mn.{domain.name}:{port}/link"))
    targets: Sequence[str] = world.scene.our_domains
    hostile = HostileDomain(
        domain, folder.keys, folders.authority, {target: folders.ports[target].listen for target in targets}
    )
    await nursery.start(
        hostile.listen, port, [line.address for pair, line in world.lines.items() if pair[1] == domain.name]
    )
    return hostile
