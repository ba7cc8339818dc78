"""Messages to addresses that are not here: they wait while the directory is asked which node has them, then go on.

    to A ─▶ known where? ─▶ else wait for the claims of A and of what is above it
                 │                       │
                 ▼                       ▼
         that node's link       the nearest claim's node, or nobody: then it is refused, or parked

What waits is in memory and bounded, per sender first; each message goes on or is answered, in the order of its sender.
A sender that has half of its bound waiting is not read until the directory has answered, so a flood loses nothing.
A place once found is known until the directory says that its claim has ended, and for `PLACE_SECONDS` at most; that an
address is nowhere is known for `NOWHERE_SECONDS`. Source: message specification, section 20.2.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

import trio

from federation.links.link_context import Refusal
from msg_node.addresses.core.allocation import ancestors, is_below_any
from msg_node.bus.core.awaited_places import AwaitedPlaces, WaitingMessage
from msg_node.bus.core.router import Decisions, Deliver
from msg_node.bus.core.tables import BusTables
from msg_node.bus.refusals import Refusals
from msg_node.bus.user_routing import TakeAction
from msg_node.cluster.core.node_contents import Passed
from msg_node.cluster.directory import FIND_SECONDS, Claim, Directory, found_soon
from msg_node.cluster.node_bus import NodeBus
from msg_node.kernel.links import is_node, node_name
from msg_node.kernel.runtime_address import runtime_part
from protofly import codec
from protofly.address import domain_of
from protofly.errors import Code, HostError, PeerError
from protofly.lifetime import aged
from protofly.limits import USER_WAITING_MESSAGES
from protofly.message import Message

logger = logging.getLogger("msg_node")

PLACE_SECONDS: Final = 300.0
NOWHERE_SECONDS: Final = 1.0
PLACES_KNOWN: Final = 200_000
LOOKED_UP_AT_ONCE: Final = 500
PATIENCE_SECONDS: Final = 2 * FIND_SECONDS
"""A look-up that has begun, and the one after it, are over by then."""
LINK_PATIENCE_SECONDS: Final = 0.25
"""Others on the same link do not wait for longer."""
_NOBODY: Final = Claim("", 0)
_NO_ROLES: frozenset[str] = frozenset()


class _Pause:
    """Has a sender of which much waits for look-ups pause until they have come to their end."""

    is_slow = False

    def __init__(self, is_congested: Callable[[], bool], relief: trio.lowlevel.ParkingLot, patience: float) -> None:
        self.patience_seconds = patience
        self._is_congested = is_congested
        self._relief = relief

    @property
    def is_congested(self) -> bool:
        """True until then."""
        return self._is_congested()

    async def wait_relief(self) -> None:
        """Wait for the end of one look-up."""
        await self._relief.park()


class NodeRouting:
    """Finds the nodes of messages.

    Args:
        node: The name of this node in its domain.
        directory: Who owns which address.
        state: Gives other nodes their numbers.

    Attributes:
        bus: Where other nodes are reached; set once, before anything runs.
    """

    def __init__(self, node: str, directory: Directory, state: BusTables) -> None:
        self._node = node
        self._directory = directory
        self._state = state
        self._awaited: AwaitedPlaces[Claim] = AwaitedPlaces(PLACES_KNOWN)
        self._relief = trio.lowlevel.ParkingLot()
        self._below: dict[str, set[str]] = {}  # what was found through a claim, by its key
        self._ended_meanwhile: set[str] | None = None  # during a look-up; None: any claim may have
        self._wanted, self._coming = trio.open_memory_channel[str](USER_WAITING_MESSAGES)
        self.bus: NodeBus
        self._refusals: Refusals
        self._take_action: TakeAction
        self._router: Decisions
        self.clock: Callable[[], float] = time.monotonic
        self.look_ups = 0
        """Questions to the directory since the start."""
        directory.on_ended = self._ended

    def connect(self, refusals: Refusals, take_action: TakeAction, router: Decisions) -> None:
        """Set who answers what comes to nothing, who keeps actions of those who are nowhere, and who knows who is here.

        Once, before anything runs.
        """
        self._refusals = refusals
        self._take_action = take_action
        self._router = router

    def place(self, key: str) -> int | None:
        """See `KnownPlaces`."""
        known = self._awaited.known(key, self.clock())
        if known is None:
            return None
        if isinstance(known, HostError) or known.node in ("", self._node):
            return 0
        return self._state.links.of_node(known.node)

    def reaches(self, number: int) -> bool:
        """See `KnownPlaces`."""
        return node_name(self._state.links.domain(number)) in self.bus.connected

    def take(self, message: Message, number: int, roles: frozenset[str] = _NO_ROLES) -> Refusal | None:
        """Keep a message until it is known where its recipient is; a refusal is the caller's to answer.

        Args:
            message: Its sender has been checked, and the gates have let it pass.
            number: The session or link that it came from, 0 for the node itself.
            roles: Those of the session.
        """
        waiting = WaitingMessage(message, number, roles, self.clock())
        if not self._awaited.has_room(waiting):
            return Refusal(Code.OVERLOAD)
        key = message.to_key
        if self._awaited.wait(key, waiting):
            self._wanted.send_nowait(key)  # has room: there are no more keys than messages that wait
        if number and self.is_pausing(number):
            queues = self._refusals.send_queues
            port = queues.ports.get(number)
            blockers, patience = queues.link_blockers, LINK_PATIENCE_SECONDS
            if port is not None:
                blockers, patience = port.blockers, PATIENCE_SECONDS
            blockers.add(_Pause(partial(self.is_pausing, number), self._relief, patience))
        return None

    def is_pausing(self, number: int) -> bool:
        """True while so much of a sender waits that it is not read."""
        return self._awaited.is_congested(number)

    def forget(self, key: str) -> None:
        """Ask again about an address: what was known of it is wrong."""
        self._awaited.forget(key)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask the directory until cancelled: one question for everything that is wanted at that moment."""
        task_status.started()
        while True:
            first = await self._coming.receive()
            await self._look_up([first, *islice(self._wanted_by_now(), LOOKED_UP_AT_ONCE - 1)])

    def _wanted_by_now(self) -> Iterator[str]:
        """Keys that somebody waits for and that nobody has asked for."""
        while True:
            try:
                yield self._coming.receive_nowait()
            except trio.WouldBlock:
                return

    async def _look_up(self, keys: Collection[str]) -> None:
        names = {key: names_above(key) for key in keys}
        self.look_ups += 1
        self._ended_meanwhile = set()
        try:
            found = await found_soon(self._directory, {name for of_key in names.values() for name in of_key})
        except HostError as exc:
            logger.warning("cluster: the directory does not answer: %s", exc)
            for key in (*keys, *self._wanted_by_now()):  # who came meanwhile does not wait for another silence
                self._conclude(key, HostError(Code.STATE_UNAVAILABLE, exc.detail), 0.0)
        else:
            for key, of_key in names.items():
                name = next((one for one in of_key if one in found), "")
                if name:
                    self._below.setdefault(name, set()).add(key)
                self._conclude(key, found.get(name, _NOBODY), self._life_of(name))
        self._relief.unpark_all()
        self._refusals.send_queues.wake()

    def _life_of(self, name: str) -> float:
        """How long a place counts that was found through a claim; not at all if that has ended since it was read."""
        if not name:
            return NOWHERE_SECONDS
        has_ended = self._ended_meanwhile is None or name in self._ended_meanwhile
        return 0.0 if has_ended else PLACE_SECONDS

    def _conclude(self, key: str, claim: Claim | HostError, life_seconds: float) -> None:
        for waiting in self._awaited.conclude(key, claim, self.clock() + life_seconds):
            try:
                refusal = self._go_on(waiting, claim)
            except PeerError as exc:
                refusal = Refusal(exc.code)
            if refusal is not None:
                self._refusals.refuse_later(waiting.number, waiting.message, refusal)

    def _go_on(self, waiting: WaitingMessage, claim: Claim | HostError) -> Refusal | None:
        message = aged(waiting.message, self.clock() - waiting.since)
        if message is None:
            return Refusal(Code.TIMEOUT)
        if isinstance(claim, HostError):
            return Refusal(claim.code)
        if claim.node == self._node and not message.is_action and (numbers := self._listeners_here(message, waiting)):
            return self._deliver(message, waiting, numbers)  # it has just come here, or been claimed here
        is_parked = message.is_action and not is_node(waiting.number) and claim.node not in self.bus.connected
        if is_parked or claim.node in ("", self._node):
            if message.is_action:
                self._take_action(message, waiting.number, waiting.roles, "")
                return None
            return Refusal(Code.NO_ROUTE) if message.expects_reply else None
        if is_node(waiting.number):
            return self._pass_on(message, waiting, claim.node)
        return self._deliver(message, waiting, (self._state.links.of_node(claim.node),))

    def _listeners_here(self, message: Message, waiting: WaitingMessage) -> tuple[int, ...]:
        if is_below_any(message.to_key, self._state.owners.pending):
            return ()
        decision = self._router.decide(message, waiting.number, time.time(), may_park=False)
        if type(decision) is not Deliver:
            return ()
        numbers = tuple([number for number in decision.numbers if not is_node(number)])
        sender = domain_of(message.from_) if waiting.number < 0 else ""
        is_from_abroad = sender != "" and sender not in self._state.domains
        return self._state.guests.without_transit(message.to, numbers) if is_from_abroad else numbers

    def _deliver(self, message: Message, waiting: WaitingMessage, numbers: tuple[int, ...]) -> Refusal | None:
        """Queue for who is here, or for the node that has them."""
        queues = self._refusals.send_queues
        port = queues.ports.get(waiting.number)
        blockers = queues.link_blockers if port is None else port.blockers
        code = queues.to_listeners(numbers, message, blockers, waiting.roles)
        if code is None and message.peek.ttl and waiting.number > 0:
            self._refusals.requests.sent(message, waiting.number)
        if code is None and message.wants_receipt and port is not None:
            queues.enqueue(port, codec.response(message, 200, extra={"source": self._refusals.node}))
        return None if code is None else Refusal(code)

    def _pass_on(self, message: Message, waiting: WaitingMessage, node: str) -> Refusal | None:
        """Send what another node sent here to where its recipient has moved: once, and never back."""
        if self._state.links.of_node(node) == waiting.number:
            return Refusal(Code.NO_ROUTE)
        sender = domain_of(message.from_)
        is_from_abroad = sender != "" and sender not in self._state.domains
        passed = Passed(message, waiting.roles, is_from_abroad=is_from_abroad, is_rerouted=True)
        code = self.bus.send(node, passed.encode())
        return None if code is None else Refusal(code)

    def _ended(self, keys: Collection[str] | None) -> None:
        if keys is None:
            self._awaited.forget_all()
            self._below.clear()
            self._ended_meanwhile = None
            return
        if self._ended_meanwhile is not None:
            self._ended_meanwhile.update(keys)
        for key in keys:
            for one in self._below.pop(key, ()):
                self._awaited.forget(one)


def names_above(key: str) -> tuple[str, ...]:
    """The addresses whose owner gets what is sent to a key, nearest first."""
    above: Iterable[str] = ancestors(key)
    runtime = runtime_part(key)
    return tuple(dict.fromkeys((key, *above, runtime) if runtime else (key, *above)))
