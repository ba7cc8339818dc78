"""Questions of services to the outside, each in a task of its own: how a service answers later.

Use, in five steps:

1.  In a core: a frozen Struct as the question, a type for the reply, and
    `THING: ConnectorName[ThingQuestion, ThingReply] = ConnectorName("thing")`.
2.  The service returns `inquire(THING, ThingQuestion(...), conclude)` (`msg_node.kernel.service`) instead of an Answer.
    `conclude(reply, now)` is pure like the service: it returns the Answer, or a further inquiry, or raises PeerError.
3.  A window: `async def ask(question: ThingQuestion) -> ThingReply`, which raises HostError for what goes wrong.
4.  `app.py`: `bus.inquiries.connect(THING, ask)` before anything runs.
5.  Nothing else: bounds, time limit, faults, the end of the node and the way back to the asker are seen to here.

Every request gets one answer: the conclusion; 504 `timeout` when the connector takes too long; 429 `rate` or 503
`overload` when too much is under way; 503 `draining` when the node stops; 500 `internal`, with a traceback in the log,
when a connector or a conclusion breaks; 501 `connector-off` when there is no such connector. An asker whose session has
no connection at that moment gets none, and what the question did in the outside stands.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar, cast

import msgspec
import trio
from msgspec.structs import replace

from msg_node.bus.core.lanes import Lanes
from msg_node.kernel.counts import InquiryCount
from msg_node.kernel.service import Asked, ConnectorName
from protofly.counters import Counters
from protofly.errors import Code, HostError
from protofly.limits import INQUIRIES, INQUIRIES_PER_ASKER, INQUIRIES_PER_CONNECTOR

logger = logging.getLogger("msg_node")

_Question = TypeVar("_Question", bound=msgspec.Struct)
_Reply = TypeVar("_Reply")


class Inquiries:
    """Asks connectors, and hands what came of it back."""

    def __init__(self, conclude: Callable[[Asked, object], None]) -> None:
        """`conclude` takes each inquiry once with its outcome: a reply, or a HostError."""
        self._conclude = conclude
        self._connectors: dict[str, Callable[[object], Awaitable[object]]] = {}
        self._waiting, self._coming = trio.open_memory_channel[tuple[int, Asked]](INQUIRIES)
        self._open: dict[int, Asked] = {}
        self._of_connector: Counter[str] = Counter()
        self._of_asker: Counter[int] = Counter()
        self._last_number = 0
        self._lanes = Lanes()
        self._turns: dict[int, trio.Event] = {}  # of those that wait for their turn
        self._handing_back = 0
        self._is_stopping = False
        self._results: defaultdict[str, Counters] = defaultdict(partial(Counters, InquiryCount))

    def connect(
        self, name: ConnectorName[_Question, _Reply], connector: Callable[[_Question], Awaitable[_Reply]]
    ) -> None:
        """Have questions to `name` asked of `connector`, which raises HostError when there is no reply."""
        self._connectors[name.word] = cast("Callable[[object], Awaitable[object]]", connector)

    def disconnect(self, name: ConnectorName[_Question, _Reply]) -> None:
        """Ask nobody any more: further questions to `name` are answered as those to no connector."""
        self._connectors.pop(name.word, None)

    def ask(self, asked: Asked) -> None:
        """Start an inquiry; never blocks. What cannot be asked is concluded at once."""
        refusal = self._refusal(asked)
        if refusal is not None:
            self._results[asked.inquiry.connector][InquiryCount.REFUSED.of(refusal.code.word)] += 1
            self._hand_back(asked, refusal)
            return
        self._last_number += 1
        self._open[self._last_number] = asked
        self._enter_lane(self._last_number, asked)
        self._of_connector[asked.inquiry.connector] += 1
        self._of_asker[asked.caller.number] += 1
        self._waiting.send_nowait((self._last_number, asked))  # has room: no more are open than it holds

    @property
    def under_way(self) -> int:
        """Inquiries without a result yet."""
        return len(self._open)

    def statistics(self) -> dict[str, int]:
        """Count inquiries under way, and results of earlier ones, by connector."""
        under_way = {f"{name} under way": count for name, count in self._of_connector.items()}
        ended = {f"{name} {what}": count for name, one in self._results.items() for what, count in one.items()}
        return dict(sorted({**ended, **under_way}.items()))

    def drain(self) -> None:
        """The node stops: answer what waits now, while there is still a connection."""
        self._is_stopping = True
        for number, asked in list(self._open.items()):
            self._settle(number, asked, HostError(Code.DRAINING, "the node stops"))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask until cancelled; once per node."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            async for number, asked in self._coming:
                nursery.start_soon(self._ask, number, asked)

    def _enter_lane(self, number: int, asked: Asked) -> None:
        lane = asked.inquiry.lane
        if not lane or (asked.step and self._lanes.follow(lane, self._handing_back, number)):
            return
        if not self._lanes.enter(lane, number, is_sharing=asked.inquiry.is_sharing):
            self._turns[number] = trio.Event()

    def _leave_lane(self, number: int, lane: str) -> None:
        self._turns.pop(number, None)
        for next_one in self._lanes.leave(lane, number):
            self._turns.pop(next_one).set()

    def _refusal(self, asked: Asked) -> HostError | None:
        """Return the reason why an inquiry cannot be made, None if it can."""
        name = asked.inquiry.connector
        if self._is_stopping:
            return HostError(Code.DRAINING, "the node stops")
        if name not in self._connectors:
            return HostError(Code.CONNECTOR_OFF, "this service is switched off")
        if self._of_asker[asked.caller.number] >= INQUIRIES_PER_ASKER:
            return HostError(Code.RATE, f"{INQUIRIES_PER_ASKER} requests wait for their answer already")
        if self._of_connector[name] >= INQUIRIES_PER_CONNECTOR or len(self._open) >= INQUIRIES:
            return HostError(Code.OVERLOAD, "too many requests wait for this service")
        return None

    async def _ask(self, number: int, asked: Asked) -> None:
        if number not in self._open:
            return  # drained before it began
        inquiry = asked.inquiry
        outcome: object
        with trio.move_on_after(inquiry.seconds) as deadline:
            try:
                if number in self._turns:
                    await self._turns[number].wait()
                outcome = await self._connectors[inquiry.connector](inquiry.question)
            except HostError as error:
                outcome = error
            except Exception:
                # A connector talks with strangers; a defect in it is this request's, never the node's.
                logger.exception("connector %s failed", inquiry.connector)
                outcome = HostError(Code.INTERNAL)
        if deadline.cancelled_caught:
            outcome = HostError(Code.GATEWAY_TIMEOUT, f"no answer within {inquiry.seconds:g} s")
        self._settle(number, asked, outcome)

    def _settle(self, number: int, asked: Asked, outcome: object) -> None:
        if self._open.pop(number, None) is None:
            return  # answered when the node began to stop
        _count_down(self._of_connector, asked.inquiry.connector)
        _count_down(self._of_asker, asked.caller.number)
        failure = outcome.code if isinstance(outcome, HostError) else None
        result = InquiryCount.ANSWERED if failure is None else InquiryCount.FAILED.of(failure.word)
        self._results[asked.inquiry.connector][result] += 1
        self._handing_back = number
        self._hand_back(asked, outcome)
        self._handing_back = 0
        self._leave_lane(number, asked.inquiry.lane)

    def _hand_back(self, asked: Asked, outcome: object) -> None:
        try:
            self._conclude(asked, outcome)
        except Exception:
            logger.exception("the answer of connector %s cannot be used", asked.inquiry.connector)
            plain = replace(asked, inquiry=replace(asked.inquiry, failed=None))
            self._conclude(plain, HostError(Code.INTERNAL))


def _count_down(counts: Counter[_Reply], key: _Reply) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
