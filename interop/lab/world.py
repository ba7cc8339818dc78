"""The world of a scene: nodes, the lines between them, what each finds in the DNS, and hostile partners."""

from __future__ import annotations

import resource
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from interop.domain_files import DomainFolder
from interop.domain_folders import DomainFolders, DomainTerms, Preparation
from interop.hostile.domain import HostileDomain
from interop.lab.actors import Notes
from interop.lab.clients import NewClient, connecting_to, in_memory
from interop.lab.core.scene import CLOCK_FAULTS, DOCUMENT_FAULTS, RELEASE_FAULTS, SIMULATED, Domain, Fault, LabScene
from interop.lab.engines import Engines
from interop.lab.line_proxy import Line
from interop.lab.lying_names import lie
from interop.lab.members import Members, clock_of
from interop.lab.node_operator import operate
from interop.lab.policy_change import change_policy
from interop.lab.publishing import Publishing
from interop.lab.scene_nodes import SceneNode
from interop.lab.shifted_clock import set_clock
from interop.name_server import NameServer
from interop.node_status import NodeStatus
from protofly.errors import SettingsError, TransportError

_BUS_NETWORK: Final = "127.43"
_KNOWN_SECONDS: Final = 10.0
_DRIFT_STEP_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    """Folder of a scene, and the command that runs a node: module and arguments."""

    folder: Path
    serve: tuple[str, ...] = ("trapezoid", "serve")


class World:
    """Domains with their nodes, running. Made by `running_world`."""

    def __init__(self, members: Members, engines: Engines, hostile: list[HostileDomain]) -> None:
        self.scene = members.scene
        self.members = members
        self.hostile = hostile
        self._engines = engines
        self._publishing = Publishing(members)
        self._clients: dict[str, NewClient] = {
            domain: connecting_to([partial(getattr, node, "access_point") for node in nodes])
            for domain, nodes in members.nodes.items()
        }
        self._clients |= {domain: in_memory(node) for domain, node in members.foreign.items()}

    @property
    def nodes(self) -> dict[str, list[SceneNode]]:
        """The nodes of each domain that are processes."""
        return self.members.nodes

    @property
    def folders(self) -> dict[str, DomainFolder]:
        """The folders of our nodes, by domain, and by domain and name where there are several."""
        return {
            f"{domain} {node.name}" if len(nodes) > 1 else domain: node.folder
            for domain, nodes in self.nodes.items()
            for node in nodes
            if domain in self.scene.our_domains
        }

    def clients_of(self, domain: str) -> NewClient:
        """Factory of clients for the runtimes of a domain."""
        return self._clients[domain]

    async def introduce(self, addresses: Sequence[str]) -> None:
        """Wait until simulated nodes have heard which addresses there are: before, they drop what is for them."""
        ours = [one for one in addresses if one.split("/")[2] in self.scene.our_domains]
        with trio.move_on_after(_KNOWN_SECONDS):
            for domain in self.scene.of_kinds(*SIMULATED):
                for address in ours:
                    await self.members.foreign[domain].wait_received(type="subscribe", resource=address)

    async def hops(self, domain: str) -> dict[str, list[tuple[str, float]]]:
        """For each message that the nodes traced lately, its places and their times; nothing while one is down."""
        found: dict[str, list[tuple[str, float]]] = {}
        nodes = self.nodes[domain]
        for node in nodes:
            mark = f"{node.name}: " if len(nodes) > 1 else ""
            for trace, places in (await _traces(node)).items():
                found.setdefault(trace, []).extend((mark + place, at) for place, at in places)
        return found

    async def start_all(self) -> None:
        """Start all nodes side by side."""
        async with trio.open_nursery() as nursery:
            for nodes in self.nodes.values():
                for node in nodes:
                    nursery.start_soon(node.begin)

    async def stop_all(self) -> None:
        """Stop all nodes, and wait for their ends."""
        async with trio.open_nursery() as nursery:
            for nodes in self.nodes.values():
                for node in nodes:
                    nursery.start_soon(node.stop)

    async def running(self, domain: str) -> dict[str, str]:
        """Digests of the modules that the living nodes of a domain run, by foreign domain; "" for none."""
        found = {}
        for node in self.nodes[domain]:
            status = await _status(node)
            for link in status.links if status is not None else ():
                found[link.domain] = link.stub.sha256 if link.stub is not None and link.worker_pid else ""
        return found

    async def suffer(self, fault: Fault, notes: Notes) -> None:
        """Let a fault happen, for as long as it lasts; returns when what it hit is whole again.

        Raises:
            HostError: A node did not come back, or a command failed.
            OSError: The process could not be touched.
        """
        if fault.does in DOCUMENT_FAULTS:
            async with self._publishing.flawed_documents(fault, notes):
                await trio.sleep(fault.lasts)
        elif fault.does in RELEASE_FAULTS:
            await self._publishing.release(fault, notes)
            await trio.sleep(fault.lasts)
        elif fault.does == "dns-lies":
            await lie(self.members, fault, notes)
        elif fault.does in CLOCK_FAULTS:
            await _set_clocks(self.members, fault)
        elif fault.does == "policy":
            file = self.members.folders.folders[fault.domain or ""].policy
            await change_policy(fault, self.scene, file, partial(self._have_reloaded, fault.domain or ""), notes)
        elif fault.does == "engine-down":
            await self._engines.stop(fault.domain or "")
            await trio.sleep(fault.lasts)
            await self._engines.start(fault.domain or "")
        elif fault.does != "partition" and fault.domain is not None:
            await self._hit_nodes(fault, fault.domain)
        else:
            await _hit_lines(self.members.lines_of(fault), fault)

    async def _have_reloaded(self, domain: str) -> None:
        """Have all nodes of a domain take over what is in their files, as their operator can. Raises TransportError."""
        for node in self.nodes[domain]:
            await operate(node.folder.data, "reload", {})

    async def _hit_nodes(self, fault: Fault, domain: str) -> None:
        if domain in self.members.foreign:
            node = self.members.foreign[domain]
            await node.kill()
            await trio.sleep(fault.lasts)
            await node.start()
            return
        async with trio.open_nursery() as nursery:
            for number, one in enumerate(self.nodes[domain], 1):
                if fault.node in {0, number}:
                    nursery.start_soon(_hit_process, one, fault)


