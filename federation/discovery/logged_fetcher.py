"""Any fetcher, with every URL that it asks for written into the attempt log.

Source: trust and hosts, section 6.3 (each check shows the URL that was requested).
"""

from __future__ import annotations

from typing import Final

from catalogue_client.core.location import WELL_KNOWN_PATH
from catalogue_client.fetcher import Fetched, Fetcher
from federation.core.discovery_errors import DiscoveryStep
from federation.discovery.attempt_log import AttemptLog
from protofly.errors import HostError

_URL_CHARS: Final = 500


class LoggedFetcher(Fetcher):
    """Passes requests on to `inner`, and remembers what came of each."""

    def __init__(self, inner: Fetcher, log: AttemptLog) -> None:
        """`log` is the one of resolver and dialler, so that their attempts and these make one chain."""
        self._inner = inner
        self._log = log

    async def fetch(
        self,
        url: str,
        *,
        domain: str,
        max_bytes: int,
        deadline_seconds: float,
        connect_to: tuple[str, int] | None = None,
    ) -> Fetched:
        """See `Fetcher.fetch`; raises what the inner one raises."""
        with self._log.attempt(domain, step_of_url(url), f"GET {url[:_URL_CHARS]}") as attempt:
            try:
                fetched = await self._inner.fetch(
                    url,
                    domain=domain,
                    max_bytes=max_bytes,
                    deadline_seconds=deadline_seconds,
                    connect_to=connect_to,
                )
            except HostError as error:
                attempt.outcome, attempt.detail = error.code.word, error.detail
                raise
            attempt.outcome, attempt.detail = "ok", f"{len(fetched.body)} bytes {fetched.content_type}".rstrip()
            return fetched


def step_of_url(url: str) -> DiscoveryStep:
    """Return the step of a first contact that requests this URL."""
    path = url.partition("?")[0]
    if path.endswith(WELL_KNOWN_PATH):
        return DiscoveryStep.LIVE_DOCUMENT
    if f"{WELL_KNOWN_PATH}/root/" in path:
        return DiscoveryStep.ROOT
    if f"{WELL_KNOWN_PATH}/manifest/" in path:
        return DiscoveryStep.MANIFEST
    return DiscoveryStep.MODULE
