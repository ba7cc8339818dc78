"""Where messages leave the bus: a queue per connected runtime and per foreign domain, flushed once per round or turn.

Putting a message into a queue is a plain call; one write per destination follows in the same scheduler round. A
congested destination slows down its senders. Source: design, section 3; message specification, sections 20.8 and 20.9.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import trio

from federation.links.guest_border import GuestBorder
from msg_node.addresses.core.missed import Missed
from msg_node.bus.core.gathering import Progress
from msg_node.bus.core.message_queue import as_delivered
from msg_node.bus.core.tables import BusTables
from msg_node.bus.runtime_port import RuntimePort, RuntimeQueue, wait_relief
from msg_node.bus.session_flow import Outward
from msg_node.kernel.answers import described
from msg_node.kernel.congestion import Congestible
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.links import NODES, OutboundLinks
from msg_node.kernel.service import SessionNews
from protofly.counters import Counters
from protofly.errors import Code
from protofly.message import Message
from protofly.records import Record

logger = logging.getLogger("msg_node")

_DELIVERED: Final = NodeCount.DELIVERED  # looked up once: it is counted for each message


LONELY_SECONDS: Final = 0.0005
"""A turn that begins so long after the one before it is mostly the only one of its scheduler round."""


class Records(Protocol):
    """The writer of audit records."""

    @property
    def is_accepting(self) -> bool:
        """False while readers have to pause, so that no record is lost (settings: `records.durability`)."""

    async def wait_accepting(self) -> None:
        """Wait until `is_accepting`."""

    def append(self, record: Record, /) -> None:
        """Take a record; never blocks."""


class Links(OutboundLinks, Protocol):
    """Links to other domains."""

    def congested_link(self, domain: str) -> Congestible | None:
        """The link of a domain if its senders should pause."""

    def flow(self, domain: str, message: Message, roles: frozenset[str]) -> Outward | None:
        """The shared decisions of the flow of the message that `send` just accepted; None: each is judged by itself."""

    def flush(self) -> None:
        """Let every link that got something hand it on."""


@dataclass(slots=True)
class Watchers:
    """Those who are called with what nobody else sees.

    Attributes:
        own: With what the node itself sends to which session.
        news: With what happens to sessions.
    """

    own: list[Callable[[Message, int | None], None]] = field(default_factory=list)
    news: list[Callable[[SessionNews], None]] = field(default_factory=list)


@dataclass(slots=True)
class Turns:
    """The turns of readers since the start of the node.

    Attributes:
        messages: Those that readers took in.
        count: How many turns it were.
        ended: When the last one ended, in seconds since the Unix epoch.
    """

    messages: int = 0
    count: int = 0
    ended: float = 0.0

    def progress(self) -> Progress:
        """The counts of work done in them so far, and the processor time of this thread."""
        return Progress(self.messages, self.count, time.thread_time())


class SendQueues:
    """The queues of everybody to whom messages go.

    Args:
        guests: Judges what is sent to runtimes of other domains.
        records: While it takes no more, readers pause.

    Attributes:
        counters: Those of the bus.
        ports: The live connections by session.
        connections: All of them by number.
        turns: Those of the readers that put messages in here.
        links: Those to other domains; set once, before anything runs.
        missed: What observers miss while they are away; None: it is not kept.
        link_blockers: What the readers of links wait for next (`wait_for_room`).
        watchers: Called with what is only seen here.
    """

    def __init__(self, state: BusTables, *, guests: GuestBorder, records: Records) -> None:
        self._state = state
        self._guests = guests
        self.records = records
        self.counters = Counters(NodeCount)
        self.links: Links
        self.missed: Missed | None = None
        self.watchers = Watchers()
        self.ports: dict[int, RuntimePort] = {}
        self.connections: dict[int, RuntimePort] = {}
        self._unwritten: set[RuntimeQueue] = set()
        self._dirty = trio.Event()
        self.turns = Turns()
        self._is_flushing = False
        self.link_blockers: set[Congestible] = set()

    def closed(self, port: RuntimePort) -> None:
        """A connection has ended."""
        self.connections.pop(port.connection, None)
        self._unwritten.discard(port.queue)
        if port.sid is not None and self.ports.get(port.sid) is port:
            del self.ports[port.sid]

    # In.

    def enqueue(self, port: RuntimePort, message: Message) -> None:
        """Queue for one connection what the node itself has to say."""
        for see in self.watchers.own:
            see(message, port.sid)
        port.queue.enqueue(message)
        self._unwritten.add(port.queue)

    def enqueue_unseen(self, port: RuntimePort, message: Message) -> None:
        """Queue for one connection what somebody else sent, which no watcher sees."""
        port.queue.enqueue(message)
        self._unwritten.add(port.queue)

    def enqueue_reply(self, port: RuntimePort, message: Message) -> None:
        """Queue for one connection what a service, or somebody else by way of the node, answers it."""
        if port.guest_of:
            self._guests.leave(port.guest_of, message, partial(self.enqueue, port))
        else:
            self.enqueue(port, message)

    def reply_to(self, sid: int, message: Message) -> None:
        """Queue an answer for a session, if it is still connected."""
        port = self.ports.get(sid)
        if port is None:
            self.counters[NodeCount.UNHEARD_ANSWERS] += 1
            return
        reads_desc = message.is_response and port.line.dialect.reads_desc
        self.enqueue_reply(port, described(message) if reads_desc else message)

    def enqueue_copy(self, port: RuntimePort, message: Message) -> None:
        """Queue a copy for a tap, if there is room for it: nobody waits for a tap."""
        is_taken = not port.queue.is_congested and port.queue.enqueue(message) is None
        self.counters[NodeCount.TAP_COPIES if is_taken else NodeCount.TAP_COPIES_LOST] += 1
        self._unwritten.add(port.queue)

    def to_listeners(
        self,
        numbers: tuple[int, ...],
        message: Message,
        blockers: set[Congestible],
        roles: frozenset[str] = frozenset(),
    ) -> Code | None:
        """Queue for every listener; a code only when nobody could be given the message.

        `blockers` gains those that the sender should wait for; `roles` are those of the sender's session. A late
        reply is for those alone who asked for such replies; the links of other domains pass it on, since their node
        knows its own runtimes.
        """
        if message.is_late:
            numbers = self._wanting_late(numbers)
            if not numbers:
                return Code.GATEWAY_TIMEOUT
        delivered = False
        refused: Code | None = None
        local = message
        if message.peek.via or message.verdict is not None:
            local = as_delivered(message)
        expects_reply = message.expects_reply  # asked once, for as many as listen
        for number in numbers:
            if number < 0:
                code = self._to_link(number, message, roles, blockers)
            elif (port := self.ports.get(number)) is None:
                code = Code.NOT_CONNECTED
            else:
                queue = port.queue
                code = self._to_guest(port, message, roles) if port.guest_of else queue.enqueue(local, expects_reply)
                if code is None:
                    self._unwritten.add(queue)
                    if queue.is_congested and not queue.is_slow:
                        blockers.add(queue)
            delivered = delivered or code is None
            refused = refused or code
        if refused is not None and self.missed is not None and (delivered or not expects_reply):
            self.missed.keep(self._away(numbers), local, trio.current_time())
        if delivered:
            self.counters[_DELIVERED] += 1
            return None
        if expects_reply and not message.is_class_event:
            return refused
        self.counters[NodeCount.UNHEARD] += 1  # events need no listener
        return None

    def run_to_listener(self, number: int, run: Sequence[Message]) -> int:
        """Queue messages of one flow, which pass no gate on their way, for one runtime; `congested` may follow.

        Returns:
            How many it was given. The next one is for `to_listeners`, which says why it is not taken either.
        """
        port = self.ports.get(number)
        if port is None or port.guest_of:
            return 0
        queue = port.queue
        taken = queue.enqueue_run(run if run[0].verdict is None else [as_delivered(one) for one in run])
        if taken:
            self._unwritten.add(queue)
            self.counters[_DELIVERED] += taken
        return taken

    def congested(self, number: int) -> Congestible | None:
        """The queue of a runtime if its senders should pause."""
        port = self.ports.get(number)
        if port is None or not port.queue.is_congested or port.queue.is_slow:
            return None
        return port.queue

    def _to_link(self, number: int, message: Message, roles: frozenset[str], blockers: set[Congestible]) -> Code | None:
        """Queue for another domain, or for another node of ours, for which senders pause when it does not keep up."""
        domain = self._state.links.domain(number)
        refusal = self.links.send(domain, message, roles)
        if refusal is not None:
            return refusal.code
        if number <= NODES and (link := self.links.congested_link(domain)) is not None and not link.is_slow:
            blockers.add(link)
        return None

    def _to_guest(self, port: RuntimePort, message: Message, roles: frozenset[str]) -> Code | None:
        """Queue for a runtime of another domain. It gets no verdict of ours, as nobody abroad does."""
        return self._guests.leave(port.guest_of, message, port.queue.enqueue, roles)

    def _wanting_late(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        ports = self.ports
        wanting = [
            one for one in numbers if one < 0 or ((port := ports.get(one)) is not None and port.queue.wants_late)
        ]
        self.counters[NodeCount.LATE_REPLIES_KEPT_BACK] += len(numbers) - len(wanting)
        self.counters[NodeCount.LATE_REPLIES] += len(wanting)
        return tuple(wanting)

    def _away(self, numbers: tuple[int, ...]) -> list[int]:
        """Those sessions that have no connection, or whose connection does not know its session yet."""
        ports = self.ports
        return [
            one for one in numbers if one > 0 and ((port := ports.get(one)) is None or port.queue.takes_only_answers)
        ]

    # Room.

    async def wait_for_room(self) -> None:
        """Let a link's reader pause while local receivers are congested.

        Bounded, so that one slow runtime does not stop a domain.
        """
        if not self.records.is_accepting:
            await self.records.wait_accepting()
        if self.link_blockers:
            blockers, self.link_blockers = self.link_blockers, set()
            await wait_relief(blockers)

    async def wait_for_port(self, port: RuntimePort) -> None:
        """Let a runtime's reader pause while what it writes to is congested."""
        if not self.records.is_accepting:
            await self.records.wait_accepting()
        blockers, port.blockers = port.blockers, set()
        await wait_relief(blockers)

    # Out.

    def wake(self) -> None:
        """Have everything that was queued written in this scheduler round."""
        self._dirty.set()

    def end_turn(self, began: float, taken: int) -> None:
        """A reader has done what it read: write what was queued, at once if no other had its turn just before.

        Where turns follow each other, one write per destination for all of a round is worth more than the change of
        tasks that it costs. `began` is seconds since the Unix epoch, `taken` how many messages it was.
        """
        turns = self.turns
        turns.messages += taken
        turns.count += 1
        if began - turns.ended > LONELY_SECONDS and not self._is_flushing:
            self._flush()
        else:
            self._dirty.set()
        turns.ended = time.time()

    async def run(self) -> None:
        """Once per scheduler round, give every destination its block."""
        while True:
            await self._dirty.wait()
            self._dirty = trio.Event()
            self._flush()

    def _flush(self) -> None:
        self._is_flushing = True  # what is expired is answered meanwhile
        queues, self._unwritten = self._unwritten, set()
        for queue in queues:
            _flush(queue)
        self.links.flush()
        self._is_flushing = False


def _flush(queue: RuntimeQueue) -> None:
    """Write what waits for one runtime."""
    try:
        queue.flush()
    except Exception:  # a defect of ours may cost this runtime its connection, never the node
        logger.exception("what waits for a runtime cannot be written: its connection is closed")
        queue.channel.drop()
