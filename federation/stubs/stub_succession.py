"""A newer version of a stub takes over from the one that runs, while messages go on.

It is started beside the old one. Once it is live, which is its sign of life, new messages wait until nothing is under
way by the old one, and then go by it; so their order holds. What the old one cannot finish in time goes again, with its
numbers. One that faults, or gets no line where the old one has one, is ended, and the old one goes on as if nothing had
been.

Source: trust and hosts, section 3.6, step 6.
"""

from __future__ import annotations

import logging
from typing import Final

import trio

from catalogue_client.core.state import FailedModule
from federation.core.link_machine import TakeOver
from federation.core.stub_release import ReleaseAction, ReleaseEvent
from federation.core.stub_status import StepTimes
from federation.links.domain_link import DomainLink
from federation.links.need import first_of
from federation.stubs.instance_run import InstanceRun, Instances, StubSources
from federation.stubs.stub_canary import CanaryEnd, StubCanary
from federation.stubs.stub_life import StubLife
from federation.stubs.stub_provider import Package
from protofly.errors import Code, PeerError, StubFaultError, TransportError
from protofly.stub import VerifiedStub

logger = logging.getLogger("federation")

BESIDE_SECONDS: Final = 30.0
"""For how long a newer version may be without a line beside the one that runs."""
HANDOVER_SECONDS: Final = 30.0
"""For how long what is under way may keep the newer version waiting."""
_NO_LINE: Final = FailedModule(code=Code.CONNECT_FAILED.word, detail=f"no line within {BESIDE_SECONDS:.0f} s")


class StubSuccession:
    """Replaces the running version of the stub of one link.

    Args:
        link: Whose stub it is.
        life: Gets what happens to versions.
        sources: Where they come from.
        instances: Of the link.

    Attributes:
        canary: The share that a newer version carries first.
    """

    def __init__(self, link: DomainLink, life: StubLife, sources: StubSources, instances: Instances) -> None:
        self._link = link
        self._life = life
        self._sources = sources
        self._instances = instances
        self.canary = StubCanary(link, life, sources, instances)
        self._about = {"domain": link.domain}

    async def is_due(self, old: InstanceRun) -> bool:
        """True when the domain offers another version that may run."""
        return await self._package(old, StepTimes()) is not None

    async def replace(self, old: InstanceRun) -> InstanceRun | None:
        """Have what the domain offers now take over; returns what has, None when the old one goes on."""
        times = StepTimes()
        package = await self._package(old, times)
        if package is None:
            return None
        stub = package.stub
        self._sources.provider.releases.begin(stub, is_beside=True)
        self._life.compiled(times)
        self._life.records.release("updating", stub)
        logger.info("%s %s is started beside %s", stub.name, stub.version, self._link.stub.version, extra=self._about)
        try:
            tried = await self.canary.try_out(old, package, times)
            if tried.end is CanaryEnd.FAILED:
                await self._turned_down(stub, tried.event, tried.why or _NO_LINE)
            if tried.end in (CanaryEnd.FAILED, CanaryEnd.BROKEN_OFF):
                return None
            run = await self._instances.make(package, times)
        except StubFaultError as exc:
            await self._turned_down(stub, ReleaseEvent.FAULT, FailedModule(code=exc.code.word, detail=exc.detail))
            return None
        self._instances.start(run)
        self._link.queue.awaited_until = self._link.now() + BESIDE_SECONDS + HANDOVER_SECONDS
        is_over = False
        try:
            is_over = await self._is_live(old, run) and await self._is_handed_over(old, run)
        finally:
            self._link.queue.awaited_until = 0.0
            if not is_over:
                run.stop()
        if not is_over:
            return None
        self._link.stub.times = times
        self._instances.verified(package)
        self._instances.take_in(run)
        self._life.took_over(stub)
        return run

    async def _package(self, old: InstanceRun, times: StepTimes) -> Package | None:
        try:
            package = await self._sources.provider.package(self._link.domain, times)
        except (PeerError, TransportError) as exc:
            logger.warning("no other stub of %s: %s", self._link.domain, exc, extra=self._about)
            return None
        return None if package.stub.manifest_sha256 == old.package.stub.manifest_sha256 else package

    async def _is_live(self, old: InstanceRun, run: InstanceRun) -> bool:
        """Wait until the newer one is live; False when it cannot be."""
        is_live = False
        with trio.move_on_after(BESIDE_SECONDS):
            is_live = await run.wait_live()
        if is_live:
            await self._sources.provider.releases.happened(run.package.stub, ReleaseEvent.LIVE)
            return True
        event = ReleaseEvent.NO_LINE_BUT_OLDER if old.is_live else ReleaseEvent.NO_LINE
        await self._turned_down(run.package.stub, _fault_of(run) or event, _why(run))
        return False

    async def _is_handed_over(self, old: InstanceRun, run: InstanceRun) -> bool:
        """Have messages go by the newer one; False when it ended meanwhile."""
        link, carrier = self._link, old.hosted
        assert carrier is not None
        assert run.hosted is not None
        link.handle(TakeOver(carrier, run.hosted))
        with trio.move_on_after(HANDOVER_SECONDS) as patience:
            await first_of(lambda: link.effects.wait_carried_by_another(carrier), run.ended.wait)
        if patience.cancelled_caught:
            link.handle(TakeOver(carrier, run.hosted, is_now=True))
        if not run.ended.is_set():
            return True
        await self._turned_down(run.package.stub, _fault_of(run) or ReleaseEvent.NO_LINE, _why(run))
        return False

    async def _turned_down(self, stub: VerifiedStub, event: ReleaseEvent, why: FailedModule) -> None:
        action = await self._sources.provider.releases.happened(stub, event, why)
        detail = f"{why.code} {why.detail}"
        if action is ReleaseAction.ROLL_BACK:
            self._life.rolled_back(stub, detail)
        else:
            self._life.records.release("turned-down", stub, detail)
            logger.warning("%s %s does not take over: %s", stub.name, stub.version, detail, extra=self._about)


def _fault_of(run: InstanceRun) -> ReleaseEvent | None:
    """What is to be held against the code of an instance that has ended; None for nothing."""
    failure = run.failure
    is_fault = isinstance(failure, StubFaultError) and failure.code is not Code.STUB_FAILED
    return ReleaseEvent.FAULT if is_fault else None


def _why(run: InstanceRun) -> FailedModule:
    return _NO_LINE if run.failure is None else run.why_it_failed
