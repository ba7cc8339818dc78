"""One deployment of a domain's stub after the other: package, worker, instance, to the end of the instance.

What runs is followed from one version to the next: a newer one takes over while messages go on (`stub_succession`), and
one that fails here within its first ten minutes gives way to the version before it (`stub_releases`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import trio

from catalogue_client.core.state import FailedModule
from federation.core.contact_trouble import Side
from federation.core.stub_lifecycle import StubState
from federation.core.stub_release import ReleaseAction, ReleaseEvent
from federation.core.stub_status import StepTimes
from federation.discovery.document_news import DocumentNews
from federation.links.domain_link import DomainLink
from federation.stubs.hosted_stub import StateObserver
from federation.stubs.instance_run import InstanceRun, Instances, StubSources
from federation.stubs.instance_watch import InstanceWatch
from federation.stubs.stub_life import StubLife
from federation.stubs.stub_provider import Package
from federation.stubs.stub_succession import StubSuccession
from protofly.errors import Code, HostError, PeerError, StubFaultError, TransportError


class StubDeployment(StateObserver):
    """Deploys the stub of one link, and follows its instance.

    Args:
        link: Whose stub it is.
        life: Gets each step.
        news: Is notified of lines that fail, and asks for newer documents where they justify it.
        sources: Where it comes from.
        nursery: Runs its instances.

    Attributes:
        instances: Of the link.
    """

    def __init__(
        self, link: DomainLink, life: StubLife, news: DocumentNews, sources: StubSources, nursery: trio.Nursery
    ) -> None:
        self._link = link
        self._life = life
        self._news = news
        self._sources = sources
        self._is_chosen = link.domain in sources.host.terms.chosen
        self._watch = InstanceWatch(link, sources.documents, news, is_chosen=self._is_chosen)
        self.instances = Instances(link, life, sources, nursery, self)
        self._succession = StubSuccession(link, life, sources, self.instances)

    async def run(self) -> None:
        """Deploy the stub, and run it until it is needed no more or is to be deployed anew.

        Raises:
            TransportError: What is needed could not be had, or the instance got no line and there is another stub.
            PeerError: What its domain publishes is refused, before it ran or while it did.
            StubFaultError: The instance failed, and no version before it goes on.
        """
        link, times = self._link, StepTimes()
        link.need.begin()
        link.stub.times = times
        self._life.deploying()
        if (reason := self._sources.forbidden(link.domain)) is not None:
            raise PeerError(Code.STUB_FORBIDDEN, reason, domain=link.domain)
        if not self._is_chosen:
            await self._news.ask_if_due()
        package = await self._package(times)
        self._sources.provider.releases.begin(package.stub, is_beside=False)
        first = await self.instances.make(package, times)
        self._life.started()
        self.instances.start(first)
        self.instances.take_in(first)
        following: InstanceRun | None = first
        try:
            while following is not None:
                following = await self._follow(following)
        finally:
            self.instances.stop()
            if link.machine.canary is not None:
                link.need.arise()

    async def _package(self, times: StepTimes) -> Package:
        link, sources = self._link, self._sources
        try:
            package = await sources.provider.package(link.domain, times, asked_by=link.need.asked_by)
        finally:
            for name, milliseconds in times.steps:
                link.events.stepped(name, milliseconds / 1000)
        self.instances.verified(package)
        self._life.verified(package.stub)
        self._life.compiled(times)
        return package

    async def _follow(self, run: InstanceRun) -> InstanceRun | None:
        """Follow an instance to its end; returns the one that has taken over, None when none has.

        Raises:
            HostError: As `run`.
        """
        self._sources.provider.check_allowed(run.package.stub)  # forbidden while it was started beside another
        following: InstanceRun | None = None
        link = self._link

        async def update() -> bool:
            nonlocal following
            if self._sources.host.interworking.admission(link.domain) is not None:
                return await self._succession.is_due(run)  # its legacy side may take only one: another follows it
            following = await self._succession.replace(run)
            return following is not None

        more: list[Callable[[], Awaitable[HostError | None]]] = [run.ended.wait]
        if run.package.has_alternatives:
            more.append(run.patience.wait_lost)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._life.records.sum_up_often)
            if link.machine.canary is not None:
                nursery.start_soon(self._finish_share, run)
            nursery.start_soon(self._prove_in_time, run)
            reason = await self._watch.wait_end(run.package.stub, update, *more)
            nursery.cancel_scope.cancel()
        if following is not None:
            run.end()
        elif run.ended.is_set():
            await self._failed(run)
        elif isinstance(reason, TransportError):
            await self._give_way(run, reason)
        else:
            await self._drain(run, reason)
        return following

    async def _finish_share(self, run: InstanceRun) -> None:
        """A share of an instance before this one has ended with it, and this one has a line: see it through."""
        if await run.wait_live():
            await self._succession.canary.finish(run.package)

    async def _drain(self, run: InstanceRun, reason: HostError | None) -> None:
        self._life.draining()
        run.end()
        await run.ended.wait()
        if reason is not None:
            raise reason

    async def _prove_in_time(self, run: InstanceRun) -> None:
        """A version on trial has proved itself once it has carried for long enough."""
        stub, releases = run.package.stub, self._sources.provider.releases
        if not await run.wait_live():
            return
        if await releases.happened(stub, ReleaseEvent.LIVE) is ReleaseAction.ROLL_BACK:
            self._life.rolled_back(stub, "it is live, and the version after it got no line")
        seconds = releases.seconds_until_proved(stub)
        if seconds is not None:
            await trio.sleep(seconds)
            await releases.prove(stub)
            self._life.records.release("proved", stub)

    async def _failed(self, run: InstanceRun) -> None:
        """The instance has ended by itself: raise why, unless the version before it goes on."""
        failure, stub, releases = run.failure, run.package.stub, self._sources.provider.releases
        if not isinstance(failure, StubFaultError):
            if failure is not None:
                raise failure
            return
        event = ReleaseEvent.NO_LINE if failure.code is Code.STUB_FAILED else ReleaseEvent.FAULT
        action = await releases.happened(stub, event, run.why_it_failed)
        if action is ReleaseAction.ROLL_BACK:
            self._life.rolled_back(stub, f"{failure.code.word} {failure.detail}", failure)
            return
        if not run.patience.was_live:
            releases.start_failed(stub)
        raise failure

    async def _give_way(self, run: InstanceRun, reason: TransportError) -> None:
        """The instance got no line for too long: another stub, or the version before it, is tried."""
        stub, releases = run.package.stub, self._sources.provider.releases
        run.stop()
        await run.ended.wait()
        await releases.happened(stub, ReleaseEvent.NO_LINE, FailedModule(code=reason.code.word, detail=reason.detail))
        releases.start_failed(stub)
        raise reason

    # What the instance reports.

    def reported(self, text: str) -> None:
        """See `StateObserver`."""
        state = self._life.reported(text)
        if state is StubState.LIVE:
            self._proved()
        elif state is StubState.DISCONNECTED and (detail := self._link.machine.detail):
            self._link.events.met(Side.REFUSAL, detail)
            if not self._link.is_live:
                self._news.line_failed()

    def _proved(self) -> None:
        times = self._link.stub.times
        if not any(name == "authenticate" for name, _ in times.steps):
            seconds = time.perf_counter() - self.instances.began_seconds
            times.add("authenticate", seconds)
            self._link.events.stepped("authenticate", seconds)
        self._news.line_proved()

    def line_failed(self, reason: str) -> None:
        """See `StateObserver`."""
        self._link.events.met(Side.LINE, reason)
        self._news.line_failed()