async def _traces(node: SceneNode) -> dict[str, list[tuple[str, float]]]:
    status = await _status(node)
    if status is None:
        return {}
    return {trace.id: [(hop.name, hop.at_us / 1e6) for hop in trace.hops] for trace in status.traces}


async def _status(node: SceneNode) -> NodeStatus | None:
    """What a node says about itself; None while it is down, or stopped: that is the scene."""
    with suppress(TransportError):
        return await node.status() if node.pid else None
    return None


async def _set_clocks(members: Members, fault: Fault) -> None:
    """Set the clocks of a domain, at once or bit by bit, and right again at the end."""
    places = members.folders.places[fault.domain or ""]
    clocks = [clock_of(place) for number, place in enumerate(places, 1) if fault.node in {0, number}]
    try:
        async for ahead_seconds in clock_course(fault):
            for clock in clocks:
                set_clock(clock, ahead_seconds)
    finally:
        for clock in clocks:
            set_clock(clock, 0.0)


async def clock_course(fault: Fault) -> AsyncIterator[float]:
    """Yield how many seconds a clock is to be ahead, until the fault ends."""
    if fault.does == "clock-step":
        yield fault.clock_seconds
        await trio.sleep(fault.lasts)
        return
    steps = max(1, round(fault.lasts / _DRIFT_STEP_SECONDS))
    for step in range(1, steps + 1):
        await trio.sleep(fault.lasts / steps)
        yield fault.clock_seconds * step / steps


