"""Messages to a GUID whose holder is not registered here: they wait while the global registry is asked, then go on.

    to user-guid://G ─▶ hyperties here? ─▶ else known where? ─▶ else wait for the record of G
                                                 │                       │
                                                 ▼                       ▼
                        live hyperties of ours by the user's names, else the first of the user's domains that takes it

What waits is in memory and bounded; each message goes on or is answered, in the order of its sender. No sender is
notified that it was taken before that. An action goes on to one place, where it is kept like any other: to a live
hyperty of ours, or into the outbox of the first domain that may have it, or to a hyperty of ours that is away.

A place once found is known for some minutes, and so is, for some seconds, that there is none. What another domain sends
is never sent on to a third: then only hyperties of ours count.

Source: message specification, sections 11 and 20.4; feature rows CN-16 and FD-08.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence

import trio

from federation.links.link_context import Refusal
from msg_node.bus.core.awaited_places import AwaitedPlaces, WaitingMessage
from msg_node.bus.core.tables import BusTables
from msg_node.bus.middleware import JudgeLocal
from msg_node.bus.refusals import Refusals
from msg_node.kernel.counts import UserCount
from msg_node.kernel.registrations import Index
from msg_node.registries.core.user_places import UserPlaces, places_of
from protofly import codec
from protofly.counters import Counters
from protofly.errors import Code, HostError, PeerError
from protofly.guid import bare_guid
from protofly.guid_record import GuidRecord
from protofly.lifetime import aged
from protofly.limits import (
    USER_LOOKUP_SECONDS,
    USER_LOOKUPS_AT_ONCE,
    USER_MISSING_SECONDS,
    USER_PLACES_SECONDS,
    USER_WAITING_MESSAGES,
)
from protofly.message import Message

logger = logging.getLogger("msg_node")

RecordOf = Callable[[str], Awaitable[GuidRecord]]
"""Gives the proved record of a GUID, or raises HostError."""

TakeAction = Callable[[Message, int, frozenset[str], str], None]
"""Keeps an action of a session or link (by number) with these roles in a queue until it is done. Raises PeerError."""

_NO_ROLES: frozenset[str] = frozenset()


class UserRouting:
    """Finds users for messages.

    Args:
        refusals: Answer what has waited and is refused.
        judge_local: The gate on our own bus; see `middleware.JudgeLocal`.
        take_action: Takes over actions; see `TakeAction`.

    Attributes:
        record_of: Looks users up; None while the node uses no global registry.
        clock: Seconds since some moment.
        counters: Look-ups by their result.
    """

    def __init__(
        self,
        state: BusTables,
        refusals: Refusals,
        *,
        judge_local: JudgeLocal,
        take_action: TakeAction,
    ) -> None:
        self._state = state
        self._send_queues = refusals.send_queues
        self._judge_local = judge_local
        self._refusals = refusals
        self._take_action = take_action
        self._awaited = AwaitedPlaces[UserPlaces]()
        self._is_stopping = False
        self._wanted, self._coming = trio.open_memory_channel[str](USER_WAITING_MESSAGES)
        self.record_of: RecordOf | None = None
        self.clock: Callable[[], float] = time.monotonic
        self.counters = Counters(UserCount)

    def take(self, message: Message, number: int, roles: frozenset[str] = _NO_ROLES) -> Refusal | None:
        """Send a message to a user on, or keep it until it is known where that is; a refusal is the caller's to answer.

        Args:
            message: To an address `user-guid:`; its source has been checked.
            number: The session or link that it came from.
            roles: Those of the session.
        """
        if self._is_stopping:
            return Refusal(Code.DRAINING)
        waiting = WaitingMessage(message, number, roles, self.clock())
        if self.record_of is None:
            return self._go_on(waiting, HostError(Code.NO_ROUTE)) if message.expects_reply else None
        try:
            guid = bare_guid(message.to_key)
        except PeerError:
            return Refusal(Code.NO_ROUTE)
        known = self._awaited.known(guid, waiting.since)
        if known is not None:
            return self._go_on(waiting, known)
        return self._wait(guid, waiting)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look users up until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(USER_LOOKUPS_AT_ONCE):
                nursery.start_soon(self._look_up_all)
            task_status.started()

    def drain(self) -> None:
        """The node stops: answer everything that waits, and keep nothing more."""
        self._is_stopping = True
        for guid in self._awaited.awaited():
            self._conclude(guid, HostError(Code.DRAINING, "the node stops"))

    @property
    def waiting(self) -> int:
        """Messages that wait for a user to be found."""
        return self._awaited.count

    def statistics(self) -> dict[str, int]:
        """Count what waits, what is known, and the results of look-ups."""
        return {**self.counters.shown(), "waiting": self._awaited.count, "known": self._awaited.places}

    # Waiting.

    def _wait(self, guid: str, waiting: WaitingMessage) -> Refusal | None:
        if not self._awaited.has_room(waiting):
            self.counters[UserCount.REFUSED] += 1
            return Refusal(Code.OVERLOAD)
        if self._awaited.wait(guid, waiting):
            self._wanted.send_nowait(guid)  # has room: there are no more GUIDs than messages that wait
        return None

    async def _look_up_all(self) -> None:
        async for guid in self._coming.clone():
            outcome = await self._look_up(guid)
            failure = outcome.code if isinstance(outcome, HostError) else None
            self.counters[UserCount.FOUND if failure is None else UserCount.FAILED.of(failure.word)] += 1
            self._conclude(guid, outcome)

    async def _look_up(self, guid: str) -> UserPlaces | HostError:
        assert self.record_of is not None
        try:
            with trio.fail_after(USER_LOOKUP_SECONDS):
                return places_of(await self.record_of(guid), self._state.domains)
        except trio.TooSlowError:
            return HostError(Code.GATEWAY_TIMEOUT, "the global registry does not answer")
        except HostError as error:
            return error
        except Exception:
            logger.exception("looking a user up failed")  # a defect here is this message's, never the node's
            return HostError(Code.INTERNAL)

    def _conclude(self, guid: str, outcome: UserPlaces | HostError) -> None:
        life_seconds = USER_MISSING_SECONDS
        if isinstance(outcome, UserPlaces):
            life_seconds = min(USER_PLACES_SECONDS, outcome.ends_at - time.time())
        for waiting in self._awaited.conclude(guid, outcome, self.clock() + life_seconds):
            refusal = self._go_on(waiting, outcome)
            if refusal is not None:
                self._refusals.refuse_later(waiting.number, waiting.message, refusal)
        self._send_queues.wake()

    # Going on.

    def _go_on(self, waiting: WaitingMessage, outcome: UserPlaces | HostError) -> Refusal | None:
        message = aged(waiting.message, self.clock() - waiting.since)
        if message is None:
            return Refusal(Code.TIMEOUT)
        if message.is_action:
            return self._keep(message, waiting, outcome)
        if isinstance(outcome, HostError):
            return Refusal(outcome.code)
        hyperties = self._state.users.hyperties_of(outcome.here)
        numbers = self._state.users.live_numbers(hyperties, waiting.number)
        if numbers:
            return self._deliver(message, waiting, numbers)
        if self._is_ours(waiting.number) and outcome.domains:
            return self._send_abroad(message, waiting, outcome.domains)
        return Refusal(Code.TEMPORARILY_UNAVAILABLE if hyperties else Code.NOT_REGISTERED)

    def _keep(self, message: Message, waiting: WaitingMessage, outcome: UserPlaces | HostError) -> Refusal | None:
        """Hand an action on to the first place that takes it."""
        names: Sequence[tuple[Index, str]] = [(Index.GUID, message.to_key)]
        abroad: tuple[str, ...] = ()
        refusal: Refusal | None = None
        if isinstance(outcome, HostError):
            refusal = Refusal(outcome.code)
        else:
            names, abroad = outcome.here, outcome.domains if self._is_ours(waiting.number) else ()
        here = self._state.users.hyperty_for(names, waiting.number)
        is_live = self._state.users.is_live_for(names, waiting.number)
        for place in [here] if is_live else [*abroad, *([here] if here else [])]:
            refused = (
                self._judge_local(message, waiting.roles, waiting.number)
                if place == here and self._is_ours(waiting.number)
                else None
            )
            if refused is None:
                try:
                    self._take_action(message, waiting.number, waiting.roles, place)
                except PeerError as exc:
                    refused = Refusal(exc.code)
                else:
                    return None
            refusal = refusal or refused
        return refusal or Refusal(Code.NOT_REGISTERED)

    def _deliver(self, message: Message, waiting: WaitingMessage, numbers: tuple[int, ...]) -> Refusal | None:
        if waiting.number < 0:
            code = self._send_queues.to_listeners(numbers, message, self._send_queues.link_blockers)
            return None if code is None else Refusal(code)
        is_ours = self._is_ours(waiting.number)
        refusal = self._judge_local(message, waiting.roles, waiting.number) if is_ours else None
        if refusal is not None:
            return refusal
        port = self._send_queues.ports.get(waiting.number)
        code = self._send_queues.to_listeners(numbers, message, set() if port is None else port.blockers)
        if code is not None:
            return Refusal(code)
        if message.peek.ttl:
            self._refusals.requests.sent(message, waiting.number)
        if message.wants_receipt and port is not None:
            self._send_queues.enqueue(port, codec.response(message, 200, extra={"source": self._refusals.node}))
        return None

    def _is_ours(self, number: int) -> bool:
        """True if a message came from a runtime of our own domain: no other is sent on abroad, or asked here again."""
        return not self._state.senders.other_domain_of(number)

    def _send_abroad(self, message: Message, waiting: WaitingMessage, domains: tuple[str, ...]) -> Refusal | None:
        """Send to the first of the user's domains that we may and can send to."""
        refusal: Refusal | None = None
        for domain in domains:
            refused = self._send_queues.links.send(domain, message, waiting.roles)
            if refused is None:
                port, link = self._send_queues.ports.get(waiting.number), self._send_queues.links.congested_link(domain)
                if port is not None and link is not None:
                    port.blockers.add(link)
                return None
            refusal = refusal or refused
        return refusal
