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
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import trio

from federation.link_context import Refusal
from msg_node.bus.core.tables import BusTables
from msg_node.bus.send_queues import SendQueues
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
    USER_PLACES_KNOWN,
    USER_PLACES_SECONDS,
    USER_WAITING_BYTES,
    USER_WAITING_MESSAGES,
    USER_WAITING_PER_SENDER,
)
from protofly.message import Message

logger = logging.getLogger("msg_node")

RecordOf = Callable[[str], Awaitable[GuidRecord]]
"""Gives the proved record of a GUID, or raises HostError."""

TakeAction = Callable[[Message, int, frozenset[str], str], None]
"""Keeps an action of a session or link (by number) with these roles in a queue until it is done. Raises PeerError."""

_NO_ROLES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A message that waits for a place: where it came from, and when."""

    message: Message
    number: int
    roles: frozenset[str]
    since: float


@dataclass(frozen=True, slots=True)
class _Known:
    """What came of a look-up, and until when that counts."""

    outcome: UserPlaces | HostError
    until: float


class UserRouting:
    """Finds users for messages.

    Args:
        judge_local: The gate on our own bus; see `Bus`.
        refuse: Reports to the sender, a session or link by its number, that a message was refused.
        clock: Seconds since some moment.
    """

    def __init__(
        self,
        state: BusTables,
        send_queues: SendQueues,
        *,
        node: str,
        judge_local: Callable[[Message, frozenset[str], int], Refusal | None],
        refuse: Callable[[int, Message, Refusal], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._send_queues = send_queues
        self._node = node
        self._judge_local = judge_local
        self._refuse = refuse
        self._clock = clock
        self._record_of: RecordOf | None = None
        self._take_action: TakeAction | None = None
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._waiting: dict[str, list[_Waiting]] = {}
        self._waiting_count = self._waiting_bytes = 0
        self._of_sender: Counter[int] = Counter()
        self._is_stopping = False
        self._wanted, self._coming = trio.open_memory_channel[str](USER_WAITING_MESSAGES)
        self.counters = Counters(UserCount)

    def connect(self, record_of: RecordOf) -> None:
        """Look users up with `record_of`; before anything runs."""
        self._record_of = record_of

    def connect_actions(self, take_action: TakeAction) -> None:
        """Hand actions on to `take_action`; before anything runs."""
        self._take_action = take_action

    def take(self, message: Message, number: int, roles: frozenset[str] = _NO_ROLES) -> Refusal | None:
        """Send a message to a user on, or keep it until it is known where that is; a refusal is the caller's to answer.

        Args:
            message: To an address `user-guid:`; its source has been checked.
            number: The session or link that it came from.
            roles: Those of the session.
        """
        if self._is_stopping:
            return Refusal(Code.DRAINING)
        waiting = _Waiting(message, number, roles, self._clock())
        if self._record_of is None:
            return self._go_on(waiting, HostError(Code.NO_ROUTE)) if message.expects_reply else None
        try:
            guid = bare_guid(message.to_key)
        except PeerError:
            return Refusal(Code.NO_ROUTE)
        known = self._known.get(guid)
        if known is not None and known.until > waiting.since and guid not in self._waiting:
            return self._go_on(waiting, known.outcome)
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
        for guid in list(self._waiting):
            self._conclude(guid, HostError(Code.DRAINING, "the node stops"))

    def statistics(self) -> dict[str, int]:
        """What waits, what is known, and what became of look-ups."""
        return {**self.counters.shown(), "waiting": self._waiting_count, "known": len(self._known)}

    # Waiting.

    def _wait(self, guid: str, waiting: _Waiting) -> Refusal | None:
        size = len(waiting.message.raw)
        if (
            self._waiting_count >= USER_WAITING_MESSAGES
            or self._waiting_bytes + size > USER_WAITING_BYTES
            or self._of_sender[waiting.number] >= USER_WAITING_PER_SENDER
        ):
            self.counters[UserCount.REFUSED] += 1
            return Refusal(Code.OVERLOAD)
        self._of_sender[waiting.number] += 1
        self._waiting_count += 1
        self._waiting_bytes += size
        if guid in self._waiting:
            self._waiting[guid].append(waiting)
        else:
            self._waiting[guid] = [waiting]
            self._wanted.send_nowait(guid)  # has room: there are no more GUIDs than messages that wait
        return None

    async def _look_up_all(self) -> None:
        async for guid in self._coming.clone():
            outcome = await self._look_up(guid)
            failure = outcome.code if isinstance(outcome, HostError) else None
            self.counters[UserCount.FOUND if failure is None else UserCount.FAILED.of(failure.word)] += 1
            self._conclude(guid, outcome)

    async def _look_up(self, guid: str) -> UserPlaces | HostError:
        assert self._record_of is not None
        try:
            with trio.fail_after(USER_LOOKUP_SECONDS):
                return places_of(await self._record_of(guid), self._state.domains)
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
        self._known[guid] = _Known(outcome, self._clock() + life_seconds)
        self._known.move_to_end(guid)
        if len(self._known) > USER_PLACES_KNOWN:
            self._known.popitem(last=False)
        for waiting in self._waiting.pop(guid, ()):
            self._release(waiting)
            refusal = self._go_on(waiting, outcome)
            if refusal is not None:
                self._refuse(waiting.number, waiting.message, refusal)
        self._send_queues.wake()

    def _release(self, waiting: _Waiting) -> None:
        self._waiting_count -= 1
        self._waiting_bytes -= len(waiting.message.raw)
        self._of_sender[waiting.number] -= 1
        if not self._of_sender[waiting.number]:
            del self._of_sender[waiting.number]

    # Going on.

    def _go_on(self, waiting: _Waiting, outcome: UserPlaces | HostError) -> Refusal | None:
        message = aged(waiting.message, self._clock() - waiting.since)
        if message is None:
            return Refusal(Code.TIMEOUT)
        if message.is_action and self._take_action is not None:
            return self._keep(message, waiting, outcome, self._take_action)
        if isinstance(outcome, HostError):
            return Refusal(outcome.code)
        hyperties = self._state.users.hyperties_of(outcome.here)
        numbers = self._state.users.live_numbers(hyperties, waiting.number)
        if numbers:
            return self._deliver(message, waiting, numbers)
        if self._is_ours(waiting.number) and outcome.domains:
            return self._send_abroad(message, waiting, outcome.domains)
        return Refusal(Code.TEMPORARILY_UNAVAILABLE if hyperties else Code.NOT_REGISTERED)

    def _keep(
        self, message: Message, waiting: _Waiting, outcome: UserPlaces | HostError, take_action: TakeAction
    ) -> Refusal | None:
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
                    take_action(message, waiting.number, waiting.roles, place)
                except PeerError as exc:
                    refused = Refusal(exc.code)
                else:
                    return None
            refusal = refusal or refused
        return refusal or Refusal(Code.NOT_REGISTERED)

    def _deliver(self, message: Message, waiting: _Waiting, numbers: tuple[int, ...]) -> Refusal | None:
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
            self._send_queues.requests.sent(message, waiting.number)
        if message.wants_receipt and port is not None:
            self._send_queues.enqueue(port, codec.response(message, 200, extra={"source": self._node}))
        return None

    def _is_ours(self, number: int) -> bool:
        """Whether a message came from a runtime of our own domain: no other is sent on abroad, or asked here again."""
        return not self._state.senders.other_domain_of(number)

    def _send_abroad(self, message: Message, waiting: _Waiting, domains: tuple[str, ...]) -> Refusal | None:
        """Send to the first of the user's domains that we may and can send to."""
        refusal: Refusal | None = None
        for domain in domains:
            refused = self._send_queues.send_abroad(domain, message, waiting.roles)
            if refused is None:
                port, link = self._send_queues.ports.get(waiting.number), self._send_queues.blocker(domain)
                if port is not None and link is not None:
                    port.blockers.add(link)
                return None
            refusal = refusal or refused
        return refusal
