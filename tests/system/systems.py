"""Whole systems: real node processes, real keys, DNS, TLS, workers. A laboratory costs about a second and a half."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import trio

from interop.laboratory import Laboratory, LaboratoryNode, LaboratoryPlan
from interop.node_status import LinkStatus
from interop.talker import PATIENCE_SECONDS, Talker
from stubkit.keys import make_keys, save_keys
from tests.support.services import running
from tests.support.status_members import unlisted

_Seen = TypeVar("_Seen")

LIMIT_SECONDS = 240.0
LOOK_SECONDS = 0.02


class System:
    """A laboratory with people in it, and hands for faults."""

    def __init__(self, laboratory: Laboratory, nursery: trio.Nursery) -> None:
        self.laboratory = laboratory
        self.nursery = nursery

    @property
    def a(self) -> LaboratoryNode:
        return self.laboratory.nodes["a.example"]

    @property
    def b(self) -> LaboratoryNode:
        return self.laboratory.nodes["b.example"]

    async def talker(self, node: LaboratoryNode, name: str) -> Talker:
        talker = Talker(node.access_point, f"runtime://{node.domain}/{name}")
        await talker.open(self.nursery)
        return talker

    async def couple(self) -> tuple[Talker, Talker]:
        """One runtime in each domain that have talked once: both directions are open."""
        anna, bruno = await self.talker(self.a, "anna"), await self.talker(self.b, "bruno")
        answer = await anna.ask(bruno.hyperty)
        assert answer.is_ok, answer
        answer = await bruno.ask(anna.hyperty)
        assert answer.is_ok, answer
        return anna, bruno

    async def link(self, node: LaboratoryNode) -> LinkStatus:
        """The node's link to the other domain."""
        [other] = (domain for domain in self.laboratory.nodes if domain != node.domain)
        link = (await node.status()).link_to(other)
        assert link is not None
        return link

    async def wait_link(
        self, node: LaboratoryNode, condition: Callable[[LinkStatus], bool], *, seconds: float = PATIENCE_SECONDS
    ) -> LinkStatus:
        """Until the node says that its link is so."""
        return await wait_until(lambda: self.link(node), condition, seconds=seconds)

    async def whole_status(self, node: LaboratoryNode) -> dict[str, Any]:
        """What the node says at `/status`: nothing that `docs/status.md` lacks."""
        assert self.laboratory.authority is not None
        async with httpx.AsyncClient(
            verify=self.laboratory.authority.client_context(), trust_env=False, timeout=PATIENCE_SECONDS
        ) as client:
            status: dict[str, Any] = (await client.get(node.status_url)).json()
        assert unlisted(status) == []
        return status

    async def start(self, node: LaboratoryNode) -> None:
        await node.start(self.laboratory.plan.serve, self.laboratory.plan.environment)

    async def kill(self, node: LaboratoryNode) -> None:
        """`kill -9`, and take the dead process away."""
        os.kill(node.pid, signal.SIGKILL)
        assert await node.stop() == -signal.SIGKILL

    async def change_settings(self, node: LaboratoryNode, *, old: str, new: str) -> None:
        """Edit the settings file and run the node with it."""
        text = node.folder.settings.read_text()
        assert old in text
        await node.stop()
        node.folder.settings.write_text(text.replace(old, new))
        await self.start(node)


async def wait_until(
    look: Callable[[], Awaitable[_Seen]], condition: Callable[[_Seen], bool], *, seconds: float = PATIENCE_SECONDS
) -> _Seen:
    """Look again and again, with a pause, until what is seen satisfies; returns it."""
    seen = await look()
    with trio.move_on_after(seconds):
        while not condition(seen):
            await trio.sleep(LOOK_SECONDS)
            seen = await look()
    assert condition(seen), seen
    return seen


@asynccontextmanager
async def running_system(folder: Path, *, policies: Path | None = None) -> AsyncIterator[System]:
    """A laboratory in `folder` for the time of one test, with the settings of the demo.

    Keys are made here when there are none: as `trapezoid keys init` makes them, without a process for each domain.
    """
    plan = LaboratoryPlan(state_dir=folder, policies=policies)
    for domain in plan.domains:
        keys = folder / domain / "keys"
        if not keys.exists():
            save_keys(make_keys(), keys, domain=domain)
    laboratory = Laboratory(plan)
    async with running(laboratory.run, seconds=LIMIT_SECONDS) as nursery:
        try:
            yield System(laboratory, nursery)
        except Exception as exc:
            for node in laboratory.nodes.values():
                exc.add_note(await _autopsy(node))
            raise


async def _autopsy(node: LaboratoryNode) -> str:
    """What a node says after a test has failed."""
    log = "\n".join(node.folder.log.read_text().splitlines()[-25:])
    try:
        async with httpx.AsyncClient(
            verify=node.access_point.ssl_context or True, trust_env=False, timeout=3
        ) as client:
            return f"{node.domain}: {(await client.get(node.status_url)).text}\n{log}"
    except httpx.HTTPError as exc:
        return f"{node.domain} does not answer: {exc!r}\n{log}"
