"""One real node, a.example, among foreign domains that live in the test: `*.foreign.example`, and a good neighbour."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import trio

from interop.authority import DevelopmentAuthority
from interop.domain_files import DomainFolder, Encryption, NodePlace, PeerEntry, Ports, node_settings, zone
from interop.free_ports import free_ports
from interop.laboratory import LaboratoryNode
from interop.name_server import NameServer
from interop.runtime_client import Answer
from interop.talker import PATIENCE_SECONDS, Talker
from stubkit.keys import load_keys, make_keys, save_keys
from tests.support.services import running
from trapezoid.publish_options import SigningSite, default_module
from trapezoid.publish_request import PublishRequest
from trapezoid.publishing import publish

from .foreign import ForeignDomain
from .systems import LIMIT_SECONDS, wait_until

DOMAIN = "a.example"
MORE_SETTINGS = """
[limits]
waiting_seconds = {waiting_seconds}

[sandbox]
batch_seconds = 30.0
cpu_share = {cpu_share}
"""
"""A busy machine may take its time: what ends a hostile stub is what it may compute."""
PEER = """
[[peer]]
domain = "{}.foreign.example"
default = "permit"
allow_addresses = ["127.0.0.0/8"]
"""


class LinkFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What `/status` says of one link, as far as these tests ask."""

    domain: str
    state: str
    detail: str = ""
    problem: str = ""
    worker_pid: int | None = None
    stub: dict[str, str] = {}
    usage: dict[str, int] = {}
    sent: int = 0
    accepted: int = 0
    waiting: int = 0
    spoofed: int = 0
    domains: list[str] = []
    forged_names: dict[str, int] = {}
    stub_faults: int = 0
    trapped: int = 0


class _Status(msgspec.Struct, frozen=True):
    pid: int
    links: list[LinkFacts]


class Frontier:
    """The node, its neighbours and one runtime, `anna`."""

    def __init__(self, node: LaboratoryNode, authority: DevelopmentAuthority, names: NameServer) -> None:
        self.node = node
        self.authority = authority
        self.anna: Talker
        self.good: ForeignDomain
        self.nursery: trio.Nursery
        self._names = names
        self._records: dict[str, list[str]] = {}

    async def add(self, name: str, *aliases: str, alias_of: ForeignDomain | None = None) -> ForeignDomain:
        """A new foreign domain, `name.foreign.example`, honest so far. Its root names `aliases`, and so do its tokens.

        With `alias_of` it has the keys of that domain and names it as its alias in turn.
        """
        foreign = ForeignDomain(f"{name}.foreign.example", self.authority)
        foreign.claim(*aliases)
        if alias_of is not None:
            foreign.keys = alias_of.keys
            foreign.claim(alias_of.domain)
        await self.nursery.start(foreign.run)
        self.announce(foreign.records)
        return foreign

    def announce(self, records: dict[str, list[str]]) -> None:
        self._records |= records
        self._names.replace(self._records)

    async def talker(self, name: str) -> Talker:
        """One more runtime of our domain."""
        talker = Talker(self.node.access_point, f"runtime://{DOMAIN}/{name}")
        await talker.open(self.nursery)
        return talker

    async def ask(self, foreign: ForeignDomain, number: int = 0, *, asker: Talker | None = None) -> Answer:
        """A request of anna's, or of `asker`, to somebody in that domain."""
        return await (asker or self.anna).ask(f"hyperty://{foreign.domain}/h-1", number)

    async def assert_unharmed(self) -> None:
        """The good neighbour still answers, over the link it had."""
        answer = await self.ask(self.good)
        assert answer.is_ok, answer
        assert self.good.connections == 1
        assert (await self.link(self.good)).state == "live"

    async def status(self) -> _Status:
        async with httpx.AsyncClient(
            verify=self.authority.client_context(), trust_env=False, timeout=PATIENCE_SECONDS
        ) as client:
            return msgspec.json.decode((await client.get(self.node.status_url)).content, type=_Status)

    async def link(self, foreign: ForeignDomain) -> LinkFacts:
        """What the node says of its link to that domain."""
        found = [one for one in (await self.status()).links if one.domain == foreign.domain]
        return found[0] if found else LinkFacts(domain=foreign.domain, state="")

    async def wait_state(self, foreign: ForeignDomain, *states: str, seconds: float = PATIENCE_SECONDS) -> LinkFacts:
        return await wait_until(lambda: self.link(foreign), lambda one: one.state in states, seconds=seconds)

    async def restart(self, *, forget_stubs: bool = False) -> None:
        """Stop the node in good order and run it again; with an empty stubs cache if it is to forget."""
        assert await self.node.stop() == 0
        if forget_stubs:
            shutil.rmtree(self.node.folder.data / "stubs")
        await self.start()

    async def start(self) -> None:
        """Run the node again; anna takes her session up where it was."""
        await self.node.start(("trapezoid", "serve"), {})
        await self.anna.open(self.nursery)

    @property
    def spool(self) -> Path:
        return self.node.folder.data / "records"


def _prepare(folder: DomainFolder, node: LaboratoryNode) -> str:
    folder.data.mkdir(mode=0o700, parents=True)
    save_keys(make_keys(), folder.keys)
    site = SigningSite(domain=DOMAIN, keys=load_keys(folder.keys), path=folder.site, now=time.time())
    folder.policy.write_text('id = "open"\nversion = "1"\nrule_combining_algorithm = "first-applicable"\nrules = []\n')
    return publish(site, PublishRequest(module=default_module(), url=node.site_url)).fingerprint


@asynccontextmanager
async def running_frontier(
    path: Path, *foreign: str, waiting_seconds: float = 15.0, cpu_share: float = 0.5
) -> AsyncIterator[Frontier]:
    """The node with a good neighbour that it has talked to; its settings name `foreign` as further neighbours.

    `waiting_seconds`: for which a message waits for its domain. `cpu_share`: what each stub may have of a core.
    """
    authority = DevelopmentAuthority(path / "authority")
    certificate, key = authority.certificate_for(DOMAIN)
    listen, site = free_ports(2)
    folder = DomainFolder(path=path / DOMAIN)
    node = LaboratoryNode(DOMAIN, Ports(listen=listen, site=site), folder, authority)
    fingerprint = _prepare(folder, node)
    names = NameServer({})
    frontier = Frontier(node, authority, names)
    frontier.announce(zone(DOMAIN, node.ports, fingerprint))
    async with running(seconds=LIMIT_SECONDS) as nursery:
        frontier.nursery = nursery
        settings = node_settings(
            DOMAIN,
            place=NodePlace(folder=folder, ports=node.ports),
            published=folder,
            name_server_port=await nursery.start(names.run),
            encryption=Encryption(certificate=certificate, key=key, ca_file=authority.ca_file),
            peers=[PeerEntry(domain="unused.example")],
        )
        folder.settings.write_text(
            settings
            + MORE_SETTINGS.format(waiting_seconds=waiting_seconds, cpu_share=cpu_share)
            + "".join([PEER.format(name) for name in ("good", *foreign)])
        )
        await node.start(("trapezoid", "serve"), {})
        pid = node.pid
        try:
            frontier.anna = await frontier.talker("anna")
            frontier.good = await frontier.add("good")
            while (answer := await frontier.ask(frontier.good)).reason == "deploy-timeout":
                pass  # a busy machine may need longer for a first contact than messages wait
            assert answer.is_ok, answer
            yield frontier
            if node.pid == pid:
                os.kill(pid, 0)
        except Exception as exc:
            exc.add_note(folder.log.read_text()[-4000:])
            raise
        finally:
            with trio.CancelScope(shield=True):
                await node.stop()
