"""Keeps the stub of one domain running while it is needed: deploy, run, restart with back-off, give up, try again.

Source: design, section 4; trust and hosts, sections 3.6 and 4.2.
"""

from __future__ import annotations

import logging
import random
import ssl
import time
from dataclasses import dataclass
from typing import Literal

import trio

from catalogue_client.fetcher import Dialler
from federation.domain_link import DomainLink, StepTimes
from federation.egress import Egress, EgressRules
from federation.hosted_stub import HostedStub, StubMeters, StubSettings, StubState
from federation.identity import Identity
from federation.supply import Package, Supply
from protofly.errors import Code, HostError, PeerError, StubFaultError, TransportError
from protofly.limits import (
    CIRCUIT_OPEN_SECONDS,
    CRASH_WINDOW_SECONDS,
    CRASHES_BEFORE_CIRCUIT,
    RECONNECT_BASE_SECONDS,
    RECONNECT_MAX_SECONDS,
    RESTART_BASE_SECONDS,
    RESTART_MAX_SECONDS,
)
from protofly.records import LinkEvent, StubEvent
from sandbox.core.budget import Budget
from sandbox.host import Sandbox, StubProcess

logger = logging.getLogger("federation")

IDLE_SECONDS = 300.0
AUTHENTICATE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class SupervisorContext:
    """What the supervisors of all links share. `plaintext_domains` are those whose settings say `insecure_plaintext`."""

    our_domain: str
    node: str
    supply: Supply
    sandbox: Sandbox
    identity: Identity
    dialler: Dialler
    tls_context: ssl.SSLContext
    plaintext_domains: frozenset[str]


