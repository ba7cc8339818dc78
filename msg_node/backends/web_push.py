"""Wakes runtimes that are away: asks their push service to deliver a message without content.

The push service learns that somebody waits, and nothing else: a woken runtime comes back and gets what waited for it
in the usual way. The node identifies itself with a key that its runtimes knew when they subscribed, so that nobody else
can wake them. One endpoint is asked once in a while at most. Source: RFC 8030; RFC 8292.
"""

from __future__ import annotations

import base64
import logging
import math
import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import trio
from joserfc import jwk, jwt

from msg_node.backends.backend_http import BackendHttp
from msg_node.kernel.counts import PushCount
from msg_node.requests.core.push_targets import PushTargets
from msg_node.storage.file_checks import read_private
from protofly.counters import Counters
from protofly.errors import HostError, SettingsError
from protofly.pauses import doubling_seconds, scattered

logger = logging.getLogger("msg_node")

ANSWER_BYTES: Final = 4 << 10
_ATTEMPTS: Final = 3
_PAUSE_SECONDS: Final = 2.0
_LATEST_PAUSE_SECONDS: Final = 60.0
_WAITING: Final = 1000
"""Endpoints of one push service that wait for a call."""
_AT_ONCE: Final = 8
"""Calls of one push service."""
_REMEMBERED: Final = 10_000
_TOKEN_SECONDS: Final = 43_200
_RENEW_SECONDS: Final = 3_600
_OVER: Final = (404, 410)
_WORTH_ANOTHER: Final = (429, 500, 502, 503, 504)


class PushKey:
    """The key by which push services, and runtimes that subscribe, know this node: ECDSA on P-256.

    Args:
        file: PEM file with the private key, mode 0600.
        subject: Whom a push service may ask about us: `mailto:…` or `https://…`.

    Raises:
        SettingsError: The file cannot be used.
    """

    def __init__(self, file: Path, subject: str) -> None:
        try:
            self._key = jwk.import_key(read_private(file).decode("ascii"), "EC")
        except ValueError as exc:
            raise SettingsError(f"push.key: {file}: {exc}") from exc
        members = self._key.as_dict(private=False)
        if members.get("crv") != "P-256" or not self._key.is_private:
            raise SettingsError(
                f"push.key: {file} is no private key on P-256; make one: openssl genpkey -algorithm EC -pkeyopt "
                "ec_paramgen_curve:P-256"
            )
        self._subject = subject
        point = b"\4" + _bytes(str(members["x"])) + _bytes(str(members["y"]))
        self.public = base64.urlsafe_b64encode(point).rstrip(b"=").decode()
        """The public key, base64url of the uncompressed point, as runtimes hand it to their push service."""
        self._tokens: dict[str, tuple[float, str]] = {}

    def authorization(self, origin: str, now: float) -> str:
        """The value of `Authorization` for a push service; `now` in seconds since the Unix epoch."""
        until, token = self._tokens.get(origin, (0.0, ""))
        if now >= until:
            claims = {"aud": origin, "exp": int(now) + _TOKEN_SECONDS, "sub": self._subject}
            token = jwt.encode({"typ": "JWT", "alg": "ES256"}, claims, self._key)
            self._tokens[origin] = now + _RENEW_SECONDS, token
        return f"vapid t={token}, k={self.public}"


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class PushOrigin(NamedTuple):
    """The connection to one push service, and the time limit of an attempt."""

    http: BackendHttp
    attempt_seconds: float


class PushOptions(NamedTuple):
    """Times of calls.

    `ttl_seconds`: how long a push service keeps a call for a device that is off. `rest_seconds`: least time between two
    calls to one endpoint.
    """

    ttl_seconds: int
    rest_seconds: float


@dataclass(slots=True)
class _Queue:
    """The endpoints that wait for calls of one push service, and the number of its calls under way."""

    endpoints: deque[str] = field(default_factory=deque)
    calls: int = 0


