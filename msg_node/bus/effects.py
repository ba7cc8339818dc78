"""What the steps of services and sessions lead to: changes on disk first, replies and effects around them.

Effects happen at once; replies, notifications and goodbyes leave when the changes that they promise are durable.
Source: design, section 6.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from msg_node.bus.core.tables import BusTables
from msg_node.bus.runtime_port import RuntimePort
from msg_node.bus.services import Services
from msg_node.kernel.answers import not_stored
from msg_node.kernel.changes import Change
from msg_node.kernel.service import (
    Asked,
    Bind,
    CloseConnection,
    Effect,
    Ended,
    Notice,
    Parked,
    Probe,
    ServiceResult,
    SessionNews,
)
from msg_node.storage.state_store import StateStore
from protofly.errors import HostError
from protofly.message import Message
from protofly.records import Record, SessionEvent

logger = logging.getLogger("msg_node")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What outcomes reach into.

    `ports` are the bus's live connections by session, `connections` all of them by number. `inquire` asks connectors,
    `enqueue` queues for one port, `forget` is told which session is over, `wake` has all that was queued written.
    `arriving` is told which session gets a connection, before it is told so itself, `bound` after that, and `lost`
    which one has lost its connection; `settled`, that all was said that some steps have led to.
    """

    state: BusTables
    services: Services
    store: StateStore
    ports: dict[int, RuntimePort]
    connections: dict[int, RuntimePort]
    counters: Counter[str]
    record: Callable[[Record], None]
    inquire: Callable[[Asked], None]
    route_own: Callable[[Message], None]
    enqueue: Callable[[RuntimePort, Message], None]
    forget: Callable[[int], None]
    wake: Callable[[], None]
    arriving: Callable[[int], None]
    bound: Callable[[int], None]
    lost: Callable[[int], None]
    settled: Callable[[], None]


_Step = tuple[ServiceResult, Callable[[Message], None]]
"""What follows from a request, and who takes the replies."""


class _Promise:
    """What leaves when some steps are durable, or is refused when they cannot be made so."""

    __slots__ = ("_outcomes", "_steps")

    def __init__(self, outcomes: Outcomes, steps: list[_Step]) -> None:
        self._outcomes = outcomes
        self._steps = steps

    def kept(self) -> None:
        for result, answer in self._steps:
            self._outcomes.leave(result, answer)

    def broken(self, error: HostError) -> None:
        for result, answer in self._steps:
            self._outcomes.leave_refused(result, answer, error)


