"""Keeps the stub of one domain running while it is needed: deploy, run, restart with back-off, give up, try again.

Source: design, section 4; trust and hosts, sections 3.6 and 4.2; message specification, section 18.4.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import trio

from federation.core.contact_trouble import Side
from federation.core.stub_lifecycle import Pause
from federation.discovery.document_news import DocumentNews
from federation.links.domain_link import DomainLink
from federation.links.need import first_of
from federation.stubs.instance_run import StubSources
from federation.stubs.stub_deployment import StubDeployment
from federation.stubs.stub_life import StubLife
from federation.stubs.stub_provider import OUR_DECISIONS
from protofly.errors import Code, HostError, PeerError, StubFaultError, TransportError

logger = logging.getLogger("federation")

_LINE_CODES: Final = frozenset(
    {Code.ADDRESS_REFUSED, Code.PORT_REFUSED, Code.NO_SUCH_DOMAIN, Code.TLS_FAILED, Code.HTTP_STATUS}
)
"""Refusals of ours that are about the way to a domain, and not about what it publishes."""


class StubSupervisor:
    """Decides for one link when its stub is deployed, and what senders get while it cannot run."""

    def __init__(self, link: DomainLink, sources: StubSources) -> None:
        self._link = link
        self._sources = sources
        self._interworking = sources.host.interworking
        self._life = StubLife(link)
        self._news = DocumentNews(link.domain, sources.documents, link.now)

    async def run(self) -> None:
        """Deploy whenever the link is needed and nobody carries it; until cancelled."""
        async with trio.open_nursery() as nursery:
            await self._run(StubDeployment(self._link, self._life, self._news, self._sources, nursery))

    async def _run(self, deployment: StubDeployment) -> None:
        link = self._link
        while True:
            await link.need.wait()
            if link.is_live or link.is_idle:
                continue
            held_back_seconds = self._held_back()
            pause = Pause.whole(held_back_seconds) if held_back_seconds else await self._try(deployment)
            if pause.seconds:
                link.machine.refuse_until = link.now() + pause.seconds
                with trio.move_on_after(pause.seconds):
                    await first_of(link.effects.wait_live, partial(self._asked_for, pause.asked_seconds))
            if not link.is_idle:
                link.need.arise()

    async def _asked_for(self, after_seconds: float) -> None:
        """Wait that long, and then until messages wait for the link."""
        await trio.sleep(after_seconds)
        if not self._link.machine.queue.waiting:
            await self._link.need.wait_arisen()

    def _held_back(self) -> float:
        """Seconds for which the stub is still left alone: another carrier in the meantime has not mended it."""
        pause_seconds = self._life.held_back_seconds()
        if pause_seconds and self._life.is_circuit_open:
            self._answer_all(Code.CIRCUIT_OPEN, "the stub crashed too often")
        return pause_seconds

    async def _try(self, deployment: StubDeployment) -> Pause:
        """One deployment, from first step to the end of the stub; returns how long to wait before the next."""
        try:
            await deployment.run()
        except TransportError as exc:
            return self._unreached(exc)
        except StubFaultError as exc:
            return self._failed(exc)
        except HostError as exc:
            return self._unusable(exc)
        except Exception:  # a defect of ours may cost this domain, never the node
            logger.exception("the link to %s failed", self._link.domain, extra={"domain": self._link.domain})
            pause_seconds = self._life.unusable(Code.INTERNAL.description, is_refused=False)
            self._answer_all(Code.INTERNAL, "")
            return Pause.whole(pause_seconds)
        self._life.ended()
        return Pause()

    def _unreached(self, exc: TransportError) -> Pause:
        """Unreachable has one code for all that wait, `deploy-timeout`; what was tried stands in the detail."""
        self._link.events.met(Side.LINE, str(exc))
        self._link.events.refused(exc.code, exc.detail)
        self._link.machine.refusal = self._link.machine.last_code = None
        return self._life.unreached(str(exc))

    def _failed(self, fault: StubFaultError) -> Pause:
        """Restart after a pause; after too many crashes leave the stub alone for a while."""
        if fault.code is Code.STUB_FAILED:
            self._news.line_failed()
            return self._life.refused_by_far_end(fault)
        restart = self._life.crashed(fault)
        if restart.opens_circuit:
            self._answer_all(Code.CIRCUIT_OPEN, "the stub crashed too often")
        return Pause.whole(restart.at - self._link.now())

    def _unusable(self, exc: HostError) -> Pause:
        """What the domain publishes is refused, there is no way to it, or the stub cannot be started here.

        Time alone does not heal it. Only what the domain publishes can fail a verification.
        """
        link, is_refused, is_on_the_way = self._link, isinstance(exc, PeerError), exc.code in _LINE_CODES
        if is_refused:
            link.events.met(self._side_of(exc), str(exc))
            link.stub.refused()
            self._interworking.withdrawn(link.domain)
        else:
            logger.error("the stub of %s cannot be started: %s", link.domain, exc, extra={"domain": link.domain})
        link.events.refused(exc.code, exc.detail)
        detail = exc.detail or exc.code.description
        pause_seconds = self._life.unusable(detail, is_refused=is_refused and not is_on_the_way)
        self._answer_all(exc.code, exc.detail)
        return Pause.whole(pause_seconds)

    def _side_of(self, exc: HostError) -> Side:
        if exc.code in _LINE_CODES:
            return Side.LINE
        is_ours = exc.code in OUR_DECISIONS or self._link.domain in self._sources.host.terms.chosen
        return Side.OURS if is_ours else Side.DOCUMENTS

    def _answer_all(self, code: Code, detail: str) -> None:
        """Answer what waits, and what comes until the next try."""
        self._link.machine.refusal = code
        try:
            self._link.give_up(code, detail)
        except Exception:  # a defect of ours may cost this domain what waits, never the node
            logger.exception("the link to %s failed", self._link.domain, extra={"domain": self._link.domain})
