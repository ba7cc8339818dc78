"""A laboratory that is kept: made once in a folder, then running or not, each process by itself.

    DIR/lab.json                 the domains, and the port of their name server
    DIR/authority/               a certificate authority that nobody else trusts
    DIR/names.json               what the name server answers
    DIR/a.example/               keys, site, data, policy.toml, node.toml
    DIR/processes/               pid file, output and log of each process

Everything listens on loopback.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from secrets import token_hex
from typing import Final

import msgspec
import trio

from interop.authority import DevelopmentAuthority
from interop.domain_files import HOST, Ports
from interop.domain_folders import PORTS_FILE, DomainFolders, Preparation, locked
from interop.free_ports import free_ports, is_free
from interop.lab.detached import DetachedProcess
from interop.node_status import NodeStatus, fetch_status
from interop.participant import AccessPoint
from interop.talker import Talker
from protofly.errors import SettingsError, TransportError

DOMAINS: Final = ("a.example", "b.example", "c.example", "d.example", "e.example")
FEWEST: Final = 2
STOP_SECONDS: Final = 8.0
_LAB_FILE: Final = "lab.json"
_NAMES_FILE: Final = "names.json"
_NAME_SERVER: Final = "name-server"
OnPrepared = Callable[[Preparation], None]


class LabFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `lab.json` holds."""

    domains: tuple[str, ...]
    name_server_port: int


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
    """One domain of a laboratory. `links` gives the state of the link to each other domain that it knows."""

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
            ports = msgspec.json.decode((self.path / PORTS_FILE).read_bytes(), type=dict[str, dict[str, int]])
            self._ports = {domain: Ports(**ports[domain]) for domain in self._facts.domains}
        except OSError as exc:
            raise SettingsError(f"{file}: {exc.strerror}; make one with `trapezoid lab init {path}`") from exc
        except (msgspec.DecodeError, KeyError, TypeError) as exc:
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

    def _node(self, domain: str) -> DetachedProcess:
        settings = self.path / domain / "node.toml"
        return DetachedProcess(self.path / "processes", domain, ["trapezoid", "serve", "--config", str(settings)])

    async def up(self, on_prepared: OnPrepared = lambda _: None) -> None:
        """Start what does not run: first the name server, then all nodes side by side.

        Raises:
            SettingsError: Another command works on this laboratory, or its ports are taken.
            TransportError: A process did not become ready; what had been started stays.
        """
        with locked(self.path, "wait until it is done"):
            stopped = [domain for domain in self.domains if not self._node(domain).pid]
            self._check_ports(stopped)
            folders = DomainFolders(self.path, self.domains, on_prepared=on_prepared)
            await folders.renew(self._ports, stopped)
            if not self._names.pid:
                with folders.preparing("name server"):
                    await self._names.start()

            async def start(domain: str) -> None:
                with folders.preparing(f"{domain} is ready"):
                    await self._node(domain).start()

            async with trio.open_nursery() as nursery:
                for domain in stopped:
                    nursery.start_soon(start, domain)

    def down(self) -> dict[str, str]:
        """End all processes, nodes first; returns how each ended. Processes of others are never signalled."""
        with locked(self.path, "wait until it is done"):
            processes = [*map(self._node, self.domains), self._names]
            return {process.name: process.end(seconds=STOP_SECONDS) for process in processes}

    def _check_ports(self, stopped: Sequence[str]) -> None:
        wanted = [port for domain in stopped for port in (self._ports[domain].listen, self._ports[domain].site)]
        wanted += [] if self._names.pid else [self._facts.name_server_port]
        taken = [str(port) for port in wanted if not is_free(port)]
        if taken:
            raise SettingsError(
                f"{self.path}: another process uses port {', '.join(taken)} of {HOST}; end it, or make another "
                "laboratory with `trapezoid lab init`"
            )

    async def states(self) -> list[DomainState]:
        """Each domain, as it says itself."""
        return [await self._state(domain) for domain in self.domains]

    async def _state(self, domain: str) -> DomainState:
        process, ports = self._node(domain), self._ports[domain]
        state, links = "stopped", {}
        if process.pid:
            try:
                status = await self._status(domain)
            except TransportError as exc:
                state = f"does not answer: {exc.detail}"
            else:
                state, links = "running", {link.domain: link.state for link in status.links}
        return DomainState(
            domain=domain,
            state=state,
            pid=process.pid,
            runtimes=f"wss://{HOST}:{ports.listen}/ws",
            site=f"https://{HOST}:{ports.site}",
            settings=str(self.path / domain / "node.toml"),
            links=links,
        )

    async def _status(self, domain: str) -> NodeStatus:
        return await fetch_status(f"https://{HOST}:{self._ports[domain].site}/status", self._authority.client_context())

    async def exchange(self) -> list[Exchange]:
        """Send one request from each domain to each other one, by a runtime of its own in each.

        Raises:
            TransportError: A node takes no runtime.
            UnexpectedAnswerError: A node refuses the session.
        """
        context = self._authority.client_context()
        done: list[Exchange] = []
        async with trio.open_nursery() as nursery:
            talkers = {}
            for domain in self.domains:
                url = f"wss://{HOST}:{self._ports[domain].listen}/ws"
                talker = Talker(AccessPoint(url=url, ssl_context=context), f"runtime://{domain}/lab-{token_hex(4)}")
                await talker.open(nursery)
                talkers[domain] = talker
            for source, target in permutations(self.domains, 2):
                done.append(await _ask(talkers[source], talkers[target]))
            for talker in talkers.values():
                await talker.client.close()
            nursery.cancel_scope.cancel()
        return done


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


async def make_lab(path: Path, count: int, on_prepared: OnPrepared = lambda _: None) -> KeptLab:
    """Make a laboratory of `count` domains in a folder that is empty or missing.

    Raises:
        SettingsError: The folder holds something, or a command failed; what was made is removed then.
    """
    if not FEWEST <= count <= len(DOMAINS):
        raise SettingsError(f"--domains {count}: a laboratory has {FEWEST} to {len(DOMAINS)} domains")
    check_empty(path)
    try:
        domains = DOMAINS[:count]
        folders = DomainFolders(path, domains, on_prepared=on_prepared)
        path = folders.path
        await folders.make()
        [port] = free_ports(1)
        (path / _NAMES_FILE).write_bytes(msgspec.json.encode(folders.zones()))
        folders.write_settings(dict.fromkeys(domains, port))
        (path / _LAB_FILE).write_bytes(msgspec.json.encode(LabFacts(domains, port)))
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return KeptLab(path)