class Outcomes:
    """Carries out what a step asks for.

    Use: `apply` for each step; `with outcomes:` around those that one read has brought, whose changes are then handed
    in together.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self._around = surroundings
        self._is_gathering = False
        self._steps: list[_Step] = []
        self._changes: list[Change] = []
        surroundings.store.on_called_back = self._settle

    def __enter__(self) -> None:
        self._is_gathering = True

    def __exit__(self, *_: object) -> None:
        self._is_gathering = False
        self._submit()

    def apply(self, result: ServiceResult, answer: Callable[[Message], None]) -> None:
        """Do the effects now, let replies (by `answer`) and notifications leave when the changes are on disk."""
        if result.effects or result.notices or result.news:
            self._do_at_once(result)
        if not result.changes:
            self.leave(result, answer)
            self._settle()
            return
        self._steps.append((result, answer))
        self._changes += result.changes
        if not self._is_gathering:
            self._submit()

    def _do_at_once(self, result: ServiceResult) -> None:
        for notice in result.notices:
            self._tell(notice)
        for effect in result.effects:
            self._do(effect)
        for news in result.news:
            self._write_down(news)

    def _submit(self) -> None:
        """Have committed what has gathered."""
        if not self._steps:
            return
        steps, self._steps = self._steps, []
        changes, self._changes = self._changes, []
        promise = _Promise(self, steps)
        try:
            self._around.store.submit(
                changes, promise.kept, promise.broken, is_awaited=any(_is_awaited(result) for result, _ in steps)
            )
        except HostError as exc:
            promise.broken(exc)
            self._settle()

    def apply_for(self, number: int, result: ServiceResult) -> None:
        """Apply what follows for a session or link that is not at hand: a session's replies need its connection."""
        port = self._around.ports.get(number)
        if port is None and number > 0:
            result.replies = ()
        self.apply(result, self._around.route_own if port is None else partial(self._around.enqueue, port))

    def concluded(self, asked: Asked, outcome: object) -> None:
        """An inquiry has come to its end: answer, if the asker is still there, or ask on."""
        result = self._around.services.concluded(asked, outcome, now=time.time())
        self.apply_for(asked.caller.number, result)

    def sweep_sessions(self) -> bool:
        """End some of the sessions that are over; whether there may be more."""
        self._around.state.twin.store_values()
        return self._swept(self._around.services.sessions.sweep(now=time.time()))

    def sweep_registry(self) -> bool:
        """Look after some registry entries that nobody has refreshed; whether there may be more."""
        return self._swept(self._around.services.sweep_registry(now=time.time()))

    def _swept(self, result: ServiceResult) -> bool:
        self.apply(result, self._around.route_own)
        return bool(result.news or result.changes)

    def _write_down(self, news: SessionNews) -> None:
        """Count and record what happened to a session."""
        self._around.counters[f"sessions {news.event}"] += 1
        self._around.record(
            SessionEvent(
                ts_us=int(time.time() * 1e6),
                event=news.event,
                runtime_key=news.runtime_key,
                session=news.sid,
                code=news.code or None,
                detail=news.detail or None,
                addresses=news.addresses,
                subscriptions=news.subscriptions,
            )
        )

    def _tell(self, notice: Notice) -> None:
        """Say to a connection what becomes of its session; it stands in front of the close."""
        port = self._around.connections.get(notice.connection)
        if port is not None:
            port.enqueue(self._around.services.notice(notice))

    def _unbind(self, bind: Bind) -> None:
        """A session whose opening could not be stored: nobody was told its token, so the connection has none."""
        port = self._around.connections.get(bind.connection)
        if port is not None and port.sid == bind.sid:
            self._around.ports.pop(bind.sid, None)
            port.sid = None
            lost = self._around.services.sessions.connection_lost(bind.connection, now=time.time())
            self.apply(lost, self._around.route_own)

    def leave_refused(self, result: ServiceResult, answer: Callable[[Message], None], error: HostError) -> None:
        """What was promised could not be made durable: say that instead."""
        logger.error("state cannot be stored: %s", error)
        self._around.counters["storage failures"] += 1
        replies = [not_stored(reply) if reply.is_response else reply for reply in result.replies]
        for asked in result.inquiries:
            replies += self._around.services.refused(asked, error)
        result.replies, result.inquiries = replies, ()
        self.leave(result, answer)
        for effect in result.effects:
            if isinstance(effect, Bind):
                self._unbind(effect)

    def leave(self, result: ServiceResult, answer: Callable[[Message], None]) -> None:
        """What was promised is durable (or is answered as not stored): say so."""
        for reply in result.replies:
            answer(reply)
        if result.notifications or result.inquiries or result.effects:
            self._leave_more(result)

    def _leave_more(self, result: ServiceResult) -> None:
        for notification in result.notifications:
            self._around.route_own(notification)
        for asked in result.inquiries:
            self._around.inquire(asked)
        for effect in result.effects:
            if isinstance(effect, CloseConnection):
                self._close_connection(effect)
            elif isinstance(effect, Bind):
                self._around.bound(effect.sid)

    def _settle(self) -> None:
        """Go on with what followed, and have all that was queued written: once for everything that became durable."""
        self._around.settled()
        self._around.wake()

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Bind):
            self._bind(effect)
        elif isinstance(effect, Probe):
            port = self._around.connections.get(effect.connection)
            if port is not None:
                port.channel.ping()
        elif isinstance(effect, Ended | Parked):
            port = self._around.ports.pop(effect.sid, None)
            if port is not None:
                port.sid = None  # what follows in the same read is no session's
            self._around.lost(effect.sid)
            if isinstance(effect, Ended):
                self._around.forget(effect.sid)

    def _bind(self, bind: Bind) -> None:
        port = self._around.connections.get(bind.connection)
        if port is not None:
            port.sid = bind.sid
            port.on_opened()
            session = self._around.state.sessions.get(bind.sid)
            port.guest_of = self._around.state.guests.domain(bind.sid)
            is_ours = session is not None and not port.guest_of
            port.roles = session.proof.roles if session is not None and is_ours else frozenset()
            port.wants_late = session is not None and session.wants_late
            self._around.ports[bind.sid] = port
            self._around.arriving(bind.sid)

    def _close_connection(self, close: CloseConnection) -> None:
        port = self._around.connections.get(close.connection)
        if port is not None:
            port.sid = None
            port.close(int(close.code), close.code.word)


def _is_awaited(result: ServiceResult) -> bool:
    """Whether anything is to be said or done when a step is durable."""
    return bool(result.replies or result.notifications or result.inquiries or result.effects)
