"""Why finding a domain failed: the step, the code, and everything that was tried.

Operators ask "why does federation with X fail"; the answer is a chain of attempts (queries, connections, URLs) that
ends with one step and one code. `discovery-failed:<step>` is what the other side and the log get.

Source: trust and hosts, sections 2.7 (codes) and 6.3 (checks of the federation tester).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from protofly.errors import Code, HostError, PeerError, TransportError


class DiscoveryStep(Enum):
    """The steps of discovery, in their order."""

    NAME = "name"
    POLICY = "policy"
    LIMITS = "limits"
    CACHE = "cache"
    TXT = "txt"
    SVCB = "svcb"
    SRV = "srv"
    ADDRESS = "address"
    PORT = "port"
    CONNECT = "connect"
    TLS = "tls"
    LIVE_DOCUMENT = "live_document"
    ROOT = "root"
    MANIFEST = "manifest"
    MODULE = "module"


_STEP_OF_CODE: Final = {
    Code.NAME_INVALID: DiscoveryStep.NAME,
    Code.OWN_DOMAIN: DiscoveryStep.NAME,
    Code.DOMAIN_BLOCKED: DiscoveryStep.POLICY,
    Code.POLICY: DiscoveryStep.POLICY,
    Code.RATE: DiscoveryStep.LIMITS,
    Code.DISCOVERY_BACKOFF: DiscoveryStep.CACHE,
    Code.SERVICE_DECLINED: DiscoveryStep.SVCB,
    Code.DNS_FAILED: DiscoveryStep.ADDRESS,
    Code.NO_SUCH_DOMAIN: DiscoveryStep.ADDRESS,
    Code.ADDRESS_REFUSED: DiscoveryStep.ADDRESS,
    Code.PORT_REFUSED: DiscoveryStep.PORT,
    Code.CONNECT_FAILED: DiscoveryStep.CONNECT,
    Code.TLS_FAILED: DiscoveryStep.TLS,
    Code.ROOT_CHAIN: DiscoveryStep.ROOT,
    Code.FINGERPRINT_MISMATCH: DiscoveryStep.ROOT,
    Code.BROKEN_TRUST: DiscoveryStep.ROOT,
    Code.DIGEST_MISMATCH: DiscoveryStep.MODULE,
    Code.REVOKED: DiscoveryStep.MODULE,
    Code.ABI_UNSUPPORTED: DiscoveryStep.MANIFEST,
    Code.PERMISSIONS_HELD: DiscoveryStep.MANIFEST,
    Code.MODULE_MALFORMED: DiscoveryStep.MODULE,
    Code.MODULE_IMPORTS: DiscoveryStep.MODULE,
    Code.MODULE_EXPORTS: DiscoveryStep.MODULE,
    Code.MODULE_LIMITS: DiscoveryStep.MODULE,
    Code.COMPILE_LIMITS: DiscoveryStep.MODULE,
}
"""Step of an error that does not name one itself. All other codes belong to fetching and judging documents."""

_LINE_CODES: Final = frozenset({Code.DNS_FAILED, Code.CONNECT_FAILED, Code.FETCH_TIMEOUT, Code.DISCOVERY_BACKOFF})


@dataclass(frozen=True, slots=True)
class Attempt:
    """One thing that was tried. `subject` is the query, address or URL; `outcome` is "ok", a status or a code's word.

    `at` is in seconds since the epoch, `seconds` how long it took.
    """

    step: DiscoveryStep
    subject: str
    outcome: str
    detail: str = ""
    at: float = 0.0
    seconds: float = 0.0

    def __str__(self) -> str:
        """One line for an operator."""
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.step.value}: {self.subject} → {self.outcome}{detail} [{self.seconds * 1000:.0f} ms]"


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a domain was not found. A value, so that it can be remembered and raised to many.

    `life_seconds` is the negative TTL that the domain's own zone states, None when it says nothing.
    """

    domain: str
    step: DiscoveryStep
    code: Code
    detail: str
    attempts: tuple[Attempt, ...] = ()
    life_seconds: float | None = None

    @property
    def reason(self) -> str:
        """The word for log and peer: `discovery-failed:<step>`."""
        return f"discovery-failed:{self.step.value}"

    @property
    def is_temporary(self) -> bool:
        """True when the line or the server failed, not the domain's own answer: worth another try soon."""
        return self.code in _LINE_CODES or (self.code is Code.HTTP_STATUS and _is_server_trouble(self.detail))

    def error(self, *, retry_after_seconds: float = 0.0) -> DiscoveryError | DiscoveryLineError:
        """A fresh exception for this failure; each caller that waited gets its own."""
        return (DiscoveryLineError if self.is_temporary else DiscoveryError)(self, retry_after_seconds)


class DiscoveryError(PeerError):
    """The domain's name, records or answers cannot be used, or we may not ask. `retry_after_seconds` 0 = unknown."""

    def __init__(self, failure: Failure, retry_after_seconds: float = 0.0) -> None:
        super().__init__(failure.code, f"{failure.step.value}: {failure.detail}", domain=failure.domain)
        self.failure = failure
        self.retry_after_seconds = retry_after_seconds


class DiscoveryLineError(TransportError):
    """The line failed while we looked for the domain, or it failed so recently that we do not try again yet."""

    def __init__(self, failure: Failure, retry_after_seconds: float = 0.0) -> None:
        phase = "connect" if failure.step is DiscoveryStep.CONNECT else "resolve"
        super().__init__(failure.code, f"{failure.step.value}: {failure.detail}", phase=phase)
        self.domain = failure.domain
        self.failure = failure
        self.retry_after_seconds = retry_after_seconds


def _is_server_trouble(status_text: str) -> bool:
    """True when the text of an HTTP_STATUS error, which begins with the number, is one that passes by itself."""
    return status_text[:1] == "5" or status_text[:3] in {"408", "425", "429"}


def failure_of(error: HostError, *, domain: str, attempts: tuple[Attempt, ...] = ()) -> Failure:
    """The failure that an error of any later step (dialler, fetcher, verification) stands for."""
    if isinstance(error, DiscoveryError | DiscoveryLineError):
        return error.failure
    step = _STEP_OF_CODE.get(error.code, DiscoveryStep.LIVE_DOCUMENT)
    return Failure(domain, step, error.code, error.detail or error.code.word, attempts)
