"""The header `traceparent`, as senders write it into `body.trace`.

    00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
    version, trace id, id of the span above, flags

Source: W3C Trace Context, section 3.2.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]*)?")
_CHARS: Final = 128
_SAMPLED: Final = 1


class TraceContext(NamedTuple):
    """The trace that a message belongs to."""

    trace_id: int
    parent_id: int
    is_sampled: bool


def parse_trace_context(text: str) -> TraceContext | None:
    """Read a `traceparent`; None for any other text. Versions to come may have more behind the flags."""
    found = _TRACEPARENT.fullmatch(text) if len(text) <= _CHARS else None
    if found is None:
        return None
    version, trace_id, parent_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    context = TraceContext(int(trace_id, 16), int(parent_id, 16), bool(int(flags, 16) & _SAMPLED))
    return context if context.trace_id and context.parent_id else None


def traceparent_of(raw: bytes) -> str | None:
    """The `traceparent` in a `body.trace`, a JSON value as bytes; None if that is something else."""
    if len(raw) > _CHARS or not (raw.startswith(b'"') and raw.endswith(b'"')):
        return None
    text = raw[1:-1].decode("latin-1")
    return text if parse_trace_context(text) is not None else None
