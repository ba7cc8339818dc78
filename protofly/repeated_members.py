"""Members that a JSON object gives more than once: all their values, where a decoder takes the last.

JSON leaves open which one counts. To judge one and pass on another is a hole. Source: RFC 8259, section 4.
"""

from __future__ import annotations

import json

from protofly import codec
from protofly.errors import Code, PeerError
from protofly.limits import REPEATED_MEMBERS_BYTES


class _Pairs(list[tuple[str, object]]):
    """The members of one object, in order."""


_decode = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=float).decode


def values_of(body: bytes, name: str) -> list[object] | None:
    """All values of a member of an object that can be decoded; None when no member of it is there twice.

    Numbers come without their exact value, objects inside as lists of pairs.

    Raises:
        PeerError: TOO_LARGE for a large object with repeated members: nobody needs one. BAD_BODY for what Python's
            reader of JSON refuses.
    """
    if not body or not codec.repeats_members(body):
        return None
    if len(body) > REPEATED_MEMBERS_BYTES:
        raise PeerError(Code.TOO_LARGE, "too large for an object that gives members more than once")
    try:
        pairs = _decode(body.decode())
    except (ValueError, RecursionError) as exc:
        raise PeerError(Code.BAD_BODY, "the body cannot be read") from exc
    return [value for key, value in pairs if key == name]
