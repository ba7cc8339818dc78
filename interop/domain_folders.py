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
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from interop.authority import DevelopmentAuthority
from interop.domain_files import (
    HOST,
    DomainFolder,
    Encryption,
    PeerEntry,
    Ports,
    node_settings,
    policy_between,
    zone,
)
from interop.free_ports import free_ports, reserve
from protofly.errors import SettingsError

PORTS_FILE: Final = "ports.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """One thing the laboratory did before or while starting nodes."""

    title: str
    taken_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainTerms:
    """What holds for all domains of a laboratory.

    `pinned` names the domains whose keys the others know beforehand. Without TLS, runtimes and links go in plaintext,
    sites never do. `policies` is a folder with `<domain>.policy.toml`; without one, every domain lets the others talk.
    """

    tls: bool = True
    pinned: frozenset[str] = frozenset()
    policies: Path | None = None


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
        self.ports: dict[str, Ports] = {}
        self.was_used_before = False
        self._terms = terms or DomainTerms()
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
        await self.renew(self._choose_ports(), self.domains)

    async def renew(self, ports: Mapping[str, Ports], domains: Sequence[str]) -> None:
        """Publish these domains with ports that were chosen before. Raises SettingsError if a command failed."""
        self.ports = dict(ports)
        async with trio.open_nursery() as nursery:
            for domain in domains:
                nursery.start_soon(self._publish, domain)

    def zones(self, host_of: Callable[[str], str] = lambda _: HOST) -> dict[str, list[str]]:
        """DNS records of all domains; `host_of` gives the address at which a domain is reached."""
        records: dict[str, list[str]] = {}
        for domain in self.domains:
            records |= zone(domain, self.ports[domain], self._fingerprints[domain], host=host_of(domain))
        return records

    def write_settings(
        self, name_servers: Mapping[str, int], further_peers: Mapping[str, Sequence[PeerEntry]] | None = None
    ) -> None:
        """Write policy and settings of each domain: all others are its peers, and those in `further_peers`.

        `name_servers` gives the port of the name server that each domain asks.
        """
        for domain, folder in self.folders.items():
            others = [other for other in self.domains if other != domain]
            peers = [
                PeerEntry(domain=other, fingerprint=self._fingerprints[other] if other in self._terms.pinned else "")
                for other in others
            ]
            peers += (further_peers or {}).get(domain, ())
            folder.data.mkdir(exist_ok=True, mode=0o700)
            self._write_policy(domain, [peer.domain for peer in peers])
            certificate, key = self._certificates[domain]
            folder.settings.write_text(
                node_settings(
                    domain,
                    folder=folder,
                    ports=self.ports[domain],
                    name_server_port=name_servers[domain],
                    encryption=Encryption(
                        certificate=certificate,
                        key=key,
                        ca_file=self.authority.ca_file,
                        listens_in_plaintext=not self._terms.tls,
                    ),
                    peers=peers,
                )
            )

    def _write_policy(self, domain: str, partners: Sequence[str]) -> None:
        target = self.folders[domain].policy
        if self._terms.policies is not None:
            shutil.copyfile(self._terms.policies / f"{domain}.policy.toml", target)
        elif not target.exists():
            target.write_text(policy_between(domain, partners))

    def _choose_ports(self) -> dict[str, Ports]:
        """Ports of the last time when nobody else has them now: documents that others cached name them."""
        file = self.path / PORTS_FILE
        known: dict[str, dict[str, int]] = json.loads(file.read_text()) if file.exists() else {}
        self.was_used_before = bool(known)
        wanted = [port for domain in self.domains for port in known.get(domain, {}).values()]
        if not wanted or not reserve(wanted):
            free = iter(free_ports(2 * len(self.domains)))
            known = {domain: {"listen": next(free), "site": next(free)} for domain in self.domains}
            file.write_text(json.dumps(known))
        return {domain: Ports(**known[domain]) for domain in self.domains}

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
