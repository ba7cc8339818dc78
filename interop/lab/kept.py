"""A laboratory that is kept: made once in a folder, then running or not, each process by itself.

    DIR/lab.json                 the domains, and the port of their name server
    DIR/authority/               a certificate authority that nobody else trusts
    DIR/names.json               what the name server answers
    DIR/a.example/               keys, site, data, policy.toml, node.toml
    DIR/a.example/mn-2/          data and node.toml of a second node
    DIR/a.example/engine/        PostgreSQL, which the nodes of a domain share
    DIR/processes/               pid file, output and log of each process

Everything listens on loopback.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from secrets import token_hex
from typing import Final

import msgspec
import trio

from interop.authority import DevelopmentAuthority
from interop.domain_files import HOST, NodePlace
from interop.domain_folders import ENGINE_PASSWORD, DomainFolders, DomainTerms, Preparation, locked
from interop.engine_server import INSTALL, engine_owner, engine_programs
from interop.free_ports import free_ports, is_free
from interop.hostile.domain import HostileDomain
from interop.lab.detached import DetachedProcess
from interop.node_status import fetch_status
from interop.participant import AccessPoint
from interop.talker import Talker
from protofly.errors import SettingsError, TransportError

DOMAINS: Final = ("a.example", "b.example", "c.example", "d.example", "e.example")
FEWEST: Final = 2
MOST_NODES: Final = 4
FIRST_NODE: Final = "mn-1"
STOP_SECONDS: Final = 8.0
_LAB_FILE: Final = "lab.json"
_NAMES_FILE: Final = "names.json"
_NAME_SERVER: Final = "name-server"
OnPrepared = Callable[[Preparation], None]


class LabFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of `lab.json`."""

    domains: tuple[str, ...]
    name_server_port: int
    nodes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request between two domains. `code` 0: no answer, and `problem` says why. `taken_ms` is there and back."""

    source: str
    target: str
    code: int
    taken_ms: float
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainState:
    """One node of a laboratory: `domain` is its domain, with its name behind it if that has several.

    `links` gives the state of the link to each other domain that it knows.
    """

    domain: str
    state: str
    pid: int
    runtimes: str
    site: str
    settings: str
    links: dict[str, str]


class KeptLab:
    """The laboratory in one folder."""

    def __init__(self, path: Path) -> None:
        """Raises SettingsError if there is none in the folder."""
        self.path = path.absolute()
        file = self.path / _LAB_FILE
        try:
            self._facts = msgspec.json.decode(file.read_bytes(), type=LabFacts)
            self._folders = _folders(self.path, self._facts)
            self._folders.recall()
        except OSError as exc:
            raise SettingsError(f"{file}: {exc.strerror}; make one with `trapezoid lab init {path}`") from exc
        except (ValueError, KeyError, TypeError) as exc:
            raise SettingsError(f"{file}: {exc}; delete the folder and make another one") from exc

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains."""
        return self._facts.domains

    @property
    def ca_file(self) -> Path:
        """The certificate authority of the laboratory."""
        return self._authority.ca_file

    @property
    def _authority(self) -> DevelopmentAuthority:
        return DevelopmentAuthority(self.path / "authority")

    @property
    def _names(self) -> DetachedProcess:
        arguments = ["interop.lab.name_service", str(self.path / _NAMES_FILE), str(self._facts.name_server_port)]
        return DetachedProcess(self.path / "processes", _NAME_SERVER, arguments)

    @property
    def _nodes(self) -> dict[str, DetachedProcess]:
        """All nodes: by domain, those after the first by domain and name."""
        return {
            name: DetachedProcess(
                self.path / "processes", name, ["trapezoid", "serve", "--config", str(place.folder.settings)]
            )
            for name, place in self._places.items()
        }

    @property
    def _places(self) -> dict[str, NodePlace]:
        places = self._folders.places
        return {_name_of(domain, place): place for domain in self.domains for place in places[domain]}

    @property
    def _engines(self) -> dict[str, DetachedProcess]:
        """The engine of each domain with several nodes."""
        return {domain: self._engine(domain) for domain in self._folders.clustered}

    def _engine(self, domain: str) -> DetachedProcess:
        folder = self.path / domain
        arguments = [str(folder / "engine"), str(self._folders.engine_port(domain)), str(folder / ENGINE_PASSWORD)]
        service = ["interop.lab.engine_service", *arguments]
        return DetachedProcess(self.path / "processes", f"{domain} engine", service)

    async def up(self, on_prepared: OnPrepared = lambda _: None) -> list[str]:
        """Start what does not run: first the name server, then all nodes side by side.

        Returns:
            The domains of the nodes that were started.

        Raises:
            SettingsError: Another command works on this laboratory, or its ports are taken.
            TransportError: A process did not become ready; what had been started stays.
        """
        with locked(self.path, "wait until it is done"):
            nodes = self._nodes
            stopped = [name for name, node in nodes.items() if not node.pid]
            engines = [engine for engine in self._engines.values() if not engine.pid]
            self._check_ports(stopped)
            folders = _folders(self.path, self._facts, on_prepared)
            started = sorted({name.partition(" ")[0] for name in stopped})
            await folders.renew(started)
            if not self._names.pid:
                with folders.preparing("name server"):
                    await self._names.start()

            async def start(process: DetachedProcess) -> None:
                with folders.preparing(f"{process.name} is ready"):
                    await process.start()

            await _side_by_side(start, engines)
            await _side_by_side(start, [nodes[name] for name in stopped])
            return started

    def down(self) -> dict[str, str]:
        """End all processes, nodes first; returns how each ended. Processes of others are never signalled."""
        with locked(self.path, "wait until it is done"):
            processes = [*self._nodes.values(), *self._engines.values(), self._names]
            return {process.name: process.end(seconds=STOP_SECONDS) for process in processes}

    def node(self, name: str) -> DetachedProcess:
        """The process of one node, by its name in `states`. Raises SettingsError if it is unknown."""
        if name not in self._places:
            raise SettingsError(f"{self.path} has no node {name}; there are {', '.join(self._places)}")
        return self._nodes[name]

    def settings_of(self, name: str) -> str:
        """The settings of one node. Raises SettingsError if it is unknown."""
        return str(self._places[self.node(name).name].folder.settings)

    def _check_ports(self, stopped: Sequence[str]) -> None:
        places = [self._places[name] for name in stopped]
        wanted = [port for place in places for port in (place.ports.listen, place.ports.site)]
        wanted += [] if self._names.pid else [self._facts.name_server_port]
        taken = [str(port) for port in wanted if not is_free(port)]
        if taken:
            raise SettingsError(
                f"{self.path}: another process uses port {', '.join(taken)} of {HOST}; end it, or make another "
                "laboratory with `trapezoid lab init`"
            )

    async def states(self) -> list[DomainState]:
        """Each node, as it says itself."""
        return [await self._state(name, place) for name, place in self._places.items()]

    async def _state(self, name: str, place: NodePlace) -> DomainState:
        process, ports = self._nodes[name], place.ports
        state, links = "stopped", {}
        if process.pid:
            try:
                status = await fetch_status(f"https://{HOST}:{ports.site}/status", self._authority.client_context())
            except TransportError as exc:
                state = f"does not answer: {exc.detail}"
            else:
                state, links = "running", {link.domain: link.state for link in status.links}
        return DomainState(
            domain=name,
            state=state,
            pid=process.pid,
            runtimes=f"wss://{HOST}:{ports.listen}/ws",
            site=f"https://{HOST}:{ports.site}",
            settings=str(place.folder.settings),
            links=links,
        )

    def access_point(self, domain: str, number: int = 0) -> AccessPoint:
        """Access point of runtime `number` of a domain, from 0: runtimes are spread over its nodes in turn."""
        places = self._folders.places[domain]
        url = f"wss://{HOST}:{places[number % len(places)].ports.listen}/ws"
        return AccessPoint(url=url, ssl_context=self._authority.client_context())

    async def talkers(self, nursery: trio.Nursery) -> dict[str, Talker]:
        """A runtime with a hyperty in each domain.

        Raises:
            TransportError: A node takes no runtime.
            UnexpectedAnswerError: A node refuses the session.
        """
        talkers = {}
        for domain in self.domains:
            talker = Talker(self.access_point(domain), f"runtime://{domain}/lab-{token_hex(4)}")
            await talker.open(nursery)
            talkers[domain] = talker
        return talkers

    def hostile(self, domain: str, *, per_second: float) -> HostileDomain:
        """One of the domains as a hostile one, beside its honest node. Raises SettingsError if it is unknown."""
        if domain not in self.domains:
            raise SettingsError(f"{self.path} has no domain {domain}; there are {', '.join(self.domains)}")
        targets = {other: self._folders.ports[other].listen for other in self.domains if other != domain}
        keys = self._folders.folders[domain].keys
        return HostileDomain(domain, keys, self._authority, targets, per_second=per_second)

    async def exchange(self, first: Collection[str] = ()) -> list[Exchange]:
        """Send one request from each domain to each other one, by a runtime of its own in each.

        Args:
            first: Domains that ask before others do: those whose nodes have just been started. The stubs of others may
                try to reach them again only after a while, up to 75 s, and are reached by them at once.

        Raises:
            TransportError: A node takes no runtime.
            UnexpectedAnswerError: A node refuses the session.
        """
        done: list[Exchange] = []
        async with trio.open_nursery() as nursery:
            talkers = await self.talkers(nursery)
            for source, target in permutations(sorted(self.domains, key=lambda one: one not in first), 2):
                done.append(await _ask(talkers[source], talkers[target]))
            for talker in talkers.values():
                await talker.client.close()
            nursery.cancel_scope.cancel()
        return done


