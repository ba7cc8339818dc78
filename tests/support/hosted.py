"""Hosts a stub as a node of a.example does, towards an endpoint of b.example: all real but the node around it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import cast

import trio

from federation.core.stub_meters import StubMeters
from federation.core.stub_settings import StubSettings
from federation.discovery.identity import Identity
from federation.links.domain_link import DomainLink
from federation.stubs.egress import EgressRules, LineOpener
from federation.stubs.hosted_stub import HostedStub, StubInstance, host
from protofly.errors import StubFaultError
from protofly.stub import VerifiedStub
from sandbox.core.budget import Budget
from sandbox.host import Sandbox
from sandbox.stub_process import StubProcess
from tests.support.lines import LoopbackDialler, client_context
from tests.support.link_endpoint import Documents
from tests.support.repository import World
from tests.support.scripted_stub import ScriptedProcess
from tests.support.sides import Bus, node_of

LINK_WASM = Path(__file__).parents[2] / "examples" / "stubs" / "trapezoid_link" / "link.wasm"
LINK_BUDGET = Budget().lowered_to(memory_bytes=10 << 20)


@cache
def link_module() -> bytes:
    """The genuine stub, as it is committed."""
    return LINK_WASM.read_bytes()


class StubRig:
    """a.example with its link to b.example, ready to run one instance after the other."""

    def __init__(self, verified: VerifiedStub, documents: Documents, *, bus: Bus | None = None) -> None:
        self.verified = verified
        self.documents = documents
        self.bus = bus or Bus("a.example")
        self.link: DomainLink = self.bus.link_to("b.example")
        self.identity: Identity = documents.identity("a.example")
        self.dialler = LoopbackDialler()
        self.states: list[str] = []
        self.meters = StubMeters()
        self.fault: StubFaultError | None = None
        self.is_running = False
        self.hosted: HostedStub

    @property
    def settings(self) -> StubSettings:
        peer_stream, delivered = self.link.machine.streams.newest()
        return StubSettings(
            "a.example",
            node_of("a.example"),
            self.link.stub.url,
            "b.example",
            self.link.queue.stream,
            peer_stream,
            delivered,
        )

    @property
    def counter_challenge(self) -> str:
        """What the far end's token has to answer."""
        return next(iter(self.hosted._far_end._proof._nonces.values()))

    async def run(self, process: StubProcess | ScriptedProcess) -> None:
        """One instance, until it fails; its fault is kept."""
        self.fault = None
        instance = StubInstance(
            self.verified,
            cast("StubProcess", process),
            self.settings,
            EgressRules("b.example", self.verified.endpoints),
            LineOpener(self.dialler, client_context()),
            self.identity,
            self.meters,
            now=lambda: self.bus.clock.monotonic(),
        )
        try:
            await host(instance, self.link, self, self._until_cancelled)
        except StubFaultError as exc:
            self.fault = exc
        finally:
            self.is_running = False

    async def _until_cancelled(self, hosted: HostedStub) -> None:
        self.hosted, self.is_running = hosted, True
        await trio.sleep_forever()

    def reported(self, text: str) -> None:
        self.states.append(text)

    def line_failed(self, reason: str) -> None:
        """Nobody here asks for newer documents."""

    def throttled(self, detail: str) -> None:
        self.link.events.throttled(detail)

    def cut(self) -> None:
        """Every line of the stub breaks, whatever is under way."""
        for channel in self.hosted.egress._channels.values():
            if channel.bytes_channel is not None and not channel.bytes_channel.is_closed:
                channel.bytes_channel._sock.shutdown(socket.SHUT_RDWR)

    @asynccontextmanager
    async def running(self, process: StubProcess | ScriptedProcess) -> AsyncIterator[None]:
        """One instance beside the test; cancelled at its end, as a supervisor does when a stub is no longer needed."""
        self.fault = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.run, process)
            while not self.is_running and self.fault is None:
                await trio.lowlevel.checkpoint()
            yield
            nursery.cancel_scope.cancel()

    def send(self, *messages: object) -> None:
        """The bus of a.example sends, then ends its round."""
        for message in messages:
            assert self.link.send(message) is None  # type: ignore[arg-type]
        self.link.flush()


_compiled: dict[tuple[str, bytes], bytes] = {}


async def start_worker(sandbox: Sandbox, module: bytes, budget: Budget = LINK_BUDGET) -> StubProcess:
    """A confined worker with the module; what was compiled once is kept for the next test."""
    key = (sandbox.fingerprint, module)
    if key not in _compiled:
        _compiled[key] = await sandbox.compile(module)
    return await sandbox.start_worker("b.example", _compiled[key], budget)


async def stub_rig(world: World, documents: Documents, *, bus: Bus | None = None) -> StubRig:
    """A rig for the stub that b.example publishes in this world."""
    return StubRig(await world.provide(), documents, bus=bus)
