"""A laboratory: two domains as separate processes, each with its own keys, catalogue, data, policy and certificate.

Nothing here reaches into a node: domains are made with the command line (`trapezoid keys init`, `trapezoid publish`),
nodes run as `trapezoid serve`, facts are read from their sites. The laboratory adds what the world would: a
certificate authority, a name server, free ports. Its folder persists, so that a second laboratory in it finds keys,
ports, trust marks and stubs caches.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from federation.shipped_files import shipped_file
from interop.authority import DevelopmentAuthority
from interop.domain_files import HOST, DomainFolder, Encryption, PeerEntry, Ports, node_settings, zone
from interop.free_ports import free_ports, reserve
from interop.name_server import NameServer
from interop.node_status import NodeStatus, fetch_status
from interop.participant import AccessPoint
from interop.processes import STOPPED_SECONDS, Child
from protofly.errors import SettingsError

POLICIES = shipped_file("two_domains")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaboratoryPlan:
    """What kind of laboratory.

    `pinned` names the domains whose keys the other one knows beforehand; `serve` is the module, with arguments, that
    runs a node.
    """

    state_dir: Path
    domains: tuple[str, str] = ("a.example", "b.example")
    tls: bool = True
    serve: tuple[str, ...] = ("trapezoid", "serve")
    pinned: frozenset[str] = frozenset()
    environment: dict[str, str] = field(default_factory=dict)
    policies: Path | None = POLICIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """One thing the laboratory did before or while starting nodes."""

    title: str
    taken_ms: float


class LaboratoryNode:
    """One domain's node: a process of its own."""

    def __init__(self, domain: str, ports: Ports, folder: DomainFolder, authority: DevelopmentAuthority) -> None:
        self.domain = domain
        self.ports = ports
        self.folder = folder
        self.listen_url = ""
        self._context = authority.client_context()
        self._child: Child | None = None

    @property
    def pid(self) -> int:
        """Process id of the running node, 0 if it does not run."""
        return self._child.pid if self._child else 0

    @property
    def access_point(self) -> AccessPoint:
        """Where its runtimes connect."""
        return AccessPoint(
            url=self.listen_url, ssl_context=self._context if self.listen_url.startswith("wss") else None
        )

    @property
    def status_url(self) -> str:
        """Where it reports its status."""
        return f"https://{HOST}:{self.ports.site}/status"

    @property
    def site_url(self) -> str:
        """Where other domains find its documents."""
        return f"https://{self.domain}:{self.ports.site}"

    async def start(self, serve: Sequence[str], environment: dict[str, str]) -> None:
        """Start the process and wait until it is ready.

        Raises:
            TransportError: it did not become ready.
        """
        child = Child(
            [*serve, "--config", str(self.folder.settings)],
            log_file=self.folder.log,
            environment=environment,
        )
        self._child = child
        await child.start()
        ready = await child.wait_ready()
        self.listen_url = str(ready["listen"])

    async def stop(self) -> int | None:
        """Stop the process; returns its exit status."""
        child, self._child = self._child, None
        return await child.stop() if child else None

    async def status(self) -> NodeStatus:
        """What the node says about itself.

        Raises:
            TransportError: it does not answer.
        """
        return await fetch_status(self.status_url, self._context)


