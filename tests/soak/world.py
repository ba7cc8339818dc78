"""What a soak runs in: two real domains, foreign ones that misbehave, watchers of memory and logs."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from interop.laboratory import Laboratory, LaboratoryNode, LaboratoryPlan
from tests.support.guests import guest
from tests.system.foreign import ForeignDomain

from .findings import Account, FaultWindow
from .stepped_node import set_offset

LOOK_SECONDS = 1.0
HONEST, TRAPPING = "honest.foreign.example", "trapping.foreign.example"
DELIVERY = "\n[delivery]\nunanswered = 8\ninbox_entries = 100_000\nper_sender = 100_000\nper_agent = 100_000\n"
PEER = """
[[peer]]
domain = "{}"
default = "permit"
allow_addresses = ["127.0.0.0/8"]
"""
_LEVEL = re.compile(r"\b(ERROR|CRITICAL)\b")


class World:
    """Both nodes, the foreign domains, the account and everything that was seen."""

    def __init__(self, laboratory: Laboratory) -> None:
        self.laboratory = laboratory
        self.account = Account()
        self.windows: list[FaultWindow] = []
        self.memory: list[tuple[float, int]] = []
        self.errors: list[tuple[str, float, str]] = []
        self.foreign: dict[str, ForeignDomain] = {}
        self.began = trio.current_time()
        self._read: dict[str, int] = {}

    @property
    def a(self) -> LaboratoryNode:
        """The node that lives through the whole soak; its memory is watched."""
        return self.laboratory.nodes["a.example"]

    @property
    def b(self) -> LaboratoryNode:
        """The node that is killed."""
        return self.laboratory.nodes["b.example"]

    @property
    def now(self) -> float:
        """Seconds since the start of the soak."""
        return trio.current_time() - self.began

    async def start(self, node: LaboratoryNode) -> None:
        """Run a node that was killed again."""
        await node.start(self.laboratory.plan.serve, self.laboratory.plan.environment)

    def step_clock(self, node: LaboratoryNode, seconds: float) -> None:
        """Set the wall clock of a node to the true time plus `seconds`."""
        set_offset(node.folder.settings, seconds)

    async def watch(self) -> None:
        """Read memory and logs until cancelled."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Read memory and new lines of both logs once."""
        size = resident_bytes(self.a.pid)
        if size:
            self.memory.append((self.now, size))
        for node in (self.a, self.b):
            with node.folder.log.open("rb") as log:
                log.seek(self._read.get(node.domain, 0))
                text = log.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[node.domain] = self._read.get(node.domain, 0) + len(whole)
            for line in whole.decode(errors="replace").splitlines():
                if _LEVEL.search(line) or line.startswith("Traceback"):
                    self.errors.append((node.domain, self.now, line))


def resident_bytes(pid: int) -> int:
    """Resident memory of one process; 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    match = re.search(r"VmRSS:\s+(\d+) kB", text)
    return int(match[1]) * 1024 if match else 0


def trapping_module() -> bytes:
    """A stub whose every event is a trap."""
    return guest("(unreachable)")


@asynccontextmanager
async def running_world(folder: Path) -> AsyncIterator[World]:
    """Start everything; both nodes are up inside, and stopped in good order at the end."""
    laboratory = Laboratory(LaboratoryPlan(state_dir=folder, serve=("tests.soak.stepped_node", "serve")))
    async with trio.open_nursery() as nursery:
        await nursery.start(laboratory.run)
        world = World(laboratory)
        assert laboratory.authority is not None
        for domain in (HONEST, TRAPPING):
            world.foreign[domain] = foreign = ForeignDomain(domain, laboratory.authority)
            await nursery.start(foreign.run)
            laboratory.announce(foreign.records)
        world.foreign[TRAPPING].publish(module=trapping_module())
        for node in (world.a, world.b):
            await node.stop()
            more = "".join(map(PEER.format, world.foreign)) if node is world.a else ""
            with node.folder.settings.open("a", encoding="utf-8") as settings:
                settings.write(DELIVERY + more)
            await world.start(node)
        nursery.start_soon(world.watch)
        yield world
        nursery.cancel_scope.cancel()
