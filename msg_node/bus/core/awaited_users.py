"""Messages that wait until it is known where their user is, and places that are known.

Bounded in messages, in bytes and per sender. Messages for one user keep their order. `now` is seconds since some
moment. Source: message specification, sections 11 and 20.4.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from msg_node.registries.core.user_places import UserPlaces
from protofly.errors import HostError
from protofly.limits import (
    USER_PLACES_KNOWN,
    USER_WAITING_BYTES,
    USER_WAITING_MESSAGES,
    USER_WAITING_PER_SENDER,
)
from protofly.message import Message


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message that waits for a place: the session or link it came from, the roles of that session, and since when."""

    message: Message
    number: int
    roles: frozenset[str]
    since: float


class AwaitedUsers:
    """Users that are looked up, with the messages for them, and users whose places are known.

    Attributes:
        count: Messages that wait.
        size_bytes: Sum of their sizes.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[UserPlaces | HostError, float]] = OrderedDict()
        self._waiting: dict[str, list[WaitingMessage]] = {}
        self._of_sender: Counter[int] = Counter()
        self.count = 0
        self.size_bytes = 0

    @property
    def places(self) -> int:
        """Users about whom something is known."""
        return len(self._known)

    @property
    def senders(self) -> int:
        """Sessions and links of which something waits."""
        return len(self._of_sender)

    def guids(self) -> list[str]:
        """The users that messages wait for."""
        return list(self._waiting)

    def known(self, guid: str, now: float) -> UserPlaces | HostError | None:
        """The places of a user, or why there are none. None when a message has to wait for them."""
        known = self._known.get(guid)
        if known is None or known[1] <= now or guid in self._waiting:
            return None
        return known[0]

    def has_room(self, waiting: WaitingMessage) -> bool:
        """True if a message may wait."""
        return (
            self.count < USER_WAITING_MESSAGES
            and self.size_bytes + len(waiting.message.raw) <= USER_WAITING_BYTES
            and self._of_sender[waiting.number] < USER_WAITING_PER_SENDER
        )

    def wait(self, guid: str, waiting: WaitingMessage) -> bool:
        """Let a message wait that has room. Returns True if it is the first one, whose user is to be looked up."""
        self._of_sender[waiting.number] += 1
        self.count += 1
        self.size_bytes += len(waiting.message.raw)
        others = self._waiting.setdefault(guid, [])
        others.append(waiting)
        return len(others) == 1

    def conclude(self, guid: str, outcome: UserPlaces | HostError, until: float) -> Sequence[WaitingMessage]:
        """Remember the result of a look-up for some time. Returns the messages that waited, which wait no more."""
        self._known[guid] = outcome, until
        self._known.move_to_end(guid)
        if len(self._known) > USER_PLACES_KNOWN:
            self._known.popitem(last=False)
        released = self._waiting.pop(guid, [])
        for waiting in released:
            self._release(waiting)
        return released

    def _release(self, waiting: WaitingMessage) -> None:
        self.count -= 1
        self.size_bytes -= len(waiting.message.raw)
        self._of_sender[waiting.number] -= 1
        if not self._of_sender[waiting.number]:
            del self._of_sender[waiting.number]
