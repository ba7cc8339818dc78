"""The folders of the domains of a laboratory: keys, certificates, ports, documents, policy and settings of each.

What is made here persists: a second laboratory in the same folder finds keys, ports, trust marks and stubs caches.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_urlsafe
from typing import Final

import trio

from interop.authority import DevelopmentAuthority
from interop.domain_files import (
    HOST,
    DomainFolder,
    Encryption,
    NodePlace,
    PeerEntry,
    Ports,
    SharedState,
    node_settings,
    policy_between,
    zone,
)
from interop.free_ports import free_ports, reserve
from protofly.errors import SettingsError

PORTS_FILE: Final = "ports.json"
ENGINE_USER: Final = "trapezoid"
ENGINE_PASSWORD: Final = "engine-password"  # noqa: S105 - the name of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """One thing the laboratory did before or while starting nodes."""

    title: str
    taken_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainTerms:
    """Terms for all domains of a laboratory.

    `pinned` names the domains whose keys the others know beforehand. Without TLS, runtimes and links go in plaintext,
    sites never do. `policies` is a folder with `<domain>.policy.toml`; without one, every domain lets the others talk.
    `nodes` says how many nodes a domain has, if more than one: they share a PostgreSQL engine, which is not
    started here. `bus_host` gives the address at which a node reaches the bus of another one.
    """

    tls: bool = True
    pinned: frozenset[str] = frozenset()
    policies: Path | None = None
    nodes: Mapping[str, int] = field(default_factory=dict)
    bus_host: Callable[[str, int], str] = lambda _domain, _number: HOST


class DomainFolders:
    """The folders of some domains below `path`. Use: `await make()`, then `write_settings`."""

    def __init__(
        self,
        path: Path,
        domains: Sequence[str],
        terms: DomainTerms | None = None,
        *,
        on_prepared: Callable[[Preparation], None] = lambda _: None,
    ) -> None:
        path = path.absolute()
        self.path = path
        self.domains = tuple(domains)
        self.folders = {domain: DomainFolder(path=path / domain) for domain in domains}
        self.places: dict[str, list[NodePlace]] = {}
        self.was_used_before = False
        self._terms = terms or DomainTerms()
        self._chosen: dict[str, dict[str, int]] = {}
        self._fingerprints: dict[str, str] = {}
        self._certificates: dict[str, tuple[Path, Path]] = {}
        self._on_prepared = on_prepared
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.preparing("development authority and certificates"):
            self.authority = DevelopmentAuthority(path / "authority")
            self._certificates = {domain: self.authority.certificate_for(domain) for domain in domains}

    async def make(self) -> None:
        """Choose ports, make missing keys, and publish; a second time, publishing renews what is about to expire.

        Raises:
            SettingsError: A command failed, with its output; or there are no free ports.
        """
        self._chosen = self._choose_ports()
        await self._publish_all(self.domains)

    async def renew(self, domains: Sequence[str]) -> None:
        """Publish these domains with the ports that were chosen before. Raises SettingsError if a command failed."""
        self.recall()
        await self._publish_all(domains)

    def recall(self) -> None:
        """Take the ports that were chosen before. Raises OSError, ValueError or KeyError if they are not all there."""
        self._chosen = json.loads((self.path / PORTS_FILE).read_text())
        self.places = {domain: self._places(domain) for domain in self.domains}

    async def _publish_all(self, domains: Sequence[str]) -> None:
        self.places = {domain: self._places(domain) for domain in self.domains}
        async with trio.open_nursery() as nursery:
            for domain in domains:
                nursery.start_soon(self._publish, domain)

    @property
    def ports(self) -> dict[str, Ports]:
        """Ports of the first node of each domain."""
        return {domain: places[0].ports for domain, places in self.places.items()}

    @property
    def clustered(self) -> list[str]:
        """The domains with several nodes."""
        return [domain for domain in self.domains if self._count(domain) > 1]

    def engine_port(self, domain: str) -> int:
        """The port of the engine that the nodes of a domain share."""
        return self._chosen[_shared(domain)]["engine"]

    def bus_port(self, domain: str, number: int) -> int:
        """The port of the bus of one of several nodes, from 1."""
        return self._chosen[_shared(domain)][f"bus-{number}"]

    def _count(self, domain: str) -> int:
        return self._terms.nodes.get(domain, 1)

    def _places(self, domain: str) -> list[NodePlace]:
        """The nodes of a domain; folders of those after the first are below that of the domain."""
        folder, places = self.folders[domain], []
        for number in range(1, self._count(domain) + 1):
            name = f"mn-{number}"
            own = folder if number == 1 else DomainFolder(path=folder.path / name)
            ports = Ports(**self._chosen[domain if number == 1 else f"{domain}/{name}"])
            shared = self._shared_state(domain, number) if self._count(domain) > 1 else None
            places.append(NodePlace(folder=own, ports=ports, name=name, shared=shared))
        return places

    def _shared_state(self, domain: str, number: int) -> SharedState:
        folder, port = self.folders[domain].path, self.bus_port(domain, number)
        return SharedState(
            engine=f"postgresql://{ENGINE_USER}@{HOST}:{self.engine_port(domain)}/postgres",
            password_file=folder / ENGINE_PASSWORD,
            listen=f"{HOST}:{port}",
            advertise=f"{self._terms.bus_host(domain, number)}:{port}",
            key_file=folder / "cluster.key",
        )

    def zones(self, host_of: Callable[[str], str] = lambda _: HOST) -> dict[str, list[str]]:
        """DNS records of all domains; `host_of` gives the address at which a domain is reached."""
        records: dict[str, list[str]] = {}
        for domain in self.domains:
            records |= zone(domain, self.ports[domain], self._fingerprints[domain], host=host_of(domain))
        return records

    def write_settings(
        self, name_servers: Mapping[str, int], further_peers: Mapping[str, Sequence[PeerEntry]] | None = None
    ) -> None:
        """Write policy and settings of each domain. All others are its peers, as `further_peers` says if it has them.

        `name_servers` gives the port of the name server that each domain asks.
        """
        for domain, folder in self.folders.items():
            more = (further_peers or {}).get(domain, ())
            others = [one for one in self.domains if one not in {domain, *(entry.domain for entry in more)}]
            peers = [
                PeerEntry(domain=other, fingerprint=self._fingerprints[other] if other in self._terms.pinned else "")
                for other in others
            ]
            peers += more
            self._write_policy(domain, [peer.domain for peer in peers])
            if self._count(domain) > 1:
                for file in (folder.path / ENGINE_PASSWORD, folder.path / "cluster.key"):
                    _make_secret(file)
            certificate, key = self._certificates[domain]
            encryption = Encryption(
                certificate=certificate,
                key=key,
                ca_file=self.authority.ca_file,
                listens_in_plaintext=not self._terms.tls,
            )
            for place in self.places[domain]:
                place.folder.data.mkdir(parents=True, exist_ok=True, mode=0o700)
                text = node_settings(
                    domain,
                    place=place,
                    published=folder,
                    name_server_port=name_servers[domain],
                    encryption=encryption,
                    peers=peers,
                )
                place.folder.settings.write_text(text)

    def _write_policy(self, domain: str, partners: Sequence[str]) -> None:
        target = self.folders[domain].policy
        if self._terms.policies is not None:
            shutil.copyfile(self._terms.policies / f"{domain}.policy.toml", target)
        elif not target.exists():
            target.write_text(policy_between(domain, partners))

    def _choose_ports(self) -> dict[str, dict[str, int]]:
        """Ports of the last time when nobody else has them now: documents that others cached name them."""
        file = self.path / PORTS_FILE
        known: dict[str, dict[str, int]] = json.loads(file.read_text()) if file.exists() else {}
        self.was_used_before = bool(known)
        needed = self._needed_ports()
        wanted = [port for owner in needed for port in known.get(owner, {}).values()]
        if not needed.keys() <= known.keys() or not reserve(wanted):
            free = iter(free_ports(sum(map(len, needed.values()))))
            known = {owner: {name: next(free) for name in names} for owner, names in needed.items()}
            file.write_text(json.dumps(known))
        return known

    def _needed_ports(self) -> dict[str, list[str]]:
        """Names of the ports of each domain, of each further node, and of what the nodes of a domain share."""
        needed: dict[str, list[str]] = {}
        for domain in self.domains:
            needed[domain] = ["listen", "site"]
            further = range(2, self._count(domain) + 1)
            needed |= {f"{domain}/mn-{number}": ["listen", "site"] for number in further}
            if further:
                needed[_shared(domain)] = ["engine", "bus-1", *(f"bus-{number}" for number in further)]
        return needed

    async def _publish(self, domain: str) -> None:
        folder = self.folders[domain]
        folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not folder.keys.exists():
            with self.preparing(f"{domain}: keys for root, live documents, packages and node"):
                await command("keys", "init", domain, "--keys", str(folder.keys))
        with self.preparing(f"{domain}: root, manifest and stub are published"):
            url = f"https://{domain}:{self.ports[domain].site}"
            places = ["--keys", str(folder.keys), "--site", str(folder.site), "--url", url]
            report = json.loads(await command("publish", domain, *places, "--json"))
        self._fingerprints[domain] = str(report["fingerprint"])

    @contextmanager
    def preparing(self, title: str) -> Iterator[None]:
        """Report one preparation with the time that it took."""
        began = time.perf_counter()
        yield
        self._on_prepared(Preparation(title=title, taken_ms=(time.perf_counter() - began) * 1e3))


def _shared(domain: str) -> str:
    """Under which name the ports are kept that the nodes of a domain share."""
    return f"{domain}/shared"


def _make_secret(file: Path) -> None:
    """Write a random secret that only the owner can read, unless there is one."""
    if not file.exists():
        file.touch(0o600)
        file.write_text(token_urlsafe(24))  # 32 characters: the key of a bus has 32 bytes


async def command(*arguments: str) -> str:
    """Run one `trapezoid` command and return what it prints.

    Raises:
        SettingsError: it failed.
    """
    done = await trio.run_process(
        [sys.executable, "-m", "trapezoid", *arguments], capture_stdout=True, capture_stderr=True, check=False
    )
    if done.returncode:
        text = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise SettingsError(f"trapezoid {' '.join(arguments)}: exit status {done.returncode}: {text}")
    return done.stdout.decode()


@contextmanager
def locked(folder: Path, advice: str = "use --state DIR for a second one") -> Iterator[None]:
    """Hold the folder's lock; the kernel releases it when this process ends.

    Raises:
        SettingsError: Another process holds it; the text ends with `advice`.
    """
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SettingsError(f"{folder} is in use by another laboratory; {advice}") from error
        yield
