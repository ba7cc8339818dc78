"""The link to another node of the domain, as a state machine: contents are taken over once, in order, or come back.

Every content frame has a number: its position among all that one process has queued for another. The receiver counts
what it has taken over and says so (`RECEIVED`), at the latest after `ACKNOWLEDGE_FRAMES` frames, `ACKNOWLEDGE_BYTES` or
with the next tick.
The sender keeps what was not acknowledged. When a connection breaks, both ends remember; on the next one each says in
its hello how far it got with the process at the other end, and what is missing goes again. A process that has started
anew has received nothing, and what the one before it did not acknowledge comes back (`Returned`), as does everything
once the link was down for `HOLD_SECONDS`: then senders are answered. So a message is taken over, or answered; after a
broken connection it may be both, when only the acknowledgement was lost.

    down ──connected──▶ up ──lost, silent──▶ down ──HOLD_SECONDS──▶ away: what waits comes back, nothing new is taken
                         ▲──────────────────────connected──────────────────────────────┘

`now` is in seconds of a monotonic clock. Source: design, section 6; message specification, section 20.9.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from msg_node.cluster.core.handshake import Hello
from msg_node.cluster.core.link_frames import Frame, FrameKind, count_frame, count_of, frame
from protofly.errors import Code, PeerError

QUEUE_BYTES: Final = 16 << 20
"""Most bytes that wait for the acknowledgement of one node; beyond them messages are refused."""
QUEUE_FRAMES: Final = 65_536
WINDOW_BYTES: Final = 512 << 10
"""Senders pause while more waits for the acknowledgement of a node that is connected: what waits longer leaves the
cache of the processor, and costs up to a fifth more in a flood."""
ACKNOWLEDGE_FRAMES: Final = 64
ACKNOWLEDGE_BYTES: Final = WINDOW_BYTES // 4
HOLD_SECONDS: Final = 2.0
PING_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 2.5
"""With `HOLD_SECONDS`, no longer than a lease: who asks a machine that was lost is answered before its node is dead."""
STUCK_SECONDS: Final = 10.0
"""How long the other node may take nothing of what waits for it before that comes back."""


@dataclass(frozen=True, slots=True)
class Met:
    """The other end is up. `is_new`: not the process that we knew; it knows nothing of what we said to that one."""

    is_new: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """Contents of the other node, in its order, each once."""

    contents: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Returned:
    """Contents of ours that the other node did not acknowledge, in our order. They are not sent again."""

    contents: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Close:
    """The connection is to be closed."""

    code: Code
    detail: str


Action = Met | Taken | Returned | Close


class NodeLink:
    """Numbers, keeps and repeats what goes to one other node, and counts what comes from it."""

    def __init__(self, *, now: float) -> None:
        self._kept: deque[bytes] = deque()  # not acknowledged
        self._first = 0  # number of the first one of them
        self._written = 0  # number of the next one to be written on this connection
        self._received = 0
        self._acknowledged = 0  # what we said that we have received
        self._unsaid_bytes = 0  # of what came since then
        self._size_bytes = 0
        self._is_up = False
        self._went_down_at = now
        self._heard_at = now
        self._wrote_at = now
        self._looked_at = now  # of the last tick: exact enough, and nobody has to say the time to keep something
        self._moved_at = now
        self._process = ""
        self._has_resumed = False

    @property
    def is_up(self) -> bool:
        """True while a connection has been proved and lives."""
        return self._is_up

    @property
    def waiting(self) -> int:
        """Content frames without an acknowledgement."""
        return len(self._kept)

    @property
    def met_process(self) -> str:
        """The process that was last at the other end, "" for none: for our next hello."""
        return self._process

    @property
    def received(self) -> int:
        """Count of content frames taken over from that process, for our next hello."""
        return self._received

    @property
    def is_congested(self) -> bool:
        """True if senders should pause: the window is full, or half of what may wait while there is no connection."""
        return self._size_bytes > self._window_bytes or len(self._kept) * 2 > QUEUE_FRAMES

    @property
    def is_relieved(self) -> bool:
        """True if senders that have paused should go on: a half of the window is free, so that each has some of it."""
        return self._size_bytes * 2 <= self._window_bytes and len(self._kept) * 4 <= QUEUE_FRAMES

    @property
    def _window_bytes(self) -> int:
        return WINDOW_BYTES if self._is_up else QUEUE_BYTES // 2

    def is_away(self, now: float) -> bool:
        """True when there is no connection, and has been none for longer than senders are to wait."""
        return not self._is_up and now - self._went_down_at >= HOLD_SECONDS

    # Ours.

    def queue(self, content: bytes, *, now: float) -> Code | None:
        """Take something for the other node; a code says that it was refused: NOT_CONNECTED, OVERLOAD."""
        if self.is_away(now):
            return Code.NOT_CONNECTED
        if self._size_bytes + len(content) > QUEUE_BYTES or len(self._kept) >= QUEUE_FRAMES:
            return Code.OVERLOAD
        self.keep(content)
        return None

    def keep(self, content: bytes) -> None:
        """Take something that has no bound of its own here: what the state of this node bounds already."""
        if not self._kept:
            self._moved_at = self._looked_at
        self._kept.append(content)
        self._size_bytes += len(content)

    def block(self, *, now: float) -> bytes:
        """The bytes to write now, b"" for none."""
        if not self._is_up:
            return b""
        parts = []
        if not self._has_resumed:
            self._has_resumed = True
            parts.append(count_frame(FrameKind.GOES_ON, self._written))
        behind = self._written - self._first
        if behind < len(self._kept):
            fresh = list(islice(reversed(self._kept), len(self._kept) - behind))  # from the end, which is near
            parts += [frame(FrameKind.CONTENT, content) for content in reversed(fresh)]
            self._written = self._first + len(self._kept)
        unsaid = self._received - self._acknowledged
        if unsaid >= ACKNOWLEDGE_FRAMES or self._unsaid_bytes >= ACKNOWLEDGE_BYTES or (parts and unsaid):
            parts.append(self._acknowledgement())
        if parts:
            self._wrote_at = now
        return b"".join(parts)

    def tick(self, now: float) -> tuple[bytes, list[Action]]:
        """Look at the clock, several times a second. Gives bytes to write, and actions."""
        self._looked_at = now
        if not self._is_up:
            return b"", self._give_up() if self.is_away(now) else []
        if now - self._heard_at > SILENCE_SECONDS:
            self.lost(now)
            return b"", [Close(Code.LINK_LOST, "the other node is silent")]
        if self._kept and now - self._moved_at > STUCK_SECONDS:
            self.lost(now)
            return b"", [Close(Code.LINK_LOST, "the other node takes nothing"), *self._give_up()]
        if self._received > self._acknowledged:
            self._wrote_at = now
            return self._acknowledgement(), []
        if now - self._wrote_at >= PING_SECONDS:
            self._wrote_at = now
            return frame(FrameKind.PING), []
        return b"", []

    # The connection.

    def connected(self, peer: Hello, our_process: str, *, now: float) -> list[Action]:
        """A connection was proved by the other node; one that was up before has been closed."""
        is_new, was_met = peer.process != self._process, self._process != ""
        actions: list[Action] = []
        if is_new:
            self._process, self._received = peer.process, 0
            if was_met:
                actions += self._give_up()  # it was for the process before
        elif peer.met_process == our_process:
            self._acknowledge(peer.received)
        self._is_up, self._has_resumed = True, False
        self._written, self._acknowledged, self._unsaid_bytes = self._first, self._received, 0
        self._heard_at = self._wrote_at = self._moved_at = now
        return [*actions, Met(is_new)]

    def lost(self, now: float) -> None:
        """The connection has ended. What was not acknowledged is kept for a while."""
        if self._is_up:
            self._is_up, self._went_down_at = False, now

    def take(self, frames: Sequence[Frame], *, now: float) -> list[Action]:
        """Take what one read has brought.

        Raises:
            PeerError: PROTOCOL_ERROR, or LINK_LOST with the reason when the other node ends the connection.
        """
        self._heard_at = now
        contents = []
        for one in frames:
            if one.kind == FrameKind.CONTENT:
                contents.append(one.content)
            elif one.kind == FrameKind.RECEIVED:
                self._acknowledge(count_of(one.content))
                self._moved_at = now
            elif one.kind == FrameKind.GOES_ON and count_of(one.content) >= self._received and not contents:
                self._received = count_of(one.content)
            elif one.kind == FrameKind.REFUSED:
                raise PeerError(Code.LINK_LOST, f"the other node closes: {one.content[:64]!r}")
            elif one.kind != FrameKind.PING:
                raise PeerError(Code.PROTOCOL_ERROR, "this frame has no place on a link")
        self._received += len(contents)
        self._unsaid_bytes += sum(map(len, contents))
        return [Taken(contents)] if contents else []

    # Inner steps.

    def _acknowledgement(self) -> bytes:
        self._acknowledged, self._unsaid_bytes = self._received, 0
        return count_frame(FrameKind.RECEIVED, self._received)

    def _acknowledge(self, count: int) -> None:
        if count > self._first + len(self._kept):
            raise PeerError(Code.PROTOCOL_ERROR, "the other node acknowledges what it was not sent")
        while self._first < count:
            self._size_bytes -= len(self._kept.popleft())
            self._first += 1

    def _give_up(self) -> list[Action]:
        contents, self._kept = list(self._kept), deque()
        self._first += len(contents)
        self._written, self._size_bytes = self._first, 0
        return [Returned(contents)] if contents else []
