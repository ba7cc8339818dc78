"""Frames on a link between two nodes of one domain: a length, a kind, the content.

    u32 length of what follows | u8 kind | content

All numbers are big-endian. What a stranger sends before it has proved the key is bounded by `HELLO_BYTES`; afterwards
by what a message may be. Source: design, section 6.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from protofly.errors import Code, PeerError
from protofly.limits import FRAME_BYTES_MAX

HELLO_BYTES: Final = 1024
"""Largest frame of a node that has not proved the key."""
FRAME_BYTES: Final = FRAME_BYTES_MAX + (64 << 10)
"""Largest frame of a node that has: a message, with the roles of its sender."""
_HEAD = Struct(">IB")
_COUNT = Struct(">Q")


class FrameKind(IntEnum):
    """The kinds of frames."""

    HELLO = 1
    """Who speaks, for which domain, and what it has received so far."""
    PROOF = 2
    """That the sender knows the key of the cluster."""
    GOES_ON = 3
    """The number of the next content frame: a count."""
    CONTENT = 4
    """Something for the other node; numbered by its position, from the count of `GOES_ON` on."""
    RECEIVED = 5
    """How many content frames were taken over so far: a count."""
    PING = 6
    """A sign of life."""
    REFUSED = 7
    """Why the connection is closed: the word of a code."""


class Frame(NamedTuple):
    """One frame as it came."""

    kind: int
    content: bytes


def frame(kind: FrameKind, content: bytes = b"") -> bytes:
    """One frame as bytes."""
    return _HEAD.pack(len(content) + 1, kind) + content


def count_frame(kind: FrameKind, count: int) -> bytes:
    """A frame whose content is a count."""
    return frame(kind, _COUNT.pack(count))


def count_of(content: bytes) -> int:
    """The count in a frame. Raises PeerError: PROTOCOL_ERROR."""
    if len(content) != _COUNT.size:
        raise PeerError(Code.PROTOCOL_ERROR, "a count has eight bytes")
    return int(_COUNT.unpack(content)[0])


class FrameReader:
    """Cuts a stream of bytes into frames.

    Attributes:
        max_bytes: Largest frame that is taken from now on.
    """

    def __init__(self, max_bytes: int = HELLO_BYTES) -> None:
        self.max_bytes = max_bytes
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes; gives the frames that are complete.

        Raises:
            PeerError: PROTOCOL_ERROR for a frame that is empty or too long, before its content is waited for.
        """
        data = self._rest + data if self._rest else data
        frames = []
        start, end = 0, len(data)
        while end - start >= _HEAD.size:
            length, kind = _HEAD.unpack_from(data, start)
            if not 1 <= length <= self.max_bytes:
                raise PeerError(Code.PROTOCOL_ERROR, f"a frame of {length} bytes; {self.max_bytes} are the most")
            begins, ends = start + _HEAD.size, start + _HEAD.size - 1 + length
            if ends > end:
                break
            frames.append(Frame(kind, data[begins:ends]))
            start = ends
        self._rest = data[start:]
        return frames
