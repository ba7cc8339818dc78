"""Effects of the steps of services and sessions: changes on disk first, then replies and the rest.

Effects happen at once; replies, notifications and goodbyes leave when the changes that they promise are durable.
Source: design, section 6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from os import urandom
from typing import Protocol

from msg_node.addresses.foreign_objects import ForeignObjects
from msg_node.bus.address_claims import ClaimsLostError
from msg_node.bus.connection_effects import ConnectionEffects
from msg_node.bus.core.tables import BusTables
from msg_node.bus.inquiries import Inquiries
from msg_node.bus.own_messages import OwnMessages
from msg_node.bus.services import Services
from msg_node.kernel.answers import not_stored
from msg_node.kernel.changes import Change
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.identifiers import SEED_BYTES
from msg_node.kernel.registrations import StatusChange
from msg_node.kernel.service import Asked, Bind, Durability, Event, ServiceResult
from msg_node.requests.parked_actions import ParkedActions
from msg_node.storage.state_store import OnDurable, OnFailed
from protofly.errors import Code, HostError
from protofly.message import Message
from protofly.random_stock import RandomStock

logger = logging.getLogger("msg_node")


_Step = tuple[ServiceResult, Callable[[Message], None], int]
"""The result of a request, the function that takes its replies, and the session or link that asked, 0 for neither."""


class _Promise:
    """Replies that leave when their steps are durable, or are replaced by refusals if they cannot be."""

    __slots__ = ("_effects", "_steps")

    def __init__(self, effects: Effects, steps: list[_Step]) -> None:
        self._effects = effects
        self._steps = steps

    def kept(self) -> None:
        for step in self._steps:
            self._leave(step, None)

    def broken(self, error: HostError) -> None:
        for step in self._steps:
            self._leave(step, error)

    def _leave(self, step: _Step, error: HostError | None) -> None:
        """Let one step leave; the others do whatever becomes of it, for runtimes and links share a commit."""
        result, answer, number = step
        try:
            if error is not None and _rests_on(result, number, error):
                self._effects.leave_refused(result, answer, error)
            else:
                self._effects.leave(result, answer)
        except Exception:  # a defect of ours may cost this step its replies, never the node
            logger.exception("what a step was to send cannot leave")


class Store(Protocol):
    """Makes changes durable; see `StateStore`."""

    @property
    def is_settled(self) -> bool:
        """See `StateStore.is_settled`."""

    @property
    def is_failing(self) -> bool:
        """See `StateStore.is_failing`."""

    on_called_back: Callable[[], None]

    def submit(
        self,
        changes: Collection[Change],
        on_durable: OnDurable,
        on_failed: OnFailed | None = None,
        *,
        is_awaited: bool = True,
    ) -> None:
        """See `StateStore.submit`."""


class Effects:
    """Carries out what a step asks for.

    Use: `serve` and `apply` for each step; `with effects:` around those that one read has brought, whose changes are
    then handed in together. `store_rest` adds changes that no step has taken.

    Args:
        state: Whose changes are stored.
        services: Answer requests to the node itself.
        connections: Does what concerns connections.
        own: Sends notifications.

    Attributes:
        now: The clock of the bus: seconds since the Unix epoch.
    """

    def __init__(
        self,
        state: BusTables,
        services: Services,
        store: Store,
        connections: ConnectionEffects,
        own: OwnMessages,
    ) -> None:
        self._state = state
        self._services = services
        self._store = store
        self._connections = connections
        self._send_queues = connections.send_queues
        self.now = connections.now
        self._own = own
        self._random = RandomStock(urandom)
        self._inquiries: Inquiries
        self._parked_actions: ParkedActions
        self._is_gathering = False
        self._steps: list[_Step] = []
        self._changes: list[Change] = []
        self._foreign: ForeignObjects
        store.on_called_back = self._settle

    def connect(self, inquiries: Inquiries, parked_actions: ParkedActions, foreign: ForeignObjects) -> None:
        """Set what follows from steps and leads to further steps; once, before anything runs."""
        self._inquiries = inquiries
        self._parked_actions = parked_actions
        self._foreign = foreign
        self._connections.connect(parked_actions.agents)

    def __enter__(self) -> None:
        self._is_gathering = True

    def __exit__(self, *_: object) -> None:
        self._is_gathering = False
        if self._steps:
            self._submit()

    def store_rest(self) -> None:
        """Store what has gathered, with changes that no step has taken: those that observers leave behind."""
        self._changes += self._state.take_changes()
        if self._changes or self._steps:
            self._submit()

    def serve(self, message: Message, number: int, answer: Callable[[Message], None], now: float) -> None:
        """Have a service answer a message of a session or link.

        Args:
            message: Its sender has been checked.
            number: Of the session or link.
            answer: Takes the reply, if there is one, when what it promises is durable.
            now: Seconds since the Unix epoch.
        """
        result = self._services.handle(message, number, now=now, seed=self._random.take(SEED_BYTES))
        self.apply(result, answer, number)

    def apply(self, result: ServiceResult, answer: Callable[[Message], None], number: int = 0) -> None:
        """Do the effects now, let replies (by `answer`) and notifications leave when the changes are on disk.

        Args:
            result: Of the step.
            answer: See `serve`.
            number: Of the session or link that asked, 0 for neither.
        """
        if result.effects or result.notices or result.news:
            self._connections.perform(result)
        if not result.changes and not self._has_to_wait(result.durability):
            self.leave(result, answer)
            self._settle()
            return
        self._steps.append((result, answer, number))
        self._changes += result.changes
        if not self._is_gathering:
            self._submit()

    def _has_to_wait(self, durability: Durability) -> bool:
        """True if replies that report earlier changes wait until these are durable."""
        if durability is Durability.NONE or (durability is Durability.PREFERRED and self._store.is_failing):
            return False
        return bool(self._steps) or not self._store.is_settled

    def _submit(self) -> None:
        """Have committed what has gathered."""
        steps, self._steps = self._steps, []
        changes, self._changes = self._changes, []
        promise = _Promise(self, steps)
        try:
            self._store.submit(
                changes, promise.kept, promise.broken, is_awaited=any(_is_awaited(result) for result, _, _ in steps)
            )
        except HostError as exc:
            promise.broken(exc)
            self._settle()

    def apply_for(self, number: int, result: ServiceResult) -> None:
        """Apply what follows for a session or link that is not at hand: a session's replies need its connection."""
        port = self._send_queues.ports.get(number)
        if port is None and number > 0:
            result.replies = ()
        self.apply(result, self._own.send if port is None else partial(self._send_queues.enqueue_reply, port), number)

    def concluded(self, asked: Asked, outcome: object) -> None:
        """An inquiry has come to its end: answer, if the asker is still there, or ask on."""
        result = self._services.concluded(asked, outcome, now=self.now())
        self.apply_for(asked.caller.number, result)

    def publish_statuses(self, changes: list[StatusChange]) -> None:
        """Store the statuses of entries that another registry reports, and notify who listens."""
        self.apply(self._services.publish_statuses(changes), self._own.send)

    def publish_events(self, events: list[Event]) -> None:
        """Store events that no request has caused, and notify who listens."""
        self.apply(self._services.publish_events(events), self._own.send)

    def sweep_sessions(self, now: float) -> bool:
        """End some of the sessions that are over; whether there may be more."""
        self._state.twin.store_values()
        return self._swept(self._services.sessions.sweep(now=now))

    def sweep_registry(self) -> bool:
        """Look after some registry entries that nobody has refreshed; whether there may be more."""
        return self._swept(self._services.sweep_registry(now=self.now()))

    def _swept(self, result: ServiceResult) -> bool:
        self.apply(result, self._own.send)
        return bool(result.news or result.changes)

    def leave_refused(self, result: ServiceResult, answer: Callable[[Message], None], error: HostError) -> None:
        """Send refusals in place of replies whose step could not be made durable; refusals stay as they are."""
        code = error.code
        if not isinstance(error, ClaimsLostError):
            logger.error("state cannot be stored: %s", error)
            self._send_queues.counters[NodeCount.STORAGE_FAILURES] += 1
        elif not result.changes:
            code = Code.STATE_UNAVAILABLE  # it reports what its session had claimed: asked again, it is as it is then
        replies = [not_stored(reply, code) if _promises(reply) else reply for reply in result.replies]
        for asked in result.inquiries:
            replies += self._services.refused(asked, error)
        result.replies, result.inquiries = replies, ()
        self.leave(result, answer)
        for effect in result.effects:
            if isinstance(effect, Bind) and self._connections.unbind(effect):
                lost = self._services.sessions.connection_lost(effect.connection, now=self.now())
                self.apply(lost, self._own.send)

    def leave(self, result: ServiceResult, answer: Callable[[Message], None]) -> None:
        """Send the replies of a step that is durable, or was answered as not stored."""
        for reply in result.replies:
            answer(reply)
        if result.notifications or result.inquiries or result.effects:
            self._leave_more(result)

    def _leave_more(self, result: ServiceResult) -> None:
        for notification in result.notifications:
            self._own.send(notification)
        for asked in result.inquiries:
            self._inquiries.ask(asked)
        for effect in result.effects:
            self._connections.committed(effect)

    def _settle(self) -> None:
        """Go on with what followed, and have all that was queued written: once for everything that became durable."""
        self._parked_actions.settle()
        self._foreign.forget_unheard()
        self._send_queues.wake()


def _rests_on(result: ServiceResult, number: int, error: HostError) -> bool:
    """True if a step cannot be promised after an error: claims that were lost concern those who had made them."""
    if not result.changes and result.durability is not Durability.REQUIRED:
        return False
    if not isinstance(error, ClaimsLostError) or number in error.sids:
        return True
    return any(change.key in error.keys or change.key in error.sid_keys for change in result.changes)


def _promises(reply: Message) -> bool:
    """True for replies that grant something or report what is."""
    return reply.is_response and not bytes(reply.peek.code).startswith((b"4", b"5"))


def _is_awaited(result: ServiceResult) -> bool:
    """True if a reply or an effect waits until the step is durable."""
    return bool(result.replies or result.notifications or result.inquiries or result.effects)
