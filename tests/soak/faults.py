"""Faults of a soak: each is a coroutine that hurts the world, waits, and puts it right again."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import trio

from interop.laboratory import LaboratoryNode

from .findings import KILL_NODE, FaultWindow
from .parties import Party, RawRuntime, hold_handshakes, misbehave
from .world import HONEST, TRAPPING, World

SLOW_READERS = 8
VANISHING = 25
HALF_OPEN = 60
FLOOD_MESSAGES = 1500
FILL_DISK = "fill disk"
LINK_ERRORS = r"link|stub|b\.example|worker|foreign\.example"
DISK_ERRORS = r"disk|space|state|store|record|quarantine|cache|trust|write|segment|publish"

Fault = Callable[["Faults"], Awaitable[None]]


class Faults:
    """Hurts one world by a seeded plan: every kind once in random order, then again in another order."""

    def __init__(self, world: World, talker: Party, listener: Party, spread: random.Random) -> None:
        self.world = world
        self.done: dict[str, int] = {}
        world.account.hopeless.add("trapping")
        self._talker = talker
        self._listener = listener
        self._spread = spread

    def plan(self) -> Iterator[tuple[str, Fault]]:
        """Kinds of faults without end."""
        while True:
            kinds = [one for one in KINDS.items() if one[0] != FILL_DISK or self._has_own_disk]
            self._spread.shuffle(kinds)
            yield from kinds

    @property
    def _has_own_disk(self) -> bool:
        """A disk is filled only when nobody else has files on it; the outcome names no fault that did not happen."""
        return self.world.a.folder.data.is_mount()

    async def run(self, *, pause_seconds: float) -> None:
        """One fault after the other until cancelled, with time between them for the world to recover."""
        for name, fault in self.plan():
            await trio.sleep(pause_seconds)
            await fault(self)
            self.done[name] = self.done.get(name, 0) + 1

    @contextmanager
    def window(self, name: str, explains: str, node: str = "") -> Iterator[None]:
        """While this lasts, and for some time after, errors that match are consequences."""
        one = FaultWindow(name, node, explains, self.world.now)
        self.world.windows.append(one)
        try:
            yield
        finally:
            one.ended = self.world.now

    async def kill_node(self) -> None:
        """`kill -9` of B amid traffic, and its return."""
        with self.window(KILL_NODE, LINK_ERRORS):
            os.kill(self.world.b.pid, signal.SIGKILL)
            try:
                await self.world.b.stop()
                await trio.sleep(self._spread.uniform(0.5, 6))
            finally:
                with trio.CancelScope(shield=True):  # bounded: stop and start have their own deadlines
                    await self.world.b.stop()
                    await self.world.start(self.world.b)

    async def stall_node(self) -> None:
        """B stops for some seconds: its line is up and silent."""
        with self.window("stall node", LINK_ERRORS):
            os.kill(self.world.b.pid, signal.SIGSTOP)
            try:
                await trio.sleep(self._spread.uniform(6, 9))
            finally:
                os.kill(self.world.b.pid, signal.SIGCONT)

    async def hurt_worker(self, signal_number: int) -> None:
        """The process that runs B's stub at A dies or stops."""
        link = (await self.world.a.status()).link_to("b.example")
        if link is not None and link.worker_pid:
            with self.window("hurt worker", LINK_ERRORS, "a.example"), suppress(ProcessLookupError):
                os.kill(link.worker_pid, signal_number)
                await trio.sleep(2)

    async def kill_worker(self) -> None:
        """The worker is killed."""
        await self.hurt_worker(signal.SIGKILL)

    async def stop_worker(self) -> None:
        """The worker answers no more."""
        await self.hurt_worker(signal.SIGSTOP)

    async def trap_stub(self) -> None:
        """Requests to a domain whose stub traps at every event."""
        with self.window("trap stub", LINK_ERRORS, "a.example"):
            for _ in range(3):
                await self._talker.ask("trapping", "create", f"hyperty://{TRAPPING}/h-1", {"value": 1})

    async def break_peer(self) -> None:
        """An honest foreign domain closes its lines, then is silent for a while, then is there again."""
        foreign = self.world.foreign[HONEST]
        with self.window("break peer", LINK_ERRORS, "a.example"):
            for line in foreign.peer.lines:
                await trio.aclose_forcefully(line.stream)
            foreign.peer.lines.clear()
            foreign.behaviour = _silence
            await trio.sleep(5)
            foreign.behaviour = foreign.peer.serve

    async def vanish_runtimes(self) -> None:
        """Sessions that allocate and subscribe and leave without a word."""

        async def acts(one: RawRuntime) -> None:
            body = {"resources": [f"comm://a.example/gone-{self._spread.random()}"]}
            await one.say(
                {"id": 2, "type": "subscribe", "from": "runtime://a.example/x", "to": "domain://x", "body": body}
            )
            await trio.sleep(self._spread.random())

        await self._many(VANISHING, "vanishing", acts)

    async def read_slowly(self) -> None:
        """Sessions that are sent a lot and read nothing for a while."""

        async def acts(one: RawRuntime) -> None:
            await trio.sleep(8)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._many, SLOW_READERS, "slow", acts)
            await trio.sleep(1)
            for number in range(FLOOD_MESSAGES):
                to = f"runtime://a.example/slow-{number % SLOW_READERS}"
                with suppress(Exception):
                    await self._talker.client.notify("event", self._talker.hyperty, to, {"value": "x" * 4000})

    async def fill_disk(self) -> None:
        """The disk of A's data is full for some seconds."""
        ballast = self.world.a.folder.data / "ballast"
        with self.window("fill disk", DISK_ERRORS, "a.example"):
            try:
                await trio.to_thread.run_sync(_write_until_full, ballast)
                await trio.sleep(6)
            finally:
                ballast.unlink(missing_ok=True)

    async def step_clock(self) -> None:
        """The wall clock of one node goes forward and back, far enough to be noticed, and right again."""
        node: LaboratoryNode = self._spread.choice([self.world.a, self.world.b])
        with self.window("step clock", LINK_ERRORS + "|clock|token"):
            for offset in (self._spread.uniform(20, 90), -self._spread.uniform(20, 90), 0.0):
                self.world.step_clock(node, offset)
                await trio.sleep(2)

    async def reload(self) -> None:
        """SIGHUP to both nodes."""
        for node in (self.world.a, self.world.b):
            os.kill(node.pid, signal.SIGHUP)
        await trio.sleep(1)

    async def stall_handshakes(self) -> None:
        """Connections that say nothing."""
        await hold_handshakes(self.world.a.access_point, HALF_OPEN, 5)

    async def stall_site(self) -> None:
        """Requests at the site that end in the middle."""
        port = int(httpx.URL(self.world.a.status_url).port or 443)
        async with trio.open_nursery() as nursery:

            async def stall() -> None:
                with suppress(OSError):
                    stream = await trio.open_tcp_stream("127.0.0.1", port)
                    await trio.sleep(4)
                    await trio.aclose_forcefully(stream)

            for _ in range(HALF_OPEN):
                nursery.start_soon(stall)

    async def _many(self, number: int, name: str, acts: Callable[[RawRuntime], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            for index in range(number):
                nursery.start_soon(misbehave, self.world.a.access_point, f"runtime://a.example/{name}-{index}", acts)


async def _silence(stream: trio.SSLStream[trio.SocketStream]) -> None:
    while await stream.receive_some(65_536):
        pass


def _write_until_full(path: Path) -> None:
    block = bytes(1 << 20)
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(block) == len(block):
            pass


KINDS: dict[str, Fault] = {
    KILL_NODE: Faults.kill_node,
    "stall node": Faults.stall_node,
    "kill worker": Faults.kill_worker,
    "stop worker": Faults.stop_worker,
    "trap stub": Faults.trap_stub,
    "break peer": Faults.break_peer,
    "vanish runtimes": Faults.vanish_runtimes,
    "read slowly": Faults.read_slowly,
    FILL_DISK: Faults.fill_disk,
    "step clock": Faults.step_clock,
    "reload": Faults.reload,
    "stall handshakes": Faults.stall_handshakes,
    "stall site": Faults.stall_site,
}
