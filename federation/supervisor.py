"""Keeps the stub of one domain running while it is needed: deploy, run, restart with back-off, give up, try again.

Source: design, section 4; trust and hosts, sections 3.6 and 4.2; message specification, section 18.4.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import trio

from catalogue_client.core.verify import judge_running
from federation.address_feed import ADDRESSES, AddressFeed, OurAddresses
from federation.core.contact_trouble import Side
from federation.core.interworking import Interworking
from federation.core.link_counts import LinkCount
from federation.core.peer_terms import PeerTerms
from federation.core.renewal import Renewal, has_moved
from federation.core.service_tokens import ServiceTokens
from federation.core.stub_lifecycle import StubLifecycle, StubState
from federation.core.stub_settings import StubSettings
from federation.core.stub_status import StepTimes
from federation.domain_documents import DomainDocuments
from federation.domain_link import DomainLink
from federation.egress import EgressRules, LineOpener
from federation.hosted_stub import HostedStub, StubInstance, host
from federation.identity import Identity
from federation.peer_session import REAUTHENTICATE_SECONDS
from federation.stub_provider import DEFAULT_STUB, Package, StubProvider
from policy.core.gate import Gate
from protofly.errors import Code, HostError, PeerError, StubFaultError, TransportError
from protofly.limits import (
    EXPIRED_GRACE_SECONDS,
    RECONNECT_BASE_SECONDS,
    RECONNECT_MAX_SECONDS,
    RESTART_BASE_SECONDS,
    RESTART_MAX_SECONDS,
)
from protofly.pauses import doubling_seconds, jittered
from protofly.records import StubEvent
from protofly.stub import VerifiedStub
from sandbox.core.budget import Budget
from sandbox.host import Sandbox, StubProcess

logger = logging.getLogger("federation")

IDLE_SECONDS = 300.0
DRAIN_SECONDS = 1.0
LEAST_REFRESH_SECONDS = 5.0
TRUST_LOOK_SECONDS = 60.0
"""How long a stub may run on after the operator took back the trust that it was started with."""
SUMMARY_SECONDS = 60.0

StubEventName = Literal["verified", "compiled", "started", "stopped", "state", "fault", "killed", "circuit", "summary"]
_LINE_CODES = frozenset(
    {Code.ADDRESS_REFUSED, Code.PORT_REFUSED, Code.NO_SUCH_DOMAIN, Code.TLS_FAILED, Code.HTTP_STATUS}
)
"""Refusals of ours that are about the way to a domain, and not about what it publishes."""
_ENDED_FROM_OUTSIDE = frozenset({"deadline", "died"})
"""Faults of the worker process, and not of the code in it: our own deadline, or the kernel, has ended it."""


@dataclass(frozen=True, slots=True)
class SupervisorContext:
    """What the supervisors of all links share.

    `plaintext_domains` are those whose settings say `insecure_plaintext`; `budget` bounds what any stub may spend;
    `interworking` says which stubs may be of that kind, and is given what their manifests claim; `token_readers` give
    the operator's access tokens for them, by domain. `terms`: what else holds for single domains.
    Stubs that ask for it hear of our `addresses`, as far as the `gate` lets their domains in.
    """

    our_domain: str
    node: str
    documents: DomainDocuments
    provider: StubProvider
    sandbox: Sandbox
    identity: Identity
    opener: LineOpener
    plaintext_domains: frozenset[str]
    budget: Budget
    gate: Gate
    addresses: OurAddresses
    interworking: Interworking
    terms: PeerTerms
    token_readers: Mapping[str, Callable[[], str]]


class StubSupervisor:
    """Runs the stub of one link."""

    def __init__(self, link: DomainLink, context: SupervisorContext) -> None:
        self._link = link
        self._context = context
        self._lifecycle = StubLifecycle()
        self._meters = link.stub.meters
        self._failures = 0
        self._started = 0.0
        self._verdict: PeerError | None = None
        self._renewal = Renewal()
        self._line_failed = trio.Event()
        self._summed_up = link.now()
        self._feed = AddressFeed(link.domain, context.gate, context.addresses)
        self._is_chosen = link.domain in context.terms.chosen

    async def run(self) -> None:
        """Deploy whenever the link is needed and nobody carries it; until cancelled."""
        link = self._link
        while True:
            await link.need.wait()
            if link.is_live or link.is_idle:
                continue
            pause_seconds = self._held_back() or await self._try()
            if pause_seconds:
                link.machine.refuse_until = self._link.now() + pause_seconds
                with trio.move_on_after(pause_seconds):
                    await link.effects.wait_live()
            if not link.is_idle:
                link.need.arise()

    def _held_back(self) -> float:
        """How long the stub is still to be left alone: another carrier in the meantime has not mended it."""
        pause_seconds = max(0.0, self._lifecycle.starts_at() - self._link.now())
        if pause_seconds:
            self._show_state()
            if self._lifecycle.is_circuit_open:
                self._leave_alone()
        return pause_seconds

    def _leave_alone(self) -> None:
        """The circuit is open: answer everything that waits."""
        self._link.machine.refusal = self._lifecycle.refusal()
        self._link.give_up(Code.CIRCUIT_OPEN, "the stub crashed too often")

    async def _try(self) -> float:
        """One deployment, from first step to the end of the stub; returns how long to wait before the next."""
        link = self._link
        try:
            await self._deploy_and_run()
        except TransportError as exc:
            link.events.met(Side.LINE, str(exc))
            self._refused(exc)
            self._lifecycle.failed(str(exc))
            self._show_state()
            # Unreachable has one code for all that wait, `deploy-timeout`; what was tried stands in the detail.
            link.machine.refusal = link.machine.last_code = None
            return self._back_off(RECONNECT_BASE_SECONDS, RECONNECT_MAX_SECONDS)
        except StubFaultError as exc:
            return self._crashed(exc)
        except HostError as exc:
            is_peer = isinstance(exc, PeerError)
            if is_peer:
                link.events.met(Side.LINE if exc.code in _LINE_CODES else Side.DOCUMENTS, str(exc))
            else:
                logger.error("the stub of %s cannot be started: %s", link.domain, exc, extra={"domain": link.domain})
            self._refused(exc)
            if is_peer:
                link.stub.refused()
                self._context.interworking.withdrawn(link.domain)
            detail = exc.detail or exc.code.description
            (self._lifecycle.verify_failed if is_peer else self._lifecycle.failed)(detail)
            self._show_state()
            link.machine.refusal = exc.code
            link.give_up(exc.code, exc.detail)
            return self._back_off(RESTART_BASE_SECONDS, RESTART_MAX_SECONDS)
        except Exception:  # a defect of ours may cost this domain, never the node
            logger.exception("the link to %s failed", link.domain, extra={"domain": link.domain})
            self._lifecycle.failed(Code.INTERNAL.description)
            self._show_state()
            link.machine.refusal = Code.INTERNAL
            link.give_up(Code.INTERNAL, "")
            return self._back_off(RESTART_BASE_SECONDS, RESTART_MAX_SECONDS)
        self._failures = 0
        self._lifecycle.ended()
        self._show_stub()
        return 0.0

    def _show_state(self) -> None:
        """The state of the stub is that of its link too, as nothing else carries it."""
        state = self._lifecycle.state
        shown = StubState.FAILED if state is StubState.DEPLOYMENT_FAILED else state
        self._link.machine.state, self._link.machine.detail = shown.value, self._lifecycle.detail
        self._show_stub()

    def _show_stub(self) -> None:
        """Put the state of the stub into the inventory."""
        self._link.stub.became(self._lifecycle.state.value, self._lifecycle.detail, now=time.time())

    def _crashed(self, exc: StubFaultError) -> float:
        """Restart after a pause; after too many crashes leave the stub alone for a while."""
        link, now = self._link, self._link.now()
        if exc.code is Code.STUB_FAILED:
            link.events.met(Side.REFUSAL, exc.detail)
            self._renewal.failed(now)
        else:
            logger.error("the stub of %s failed: %s", link.domain, exc, extra={"domain": link.domain})
            link.events.met(Side.STUB, str(exc))
        link.counters[LinkCount.STUB_FAULTS] += 1
        link.machine.last_code = exc.code
        self._event("fault", code=exc.code, detail=exc.detail, trap=exc.fault)
        if exc.fault in _ENDED_FROM_OUTSIDE:
            self._event("killed", code=exc.code, detail=exc.detail, trap=exc.fault)
        if exc.code is Code.STUB_FAILED:  # it said so itself, in good order: the far end refused us
            self._lifecycle.failed(exc.detail)
            self._show_state()
            return self._back_off(RECONNECT_BASE_SECONDS, RECONNECT_MAX_SECONDS)
        restart = self._lifecycle.crashed(now, random.random(), str(exc))  # noqa: S311 - jitter, no secret
        self._show_state()
        if restart.opens_circuit:
            self._leave_alone()
            self._event("circuit", code=Code.CIRCUIT_OPEN, detail=f"open for {restart.at - now:.0f} s")
        return restart.at - now

    def _back_off(self, base_seconds: float, max_seconds: float) -> float:
        self._failures += 1
        draw = random.random()  # noqa: S311 - jitter, no secret
        return jittered(doubling_seconds(base_seconds, self._failures, max_seconds), draw=draw)

    async def _deploy_and_run(self) -> None:
        link, context = self._link, self._context
        times = link.stub.times = StepTimes()
        self._lifecycle.deploying(link.machine.detail)
        self._show_state()
        is_due = self._renewal.due_in(self._link.now()) == 0.0 and not self._is_chosen
        if is_due and not context.documents.seconds_until_askable(link.domain):
            await self._ask_anew()
        try:
            package = await context.provider.package(link.domain, times, asked_by=link.need.asked_by)
        finally:
            for name, milliseconds in times.steps:
                link.events.stepped(name, milliseconds / 1000)
        context.interworking.verified(package.stub.manifest)
        link.stub_verified()
        self._verified(package.stub, dict(times.steps))
        started = time.perf_counter()
        process = await context.sandbox.start_worker(link.domain, package.code, self._budget(package.stub))
        start_seconds = time.perf_counter() - started
        times.add("start", start_seconds)
        self._event("started", pid=process.pid, seconds=start_seconds)
        link.stub.worker_pid = process.pid
        try:
            refusal = await self._run(package, process)
        finally:
            link.stub.worker_pid = None
            with trio.CancelScope(shield=True):
                await process.aclose()
            self._sum_up()
            self._event("stopped", pid=process.pid)
        if refusal is not None:
            raise refusal

    def _verified(self, stub: VerifiedStub, steps: Mapping[str, float]) -> None:
        """A package may run; `steps` are milliseconds. Another one than before begins with a clean record."""
        link = self._link
        if link.stub.started_sha256 != stub.module_sha256:
            link.stub.started_sha256 = stub.module_sha256
            self._lifecycle.replaced()
            self._event("verified", detail=f"{stub.name} {stub.version}")
        if "compile" in steps:
            self._event("compiled", seconds=steps["compile"] / 1000)

    def _budget(self, stub: VerifiedStub) -> Budget:
        return self._context.budget.lowered_to(
            memory_bytes=stub.manifest.needs.memory_bytes or None, call_ms=stub.manifest.needs.call_ms or None
        )

    async def _run(self, package: Package, process: StubProcess) -> PeerError | None:
        """Run one instance to its end; returns why it may not run any more, None when it may."""
        link, context, stub = self._link, self._context, package.stub
        link.stub.description = {
            "name": stub.name,
            "version": stub.version,
            "sha256": stub.module_sha256,
            "level": stub.level.value,
            **({"class": "plain"} if link.domain in context.terms.plain else {}),
        }
        ranges = ", ".join(map(str, context.interworking.effective(link.domain)))
        if stub.manifest.interworking:
            link.stub.description["interworking"] = ranges
        link.stub.verified(module_sha256=stub.module_sha256, version=stub.version, ranges=ranges)
        self._lifecycle.deployed()
        self._show_stub()
        self._lifecycle.started(link.now())
        self._show_stub()
        admission = context.interworking.admission(link.domain)
        tokens = context.interworking.tokens(link.domain) or ServiceTokens()
        peer_stream, delivered = link.machine.streams.newest()
        allows_plaintext = link.domain in context.plaintext_domains
        read_token = context.token_readers.get(link.domain)
        instance = StubInstance(
            stub,
            process,
            StubSettings(
                context.our_domain,
                context.node,
                link.stub.url,
                link.domain,
                link.machine.queue.stream,
                peer_stream,
                delivered,
                tokens.names,
                package.configuration,
            ),
            EgressRules(link.domain, stub.endpoints, allows_plaintext, tokens, read_token),
            context.opener,
            context.identity,
            self._meters,
            allows_http=admission is None or admission.allows_http,
        )
        self._started = time.perf_counter()
        await host(instance, link, self, partial(self._watch, stub))
        return self._verdict

    def reported(self, text: str) -> None:
        """See `StubObserver`."""
        link, times = self._link, self._link.stub.times
        state = self._lifecycle.reported(text, self._link.now())
        if state is None:
            return
        if state is StubState.LIVE:
            if not any(name == "authenticate" for name, _ in times.steps):
                seconds = time.perf_counter() - self._started
                times.add("authenticate", seconds)
                link.events.stepped("authenticate", seconds)
            self._failures = 0
            self._feed.begin()
            self._renewal.succeeded(self._link.now())
        else:
            self._not_live(state)
        link.machine.detail = self._lifecycle.detail
        self._show_stub()
        self._event("state", state=state.value, detail=link.machine.detail)

    def _not_live(self, state: StubState) -> None:
        """The stub is not live (any more): find out whether the far end refuses us."""
        link, detail = self._link, self._lifecycle.detail
        if not link.is_live:
            link.machine.state = state.value
        if state is StubState.DISCONNECTED and detail:
            link.events.met(Side.REFUSAL, detail)
            if not link.is_live:
                self._wants_news()

    def line_failed(self, reason: str) -> None:
        """See `StubObserver`."""
        self._link.events.met(Side.LINE, reason)
        self._wants_news()

    def _wants_news(self) -> None:
        """The endpoint may have moved: newer documents say so."""
        self._renewal.failed(self._link.now())
        self._line_failed.set()

    async def _ask_anew(self) -> None:
        """Ask for newer documents although those that we have are not due; without success the old ones serve."""
        self._renewal.asked(self._link.now(), draw=random.random())  # noqa: S311 - jitter, no secret
        try:
            await self._context.documents.trust_of(self._link.domain, is_refresh=True)
        except HostError as exc:
            logger.info("no newer documents of %s: %s", self._link.domain, exc)

    # While it runs: is it still needed, may it still run, is there a newer one?

    async def _watch(self, stub: VerifiedStub, hosted: HostedStub) -> None:
        self._verdict = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_idle, nursery.cancel_scope)
            if not self._is_chosen:  # whose documents and proofs there are none to look at again
                nursery.start_soon(self._watch_trust, stub, nursery.cancel_scope)
                nursery.start_soon(_after_a_day, nursery.cancel_scope)
            nursery.start_soon(self._sum_up_often)
            if ADDRESSES in stub.manifest.events:
                nursery.start_soon(self._feed.run, hosted)
        self._lifecycle.draining()
        self._show_stub()
        hosted.drain()
        await trio.sleep(DRAIN_SECONDS)

    async def _watch_idle(self, over: trio.CancelScope) -> None:
        link = self._link
        while True:
            await trio.sleep(IDLE_SECONDS / 10)
            if link.is_idle and self._link.now() - link.last_used_seconds > IDLE_SECONDS:
                logger.info("the link to %s is idle and is closed", link.domain, extra={"domain": link.domain})
                over.cancel()
                return

    async def _watch_trust(self, stub: VerifiedStub, over: trio.CancelScope) -> None:
        """Ask for newer documents in time; stop what was revoked or has expired, make room for what is newer."""
        documents, domain = self._context.documents, self._link.domain
        while True:
            # A trust that the operator takes back counts no longer than this; what has not ended is not asked for.
            until_news = documents.seconds_until_refresh(domain)
            with trio.move_on_after(max(LEAST_REFRESH_SECONDS, min(until_news, TRUST_LOOK_SECONDS))) as quiet:
                await self._wait_for_failure()
            if quiet.cancelled_caught and until_news > TRUST_LOOK_SECONDS and not documents.is_forgotten(domain):
                continue
            try:
                trust = await documents.trust_of(domain, is_refresh=True)
                code = judge_running(stub, trust, now=time.time(), grace_seconds=EXPIRED_GRACE_SECONDS)
                current = trust.live.stubs.get(DEFAULT_STUB)
            except (TransportError, PeerError) as exc:
                if isinstance(exc, PeerError):
                    logger.warning("news of %s are refused: %s", domain, exc, extra={"domain": domain})
                else:
                    logger.info("%s cannot be asked for news: %s", domain, exc, extra={"domain": domain})
                if not documents.is_forgotten(domain):
                    continue
                logger.info(
                    "the stub of %s is stopped: the operator took back its trust", domain, extra={"domain": domain}
                )
                self._verdict = PeerError(Code.BROKEN_TRUST, "the stub may not run any more", domain=domain)
                over.cancel()
                return
            if code is not None:
                self._verdict = PeerError(code, "the stub may not run any more", domain=domain)
            is_newer = current is not None and current.manifest_sha256 != stub.manifest_sha256
            is_elsewhere = not self._link.is_live and has_moved(stub, trust)
            if code is not None or is_newer or is_elsewhere:
                why = "there is a newer one" if is_newer else "its endpoints are others now"
                why = code.word if code is not None else why
                logger.info("the stub of %s is replaced: %s", domain, why, extra={"domain": domain})
                over.cancel()
                return

    async def _wait_for_failure(self) -> None:
        """Wait until failed lines justify asking for documents that are not due."""
        while (pause_seconds := self._renewal.due_in(self._link.now())) is None:
            self._line_failed = trio.Event()
            await self._line_failed.wait()
        await trio.sleep(max(pause_seconds, self._context.documents.seconds_until_askable(self._link.domain)))
        self._renewal.asked(self._link.now(), draw=random.random())  # noqa: S311 - jitter, no secret

    # The records.

    def _refused(self, exc: HostError) -> None:
        self._link.events.refused(exc.code, exc.detail)

    async def _sum_up_often(self) -> None:
        while True:
            await trio.sleep(SUMMARY_SECONDS)
            self._sum_up()

    def _sum_up(self) -> None:
        """Write down what the exchanges were like since the last time, if there were any."""
        now = self._link.now()
        if self._meters.has_news:
            exchange_us, exchange_fuel = self._meters.take_histograms()
            summary = self._described("summary")
            summary.duration_us = int((now - self._summed_up) * 1e6)
            summary.exchange_us, summary.exchange_fuel = exchange_us, exchange_fuel
            self._link.records.record(summary)
        self._summed_up = now

    def _event(
        self,
        event: StubEventName,
        *,
        code: Code | None = None,
        detail: str = "",
        trap: str = "",
        state: str = "",
        pid: int | None = None,
        seconds: float | None = None,
    ) -> None:
        entry = self._described(event)
        entry.duration_us = None if seconds is None else int(seconds * 1e6)
        entry.code = None if code is None else code.word
        entry.detail, entry.trap, entry.state = detail[:256] or None, trap[:256] or None, state or None
        entry.pid = pid
        self._link.records.record(entry)

    def _described(self, event: StubEventName) -> StubEvent:
        meters = self._meters
        return StubEvent(
            ts_us=int(time.time() * 1e6),
            domain=self._link.domain,
            event=event,
            stub_ver=self._link.stub.started_sha256 or None,
            calls=meters.calls,
            messages=meters.messages,
            traps=meters.traps,
            fuel=meters.fuel,
            cpu_us=meters.cpu_us,
            mem_peak_kib=meters.memory_bytes >> 10,
        )


async def _after_a_day(over: trio.CancelScope) -> None:
    """A proof holds for a day: then a new instance proves itself anew. Source: trust and hosts, section 2.7, rule 7."""
    await trio.sleep(REAUTHENTICATE_SECONDS)
    over.cancel()