async def _side_by_side(start: Callable[[DetachedProcess], Awaitable[None]], processes: list[DetachedProcess]) -> None:
    async with trio.open_nursery() as nursery:
        for process in processes:
            nursery.start_soon(start, process)


async def _ask(source: Talker, target: Talker) -> Exchange:
    began = trio.current_time()
    code, problem = 0, ""
    try:
        answer = await source.ask(target.hyperty)
        code, problem = answer.code, answer.reason
    except TransportError as exc:
        problem = exc.code.word
    taken_ms = (trio.current_time() - began) * 1e3
    return Exchange(source=source.domain, target=target.domain, code=code, taken_ms=round(taken_ms, 1), problem=problem)


def check_empty(path: Path) -> None:
    """Raise SettingsError if a folder holds something, or cannot be read."""
    try:
        if path.exists() and any(path.iterdir()):
            raise SettingsError(f"{path} is not empty; name another folder, or delete it")
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc


def _folders(path: Path, facts: LabFacts, on_prepared: OnPrepared = lambda _: None) -> DomainFolders:
    nodes = dict.fromkeys(facts.domains, facts.nodes) if facts.nodes > 1 else {}
    return DomainFolders(path, facts.domains, DomainTerms(nodes=nodes), on_prepared=on_prepared)


def _name_of(domain: str, place: NodePlace) -> str:
    return domain if place.name == FIRST_NODE else f"{domain} {place.name}"


