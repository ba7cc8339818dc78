"""What traces show of a message between domains: spans, derived from its audit record.

Both nodes write a record of the message under the same id. That id is the trace id, and ids of spans follow from it: so
both nodes choose the same messages, and the span of the receiver has that of the sender as its parent, without a word
between them. A message whose sender wrote a `traceparent` into `body.trace` belongs to that trace, if its flags say
that it is sampled.

    send update  ├─────────────────────────────┤   sending node
      queue      ├───┤
      acknowledgement ├────────────────────────┤
      stub           ├──┤
    receive update            ├────┤               receiving node

Source: W3C Trace Context; OpenTelemetry specification, "Probability Sampling".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from protofly.records import MessageRecord
from protofly.trace_context import TraceContext, parse_trace_context

_RANDOM_BITS: Final = 56
"""So many low bits of a trace id are random: W3C Trace Context, level 2, section 3.2.2.3.1."""
_NS_PER_US: Final = 1000
_FAILURES: Final = frozenset({"trapped", "timeout", "undeliverable", "rejected", "expired", "denied"})


class SpanKind(Enum):
    """The kinds of work that a span stands for."""

    SEND = "producer"
    RECEIVE = "consumer"
    STAGE = "internal"


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Times in ns since the Unix epoch.

    Attributes:
        parent_id: Of the span above it, 0 for none.
        is_parent_remote: Another node or a runtime has that one.
        error: The code of what went wrong, "" if nothing.
    """

    name: str
    kind: SpanKind
    trace_id: int
    span_id: int
    parent_id: int
    begin_ns: int
    end_ns: int
    is_parent_remote: bool = False
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    error: str = ""


def is_sampled(record: MessageRecord, share: float) -> bool:
    """True if a message is to be traced: by its sender's word, else with a probability of `share`, by its id."""
    if record.trace_id is not None:
        given = parse_trace_context(record.trace_id)
        return given is not None and given.is_sampled
    random = int(record.msg_id, 16) & ((1 << _RANDOM_BITS) - 1)
    return random >= int((1.0 - share) * (1 << _RANDOM_BITS))


def spans_of(record: MessageRecord) -> Iterator[Span]:
    """The span of a message at this node, and then those of its stages."""
    given = None if record.trace_id is None else parse_trace_context(record.trace_id)
    trace_id = int(record.msg_id, 16) if given is None else given.trace_id
    whole = _sending(record, trace_id, given) if record.role == "out" else _receiving(record, trace_id)
    yield whole
    for name, begin_us, duration_us in _stages(record):
        begin_ns = whole.begin_ns + begin_us * _NS_PER_US
        yield Span(
            name,
            SpanKind.STAGE,
            trace_id,
            _span_id(record.msg_id, f"{record.role} {record.attempt} {name}"),
            whole.span_id,
            begin_ns,
            begin_ns + duration_us * _NS_PER_US,
        )


def _sending(record: MessageRecord, trace_id: int, given: TraceContext | None) -> Span:
    return Span(
        f"send {record.msg_type}",
        SpanKind.SEND,
        trace_id,
        _span_id(record.msg_id, f"out {record.attempt}"),
        0 if given is None else given.parent_id,
        *_times(record),
        is_parent_remote=given is not None,
        attributes=_attributes(record, record.dst_domain, "send"),
        error=_error(record),
    )


def _receiving(record: MessageRecord, trace_id: int) -> Span:
    return Span(
        f"receive {record.msg_type}",
        SpanKind.RECEIVE,
        trace_id,
        _span_id(record.msg_id, "in"),
        _span_id(record.msg_id, "out 1"),
        *_times(record),
        is_parent_remote=True,
        attributes=_attributes(record, record.src_domain, "process"),
        error=_error(record),
    )


def _times(record: MessageRecord) -> tuple[int, int]:
    """Begin and end. What ended at the gate took as long as the decision."""
    duration_us = record.d_policy_us if record.d_total_us is None else record.d_total_us
    return record.ts_us * _NS_PER_US, (record.ts_us + (duration_us or 0)) * _NS_PER_US


def _stages(record: MessageRecord) -> Iterator[tuple[str, int, int]]:
    """Name, begin after that of the whole, and duration of each stage that was measured, in µs."""
    total_us, peer_us, stub_us = record.d_total_us, record.d_peer_us, record.d_stub_us
    if record.role != "out" or total_us is None or peer_us is None:
        return
    queued_us = max(0, total_us - peer_us)
    yield "queue", 0, queued_us
    yield "acknowledgement", queued_us, peer_us
    if stub_us is not None:
        yield "stub", queued_us, min(stub_us, peer_us)


def _attributes(record: MessageRecord, peer: str, operation: str) -> dict[str, str | int]:
    """What is said about a message: never an address or a content."""
    found: dict[str, str | int | None] = {
        "messaging.system": "rethink",
        "messaging.operation.type": operation,
        "messaging.message.id": record.msg_id,
        "messaging.message.envelope.size": record.size_wire or record.size_in,
        "trapezoid.message.type": record.msg_type,
        "trapezoid.peer.domain": peer,
        "trapezoid.peer.node": record.peer_node,
        "trapezoid.channel": record.channel,
        "trapezoid.outcome": record.outcome,
        "trapezoid.attempt": record.attempt,
        "trapezoid.policy.rule": record.rule_id,
        "trapezoid.policy.revision": record.policy_rev,
        "trapezoid.policy.duration_us": record.d_policy_us,
        "trapezoid.stub.sha256": record.stub_ver,
        "trapezoid.stub.fuel": record.fuel,
        "error.type": _error(record) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _error(record: MessageRecord) -> str:
    return (record.outcome_code or record.outcome) if record.outcome in _FAILURES else ""


def _span_id(msg_id: str, place: str) -> int:
    """An id that every node derives alike; 0 is none, by W3C Trace Context."""
    digest = hashlib.sha256(f"trapezoid span {msg_id} {place}".encode()).digest()
    return int.from_bytes(digest[:8]) or 1