class StubSupervisor:
    """Runs the stub of one link."""

    def __init__(self, link: DomainLink, context: SupervisorContext) -> None:
        self._link = link
        self._context = context
        self._meters = StubMeters()
        self._crashes: list[float] = []
        self._failures = 0

    async def run(self) -> None:
        """Deploy whenever messages wait and nobody carries them; until cancelled."""
        link = self._link
        while True:
            await link.needed.wait()
            link.needed = trio.Event()
            if link.is_live or link.is_idle:
                continue
            pause_seconds = await self._try()
            if pause_seconds:
                link.refuse_until_seconds = time.monotonic() + pause_seconds
                with trio.move_on_after(pause_seconds):
                    await link.wait_live()
            if link.leg.waiting:
                link.needed.set()

    async def _try(self) -> float:
        """One deployment, from first step to the end of the stub; returns how long to wait before the next."""
        link = self._link
        try:
            await self._deploy_and_run()
        except TransportError as exc:
            self._failures += 1
            logger.warning("%s cannot be reached: %s", link.domain, exc)
            self._note("refused", exc)
            link.state, link.detail, link.refuse_code = "failed", str(exc), None
            return self._back_off(RECONNECT_BASE_SECONDS, RECONNECT_MAX_SECONDS)
        except StubFaultError as exc:
            return self._crashed(exc)
        except PeerError as exc:
            self._failures += 1
            logger.warning("%s was refused: %s", link.domain, exc)
            self._note("refused", exc)
            link.state, link.refuse_code = "verify-failed", exc.code
            link.give_up(exc.code, exc.detail)
            return self._back_off(RESTART_BASE_SECONDS, RESTART_MAX_SECONDS)
        except HostError as exc:
            logger.error("%s: %s", link.domain, exc)
            link.state, link.refuse_code = "failed", exc.code
            link.give_up(exc.code, exc.detail)
            return RESTART_BASE_SECONDS
        self._failures = 0
        return 0.0

    def _crashed(self, exc: StubFaultError) -> float:
        """Restart after a pause; after too many crashes leave the stub alone for a while."""
        link, now = self._link, time.monotonic()
        logger.error("the stub of %s failed: %s", link.domain, exc)
        link.counters["stub faults"] += 1
        link.state, link.detail = "failed", str(exc)
        self._event("fault", code=exc.code, detail=exc.detail, trap=exc.fault)
        if exc.code is Code.STUB_FAILED:  # it said so itself, in good order: the far end refused us
            self._failures += 1
            return self._back_off(RECONNECT_BASE_SECONDS, RECONNECT_MAX_SECONDS)
        self._crashes = [crash for crash in self._crashes if now - crash < CRASH_WINDOW_SECONDS] + [now]
        if len(self._crashes) >= CRASHES_BEFORE_CIRCUIT:
            self._crashes.clear()
            link.state, link.refuse_code = "circuit-open", Code.CIRCUIT_OPEN
            link.give_up(Code.CIRCUIT_OPEN, f"the stub crashed {CRASHES_BEFORE_CIRCUIT} times")
            self._event("circuit", code=Code.CIRCUIT_OPEN, detail=f"open for {CIRCUIT_OPEN_SECONDS:.0f} s")
            return CIRCUIT_OPEN_SECONDS
        self._failures = len(self._crashes)
        return self._back_off(RESTART_BASE_SECONDS, RESTART_MAX_SECONDS)

    def _back_off(self, base_seconds: float, max_seconds: float) -> float:
        doubled = base_seconds * 2.0 ** min(self._failures - 1, 16)
        return float(min(doubled, max_seconds) * random.uniform(0.9, 1.1))  # noqa: S311 - jitter, no secret

    async def _deploy_and_run(self) -> None:
        link, context = self._link, self._context
        times = link.times = StepTimes()
        link.state = "deploying"
        package = await context.supply.package(link.domain, times)
        started = time.perf_counter()
        needs = package.stub.manifest.needs
        budget = Budget.of_needs(memory_bytes=needs.memory_bytes or None, call_ms=needs.call_ms or None)
        process = await context.sandbox.start_worker(link.domain, package.code, budget)
        times.add("start", time.perf_counter() - started)
        link.worker_pid = process.pid
        try:
            await self._run(package, process, times)
        finally:
            link.worker_pid = None
            with trio.CancelScope(shield=True):
                await process.aclose()
            self._event("stopped", pid=process.pid)

    async def _run(self, package: Package, process: StubProcess, times: StepTimes) -> None:
        link, context, stub = self._link, self._context, package.stub
        link.stub = {
            "name": stub.name,
            "version": stub.version,
            "sha256": stub.module_sha256,
            "level": stub.level.value,
        }
        link.stub_version = stub.module_sha256
        self._event("started", pid=process.pid)
        peer_stream, delivered = link.newest_stream()
        hosted = HostedStub(
            stub,
            process,
            StubSettings(
                context.our_domain, context.node, link.stub_url, link.domain, link.leg.stream, peer_stream, delivered
            ),
            leg=link.leg,
            port=link,
            identity=context.identity,
            on_state=lambda state, text: self._reported(state, text, times),
            meters=self._meters,
        )
        self._started = time.perf_counter()
        rules = EgressRules(link.domain, stub.endpoints, link.domain in context.plaintext_domains)

        def open_egress(running: HostedStub, nursery: trio.Nursery) -> Egress:
            return Egress(
                rules,
                dialler=context.dialler,
                tls_context=context.tls_context,
                handler_nursery=nursery,
                emit=running.emit,
                wait_for_room=running.wait_for_room,
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_idle, nursery.cancel_scope, hosted)
            try:
                await hosted.run(open_egress)
            finally:
                nursery.cancel_scope.cancel()

    def _reported(self, state: StubState, text: str, times: StepTimes) -> None:
        """The stub says how it is."""
        link = self._link
        if state is StubState.LIVE:
            if not any(name == "authenticate" for name, _ in times.steps):
                times.add("authenticate", time.perf_counter() - self._started)
            self._failures = 0
        elif not link.is_live:
            link.state = state.value
        link.detail = text
        self._event("state", state=state.value, detail=text)

    async def _watch_idle(self, scope: trio.CancelScope, hosted: HostedStub) -> None:
        """End a stub that nobody needs any more. Source: message specification, section 18.4."""
        link = self._link
        while True:
            await trio.sleep(IDLE_SECONDS / 10)
            if link.is_idle and time.monotonic() - link.last_used_seconds > IDLE_SECONDS:
                logger.info("the link to %s is idle and is closed", link.domain)
                hosted.drain()
                await trio.sleep(1.0)
                scope.cancel()

    def _note(self, event: Literal["refused"], exc: HostError) -> None:
        self._link.record(
            LinkEvent(
                ts_us=int(time.time() * 1e6),
                domain=self._link.domain,
                event=event,
                direction="out",
                code=exc.code.word,
                detail=exc.detail[:256],
            )
        )

    def _event(
        self,
        event: str,
        *,
        code: Code | None = None,
        detail: str = "",
        trap: str = "",
        state: str = "",
        pid: int | None = None,
    ) -> None:
        meters = self._meters
        self._link.record(
            StubEvent(
                ts_us=int(time.time() * 1e6), domain=self._link.domain, event=event, stub_ver=self._link.stub_version or None,  # type: ignore[arg-type]
                code=None if code is None else code.word, detail=detail[:256] or None, trap=trap[:256] or None, state=state or None, pid=pid,
                calls=meters.calls, fuel=meters.fuel, cpu_us=meters.cpu_us, mem_peak_kib=meters.memory_bytes >> 10,
            )
        )  # fmt: skip
