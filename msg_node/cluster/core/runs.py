"""Runs: messages of one flow that go from node to node as one content, with what they have in common said once.

    r | u16 length of the head | head | per message: u32 length of its text, u32 of its body, u8 of its id; id, text

A run for another domain, whose link the receiver has, says that first. It goes only to nodes with the ability for it.

    d | u8 moves | u8 length of the domain | domain | a run as above

The head is JSON: flags, type, sender, recipient, roles. Every run has a whole head, so a content that is sent again, or
that comes back, needs nothing that was said before; a node that has read a head once knows it by its bytes.

The node that a runtime is connected to has decoded each message, checked that its body is JSON without members that a
node reads, and judged it. The other end of a link has proved the key of the domain, so here a message is cut out of the
content and not decoded: a node that could lie about it could as well send what it likes in the name of any runtime.
Lengths are checked, since an error in them would make other messages of the rest. What depends on this node alone is
asked here for every run: who has the recipient now, and what it has room for (`msg_node.bus.node_runs`).
See docs/adr/0029. Source: design, section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import Final

import msgspec

from protofly.errors import Code, PeerError
from protofly.message import NO_PEEK, Message

RUN: Final = b"r"
RUN_ABROAD: Final = b"d"
HEADS_KNOWN: Final = 4_096
"""Heads take about 300 bytes, and 2 KiB at most."""
_LENGTH = Struct(">H")
_SIZES = Struct(">IIB")
_ABROAD_HEAD = Struct(">BB")
_ABROAD, _PERMITTED, _NO_POLICY = 1, 2, 4
_SAID_BEFORE = len(RUN) + _LENGTH.size


class _HeadText(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    flags: int
    type: str
    from_: str
    to: str
    roles: list[str]


_decode_head = msgspec.json.Decoder(_HeadText).decode


@dataclass(frozen=True, slots=True)
class RunHead:
    """Members that all messages of a run share.

    Attributes:
        roles: Those of their sender's session.
        is_from_abroad: They came from another domain, and must not go to a third.
        verdict: Of the gate that judged them, if any.
    """

    type: str
    from_: str
    to: str
    roles: frozenset[str] = frozenset()
    is_from_abroad: bool = False
    verdict: bool | None = None

    def encode(self) -> bytes:
        """As a content begins with it."""
        flags = _ABROAD * self.is_from_abroad
        if self.verdict is not None:
            flags |= _PERMITTED if self.verdict else _NO_POLICY
        text = msgspec.json.encode(_HeadText(flags, self.type, self.from_, self.to, sorted(self.roles)))
        return RUN + _LENGTH.pack(len(text)) + text


def encode_run(head: bytes, messages: Sequence[Message]) -> bytes:
    """The content of a run; `head` is encoded, and each message `takes_members` and has none that a node reads."""
    pack, parts = _SIZES.pack, [head]
    for message in messages:
        raw, id_ = message.raw, message.id or b""
        parts += (pack(len(raw), len(message.body), len(id_)), id_, raw)
    return b"".join(parts)


def abroad_head(domain: str, moves: int) -> bytes:
    """Encode the head of a run for another domain; see `Passed` for both arguments."""
    name = domain.encode()
    return RUN_ABROAD + _ABROAD_HEAD.pack(moves, len(name)) + name


def cut_abroad(content: bytes) -> tuple[str, int, bytes]:
    """The domain of a run for another one, its moves, and the run. Raises PeerError: PROTOCOL_ERROR."""
    start = len(RUN_ABROAD) + _ABROAD_HEAD.size
    try:
        moves, name_bytes = _ABROAD_HEAD.unpack_from(content, len(RUN_ABROAD))
        domain, run = content[start : start + name_bytes].decode(), content[start + name_bytes :]
    except (error, UnicodeDecodeError) as exc:
        raise PeerError(Code.PROTOCOL_ERROR, "this is no run of messages") from exc
    if not domain or run[:1] != RUN:
        raise PeerError(Code.PROTOCOL_ERROR, "this is for no domain")
    return domain, moves, run


class RunReader:
    """Reads runs, and remembers heads."""

    def __init__(self) -> None:
        self._known: dict[bytes, RunHead] = {}

    def read(self, content: bytes) -> tuple[RunHead, list[Message]]:
        """The messages of a run, in order; all of them have sender, recipient and type as the same objects.

        Raises:
            PeerError: PROTOCOL_ERROR; then none of them is to be taken.
        """
        try:
            (length,) = _LENGTH.unpack_from(content, len(RUN))
            at, size = _SAID_BEFORE + length, len(content)
            head = self._head(content[_SAID_BEFORE:at])
            type_, from_, to, verdict = head.type, head.from_, head.to, head.verdict
            messages = []
            while at < size:
                raw_bytes, body_bytes, id_bytes = _SIZES.unpack_from(content, at)
                id_at = at + _SIZES.size
                raw_at = id_at + id_bytes
                at = raw_at + raw_bytes
                raw, id_ = content[raw_at:at], content[id_at:raw_at] or None
                if at > size or not 0 < body_bytes < raw_bytes:
                    raise PeerError(Code.PROTOCOL_ERROR, "this is no run of messages")
                body = raw[-1 - body_bytes : -1]
                messages.append(Message(id_, type_, from_, to, body, raw, NO_PEEK, True, False, verdict))
        except (error, msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise PeerError(Code.PROTOCOL_ERROR, "this is no run of messages") from exc
        return head, messages

    def _head(self, text: bytes) -> RunHead:
        head = self._known.get(text)
        if head is None:
            said = _decode_head(text)
            verdict = True if said.flags & _PERMITTED else False if said.flags & _NO_POLICY else None
            is_from_abroad = bool(said.flags & _ABROAD)
            head = RunHead(said.type, said.from_, said.to, frozenset(said.roles), is_from_abroad, verdict)
            if len(self._known) >= HEADS_KNOWN:
                self._known.clear()
            self._known[text] = head
        return head