class Laboratory:
    """Two domains. Use: `await nursery.start(laboratory.run)`; cancelling stops the nodes."""

    def __init__(self, plan: LaboratoryPlan, *, on_prepared: Callable[[Preparation], None] = lambda _: None) -> None:
        self.plan = plan
        self.nodes: dict[str, LaboratoryNode] = {}
        self.was_used_before = False
        self.authority: DevelopmentAuthority | None = None
        self._records: dict[str, list[str]] = {}
        self._names = NameServer({})
        self._on_prepared = on_prepared

    @property
    def access_points(self) -> dict[str, AccessPoint]:
        """Where the runtimes of each domain connect."""
        return {domain: node.access_point for domain, node in self.nodes.items()}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Prepare what is missing, start both nodes, keep them until cancelled.

        Raises:
            SettingsError: the folder is in use, or a command failed; its output is in the text.
            TransportError: a node did not become ready.
        """
        self.plan.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(self.plan.state_dir):
            async with trio.open_nursery() as nursery:
                await self._prepare(nursery)
                await self._run_nodes(task_status)

    async def _run_nodes(self, task_status: trio.TaskStatus[None]) -> None:
        try:
            await self.start_nodes()
            task_status.started()
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(STOPPED_SECONDS, shield=True):
                await self.stop_nodes()

    def announce(self, records: dict[str, list[str]]) -> None:
        """Add names to what the name server answers, for example those of further domains that a test plays itself."""
        self._records |= records
        self._names.replace(self._records)

    async def start_nodes(self) -> None:
        """Start both nodes side by side."""
        with self._preparing("both nodes are ready"):
            async with trio.open_nursery() as nursery:
                for node in self.nodes.values():
                    nursery.start_soon(node.start, self.plan.serve, self.plan.environment)

    async def stop_nodes(self) -> dict[str, int | None]:
        """Stop both nodes; returns their exit status."""
        statuses: dict[str, int | None] = {}

        async def stop(node: LaboratoryNode) -> None:
            statuses[node.domain] = await node.stop()

        async with trio.open_nursery() as nursery:
            for node in self.nodes.values():
                nursery.start_soon(stop, node)
        return statuses

    async def statuses(self) -> dict[str, NodeStatus]:
        """What both nodes say about themselves."""
        return {domain: await node.status() for domain, node in self.nodes.items()}

    async def _prepare(self, nursery: trio.Nursery) -> None:
        plan = self.plan
        with self._preparing("development authority and certificates"):
            self.authority = authority = DevelopmentAuthority(plan.state_dir / "authority")
            identities = {domain: authority.certificate_for(domain) for domain in plan.domains}
        ports = self._choose_ports()
        for domain in plan.domains:
            folder = DomainFolder(path=plan.state_dir / domain)
            self.nodes[domain] = LaboratoryNode(domain, ports[domain], folder, authority)
        fingerprints: dict[str, str] = {}
        async with trio.open_nursery() as publishing:
            for node in self.nodes.values():
                publishing.start_soon(self._publish, node, fingerprints)
        with self._preparing("name server for both domains"):
            for domain in plan.domains:
                self.announce(zone(domain, ports[domain], fingerprints[domain]))
            name_server_port = await nursery.start(self._names.run)
        for domain, node in self.nodes.items():
            [peer] = (other for other in plan.domains if other != domain)
            certificate, key = identities[domain]
            node.folder.data.mkdir(exist_ok=True, mode=0o700)
            self._write_policy(node)
            node.folder.settings.write_text(
                node_settings(
                    domain,
                    folder=node.folder,
                    ports=node.ports,
                    name_server_port=name_server_port,
                    encryption=Encryption(
                        certificate=certificate, key=key, ca_file=authority.ca_file, listens_in_plaintext=not plan.tls
                    ),
                    peer=PeerEntry(domain=peer, fingerprint=fingerprints[peer] if peer in plan.pinned else ""),
                )
            )

    def _write_policy(self, node: LaboratoryNode) -> None:
        source = (self.plan.policies or POLICIES) / f"{node.domain}.policy.toml"
        shutil.copyfile(source, node.folder.policy)

    def _choose_ports(self) -> dict[str, Ports]:
        """Ports of the last time when nobody else has them now: documents that others cached name them."""
        plan_file = self.plan.state_dir / "ports.json"
        known: dict[str, dict[str, int]] = json.loads(plan_file.read_text()) if plan_file.exists() else {}
        self.was_used_before = bool(known)
        wanted = [port for domain in self.plan.domains for port in known.get(domain, {}).values()]
        if not known or not reserve(wanted):
            free = iter(free_ports(2 * len(self.plan.domains)))
            known = {domain: {"listen": next(free), "site": next(free)} for domain in self.plan.domains}
            plan_file.write_text(json.dumps(known))
        return {domain: Ports(**known[domain]) for domain in self.plan.domains}

    async def _publish(self, node: LaboratoryNode, fingerprints: dict[str, str]) -> None:
        """Make keys when they are missing, and publish; a second time this only renews what is about to expire."""
        folder, domain = node.folder, node.domain
        folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not folder.keys.exists():
            with self._preparing(f"{domain}: keys for root, live documents, packages and node"):
                await command("keys", "init", domain, "--keys", str(folder.keys))
        with self._preparing(f"{domain}: root, manifest and stub are published"):
            places = ["--keys", str(folder.keys), "--site", str(folder.site), "--url", node.site_url]
            report = json.loads(await command("publish", domain, *places, "--json"))
        fingerprints[domain] = str(report["fingerprint"])

    @contextmanager
    def _preparing(self, title: str) -> Iterator[None]:
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
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the kernel gives it back when we die."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SettingsError(
                f"{folder} is in use by another laboratory; use --state DIR for a second one"
            ) from error
        yield
