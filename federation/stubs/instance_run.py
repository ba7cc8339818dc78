"""The instances of the stub of one link, each with its worker: two of them while a newer version takes over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from catalogue_client.core.state import FailedModule
from federation.core.carrier import LinkPort
from federation.core.stub_lifecycle import REPORTABLE, StubState
from federation.core.stub_status import StepTimes
from federation.discovery.domain_documents import DomainDocuments
from federation.links.domain_link import DomainLink
from federation.stubs.address_feed import AddressFeed, OurAddresses, hears_addresses
from federation.stubs.hosted_stub import HostedStub, StateObserver, StubInstance, StubObserver, host
from federation.stubs.line_patience import LinePatience
from federation.stubs.stub_host import StubHost
from federation.stubs.stub_life import StubLife
from federation.stubs.stub_provider import Package, StubProvider
from policy.core.gate import Gate
from protofly.errors import StubFaultError

DRAIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class CanaryTerms:
    """The share that newer versions of the stub of one domain carry first.

    Attributes:
        percent: Of the pairs of addresses.
        seconds: For how long.
    """

    percent: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StubSources:
    """The source and the sandbox of stubs, shared by all links of a node.

    Stubs of the operator that ask for it hear of our `addresses`, as far as the `gate` lets their domains in.
    `forbidden` says why the operator does not let the stub of a domain run here; None: it may. `canary` says what share
    of the messages of a domain a newer version carries first; None: it takes over at once.
    """

    documents: DomainDocuments
    provider: StubProvider
    host: StubHost
    gate: Gate
    addresses: OurAddresses
    forbidden: Callable[[str], str | None] = lambda _domain: None
    canary: Callable[[str], CanaryTerms | None] = lambda _domain: None


class InstanceRun(StubObserver):
    """One run of one instance.

    Args:
        package: What runs.
        instance: Ready to run.
        link: That it serves.
        feed: News for stubs that ask for them.
        port: What it carries: the messages of the link, or a share of them.

    Attributes:
        observer: Hears what the instance reports, while it is the one of the link.
        ended: It has ended, and its worker too.
        failure: What ended it, None when it ended in good order.
        patience: How long it may be without a line.
        hosted: It as a carrier, once it runs.
    """

    def __init__(
        self, package: Package, instance: StubInstance, link: DomainLink, feed: AddressFeed, port: LinkPort
    ) -> None:
        self._port, self._events = port, link.events
        self.package = package
        self.observer: StateObserver | None = None
        self.ended = trio.Event()
        self.failure: Exception | None = None
        self.patience = LinePatience(link)
        self.hosted: HostedStub | None = None
        self._instance = instance
        self._feed = feed
        self._live = trio.Event()
        self._ending = trio.Event()
        self._scope = trio.CancelScope()

    @property
    def pid(self) -> int:
        """Its worker process."""
        return self._instance.process.pid

    @property
    def why_it_failed(self) -> FailedModule:
        """The reason for its end, for the mark of its module."""
        failure = self.failure
        if isinstance(failure, StubFaultError):
            return FailedModule(code=failure.code.word, detail=failure.detail)
        return FailedModule(code="internal", detail=type(failure).__name__)

    async def run(self, on_end: Callable[[InstanceRun], None]) -> None:
        """Run it to its end; never raises what ended it. `on_end` is called then."""
        try:
            with self._scope:
                await host(self._instance, self._port, self, self._until_end)
        except Exception as exc:
            self.failure = exc
        finally:
            self._instance.process.close()
            on_end(self)
            self.ended.set()
            self._live.set()

    async def _until_end(self, hosted: HostedStub) -> None:
        self.hosted = hosted
        async with trio.open_nursery() as nursery:
            if hears_addresses(self.package.stub):
                nursery.start_soon(self._feed.run, hosted)
            await self._ending.wait()
            nursery.cancel_scope.cancel()
        hosted.drain()
        await trio.sleep(DRAIN_SECONDS)

    @property
    def is_live(self) -> bool:
        """True while messages can go and come by it."""
        return self.hosted is not None and self.hosted.is_live

    @property
    def is_ending(self) -> bool:
        """True when it ends in good order."""
        return self._ending.is_set()

    def end(self) -> None:
        """End it in good order: it says goodbye, and closes its lines."""
        self._ending.set()

    def stop(self) -> None:
        """End it at once."""
        self._scope.cancel()

    async def wait_live(self) -> bool:
        """Wait until it is live for the first time; False if it ended before."""
        await self._live.wait()
        return self.patience.was_live and not self.ended.is_set()

    # What the instance reports.

    def reported(self, text: str) -> None:
        """See `StateObserver`."""
        state = REPORTABLE.get(text.partition(" ")[0])
        if state is not None:
            self.patience.reported(state)
        if state is StubState.LIVE:
            self._feed.begin()
            self._live.set()
        if self.observer is not None:
            self.observer.reported(text)

    def line_failed(self, reason: str) -> None:
        """See `StateObserver`."""
        self.patience.line_failed()
        if self.observer is not None:
            self.observer.line_failed(reason)

    def throttled(self, detail: str) -> None:
        """See `StubObserver`."""
        self._events.throttled(detail)


class Instances:
    """Makes and runs the instances of one link; one of them is the one of the link.

    Args:
        link: That they serve.
        life: Gets what is recorded of them.
        sources: Of what they need.
        nursery: Runs them.
        observer: Hears what the one of the link reports.

    Attributes:
        running: All that run now.
        began_seconds: When the one of the link was started, by `time.perf_counter`.
    """

    def __init__(
        self, link: DomainLink, life: StubLife, sources: StubSources, nursery: trio.Nursery, observer: StateObserver
    ) -> None:
        self.began_seconds = 0.0
        self._observer = observer
        self._link = link
        self._life = life
        self._sources = sources
        self._nursery = nursery
        self.running: list[InstanceRun] = []
        self._current: InstanceRun | None = None

    def verified(self, package: Package) -> None:
        """The kind of a stub that is to be the one of the link is known."""
        self._sources.host.interworking.verified(package.stub.manifest)
        self._link.stub_verified()

    async def make(self, package: Package, times: StepTimes, port: LinkPort | None = None) -> InstanceRun:
        """Give a package a worker, and make an instance of it, which does not run yet.

        It carries the messages of the link, or what `port` has of them.

        Raises:
            StubFaultError: The worker cannot load it.
        """
        link, sources = self._link, self._sources
        began = time.perf_counter()
        process = await sources.host.start_worker(package)
        start_seconds = time.perf_counter() - began
        times.add("start", start_seconds)
        self._life.records.started(process.pid, start_seconds, package.stub.module_sha256)
        port = port or link
        instance = sources.host.instance(package, process, link, port.queue.stream)
        feed = AddressFeed(link.domain, sources.gate, sources.addresses)
        return InstanceRun(package, instance, link, feed, port)

    def start(self, run: InstanceRun) -> None:
        """Run an instance, in the background."""
        self.running.append(run)
        self._nursery.start_soon(run.run, self._ended)

    def take_in(self, run: InstanceRun) -> None:
        """An instance is the one of the link from now on, and the one before it no more."""
        if self._current is not None:
            self._current.observer = None
        self._current, run.observer = run, self._observer
        self.began_seconds = time.perf_counter()
        self._sources.host.describe(run.package, self._link)
        self._link.stub.worker_pid = run.pid

    def stop(self) -> None:
        """Stop what runs, and does not end in good order already."""
        for run in self.running:
            if not run.is_ending:
                run.stop()

    def _ended(self, run: InstanceRun) -> None:
        self.running.remove(run)
        if run is self._current:
            self._link.stub.worker_pid = None
        self._life.records.stopped(run.pid, run.package.stub.module_sha256)
