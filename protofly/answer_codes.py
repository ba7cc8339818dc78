"""Codes of replies in the forms that are on the wire: numbers, texts, placeholders, and members of other names.

We write an integer `body.code`; what others write is read here and passed on as it came.
Source: message specification, section 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from protofly import codec
from protofly.errors import PeerError
from protofly.message import Message

_MEMBERS = ("code", "Code", "responseCode", "errorCode")
_WORDS = {"error": 500}
_DIGITS = re.compile(r"[0-9]{3}")
_LEAST, _MOST = 100, 599


def read_code(value: object) -> int:
    """A code in any accepted form: `200`, `"200"`, `"2XX"` (200), `"error"` (500); 0 for anything else."""
    if isinstance(value, str):
        text = value.strip().lower()
        if text in _WORDS:
            return _WORDS[text]
        if len(text) == 3 and text.endswith("xx"):
            text = text[0] + "00"
        value = int(text) if _DIGITS.fullmatch(text) else 0
    return value if isinstance(value, int) and _LEAST <= value <= _MOST else 0


def code_of(reply: Message) -> int:
    """The code of a reply, whatever its member is called; 0 when there is none that can be read."""
    plain = bytes(reply.peek.code)
    if plain.isdigit():
        return read_code(int(plain)) if len(plain) == 3 else 0
    try:
        members: Mapping[str, object] = codec.body_members(reply.body)
    except PeerError:
        return 0
    return next((code for name in _MEMBERS if (code := read_code(members.get(name)))), 0)