class WebPush:
    """Sends wake-up calls. Each push service has a queue and calls of its own: one that is silent delays no other.

    Args:
        key: Who we are to push services.
        services: How each is reached, by origin.
        targets: Push subscriptions.
        is_away: Whether nobody answers for an address now.
        options: See there.
        keep: Makes durable what has changed.
    """

    def __init__(
        self,
        key: PushKey,
        services: Mapping[str, PushOrigin],
        targets: PushTargets,
        options: PushOptions,
        *,
        is_away: Callable[[str], bool],
        keep: Callable[[], None],
    ) -> None:
        self._key = key
        self._services = services
        self._targets = targets
        self._is_away = is_away
        self._options = options
        self._keep = keep
        self._called: OrderedDict[str, float] = OrderedDict()  # when each endpoint was called last; trio time
        self._queues: dict[str, _Queue] = {}
        self._nursery: trio.Nursery | None = None
        self.counters = Counters(PushCount)

    def follow(self, key: PushKey, services: Mapping[str, PushOrigin], options: PushOptions) -> None:
        """Use another key, other push services and other times from the next call on."""
        self._key, self._services, self._options = key, services, options

    def somebody_waits(self, key: str) -> None:
        """Wake the runtime that answers for a canonical address, if it is away. Never blocks."""
        targets = self._targets.of(key)
        if not targets or not self._is_away(key):
            return
        now = trio.current_time()
        for target in targets:
            called = self._called.get(target.endpoint)
            if called is not None and now - called < self._options.rest_seconds:
                continue
            if not self._enqueue(target.endpoint):
                self.counters[PushCount.TOO_MANY] += 1
                continue
            self._called[target.endpoint] = now
            self._called.move_to_end(target.endpoint)
            if len(self._called) > _REMEMBERED:
                self._called.popitem(last=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send until cancelled; forget subscriptions whose time is over."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for origin in list(self._queues):
                self._begin_call(origin)
            task_status.started()
            while True:
                self._targets.sweep(now=time.time())
                self._keep()
                await trio.sleep(_LATEST_PAUSE_SECONDS)

    def _enqueue(self, endpoint: str) -> bool:
        """Queue a call; False if too many wait for the same push service."""
        origin = _origin_of(endpoint)
        queue = self._queues.setdefault(origin, _Queue())
        if len(queue.endpoints) >= _WAITING:
            return False
        queue.endpoints.append(endpoint)
        self._begin_call(origin)
        return True

    def _begin_call(self, origin: str) -> None:
        queue = self._queues[origin]
        if self._nursery is not None and queue.calls < _AT_ONCE:
            queue.calls += 1
            self._nursery.start_soon(self._call_all, origin, queue)

    async def _call_all(self, origin: str, queue: _Queue) -> None:
        """Make calls of one push service, one after the other, as long as some wait."""
        while queue.endpoints:
            endpoint = queue.endpoints.popleft()
            result = await self._send(endpoint, origin)
            self.counters[result] += 1
            if result is PushCount.OVER:
                self._targets.gone(endpoint)
                self._keep()
        queue.calls -= 1
        if not queue.calls:
            self._queues.pop(origin, None)

    async def _send(self, endpoint: str, origin: str) -> PushCount:
        """Make one call, repeated where that helps."""
        parts = urlsplit(endpoint)
        service = self._services.get(origin)
        if service is None:  # the settings have changed since it was registered
            return PushCount.OVER
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        for attempt in range(_ATTEMPTS):
            if attempt:
                pause_seconds = doubling_seconds(2 * _PAUSE_SECONDS, attempt, math.inf)
                await trio.sleep(scattered(pause_seconds, draw=random.random()))  # noqa: S311 - no secret
            headers = {
                "Authorization": self._key.authorization(origin, time.time()),
                "TTL": str(self._options.ttl_seconds),
                "Urgency": "high",
            }
            try:
                answer = await service.http.ask("POST", path, seconds=service.attempt_seconds, headers=headers)
            except HostError as exc:
                logger.info("push service %s: %s", origin, exc)
                continue
            if 200 <= answer.status < 300:
                return PushCount.SENT
            if answer.status in _OVER:
                return PushCount.OVER
            if answer.status not in _WORTH_ANOTHER:
                logger.warning("push service %s answers %d", origin, answer.status)
                return PushCount.REFUSED
        return PushCount.FAILED


def _origin_of(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc.lower()}"