def _let_engine_in(path: Path, domains: Sequence[str]) -> None:
    """PostgreSQL does not run as root: let the user that it runs as pass through our folders, without reading them."""
    if engine_owner():
        for folder in (path, *(path / domain for domain in domains)):
            folder.chmod(0o711)


async def make_lab(path: Path, count: int, on_prepared: OnPrepared = lambda _: None, *, nodes: int = 1) -> KeptLab:
    """Make a laboratory of `count` domains, with so many `nodes` each, in a folder that is empty or missing.

    Raises:
        SettingsError: The folder holds something, or a command failed; what was made is removed then.
    """
    if not 1 <= nodes <= MOST_NODES:
        raise SettingsError(f"--nodes {nodes}: a domain of a laboratory has 1 to {MOST_NODES} nodes")
    if nodes > 1 and engine_programs() is None:
        raise SettingsError(f"--nodes {nodes}: several nodes of a domain need PostgreSQL: {INSTALL}")
    if not FEWEST <= count <= len(DOMAINS):
        raise SettingsError(f"--domains {count}: a laboratory has {FEWEST} to {len(DOMAINS)} domains")
    check_empty(path)
    try:
        domains = DOMAINS[:count]
        [port] = free_ports(1)
        facts = LabFacts(domains, port, nodes)
        folders = _folders(path, facts, on_prepared)
        path = folders.path
        await folders.make()
        (path / _NAMES_FILE).write_bytes(msgspec.json.encode(folders.zones()))
        folders.write_settings(dict.fromkeys(domains, port))
        (path / _LAB_FILE).write_bytes(msgspec.json.encode(facts))
        if nodes > 1:
            _let_engine_in(path, domains)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return KeptLab(path)
