"""One node with its domain registry, embedded or behind the REST interface of an independent server: same face."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import trio

from federation.core.interworking import Interworking
from msg_node.backends.backend import Backend
from msg_node.backends.backend_http import BackendHttp
from msg_node.backends.core.circuit_breaker import CircuitBreaker
from msg_node.backends.registry_watch import RegistryWatch
from msg_node.kernel.service import Service
from msg_node.node_state import NodeState
from msg_node.registries.core.registry_relay import REGISTRY, RegistryRelay
from protofly.limits import BACKEND_ANSWER_BYTES
from tests.peers.domain_registry import DomainRegistryPeer
from tests.support.registry_entries import DOMAIN
from tests.support.rest_server import RestServer, rest_server
from tests.support.runtime_rig import Json, Runtime, RuntimeRig, runtime_rig
from tests.support.services import PATIENCE_SECONDS

ADDRESS = f"domain://registry.{DOMAIN}"
Kind = Literal["embedded", "rest"]


class Clock:
    """The wall clock, with what a test has added."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_seconds


@dataclass
class Registry:
    """What the battery needs. `server`, `peer`, `relay`, `backend` and `watch` are there for `rest` only."""

    rig: RuntimeRig
    clock: Clock
    kind: Kind

    @property
    def code_after_delete(self) -> int:
        """The published REST interface forgets nothing: what was deleted is disconnected."""
        return 404 if self.kind == "embedded" else 408

    async def later(self, seconds: float) -> None:
        """Let time pass for entries, and have what follows noticed."""
        self.clock.ahead_seconds += seconds
        result = self.rig.services.sweep_registry(now=self.clock())
        self.rig.bus.effects.apply(result, self.rig.bus.refusals.own.send)
        await self.settled()

    async def settled(self) -> None:
        """Wait until all that happened so far is durable, and has been reported."""
        is_durable = trio.Event()
        self.rig.store.submit([], is_durable.set)
        await is_durable.wait()


@dataclass
class RestRegistry(Registry):
    """A registry behind REST."""

    server: RestServer
    peer: DomainRegistryPeer
    relay: RegistryRelay
    backend: Backend
    watch: RegistryWatch

    async def later(self, seconds: float) -> None:
        self.clock.ahead_seconds += seconds
        await self.watch.poll_once()
        await self.settled()


async def create(runtime: Runtime, value: Mapping[str, object]) -> Json:
    return await runtime.ask("create", ADDRESS, {"value": value})


async def read(runtime: Runtime, resource: str, **more: object) -> Json:
    return await runtime.ask("read", ADDRESS, {"resource": resource, **more})


@asynccontextmanager
async def embedded_registry(folder: Path, *, interworking: Interworking | None = None) -> AsyncIterator[Registry]:
    async with runtime_rig(folder, interworking=interworking) as rig:
        yield Registry(rig, Clock(), "embedded")


@asynccontextmanager
async def rest_registry(
    folder: Path,
    *,
    attempt_seconds: float = PATIENCE_SECONDS,
    cache_seconds: float = 5.0,
    context: ssl.SSLContext | None = None,
    client_context: ssl.SSLContext | None = None,
    breaker: CircuitBreaker | None = None,
    interworking: Interworking | None = None,
) -> AsyncIterator[RestRegistry]:
    """A node and a registry, over real HTTP."""
    relays: list[RegistryRelay] = []
    clock = Clock()
    peer = DomainRegistryPeer(clock)

    def services(state: NodeState) -> Mapping[str, Service]:
        relays.append(RegistryRelay(state, cache_seconds=cache_seconds))
        return {ADDRESS: relays[0]}

    async with (
        rest_server(peer, context=context) as server,
        runtime_rig(folder, services_at=services, interworking=interworking) as rig,
    ):
        http = BackendHttp(server.url, client_context or ssl.create_default_context(), max_bytes=BACKEND_ANSWER_BYTES)
        backend = Backend("the domain registry", http, attempt_seconds=attempt_seconds, breaker=breaker)
        rig.bus.inquiries.connect(REGISTRY, backend)
        watch = RegistryWatch(relays[0], backend, rig.bus.effects.publish_statuses)
        yield RestRegistry(rig, clock, "rest", server, peer, relays[0], backend, watch)
