"""Records as nodes write them, for every end that a message can have, and the class that reconciliation gives it.

Both sides are the product's own links (`tests.support.sides`); what they write goes to the judgement as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import get_args, get_type_hints

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from federation.core.carrier import Accepted, Convicted
from federation.core.outbound_queue import QueueLimits
from federation.links.decision_records import DecisionRecords
from federation.links.guest_border import GuestBorder, GuestContext
from federation.links.link_context import BorderRules, OurNames
from federation.links.link_records import Recording
from pipeline.columns.message_classes import Judging, Messages
from pipeline.columns.side_records import ALL, entries_of
from pipeline.core.completeness import Completeness
from pipeline.core.utc_days import moment
from pipeline.schemas import SILVER_MDR
from policy.core.gate import Gate
from protofly.errors import Code
from protofly.records import MessageRecord
from tests.pipeline.side_rows import clocks
from tests.support.policies import deny, one_policy, permit
from tests.support.policies import test as condition
from tests.support.sides import Bus, MemoryCarrier, Pair, chat, decoded, inbound, node_of, text

HOUR_US = 3_600_000_000
NO_READING = one_policy(deny("no-creating", condition("actionType", "equals", "create")), permit("rest"))


def live(pair: Pair) -> MemoryCarrier:
    carrier = pair.carrier()
    carrier.open()
    return carrier


def carried(pair: Pair) -> None:
    """One message from a to b, as far as it goes."""
    carrier = live(pair)
    pair.to_b.send(chat(1))
    carrier.pump()
    carrier.arrive()
    carrier.acknowledge()


def arrives() -> Pair:
    pair = Pair()
    carried(pair)
    return pair


def their_gate_denies() -> Pair:
    pair = Pair(b=Bus("b.example", gate=Gate(NO_READING)))
    carried(pair)
    return pair


def nobody_takes_it() -> Pair:
    pair = Pair(b=Bus("b.example", refuse=lambda _message: Code.NOT_REGISTERED))
    carried(pair)
    return pair


def their_border_refuses() -> Pair:
    pair = Pair()
    carrier = live(pair)
    pair.to_b.send(chat(1))
    carrier.pump()
    wire = carrier.on_the_way[0].wire.replace(b"hyperty://a.example/", b"hyperty://c.example/")
    pair.to_a.inbound(inbound(wire), "s")
    pair.to_b.handle(Accepted(1))
    return pair


def our_gate_denies() -> Pair:
    pair = Pair(a=Bus("a.example", gate=Gate(NO_READING)))
    pair.to_b.send(chat(1))
    return pair


def gets_past_our_gate() -> Pair:
    """Something of a's carries to b what a's gate has denied."""
    pair = our_gate_denies()
    [denied] = pair.a.message_records
    body = f'{{"value":1,"trace":"mn:{denied.msg_id}","via":["{node_of("a.example")}"]}}'
    pair.to_a.inbound(inbound(text("hyperty://a.example/ana", "hyperty://b.example/bo", body)), "s")
    return pair


def link_takes_none() -> Pair:
    pair = Pair()
    pair.to_b.machine.refusal, pair.to_b.machine.refuse_until = Code.CIRCUIT_OPEN, time.monotonic() + 60
    pair.to_b.send(chat(1))
    return pair


def queue_is_full() -> Pair:
    pair = Pair(a=Bus("a.example", limits=QueueLimits(waiting_messages=0)))
    pair.to_b.send(chat(1))
    return pair


def waits_too_long() -> Pair:
    pair = Pair()
    pair.to_b.send(chat(1))
    pair.to_b.tick(time.monotonic() + 1e6)
    return pair


def kills_the_stub() -> Pair:
    pair = Pair()
    carrier = live(pair)
    pair.to_b.send(chat(1))
    carrier.pump()
    pair.to_b.handle(Convicted(pair.to_b.queue.refused(1) or pytest.fail("it was under way")))
    return pair


def gives_up_though_it_arrived() -> Pair:
    pair = Pair()
    carrier = live(pair)
    pair.to_b.send(chat(1))
    carrier.pump()
    carrier.arrive()
    pair.to_b.handle(Convicted(pair.to_b.queue.refused(1) or pytest.fail("it was under way")))
    return pair


def is_altered() -> Pair:
    pair = Pair()
    carrier = live(pair)
    pair.to_b.send(chat(1, value="one"))
    carrier.pump()
    pair.to_a.inbound(inbound(carrier.on_the_way[0].wire.replace(b'"one"', b'"two"')), "s")
    pair.to_b.handle(Accepted(1))
    return pair


def never_arrives() -> Pair:
    pair = Pair()
    carrier = live(pair)
    pair.to_b.send(chat(1))
    carrier.pump()
    pair.to_b.handle(Accepted(1))
    return pair


def has_our_name_only() -> Pair:
    pair = Pair()
    pair.to_a.inbound(inbound(text("hyperty://a.example/ana", "hyperty://b.example/bo")), "s")
    return pair


def has_its_senders_trace_twice() -> Pair:
    """The user's own trace, and the same request again: both have one id."""
    pair = Pair()
    carrier = live(pair)
    for _ in range(2):
        pair.to_b.send(chat(1, trace="t-1"))
        carrier.pump()
        carrier.arrive()
        carrier.acknowledge()
    return pair


