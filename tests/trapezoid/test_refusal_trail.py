"""One refused message under one id: from a line of the log to its record, to the decision, and to its span."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from federation.links.link_records import REFUSALS_PER_MINUTE, LinkRecords, Recording
from msg_node.admin.core.spans import spans_of
from msg_node.bus.middleware import MESSAGE_LOG, log
from msg_node.settings.tables.node import LogSettings
from policy.core.gate import Gate
from protofly.errors import Code
from protofly.records import Record
from tests.support.policies import deny, one_policy
from tests.support.sides import Bus, Pair, chat, request
from trapezoid.log_output import set_up_log


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a node with `[log] format = "json"` writes on standard error."""
    root, levels = logging.getLogger(), {name: logging.getLogger(name).level for name in ("httpx", "httpcore")}
    before, level = root.handlers[:], root.level
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    root.handlers = []
    set_up_log(LogSettings(format="json"))
    yield written
    root.handlers = before
    root.setLevel(level)
    for name, one in levels.items():
        logging.getLogger(name).setLevel(one)


def lines(shown: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shown.getvalue().splitlines()]


def test_a_message_that_our_gate_denies_is_followed_by_one_id_from_the_log_to_its_span(shown: io.StringIO) -> None:
    pair = Pair(a=Bus("a.example", gate=Gate(one_policy(deny("nobody")))))
    pair.to_b.send(request(1))
    [line] = [one for one in lines(shown) if "msg_id" in one]
    [record], [decision] = pair.a.message_records, pair.a.decisions
    [span] = spans_of(record)
    assert line["msg_id"] == record.msg_id == decision.msg_id == f"{span.trace_id:032x}"
    assert (line["domain"], line["code"], line["level"]) == ("b.example", "policy", "info")
    assert line["message"] == (
        f"a message from a.example to b.example was denied by {record.rule_id}: policy, id {record.msg_id}"
    )
    assert (span.error, span.attributes["messaging.message.id"]) == ("policy", record.msg_id)


def test_a_message_that_their_gate_denies_has_the_same_id_in_the_log_there_as_in_the_records_here(
    shown: io.StringIO,
) -> None:
    pair = Pair(b=Bus("b.example", gate=Gate()))
    carrier = pair.carrier()
    carrier.open()
    pair.to_b.send(request(1))
    carrier.pump()
    carrier.arrive()
    [line] = [one for one in lines(shown) if "msg_id" in one]
    [there] = pair.b.message_records
    assert (line["msg_id"], line["domain"], line["code"]) == (there.msg_id, "a.example", "domain-blocked")
    carrier.acknowledge()
    assert [one.msg_id for one in pair.a.message_records] == [line["msg_id"]]


def test_lines_about_refused_messages_have_an_allowance_for_each_direction_and_records_have_none(
    shown: io.StringIO,
) -> None:
    recorded: list[Record] = []
    now = [0.0]
    records = LinkRecords("b.example", Recording("a.example", Gate(), recorded.append), monotonic=lambda: now[0])
    for number in range(2 * REFUSALS_PER_MINUTE):
        records.refused(chat(number), bytes(16), Code.BAD_BODY, 0.0, 1)
    assert (len(lines(shown)), len(recorded)) == (REFUSALS_PER_MINUTE, 2 * REFUSALS_PER_MINUTE)
    now[0] = 60.0
    records.refused(chat(0), bytes(16), Code.BAD_BODY, 0.0, 1)
    assert lines(shown)[-1]["message"] == f"a message from b.example to a.example was rejected: bad-body, id {'0' * 32}"
    assert len(lines(shown)) == REFUSALS_PER_MINUTE + 1


def test_the_log_of_messages_gives_the_id_of_the_sender_and_calls_it_no_record_id(shown: io.StringIO) -> None:
    assert log(1)(request(17), 3, frozenset(), "", 0.0) is None
    [line] = lines(shown)
    assert (line["id"], line["session"], line["logger"], "msg_id" in line) == ("17", 3, MESSAGE_LOG, False)
