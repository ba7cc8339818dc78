"""One real node whose operator chose a stub for a domain that publishes nothing, beside a simulator of its node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
import trio

from interop.foreign.simulator import ForeignNode
from interop.participant import AccessPoint
from interop.talker import PATIENCE_SECONDS, Talker
from tests.support.status_token import AS_OPERATOR

from .frontier import LinkFacts
from .one_node import SETTINGS, Process, serving
from .systems import wait_until

OURS = "alpha.example"
THEIRS = "b.example"
PEER = """
[[peer]]
domain = "b.example"
stub = "{stub}"
endpoint = "ws://127.0.0.1:{port}{path}"
class = "plain"
allow_addresses = ["127.0.0.0/8"]
insecure_plaintext = true
"""


class _Status(msgspec.Struct, frozen=True):
    links: list[LinkFacts]
    insecure: list[str]


@dataclass
class PeerSystem:
    """The node, its runtime `anna`, and the foreign node."""

    process: Process
    node: ForeignNode
    folder: Path
    anna: Talker
    nursery: trio.Nursery

    async def talker(self, name: str) -> Talker:
        return await talker_of(self.process, name, self.nursery)

    async def status(self) -> _Status:
        async with httpx.AsyncClient(trust_env=False, headers=AS_OPERATOR, timeout=PATIENCE_SECONDS) as client:
            return msgspec.json.decode((await client.get(f"{self.process.ready['site']}/status")).content, type=_Status)

    async def link(self) -> LinkFacts:
        found = [one for one in (await self.status()).links if one.domain == THEIRS]
        return found[0] if found else LinkFacts(domain=THEIRS, state="")

    async def wait_state(self, *states: str) -> LinkFacts:
        return await wait_until(self.link, lambda one: one.state in states)


async def talker_of(process: Process, name: str, nursery: trio.Nursery) -> Talker:
    talker = Talker(AccessPoint(url=process.ready["listen"]), f"runtime://{OURS}/{name}")
    await talker.open(nursery)
    return talker


def peer_settings(node: ForeignNode, stub: str, *, more: str = "", path: str = "") -> str:
    """Settings of our node with an entry for the foreign one; `more` belongs to the entry."""
    return SETTINGS.format(grace=30) + PEER.format(stub=stub, port=node.port, path=path or node.path) + more


@asynccontextmanager
async def peering(
    folder: Path, node: ForeignNode, stub: str, *, more: str = "", policy: str = ""
) -> AsyncIterator[PeerSystem]:
    """Our node beside the foreign one; `more` are further lines of the `[[peer]]` entry, `policy` is a policy file."""
    if policy:
        (folder / "policy.toml").write_text(policy)
        more += '[policy]\nfiles = ["policy.toml"]\n'
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        async with serving(folder, peer_settings(node, stub, more=more)) as process:
            anna = await talker_of(process, "anna", nursery)
            yield PeerSystem(process, node, folder, anna, nursery)
            nursery.cancel_scope.cancel()