async def _hit_process(node: SceneNode, fault: Fault) -> None:
    match fault.does:
        case "kill" | "restart":
            if fault.does == "kill":
                node.signal(signal.SIGKILL)
            await node.stop()
            await trio.sleep(fault.lasts)
            await node.begin()
        case "pause":
            node.signal(signal.SIGSTOP)
            try:
                await trio.sleep(fault.lasts)
            finally:
                node.signal(signal.SIGCONT)
        case "full-disk":
            await _fill_disk(node.pid, fault.lasts)


async def _hit_lines(lines: Sequence[Line], fault: Fault) -> None:
    if fault.does == "reorder":
        async with trio.open_nursery() as nursery:
            for line in lines:
                nursery.start_soon(line.reorder, fault.milliseconds / 1e3)
        return
    for line in lines:
        _hurt(line, fault)
    if fault.does != "drop":
        await trio.sleep(fault.lasts)
        for line in lines:
            line.heal()


def _hurt(line: Line, fault: Fault) -> None:
    match fault.does:
        case "drop":
            line.drop()
        case "cut" | "partition":
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
    domains = [one.name for one in scene.domain if one.kind not in SIMULATED]
    nodes = {one.name: one.nodes for one in scene.domain if one.nodes > 1}
    terms = DomainTerms(
        nodes=nodes, bus_host=lambda domain, number: f"{_BUS_NETWORK}.{domains.index(domain) + 1}.{number}"
    )
    folders = DomainFolders(plan.folder, domains, terms, on_prepared=on_prepared)
    await folders.make()
    members = Members(scene, folders, plan.serve)
    with Engines(folders).closing() as engines:
        async with trio.open_nursery() as nursery:
            world = World(members, engines, await _prepare(members, nursery))
            async with _running(world, engines):
                yield world
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def _running(world: World, engines: Engines) -> AsyncIterator[None]:
    """Everything that is a process, for a time."""
    try:
        with world.members.folders.preparing(f"{sum(map(len, world.nodes.values()))} nodes are ready"):
            await engines.start_all()
            await world.start_all()
        yield
    finally:
        with trio.CancelScope(shield=True):
            await world.stop_all()
            await engines.stop_all()


async def _prepare(members: Members, nursery: trio.Nursery) -> list[HostileDomain]:
    """Start names, lines and nodes in memory, and write settings and policies; returns the hostile domains."""
    ports: dict[str, int] = {}
    folders, hostile = members.folders, []
    for domain in folders.domains:
        members.names[domain] = names = NameServer(folders.zones(members.view_of(domain)))
        ports[domain] = await nursery.start(names.run)
    members.build(ports)
    for line in members.all_lines:
        await nursery.start(line.run)
    for one in members.scene.domain:
        if one.kind not in SIMULATED:
            _use_policy(one, folders)
        if one.kind == "hostile":
            hostile.append(await _hostile(one, members, nursery))
    for node in members.foreign.values():
        await nursery.start(node.run)
    return hostile


def _use_policy(domain: Domain, folders: DomainFolders) -> None:
    if domain.policy:
        try:
            text = Path(domain.policy).read_text(encoding="utf-8")
        except OSError as exc:
            raise SettingsError(f"domain {domain.name}: {exc.filename}: {exc.strerror}") from exc
        folders.folders[domain.name].policy.write_text(text, encoding="utf-8")


async def _hostile(domain: Domain, members: Members, nursery: trio.Nursery) -> HostileDomain:
    """A partner whose documents are genuine, and name its own endpoint instead of its node's."""
    targets = {target: members.folders.ports[target].listen for target in members.scene.our_domains}
    keys = members.folders.folders[domain.name].keys
    authority = members.folders.authority
    hostile = HostileDomain(domain.name, keys, authority, targets, per_second=domain.per_second)
    hostile.active.update(domain.does)
    await nursery.start(hostile.listen, members.link_ports[domain.name])
    return hostile
