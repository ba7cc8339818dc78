"""One back-end with manners: attempts that end in time, retries of what may be repeated, a breaker for what is dead.

Source: feature rows CN-12, CN-13 and CN-33.
"""

from __future__ import annotations

import logging
import math
import random
from urllib.parse import urlencode

import msgspec
import trio

from msg_node.backends.backend_http import BackendHttp
from msg_node.backends.core.circuit_breaker import Circuit, CircuitBreaker, RetryBudget
from msg_node.kernel.counts import BackendCount
from msg_node.kernel.rest_calls import IDEMPOTENT, Answered, Answers, Call, Calls
from protofly.counters import Counters
from protofly.errors import Code, HostError
from protofly.limits import BACKEND_ATTEMPTS, BACKEND_CONNECTIONS, BACKEND_RETRY_SECONDS
from protofly.pauses import doubling_seconds, scattered

logger = logging.getLogger("msg_node")

_SICK_FOR_NOW = frozenset({502, 503, 504})
_WORTH_ANOTHER = frozenset({Code.CONNECT_FAILED, Code.FETCH_TIMEOUT, Code.BAD_REPLY})


class Backend:
    """Makes calls for inquiries.

    Args:
        name: What operators call it.
        http: Where it is.
        attempt_seconds: How long one attempt may take, connecting included.
        breaker: When to leave it alone.
    """

    def __init__(
        self, name: str, http: BackendHttp, *, attempt_seconds: float, breaker: CircuitBreaker | None = None
    ) -> None:
        self.name = name
        self._http = http
        self._attempt_seconds = attempt_seconds
        self._breaker = breaker or CircuitBreaker()
        self._budget = RetryBudget()
        self._connections = trio.CapacityLimiter(BACKEND_CONNECTIONS)
        self.counters = Counters(BackendCount)

    def follow(self, http: BackendHttp, *, attempt_seconds: float) -> None:
        """Make calls elsewhere, or otherwise, from the next attempt on; what was learned of the old place is over."""
        self._http, self._attempt_seconds = http, attempt_seconds
        self._breaker, self._budget = CircuitBreaker(), RetryBudget()

    def status(self) -> dict[str, object]:
        """Report for operators: address, state of the breaker, results of calls."""
        return {"url": self._http.base_url, "circuit": self._breaker.state.value, **self.counters.as_members()}

    async def __call__(self, question: Calls) -> Answers:
        """Make calls, one after the other.

        Raises:
            HostError: CIRCUIT_OPEN; what `BackendHttp.ask` raises, when attempts are used up.
        """
        return tuple([await self.call(call) for call in question.calls])

    async def call(self, call: Call) -> Answered:
        """Make one call; any status is an answer.

        Raises:
            HostError: CIRCUIT_OPEN; what `BackendHttp.ask` raises, when attempts are used up.
        """
        self._budget.called()
        attempts_left = BACKEND_ATTEMPTS if call.method in IDEMPOTENT else 1
        failures = 0
        while True:
            attempts_left -= 1
            try:
                async with self._connections:
                    answer = await self._attempt(call)
            except HostError as error:
                if error.code not in _WORTH_ANOTHER or not attempts_left or not self._may_repeat():
                    raise
            else:
                if answer.status not in _SICK_FOR_NOW or not attempts_left or not self._may_repeat():
                    return answer
            self.counters[BackendCount.RETRIES] += 1
            failures += 1
            pause_seconds = doubling_seconds(BACKEND_RETRY_SECONDS, failures, math.inf)
            await trio.sleep(scattered(pause_seconds, draw=random.random()))  # noqa: S311 - no secret

    def _may_repeat(self) -> bool:
        return self._breaker.state is not Circuit.OPEN and self._budget.take()

    async def _attempt(self, call: Call) -> Answered:
        if not self._breaker.may_call(trio.current_time()):
            self.counters[BackendCount.NOT_ASKED] += 1
            raise HostError(Code.CIRCUIT_OPEN, f"{self.name} does not answer and is left alone for a while")
        body, headers = _body_of(call)
        try:
            got = await self._http.ask(
                call.method, call.path, seconds=self._attempt_seconds, body=body, headers=headers
            )
        except HostError as error:
            self._failed(error.detail)
            raise
        except BaseException:
            self._breaker.abandoned(trio.current_time())
            raise
        content_type = got.headers.get("content-type", "").partition(";")[0].strip().lower()
        answer = Answered(got.status, got.body, content_type)
        if answer.is_failure:
            self._failed(f"it answers {answer.status}")
        else:
            self.counters[BackendCount.ANSWERED] += 1
            if self._breaker.succeeded():
                logger.info("%s answers again", self.name)
        return answer

    def _failed(self, detail: str) -> None:
        self.counters[BackendCount.FAILED] += 1
        if self._breaker.failed(trio.current_time()):
            logger.warning("%s is left alone for a while: %s", self.name, detail)


def _body_of(call: Call) -> tuple[bytes, dict[str, str]]:
    if call.document is not None:
        return msgspec.json.encode(call.document), {"Content-Type": "application/json"}
    if call.form is not None:
        return urlencode(call.form).encode("ascii"), {"Content-Type": "application/x-www-form-urlencoded"}
    return b"", {}
