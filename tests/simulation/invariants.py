"""What the state machines of links and of the bus promise, checked at each step of a simulation.

A link: each message that its machine took is in its queue or has left it exactly once; numbers rise; what is under way
goes by a carrier; what its bounds count is what is there. A queue of the bus: the same about its bounds. The far end's
numbers never go back, unless it begins another stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from federation.core.link_machine import Delivered, Ended, LinkAction, LinkEvent, LinkMachine
from federation.core.outbound_queue import OutboundMessage, OutboundQueue
from federation.core.peer_streams import PeerStreams
from msg_node.bus.core.message_queue import MessageQueue
from protofly.errors import Code
from protofly.message import Message

MOST_COUNTED: Final = 300
"""Longer queues are not counted at each step."""


class BrokenInvariantError(Exception):
    """A state machine is in a state that it promises not to be in."""


class _Ledger:
    """How many messages the queue of a link took, and how many left it."""

    def __init__(self) -> None:
        self.taken = 0
        self.left = 0


_ledgers: dict[int, _Ledger] = {}


def _ledger(queue: OutboundQueue) -> _Ledger:
    return _ledgers.setdefault(id(queue), _Ledger())


def broken(queue: OutboundQueue, *, is_carried: bool) -> str:
    """What is wrong with the queue of a link; "" if nothing is."""
    ledger, there = _ledger(queue), queue.waiting + queue.under_way + len(queue._overdue)
    if there != ledger.taken - ledger.left:
        return f"{ledger.taken} messages were taken and {ledger.left} left, but {there} are there"
    if queue.under_way and not is_carried:
        return f"{queue.under_way} messages are under way without a carrier"
    if there > MOST_COUNTED:
        return ""
    if there > 1:
        numbers = [one.number for one in (*queue._under_way, *queue._waiting)]
        numbered = [one for one in numbers if one]
        if numbered != sorted(set(numbered)) or numbers[: len(numbered)] != numbered:
            return f"numbers are out of order: {numbers}"
    sizes = sum(len(one.wire) for one in queue._waiting), sum(len(one.wire) for one in queue._under_way)
    if sizes != (queue._waiting_bytes, queue._under_way_bytes):
        return f"{sizes} bytes are there, {queue._waiting_bytes, queue._under_way_bytes} are counted"
    return ""


def check_at_each_step() -> None:
    """Have all machines of this process checked from here on; BrokenInvariantError ends the node."""
    _check_links()
    _check_streams()
    _check_bus()


def _check_links() -> None:
    handle, submit, submit_run = LinkMachine.handle, OutboundQueue.submit, OutboundQueue.submit_run

    def checked_handle(self: LinkMachine, event: LinkEvent, now: float) -> list[LinkAction]:
        actions = handle(self, event, now)
        for action in actions:
            if type(action) is Delivered:
                _ledger(self.queue).left += len(action.messages)
            elif type(action) is Ended:
                _ledger(self.queue).left += 1
        problem = broken(self.queue, is_carried=bool(self.carriers))
        if problem:
            raise BrokenInvariantError(f"after {type(event).__name__}: {problem}")
        return actions

    def counted(self: OutboundQueue, pending: OutboundMessage) -> Code | None:
        code = submit(self, pending)
        _ledger(self).taken += code is None
        return code

    def counted_run(self: OutboundQueue, messages: Iterable[OutboundMessage]) -> int:
        count = submit_run(self, messages)
        _ledger(self).taken += count
        return count

    LinkMachine.handle = checked_handle  # type: ignore[method-assign]
    OutboundQueue.submit = counted  # type: ignore[method-assign]
    OutboundQueue.submit_run = counted_run  # type: ignore[method-assign]


def _check_streams() -> None:
    heard = PeerStreams.heard

    def checked_heard(self: PeerStreams, stream: str, number: int) -> None:
        before = self.processed(stream)
        heard(self, stream, number)
        if self.processed(stream) < before:
            raise BrokenInvariantError(f"the peer's stream {stream} went back from {before} to {number}")

    PeerStreams.heard = checked_heard  # type: ignore[method-assign]


def _check_bus() -> None:
    take, exceed = MessageQueue.take, MessageQueue.exceed

    def check(queue: MessageQueue) -> None:
        if len(queue.messages) > MOST_COUNTED:
            return
        size = sum(len(one.raw) for one in queue.messages)
        if size != queue.size_bytes:
            raise BrokenInvariantError(f"a queue of the bus has {size} bytes and counts {queue.size_bytes}")

    def checked_take(self: MessageQueue, message: Message) -> bool:
        is_taken = take(self, message)
        check(self)
        return is_taken

    def checked_exceed(self: MessageQueue, message: Message) -> None:
        exceed(self, message)
        check(self)

    MessageQueue.take = checked_take  # type: ignore[method-assign]
    MessageQueue.exceed = checked_exceed  # type: ignore[method-assign]
