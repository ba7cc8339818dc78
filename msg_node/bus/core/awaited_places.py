"""Messages that wait until it is known where their recipient is, and places that are known.

A recipient is a user to be found in the global registry, or an address to be found at another node of the domain.
Bounded in messages, in bytes and per sender. Messages for one recipient keep their order. `now` is seconds since some
moment. Source: message specification, sections 11 and 20.4.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from protofly.errors import HostError
from protofly.limits import (
    USER_PLACES_KNOWN,
    USER_WAITING_BYTES,
    USER_WAITING_MESSAGES,
    USER_WAITING_PER_SENDER,
)
from protofly.message import Message

Place = TypeVar("Place")


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message that waits for a place: the session or link it came from, the roles of that session, and since when."""

    message: Message
    number: int
    roles: frozenset[str]
    since: float


class AwaitedPlaces(Generic[Place]):
    """Recipients that are looked up, with the messages for them, and recipients whose places are known.

    Args:
        max_known: Places that are remembered.

    Attributes:
        count: Messages that wait.
        size_bytes: Sum of their sizes.
    """

    def __init__(self, max_known: int = USER_PLACES_KNOWN) -> None:
        self._max_known = max_known
        self._known: OrderedDict[str, tuple[Place | HostError, float]] = OrderedDict()
        self._waiting: dict[str, list[WaitingMessage]] = {}
        self._of_sender: Counter[int] = Counter()
        self.count = 0
        self.size_bytes = 0

    @property
    def places(self) -> int:
        """Recipients about whom something is known."""
        return len(self._known)

    @property
    def senders(self) -> int:
        """Sessions and links of which something waits."""
        return len(self._of_sender)

    def awaited(self) -> list[str]:
        """The recipients that messages wait for."""
        return list(self._waiting)

    def known(self, name: str, now: float) -> Place | HostError | None:
        """The place of a recipient, or why there is none. None when a message has to wait for it."""
        known = self._known.get(name)
        if known is None or known[1] <= now or name in self._waiting:
            return None
        return known[0]

    def has_room(self, waiting: WaitingMessage) -> bool:
        """True if a message may wait."""
        return (
            self.count < USER_WAITING_MESSAGES
            and self.size_bytes + len(waiting.message.raw) <= USER_WAITING_BYTES
            and self._of_sender[waiting.number] < USER_WAITING_PER_SENDER
        )

    def is_congested(self, number: int) -> bool:
        """True if half of what may wait does: of a sender, or of all."""
        return (
            self._of_sender[number] * 2 >= USER_WAITING_PER_SENDER
            or self.count * 2 >= USER_WAITING_MESSAGES
            or self.size_bytes * 2 >= USER_WAITING_BYTES
        )

    def wait(self, name: str, waiting: WaitingMessage) -> bool:
        """Let a message wait that has room. Returns True if it is the first one for this recipient."""
        self._of_sender[waiting.number] += 1
        self.count += 1
        self.size_bytes += len(waiting.message.raw)
        others = self._waiting.setdefault(name, [])
        others.append(waiting)
        return len(others) == 1

    def conclude(self, name: str, outcome: Place | HostError, until: float) -> Sequence[WaitingMessage]:
        """Remember the result of a look-up for some time. Returns the messages that waited, which wait no more."""
        self._known[name] = outcome, until
        self._known.move_to_end(name)
        if len(self._known) > self._max_known:
            self._known.popitem(last=False)
        released = self._waiting.pop(name, [])
        for waiting in released:
            self._release(waiting)
        return released

    def forget(self, name: str) -> None:
        """Look a recipient up anew for the next message."""
        self._known.pop(name, None)

    def forget_all(self) -> None:
        """Look every recipient up anew."""
        self._known.clear()

    def _release(self, waiting: WaitingMessage) -> None:
        self.count -= 1
        self.size_bytes -= len(waiting.message.raw)
        self._of_sender[waiting.number] -= 1
        if not self._of_sender[waiting.number]:
            del self._of_sender[waiting.number]
