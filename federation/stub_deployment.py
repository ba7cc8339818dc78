"""One deployment of a domain's stub after the other: package, worker, instance, to the end of the instance."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from federation.address_feed import AddressFeed, OurAddresses, hears_addresses
from federation.core.contact_trouble import Side
from federation.core.stub_lifecycle import StubState
from federation.core.stub_status import StepTimes
from federation.document_news import DocumentNews
from federation.domain_documents import DomainDocuments
from federation.domain_link import DomainLink
from federation.hosted_stub import HostedStub, StubObserver, host
from federation.instance_watch import InstanceWatch
from federation.line_patience import LinePatience
from federation.stub_host import StubHost
from federation.stub_life import StubLife
from federation.stub_provider import Package, StubProvider
from policy.core.gate import Gate
from protofly.errors import Code, HostError, PeerError, StubFaultError, TransportError
from sandbox.host import StubProcess

DRAIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class StubSources:
    """Where stubs come from, and what runs them; all links of a node share it.

    Stubs of the operator that ask for it hear of our `addresses`, as far as the `gate` lets their domains in.
    `forbidden` says why the operator does not let the stub of a domain run here; None: it may.
    """

    documents: DomainDocuments
    provider: StubProvider
    host: StubHost
    gate: Gate
    addresses: OurAddresses
    forbidden: Callable[[str], str | None] = lambda _domain: None


class StubDeployment(StubObserver):
    """Deploys the stub of one link, and follows its instance.

    Args:
        link: Whose stub it is.
        life: Gets each step.
        news: Is notified of lines that fail, and asks for newer documents where they justify it.
        sources: Where it comes from.
    """

    def __init__(self, link: DomainLink, life: StubLife, news: DocumentNews, sources: StubSources) -> None:
        self._link = link
        self._life = life
        self._news = news
        self._sources = sources
        self._is_chosen = link.domain in sources.host.terms.chosen
        self._watch = InstanceWatch(link, sources.documents, news, is_chosen=self._is_chosen)
        self._feed = AddressFeed(link.domain, sources.gate, sources.addresses)
        self._instance_began = 0.0
        self._patience = LinePatience(link)

    async def run(self) -> None:
        """Deploy the stub, and run one instance until it is needed no more or another one is to follow.

        Raises:
            TransportError: What is needed could not be had, or the instance got no line and there is another stub.
            PeerError: What its domain publishes is refused, before it ran or while it did.
            StubFaultError: The instance failed.
        """
        link, times = self._link, StepTimes()
        link.stub.times = times
        self._life.deploying()
        if (reason := self._sources.forbidden(link.domain)) is not None:
            raise PeerError(Code.STUB_FORBIDDEN, reason, domain=link.domain)
        if not self._is_chosen:
            await self._news.ask_if_due()
        package = await self._package(times)
        began = time.perf_counter()
        process = await self._sources.host.start_worker(package)
        start_seconds = time.perf_counter() - began
        times.add("start", start_seconds)
        self._life.records.started(process.pid, start_seconds)
        link.stub.worker_pid = process.pid
        try:
            refusal = await self._run_instance(package, process)
        finally:
            link.stub.worker_pid = None
            process.close()
            self._life.records.stopped(process.pid)
        if refusal is not None:
            raise refusal

    async def _package(self, times: StepTimes) -> Package:
        link, sources = self._link, self._sources
        try:
            package = await sources.provider.package(link.domain, times, asked_by=link.need.asked_by)
        finally:
            for name, milliseconds in times.steps:
                link.events.stepped(name, milliseconds / 1000)
        sources.host.interworking.verified(package.stub.manifest)
        link.stub_verified()
        self._life.verified(package.stub)
        for name, milliseconds in times.steps:
            if name == "compile":
                self._life.records.compiled(milliseconds / 1000)
        return package

    async def _run_instance(self, package: Package, process: StubProcess) -> HostError | None:
        """Run one instance to its end; returns why it may not run any more, None when it may."""
        self._sources.host.describe(package, self._link)
        self._life.started()
        instance = self._sources.host.instance(package, process, self._link)
        self._instance_began, self._patience = time.perf_counter(), LinePatience(self._link)
        try:
            reason = await host(instance, self._link, self, partial(self._until_end, package))
        except StubFaultError:
            if not self._patience.was_live:
                self._sources.provider.start_failed(package.stub)
            raise
        if isinstance(reason, TransportError):
            self._sources.provider.start_failed(package.stub)
        return reason

    async def _until_end(self, package: Package, hosted: HostedStub) -> HostError | None:
        more = [self._patience.wait_lost] if package.has_alternatives else []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._life.records.sum_up_often)
            if hears_addresses(package.stub):
                nursery.start_soon(self._feed.run, hosted)
            reason = await self._watch.wait_end(package.stub, *more)
            nursery.cancel_scope.cancel()
        if isinstance(reason, TransportError):
            return reason
        self._life.draining()
        hosted.drain()
        await trio.sleep(DRAIN_SECONDS)
        return reason

    # What the instance reports.

    def reported(self, text: str) -> None:
        """See `StubObserver`."""
        state = self._life.reported(text)
        if state is not None:
            self._patience.reported(state)
        if state is StubState.LIVE:
            self._proved()
        elif state is StubState.DISCONNECTED and (detail := self._link.machine.detail):
            self._link.events.met(Side.REFUSAL, detail)
            if not self._link.is_live:
                self._news.line_failed()

    def _proved(self) -> None:
        times = self._link.stub.times
        if not any(name == "authenticate" for name, _ in times.steps):
            seconds = time.perf_counter() - self._instance_began
            times.add("authenticate", seconds)
            self._link.events.stepped("authenticate", seconds)
        self._feed.begin()
        self._news.line_proved()

    def line_failed(self, reason: str) -> None:
        """See `StubObserver`."""
        self._patience.line_failed()
        self._link.events.met(Side.LINE, reason)
        self._news.line_failed()
