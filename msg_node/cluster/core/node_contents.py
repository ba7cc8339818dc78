"""What nodes of one domain say to each other, over a link whose other end has proved the key.

    m  a message, with what its sender's node knows about it
    r  messages of one flow (`msg_node.cluster.core.runs`)
    d  messages of one flow for another domain, whose link the receiver has
    a  an action of a session, with the runtime and the credential of that: the receiver answers for it from now on
    f  a message for another domain, whose link the receiver has
    u  the link to a domain is up (again)
    l  a part of a link to a domain, which the receiver has from the last part on
    w  a mark behind messages for a domain: it goes the way that they go, and the node with the link says `p`
    p  a mark has arrived where the link is: its number
    +  a key that sessions or links of the sender's node listen to from now on
    -  one that they listen to no more
    0  none of what was named before: all of it is named anew
    s  the sender's node wants to know which addresses here a domain may see, and what changes
    x  it wants that no more
    n  news of these addresses
    ?  a question: a number, and JSON
    !  the answer: the same number, and JSON

A message is not judged again by the gates, and its sender is not checked again: the node that it came to has done both.
Source: design, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

import msgspec

from protofly import codec
from protofly.errors import Code, PeerError
from protofly.message import Message

MESSAGE: Final = b"m"
ACTION: Final = b"a"
ABROAD: Final = b"f"
LINK_UP: Final = b"u"
LINK_PART: Final = b"l"
LINK_GIVEN: Final = b"g"
MARK: Final = b"w"
MARK_PASSED: Final = b"p"
HEARD: Final = b"+"
UNHEARD: Final = b"-"
RESET: Final = b"0"
SHOW: Final = b"s"
SHOW_NO_MORE: Final = b"x"
SHOWN: Final = b"n"
QUESTION: Final = b"?"
ANSWER: Final = b"!"

_HEAD = Struct(">BH")
_NUMBER = Struct(">Q")
_LATE, _PERMITTED, _NO_POLICY, _ABROAD, _REROUTED = 1, 2, 4, 8, 16
_MOVES_SHIFT = 5
MOVES: Final = 7
"""A message goes after a link that moves so often; it is more than nodes stop at once."""
_roles_decoder = msgspec.json.Decoder(list[str])


@dataclass(frozen=True, slots=True)
class Passed:
    """A message between nodes.

    Attributes:
        message: As it goes on.
        roles: Those of its sender's session.
        is_from_abroad: It came from another domain, and must not go to a third.
        is_rerouted: It was passed on once already, since its recipient had moved: it goes no further.
        sender: Of an action: runtime and credential of its session.
        domain: The other domain over whose link it is to go, "" for none.
        moves: How often that link had moved on from where it came; up to `MOVES`.
    """

    message: Message
    roles: frozenset[str] = frozenset()
    is_from_abroad: bool = False
    is_rerouted: bool = False
    sender: tuple[str, str] | None = None
    domain: str = ""
    moves: int = 0

    def encode(self) -> bytes:
        """As content of a link."""
        message = self.message
        flags = _LATE * message.is_late | _ABROAD * self.is_from_abroad | _REROUTED * self.is_rerouted
        flags |= self.moves << _MOVES_SHIFT
        if message.verdict is not None:
            flags |= _PERMITTED if message.verdict else _NO_POLICY
        names = [self.domain] if self.domain else list(self.sender or ())
        names += sorted(self.roles)
        roles = msgspec.json.encode(names) if names else b""
        kind = ABROAD if self.domain else MESSAGE if self.sender is None else ACTION
        return b"".join((kind, _HEAD.pack(flags, len(roles)), roles, message.raw))


def decode_passed(content: bytes) -> Passed:
    """Read a message of another node. Raises PeerError: PROTOCOL_ERROR, or what is wrong with the message."""
    start = len(MESSAGE) + _HEAD.size
    if len(content) < start:
        raise PeerError(Code.PROTOCOL_ERROR, "this is no message of a node")
    flags, roles_bytes = _HEAD.unpack_from(content, len(MESSAGE))
    try:
        names = _roles_decoder.decode(content[start : start + roles_bytes]) if roles_bytes else []
        messages = codec.decode(content[start + roles_bytes :])
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise PeerError(Code.PROTOCOL_ERROR, "this is no message of a node") from exc
    if len(messages) != 1:
        raise PeerError(Code.PROTOCOL_ERROR, "a message between nodes has one recipient")
    message = messages[0]
    if flags & _LATE:
        message = msgspec.structs.replace(message, is_late=True)
    if flags & (_PERMITTED | _NO_POLICY):
        message.judged(is_permitted_by_rule=bool(flags & _PERMITTED))
    is_from_abroad, is_rerouted = bool(flags & _ABROAD), bool(flags & _REROUTED)
    if content[:1] == ABROAD:
        if not names:
            raise PeerError(Code.PROTOCOL_ERROR, "this is for no domain")
        roles, moves = frozenset(names[1:]), flags >> _MOVES_SHIFT
        return Passed(message, roles, is_from_abroad, is_rerouted, domain=names[0], moves=moves)
    if content[:1] != ACTION:
        return Passed(message, frozenset(names), is_from_abroad, is_rerouted)
    if len(names) < 2 or not message.is_action:
        raise PeerError(Code.PROTOCOL_ERROR, "this is no action of a session")
    return Passed(message, frozenset(names[2:]), sender=(names[0], names[1]))


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """A mark behind the messages of a node for a domain.

    Attributes:
        number: The node's own.
        node: Who is to hear that it has arrived.
        domain: Whose link it looks for.
        hops: How many nodes it may still pass.
    """

    number: int
    node: str
    domain: str
    hops: int

    def encode(self) -> bytes:
        """As content of a link."""
        return MARK + msgspec.json.encode(self)


def decode_mark(content: bytes) -> Mark:
    """Read a mark. Raises PeerError: PROTOCOL_ERROR."""
    try:
        return msgspec.json.decode(content[1:], type=Mark)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise PeerError(Code.PROTOCOL_ERROR, "this is no mark") from exc


@dataclass(frozen=True, slots=True)
class Shown:
    """News of the addresses of a node that a foreign domain may see.

    Attributes:
        domain: The foreign domain.
        is_snapshot: All that was said before counts no more.
        lines: As in the event `addresses` of a stub: `+` or `-`, and an address.
    """

    domain: str
    is_snapshot: bool
    lines: bytes

    def encode(self) -> bytes:
        """As content of a link."""
        return b"".join((SHOWN, b"=" if self.is_snapshot else b"+", self.domain.encode(), b"\n", self.lines))


def decode_shown(content: bytes) -> Shown:
    """Read news of addresses. Raises PeerError: PROTOCOL_ERROR."""
    domain, end, lines = content[2:].partition(b"\n")
    try:
        lines.decode()
        if end:
            return Shown(domain.decode(), content[1:2] == b"=", lines)
    except UnicodeDecodeError as exc:
        raise PeerError(Code.PROTOCOL_ERROR, "these are no addresses") from exc
    raise PeerError(Code.PROTOCOL_ERROR, "these are no addresses")


def numbered(kind: bytes, number: int, text: bytes) -> bytes:
    """A question or an answer."""
    return kind + _NUMBER.pack(number) + text


def number_and_text(content: bytes) -> tuple[int, bytes]:
    """The number of a question or an answer, and its text. Raises PeerError: PROTOCOL_ERROR."""
    start = 1 + _NUMBER.size
    if len(content) < start:
        raise PeerError(Code.PROTOCOL_ERROR, "this has no number")
    return int(_NUMBER.unpack_from(content, 1)[0]), content[start:]


def key_content(kind: bytes, key: str) -> bytes:
    """A content about a key."""
    return kind + key.encode()


def key_of(content: bytes) -> str:
    """The key that a content is about. Raises PeerError: PROTOCOL_ERROR."""
    try:
        return content[1:].decode()
    except UnicodeDecodeError as exc:
        raise PeerError(Code.PROTOCOL_ERROR, "this is no key") from exc
