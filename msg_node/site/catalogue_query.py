"""Answers of an original catalogue: values, attributes, constraints. Pure.

Source: data formats, sections 2.2, 2.3 and 2.5.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from protofly.errors import Code, PeerError

CatalogueObject = dict[str, Raw]


def decode_constraints(raw: bytes) -> dict[str, object]:
    """The body of a POST. Raises PeerError BROKEN_JSON."""
    try:
        return msgspec.json.decode(raw, type=dict[str, object]) if raw.strip() else {}
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        raise PeerError(Code.BROKEN_JSON, "the constraints are no JSON object") from exc


def satisfies(stored: CatalogueObject, requested: Mapping[str, object]) -> bool:
    """True if an object fits all requested attributes. An attribute that it lacks never fits."""
    for name, wanted in requested.items():
        if name not in stored or not _fits(msgspec.json.decode(stored[name]), wanted):
            return False
    return True


def _fits(stored: object, requested: object) -> bool:
    """The demands of the stored object must be a subset of what the caller offers."""
    if isinstance(stored, dict):
        return isinstance(requested, dict) and all(
            name in requested and _fits(value, requested[name]) for name, value in stored.items()
        )
    if isinstance(stored, list):
        return isinstance(requested, list) and all(any(_fits(value, offer) for offer in requested) for value in stored)
    return _equal(_text(stored), _text(requested))


def _equal(left: str, right: str) -> bool:
    if left == right:
        return True
    try:
        return float(left) == float(right)
    except ValueError:
        return False


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def attribute_text(stored: CatalogueObject, attribute: str) -> bytes | None:
    """One attribute alone: a text without quotes, anything else as JSON; None when it is absent or empty."""
    if attribute not in stored:
        return None
    value = msgspec.json.decode(stored[attribute])
    if isinstance(value, str):
        return value.encode() or None
    return bytes(stored[attribute])


def without_empty(stored: CatalogueObject) -> CatalogueObject:
    """As original brokers answer: members that hold an empty text are left out."""
    return {name: value for name, value in stored.items() if bytes(value) != b'""'}
