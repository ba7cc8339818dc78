"""Newer documents of one domain, before those that we have are due: a line that fails may mean that it has moved."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

import trio

from federation.core.renewal import Renewal
from federation.discovery.domain_documents import DomainDocuments
from protofly.errors import HostError

logger = logging.getLogger("federation")


class DocumentNews:
    """Says when failed lines of one domain justify asking for its documents; `core/renewal` has the pauses.

    Args:
        domain: The foreign domain.
        documents: Gets what it publishes.
        now: The clock, in monotonic seconds.
    """

    def __init__(self, domain: str, documents: DomainDocuments, now: Callable[[], float]) -> None:
        self._domain = domain
        self._documents = documents
        self._now = now
        self._renewal = Renewal()
        self._line_failed = trio.Event()

    def line_failed(self) -> None:
        """A line could not be opened, or the far end refused it: the endpoint may have moved."""
        self._renewal.failed(self._now())
        self._line_failed.set()

    def line_proved(self) -> None:
        """A line is up and proved: nothing needs to be asked."""
        self._renewal.succeeded(self._now())

    async def ask_if_due(self) -> None:
        """Ask for newer documents if failures justify it now; without success the old ones serve."""
        if self._renewal.due_in(self._now()) != 0.0 or self._documents.seconds_until_askable(self._domain):
            return
        self._asked()
        try:
            await self._documents.trust_of(self._domain, is_refresh=True)
        except HostError as exc:
            logger.info("no newer documents of %s: %s", self._domain, exc)

    async def wait_due(self) -> None:
        """Wait until failed lines justify asking; the caller asks."""
        while (pause_seconds := self._renewal.due_in(self._now())) is None:
            self._line_failed = trio.Event()
            await self._line_failed.wait()
        await trio.sleep(max(pause_seconds, self._documents.seconds_until_askable(self._domain)))
        self._asked()

    def _asked(self) -> None:
        self._renewal.asked(self._now(), draw=random.random())  # noqa: S311 - jitter, no secret
