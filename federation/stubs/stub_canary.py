"""A newer version of a stub carries a share of the messages first, where the operator wants that.

It runs beside the one that carries, on a line of its own. After its time in good order the share ends, and the newer
version takes over whole (`stub_succession`). If it fails meanwhile, the version that runs sees its share through: a
second instance of that goes on with the numbers of the share, so that nothing is lost, and nothing repeated.

Source: trust and hosts, section 3.6, step 6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from secrets import token_hex
from typing import Final

import trio

from catalogue_client.core.state import FailedModule
from federation.core.canary_lane import CanaryLane
from federation.core.stub_release import ReleaseEvent
from federation.core.stub_status import StepTimes
from federation.discovery.domain_documents import version_of
from federation.links.domain_link import DomainLink
from federation.stubs.canary_port import CanaryPort
from federation.stubs.instance_run import InstanceRun, Instances, StubSources
from federation.stubs.stub_life import StubLife
from federation.stubs.stub_provider import Package
from protofly.errors import Code, StubFaultError

logger = logging.getLogger("federation")

BEGIN_SECONDS: Final = 30.0
"""For how long a newer version may be without a line, and for how long what is under way may keep it waiting."""
END_SECONDS: Final = 30.0
"""For how long what is under way by a share may take to be seen through."""
SILENT_SECONDS: Final = 10.0
"""For how long the far end may acknowledge nothing of what it was sent, or the line may be lost."""
TURN_SECONDS: Final = 30.0
"""A share goes on for so long before it is broken off because the documents of its domain are to be looked at."""
LOOK_SECONDS: Final = 0.25
_CLEAR_SECONDS: Final = 0.005
_REFUSED_AT_LEAST: Final = 10


class CanaryEnd(Enum):
    """The end of a share."""

    WELL = "well"
    """The newer version may take over."""
    LEFT_OUT = "left out"
    """It could not be had, for a reason that says nothing about the newer version."""
    BROKEN_OFF = "broken off"
    """The documents of the domain are to be looked at first; it goes on after that."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """The result of a share; `event` and `why` name the failure of a version."""

    end: CanaryEnd
    event: ReleaseEvent = ReleaseEvent.FAULT
    why: FailedModule | None = None


WELL: Final = CanaryResult(CanaryEnd.WELL)
_BROKEN_OFF: Final = CanaryResult(CanaryEnd.BROKEN_OFF)
_LEFT_OUT: Final = CanaryResult(CanaryEnd.LEFT_OUT)


class StubCanary:
    """The shares of newer versions on one link, one at a time.

    Args:
        link: That they are of.
        life: Gets what is recorded of them.
        sources: Of stubs, and of what the operator says.
        instances: Of the link.
    """

    def __init__(self, link: DomainLink, life: StubLife, sources: StubSources, instances: Instances) -> None:
        self._link = link
        self._life = life
        self._sources = sources
        self._instances = instances
        self._spent: tuple[str, float] = ("", 0.0)
        self._about = {"domain": link.domain}

    async def try_out(self, old: InstanceRun, package: Package, times: StepTimes) -> CanaryResult:
        """Have a newer version carry a share for its time, if the operator wants that.

        Raises:
            StubFaultError: Its worker cannot load it.
        """
        terms, link = self._sources.canary(self._link.domain), self._link
        digest, spent = self._spent
        if digest != package.stub.manifest_sha256:
            digest, spent = package.stub.manifest_sha256, 0.0
        if terms is None or terms.seconds <= spent or link.machine.canary is not None:
            return WELL
        lane = CanaryLane(token_hex(16), terms.percent, link.queue.limits)
        run = await self._instances.make(package, times, CanaryPort(link, lane, package.stub.module_sha256))
        self._instances.start(run)
        try:
            result = _failed_by(run) or _LEFT_OUT
            if await self._is_begun(run, lane):
                self._life.records.release("canary", package.stub, f"{terms.percent} %")
                began = link.now()
                result = await self._watch(old, run, lane, began + terms.seconds - spent)
                self._spent = (digest, spent + link.now() - began)
        finally:
            self._close(lane)
        if result.end is CanaryEnd.FAILED or not run.is_live:
            run.stop()
            await run.ended.wait()
        await self.finish(old.package)
        run.end()
        return result

    async def _is_begun(self, run: InstanceRun, lane: CanaryLane) -> bool:
        """Begin the share once it has a line, and nothing is under way by the others; False if that cannot be."""
        link, carriers = self._link, self._link.machine.carriers
        is_live = False
        with trio.move_on_after(BEGIN_SECONDS):
            is_live = await run.wait_live()
        if not is_live:
            return False
        carriers.are_held = True
        try:
            with trio.move_on_after(BEGIN_SECONDS):
                await _until(lambda: link.queue.is_clear or run.ended.is_set())
        finally:
            carriers.are_held = False
            if link.queue.is_clear and not run.ended.is_set():
                link.machine.canary = lane
                lane.open(link.queue)
            self._pump()
        return link.machine.canary is lane

    async def _watch(self, old: InstanceRun, run: InstanceRun, lane: CanaryLane, until: float) -> CanaryResult:
        """Watch the share until its time is over, or it goes wrong."""
        link, began = self._link, self._link.now()
        version = version_of(self._sources.documents, link.domain)
        heard, delivered = began, 0
        while link.now() < until:
            with trio.move_on_after(min(LOOK_SECONDS, until - link.now())):
                await run.ended.wait()
            now = link.now()
            if lane.delivered != delivered or (run.is_live and not lane.queue.under_way):
                heard, delivered = now, lane.delivered
            if not old.is_live:
                return _failed_by(run) or _LEFT_OUT  # the far end may take one line of us only
            trouble = _trouble(lane, now - heard)
            if run.ended.is_set() or trouble:
                failed = FailedModule(code=Code.CONNECT_FAILED.word, detail=trouble or "its line was lost")
                return _failed_by(run) or CanaryResult(CanaryEnd.FAILED, ReleaseEvent.NO_LINE_BUT_OLDER, failed)
            if self._is_to_look(now - began, version):
                return _BROKEN_OFF
        return WELL

    def _is_to_look(self, lasted: float, version: bytes) -> bool:
        """True when the documents are to be looked at: what runs may be revoked, or the operator has changed a rule."""
        documents, domain = self._sources.documents, self._link.domain
        is_due = lasted > TURN_SECONDS and documents.seconds_until_refresh(domain) == 0.0
        return (
            is_due
            or version_of(documents, domain) != version
            or documents.is_forgotten(domain)
            or self._link.need.is_asked_to_look
        )

    def _close(self, lane: CanaryLane) -> None:
        if self._link.machine.canary is lane and lane.is_open:
            lane.close(self._link.now() + END_SECONDS)

    def _pump(self) -> None:
        self._link.flush()
        self._link.senders.look_again()

    async def finish(self, package: Package) -> None:
        """See through what is under way by a share that has ended, and have the rest follow in order.

        Args:
            package: Runs as a second instance for that, if the one that carried the share does not.
        """
        link, lane = self._link, self._link.machine.canary
        if lane is None:
            return
        second: InstanceRun | None = None
        try:
            if lane.carrier is None and not lane.is_finished:
                second = await self._second(package, lane)
            with trio.move_on_after(END_SECONDS):
                await _until(lambda: lane.is_finished)
        finally:
            if second is not None:
                second.stop()
        if link.machine.canary is not lane:
            return
        link.machine.canary = None
        unsure = lane.join(link.queue)
        if unsure:
            logger.warning("%d messages to %s may come twice: nobody says what arrived", unsure, link.domain)
        self._pump()

    async def _second(self, package: Package, lane: CanaryLane) -> InstanceRun | None:
        try:
            run = await self._instances.make(
                package, StepTimes(), CanaryPort(self._link, lane, package.stub.module_sha256)
            )
        except StubFaultError as exc:
            logger.warning("the rest of a share cannot be seen through: %s", exc, extra=self._about)
            return None
        self._instances.start(run)
        return run


async def _until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so; messages have no event of their own for it."""
    while True:
        if is_so():
            return
        await trio.sleep(_CLEAR_SECONDS)


def _trouble(lane: CanaryLane, silent_seconds: float) -> str:
    """What is wrong with a share, in words; "" for nothing."""
    if silent_seconds > SILENT_SECONDS:
        return f"nothing acknowledged for {silent_seconds:.0f} s"
    if lane.refused >= _REFUSED_AT_LEAST and lane.refused > lane.delivered:
        return f"{lane.refused} messages refused, {lane.delivered} delivered"
    return ""


def _failed_by(run: InstanceRun) -> CanaryResult | None:
    """What is to be held against the code of an instance that has ended; None for nothing."""
    failure = run.failure
    if not isinstance(failure, StubFaultError) or failure.code is Code.STUB_FAILED:
        return None
    return CanaryResult(CanaryEnd.FAILED, ReleaseEvent.FAULT, run.why_it_failed)