BATTERY: dict[Callable[[], Pair], tuple[str, list[tuple[str, str]]]] = {
    arrives: ("matched", [("out", "delivered"), ("in", "delivered")]),
    their_gate_denies: ("matched", [("out", "delivered"), ("in", "denied")]),
    nobody_takes_it: ("matched", [("out", "delivered"), ("in", "undeliverable")]),
    their_border_refuses: ("altered", [("out", "delivered"), ("in", "rejected")]),
    our_gate_denies: ("undelivered", [("out", "denied")]),
    gets_past_our_gate: ("outcome", [("out", "denied"), ("in", "delivered")]),
    link_takes_none: ("undelivered", [("out", "rejected")]),
    queue_is_full: ("undelivered", [("out", "rejected")]),
    waits_too_long: ("undelivered", [("out", "expired")]),
    kills_the_stub: ("undelivered", [("out", "trapped")]),
    gives_up_though_it_arrived: ("outcome", [("out", "trapped"), ("in", "delivered")]),
    is_altered: ("altered", [("out", "delivered"), ("in", "delivered")]),
    never_arrives: ("lost", [("out", "delivered")]),
    has_our_name_only: ("orphan", [("in", "delivered")]),
    has_its_senders_trace_twice: ("matched", [("out", "delivered")] * 2 + [("in", "delivered")] * 2),
}


def test_a_guests_messages_are_in_one_domains_records_only_and_are_no_cases() -> None:
    """A runtime of b's has a session at a: no node of b's sees what it sends and is sent."""
    bus = Bus("a.example")
    border = GuestBorder(
        GuestContext(
            BorderRules(OurNames("a.example", node_of("a.example")), bus.gate),
            Recording("a.example", bus.gate, bus.records.append),
            DecisionRecords(bus.gate, bus.records.append),
        )
    )
    assert border.leave("b.example", chat(1), lambda _: None) is None
    border.enter("b.example", decoded(text()), time.time()).arrived(None)
    assert [(one.role, one.outcome) for one in bus.message_records] == [("out", "delivered"), ("in", "delivered")]
    assert judged(bus.message_records).classes.tolist() == []


def judged(records: Sequence[MessageRecord]) -> Messages:
    """What reconciliation says about records, where both sides are complete."""
    rows = [msgspec.to_builtins(one) for one in records]
    for seq, row in enumerate(rows):
        row |= {"msg_id": bytes.fromhex(row["msg_id"]), "digest": bytes.fromhex(row["digest"]), "seq": seq}
        row |= {"node": f"mn-1.{row['src_domain' if row['role'] == 'out' else 'dst_domain']}", "boot": 1}
    days = {moment(row["ts_us"])[:10] for row in rows}
    end_us = max(row["ts_us"] for row in rows) + HOUR_US
    proved = {name: Completeness(0, end_us) for name in ("a.example", "b.example", "c.example")}
    schema = to_arrow_schema(SILVER_MDR.schema)
    table = pa.Table.from_pylist(rows, pa.schema([schema.field(name) for name in ALL]))
    return Messages(entries_of(table), Judging(days, clocks(), proved, 1, HOUR_US))


@pytest.mark.parametrize("ending", BATTERY, ids=lambda ending: ending.__name__)
def test_a_message_has_the_class_of_its_end_in_records_as_nodes_write_them(ending: Callable[[], Pair]) -> None:
    pair = ending()
    records = [*pair.a.message_records, *pair.b.message_records]
    expected, written = BATTERY[ending]
    assert [(one.role, one.outcome) for one in records] == written
    assert judged(records).classes.tolist() == [expected]


def test_the_battery_has_every_outcome_that_a_node_writes() -> None:
    [outcomes] = [set(get_args(get_type_hints(MessageRecord)["outcome"]))]
    reserved = {"timeout", "duplicate"}  # no node writes them, see docs/records.md
    assert {outcome for _, written in BATTERY.values() for _, outcome in written} == outcomes - reserved
