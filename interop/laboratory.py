"""A laboratory: two domains as separate processes, each with its own keys, catalogue, data, policy and certificate.

Nothing here reaches into a node: domains are made with the command line (`trapezoid keys init`, `trapezoid publish`),
nodes run as `trapezoid serve`, facts are read from their sites. The laboratory adds what the world would: a
certificate authority, a name server, free ports. Its folder persists, so that a second laboratory in it finds keys,
ports, trust marks and stubs caches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import trio

from federation.stubs.shipped_files import shipped_file
from interop.authority import DevelopmentAuthority
from interop.domain_files import HOST, DomainFolder, Ports
from interop.domain_folders import DomainFolders, DomainTerms, Preparation, locked
from interop.name_server import NameServer
from interop.node_status import NodeStatus, fetch_status
from interop.participant import AccessPoint
from interop.processes import Child

POLICIES = shipped_file("two_domains")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaboratoryPlan:
    """Terms of a laboratory of two domains.

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
        """Access point for its runtimes; without TLS if it listens in plaintext."""
        return AccessPoint(
            url=self.listen_url, ssl_context=self._context if self.listen_url.startswith("wss") else None
        )

    @property
    def status_url(self) -> str:
        """URL of its status page."""
        return f"https://{HOST}:{self.ports.site}/status"

    @property
    def site_url(self) -> str:
        """URL of the site with its documents."""
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
        """Fetch the status of the node.

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
        """Access points for runtimes, by domain."""
        return {domain: node.access_point for domain, node in self.nodes.items()}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Prepare what is missing, start both nodes, keep them until cancelled.

        Raises:
            SettingsError: the folder is in use, or a command failed; its output is in the text.
            TransportError: a node did not become ready.
        """
        self.plan.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(self.plan.state_dir):
            async with trio.open_nursery() as nursery:
                await self._prepare(nursery)
                await self._run_nodes(task_status)

    async def _run_nodes(self, task_status: trio.TaskStatus[None]) -> None:
        try:
            await self.start_nodes()
            task_status.started()
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await self.stop_nodes()

    def announce(self, records: dict[str, list[str]]) -> None:
        """Add names to what the name server answers, for example those of further domains that a test plays itself."""
        self._records |= records
        self._names.replace(self._records)

    async def start_nodes(self) -> None:
        """Start both nodes side by side."""
        began = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for node in self.nodes.values():
                nursery.start_soon(node.start, self.plan.serve, self.plan.environment)
        self._on_prepared(Preparation(title="both nodes are ready", taken_ms=(time.perf_counter() - began) * 1e3))

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
        """The `/status` of both nodes."""
        return {domain: await node.status() for domain, node in self.nodes.items()}

    async def _prepare(self, nursery: trio.Nursery) -> None:
        plan = self.plan
        terms = DomainTerms(tls=plan.tls, pinned=plan.pinned, policies=plan.policies or POLICIES)
        folders = DomainFolders(plan.state_dir, plan.domains, terms, on_prepared=self._on_prepared)
        self.authority = folders.authority
        await folders.make()
        self.was_used_before = folders.was_used_before
        for domain, folder in folders.folders.items():
            self.nodes[domain] = LaboratoryNode(domain, folders.ports[domain], folder, folders.authority)
        with folders.preparing("name server for both domains"):
            self.announce(folders.zones())
            port = await nursery.start(self._names.run)
        folders.write_settings(dict.fromkeys(plan.domains, port))
