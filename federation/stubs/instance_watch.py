"""When a running stub has to end: nobody needs it, it may not run any more, there is a newer one, or a day is over.

Source: trust and hosts, sections 2.7 (rule 7), 3.6 and 4.2.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from catalogue_client.core.selection import DEFAULT, fitting_stubs
from catalogue_client.core.state import DomainTrust
from catalogue_client.core.verify import judge_running
from federation.core.renewal import has_moved
from federation.discovery.document_news import DocumentNews
from federation.discovery.domain_documents import DomainDocuments, version_of
from federation.links.domain_link import DomainLink
from federation.links.need import first_of
from federation.links.peer_session import REAUTHENTICATE_SECONDS
from protofly.documents import Live
from protofly.errors import Code, HostError, PeerError, TransportError
from protofly.limits import EXPIRED_GRACE_SECONDS
from protofly.stub import VerifiedStub

logger = logging.getLogger("federation")

IDLE_SECONDS: Final = 300.0
LEAST_REFRESH_SECONDS: Final = 5.0
TRUST_LOOK_SECONDS: Final = 60.0
"""Seconds until a stub ends after the operator withdrew the trust with which it started."""


Update = Callable[[], Awaitable[bool]]
"""Has another version take over; returns whether it has."""


async def _stays() -> bool:
    await trio.lowlevel.checkpoint()
    return False


class InstanceWatch:
    """Watches the instances of one link, one at a time.

    Args:
        link: Says whether it is needed.
        documents: Say what its domain publishes now.
        news: Says when they are asked before they are due.
        is_chosen: The operator chose the stub: there are no documents and no proof to look at again.
    """

    def __init__(self, link: DomainLink, documents: DomainDocuments, news: DocumentNews, *, is_chosen: bool) -> None:
        self._link = link
        self._documents = documents
        self._news = news
        self._is_chosen = is_chosen
        self._about = {"domain": link.domain}

    async def wait_end(
        self, stub: VerifiedStub, update: Update, *others: Callable[[], Awaitable[HostError | None]]
    ) -> HostError | None:
        """Wait until the running instance has to end; returns why it failed, None when another may follow it at once.

        `update` is called when there is another version; `others` return when and why it has to end besides.
        """
        reason: HostError | None = None

        async def end_after(wait: Callable[[], Awaitable[HostError | None]]) -> None:
            nonlocal reason
            reason = await wait()
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for wait in others:
                nursery.start_soon(end_after, wait)
            nursery.start_soon(end_after, self._wait_idle)
            nursery.start_soon(end_after, self._link.need.wait_recalled)
            if not self._is_chosen:
                nursery.start_soon(end_after, partial(self.wait_outdated, stub, update))
                # A proof holds for a day: then a new instance proves itself anew.
                nursery.start_soon(end_after, partial(trio.sleep, REAUTHENTICATE_SECONDS))
        return reason

    async def _wait_idle(self) -> None:
        link = self._link
        while True:
            await trio.sleep(IDLE_SECONDS / 10)
            if link.is_idle and link.now() - link.last_used_seconds > IDLE_SECONDS:
                logger.info("the link to %s is idle and is closed", link.domain, extra=self._about)
                return

    async def wait_outdated(self, stub: VerifiedStub, update: Update = _stays) -> PeerError | None:
        """Ask for newer documents in time, until the stub is revoked, has expired, or another one has taken over.

        Returns:
            Why no other may run, None when one may.
        """
        documents, domain, need = self._documents, self._link.domain, self._link.need
        known, version = documents.believed(domain), version_of(documents, domain)
        # What was fetched while it was compiled and started is news as well.
        code = None if known is None else self._judged(stub, known)
        if code is not None:
            return PeerError(code, _ended_by(code), domain=domain)
        while True:
            # A trust that the operator takes back counts no longer than this; what has not ended is not asked for.
            until_news = documents.seconds_until_refresh(domain)
            with trio.move_on_after(max(LEAST_REFRESH_SECONDS, min(until_news, TRUST_LOOK_SECONDS))) as quiet:
                await self._wait_news(version)
            is_asked = need.is_looked_at()
            if quiet.cancelled_caught and until_news > TRUST_LOOK_SECONDS and not documents.is_forgotten(domain):
                continue
            try:
                trust = await documents.trust_of(domain, is_refresh=True)
                version = trust.live_envelope  # what is fetched during an update, which takes long, is news
                code = self._judged(stub, trust)
            except (TransportError, PeerError) as exc:
                version = version_of(documents, domain)
                if self._counts_without_news(exc):
                    continue
                return PeerError(Code.BROKEN_TRUST, _ended_by(exc.code), domain=domain)
            if code is not None:
                return PeerError(code, _ended_by(code), domain=domain)
            if (is_asked or _is_offered_another(stub, trust.live)) and await update():
                return None
            if not self._link.is_live and has_moved(stub, trust):
                logger.info("the stub of %s is replaced: its endpoints are others now", domain, extra=self._about)
                return None

    def _judged(self, stub: VerifiedStub, trust: DomainTrust) -> Code | None:
        """Why a stub may not run any more by the documents of its domain, None if it may."""
        code = judge_running(stub, trust, now=time.time(), grace_seconds=EXPIRED_GRACE_SECONDS)
        if code is not None:
            logger.info("the stub of %s is stopped: %s", self._link.domain, code.word, extra=self._about)
        return code

    async def _wait_news(self, version: bytes) -> None:
        """Wait until failed lines or the operator justify asking, or others have fetched documents after `version`."""
        renewed = partial(self._documents.wait_renewed, self._link.domain, version)
        await first_of(self._news.wait_due, self._link.need.wait_looked_at, renewed)

    def _counts_without_news(self, exc: TransportError | PeerError) -> bool:
        """True when what we know counts although there are no news: the operator has not taken back the trust."""
        domain = self._link.domain
        if isinstance(exc, PeerError):
            logger.warning("news of %s are refused: %s", domain, exc, extra=self._about)
        else:
            logger.info("%s cannot be asked for news: %s", domain, exc, extra=self._about)
        if not self._documents.is_forgotten(domain):
            return True
        logger.info("the stub of %s is stopped: the operator took back its trust", domain, extra=self._about)
        return False


def _ended_by(code: Code) -> str:
    return f"the stub may not run any more: {code.word}"


def _is_offered_another(stub: VerifiedStub, live: Live) -> bool:
    return DEFAULT in live.stubs and _is_superseded(stub, live)


def _is_superseded(stub: VerifiedStub, live: Live) -> bool:
    """True when others would be tried now: its manifest may still be offered by a name that nobody asks for.

    One goes on when its domain offers nothing that this node can run; nothing would follow it.
    """
    try:
        return all(one.manifest_sha256 != stub.manifest_sha256 for one in fitting_stubs(live))
    except PeerError:
        return False
