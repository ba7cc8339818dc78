"""Messages that are written alike: the same text but for id and body.

A program writes the messages of one sender to one recipient with the same bytes around id and body. Where such bytes
were decoded once, what they say is known, and only id and body are left to read. The promise of `codec` holds: the
same message, or None, and then the text is decoded in the usual way.
"""

from __future__ import annotations

import re

import msgspec

from protofly.limits import ID_CHARS, NESTING_LEVELS
from protofly.message import NO_PEEK, BodyPeek, Message

_HEADER = re.compile(rb'\{(?:"(?:type|from|to)":"[^"\\\x00-\x1f]+",|"id":(?:0|[1-9][0-9]*),)+"body":\{')
_ID = b'"id":'
_BODY = b'"body":{'
_BEFORE_NOTHING = b" \t\r\n{"
_ZERO = ord("0")
_HEADER_BYTES = 1024
"""Where a header ends that is worth to be known."""
_decode_peek = msgspec.json.Decoder(BodyPeek).decode


class HeaderText:
    """The text of a header: what stands before the digits of the id, and from there to the brace of the body.

    Attributes:
        key: The same for all texts with this header.
    """

    __slots__ = ("_after", "_before", "_from", "_has_id", "_to", "_type", "key")

    def __init__(self, message: Message, before: bytes, after: bytes) -> None:
        self._type, self._from, self._to = message.type, message.from_, message.to
        self._has_id = message.id is not None
        self._before, self._after = before, after
        self.key = before + after

    def decode(self, raw: bytes, cut: int = 0) -> Message | None:
        """The message that a text is, None where it has another header, or its body has members that the node reads.

        So many bytes are `cut` from the end of a text with this header, and replaced by two braces.
        """
        before, after = self._before, self._after
        if not raw.startswith(before):
            return None
        if self._has_id:
            start = len(before)
            end = raw.find(b",", start)
            if not raw.startswith(after, end):
                return None
            id_ = raw[start:end]
            if not id_.isdigit() or len(id_) > ID_CHARS or (id_[0] == _ZERO and len(id_) > 1):
                return None
            begin = end + len(after) - 1
        else:
            id_, begin = None, len(before) - 1
        if cut:
            raw = raw[:-cut] + b"}}"
        if not raw.endswith(b"}}") or raw[-3] in _BEFORE_NOTHING:
            return None
        body = raw[begin:-1]
        try:
            if not raw.isascii():
                raw.decode()
            if _decode_peek(body) != NO_PEEK:
                return None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        many = NESTING_LEVELS
        if 2 * len(body) - len(body.replace(b"{", b"", many)) - len(body.replace(b"[", b"", many)) >= many:
            return None  # more brackets than levels: `codec` looks whether they are nested
        return Message(id_, self._type, self._from, self._to, body, raw, NO_PEEK, True)


def header_text(message: Message) -> HeaderText | None:
    """The header of a decoded message, None where its text is not as programs write it, or its body holds what counts.

    Such a header has the members `type`, `from`, `to`, and `id` if it is a number, each once and without blanks; the
    body comes last.
    """
    raw = message.raw
    if not message.takes_members or message.peek != NO_PEEK:
        return None
    header = _HEADER.match(raw)
    if header is None or header.end() != len(raw) - len(message.body):
        return None
    text = header.group()
    if len(text) > _HEADER_BYTES:
        return None
    names = [name for name in (b'"type":', b'"from":', b'"to":', _ID) if name in text]
    if text.count(b'":') != len(names) + 1 or len(names) != 3 + (message.id is not None):
        return None
    if message.id is None:
        return HeaderText(message, text, b"")
    start = text.index(_ID) + len(_ID)
    return HeaderText(message, text[:start], text[text.index(b",", start) :])


def key_of(raw: bytes) -> bytes:
    """The `HeaderText.key` of a text, if it has one at all."""
    at_body = raw.find(_BODY, 0, _HEADER_BYTES) + len(_BODY)
    at_id = raw.find(_ID, 0, at_body) + len(_ID)
    if at_id < len(_ID):
        return raw[:at_body]
    return raw[:at_id] + raw[raw.find(b",", at_id) : at_body]
