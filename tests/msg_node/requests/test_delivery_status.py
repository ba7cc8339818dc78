"""What a reply says about a request that waits, and in which words."""

from __future__ import annotations

import pytest
from msgspec import Raw

from msg_node.requests.core.delivery_messages import given_id
from msg_node.requests.core.delivery_status import (
    CANCELLED,
    EXPIRED,
    Status,
    StatusReport,
    read_status,
    report_of,
    status_body,
)
from msg_node.requests.core.parked import ParkedRequest, Sender
from msg_node.requests.core.request_queues import RequestQueues
from protofly import codec
from protofly.errors import Code
from protofly.message import Message

AGENT = "thing://alpha.example/agent-4"
OWNER = "runtime://alpha.example/rt"


@pytest.mark.parametrize(
    ("code", "said", "status"),
    [
        (100, None, Status.DELIVERED),
        (199, "completed", Status.DELIVERED),
        (200, None, Status.COMPLETED),
        (200, "pending", Status.COMPLETED),
        (200, "failed", Status.FAILED),
        (200, "canceled", Status.CANCELLED),
        (201, "queued", Status.COMPLETED),
        (202, None, Status.COMPLETED),
        (202, "queued", Status.PENDING),
        (202, "Running", Status.DELIVERED),
        (202, "complete", Status.COMPLETED),
        (203, "queued", Status.COMPLETED),
        (299, None, Status.COMPLETED),
        (300, None, Status.FAILED),
        (300, "completed", Status.FAILED),
        (404, "pending", Status.FAILED),
        (410, "expired", Status.EXPIRED),
        (410, "cancelled", Status.CANCELLED),
        (500, "nonsense", Status.FAILED),
    ],
)
def test_a_reply_means_one_of_six_words(code: int, said: str | None, status: Status) -> None:
    body: dict[str, object] = {"code": code, "reason": "why", "value": [1], "description": "words"}
    body |= {} if said is None else {"status": said}
    report = report_of(codec.build(id=b"1", type="response", from_=AGENT, to=OWNER, body=body))
    assert report == StatusReport(status, code, "why", b"[1]", "words")


@pytest.mark.parametrize("body", [{}, {"status": "completed"}, {"code": "x"}, {"code": 0}, {"code": 99_999}])
def test_a_reply_without_a_code_has_failed(body: dict[str, object]) -> None:
    report = report_of(codec.build(id=b"1", type="response", from_=AGENT, to=OWNER, body=body))
    assert (report.status, report.code, report.reason) == (Status.FAILED, Code.BAD_REPLY.status, Code.BAD_REPLY.word)


@pytest.mark.parametrize("value", [None, 7, "", "done", ["failed"]])
def test_what_is_no_status_is_none(value: object) -> None:
    assert read_status(value) is None


def test_four_words_are_final() -> None:
    assert {one for one in Status if not one.is_final} == {Status.PENDING, Status.DELIVERED}


def test_a_word_is_reported_with_what_there_is_and_nothing_else() -> None:
    full = StatusReport(Status.COMPLETED, 200, "why", b"[1]", "words")
    assert status_body(full, "d-1", source=AGENT, expires_at=7.9) == {
        "code": 200,
        "description": "words",
        "reason": "why",
        "requestId": "d-1",
        "status": "completed",
        "value": Raw(b"[1]"),
        "expires": 7,
        "source": AGENT,
    }
    bare = status_body(StatusReport(Status.COMPLETED, 200), "d-1")
    assert set(bare) == {"code", "description", "requestId", "status"}
    assert bare["description"]
    assert status_body(StatusReport(Status.FAILED, 999), "d-1")["description"] == ""


def test_words_of_the_node_s_own_have_their_code() -> None:
    assert (CANCELLED.code, CANCELLED.description) == (Code.CANCELLED.status, "")
    assert (EXPIRED.code, EXPIRED.reason) == (Code.EXPIRED.status, Code.EXPIRED.word)
    assert StatusReport.of_code(Status.FAILED, Code.BAD_REPLY, "no").description.endswith(": no")


def a_request(number: int) -> ParkedRequest:
    message = codec.build(id=b"%d" % number, type="execute", from_=OWNER, to=f"{AGENT}/actions/x", body={})
    return ParkedRequest(
        number, f"d-{number}", AGENT, message, Sender(OWNER), 0.0, 60.0, (OWNER, b"%d" % number, message.to_key)
    )


def test_first_is_what_is_handed_over_next() -> None:
    queues = RequestQueues()
    assert queues.first(AGENT) is None
    entries = [a_request(number) for number in (1, 2)]
    for entry in entries:
        queues.add(entry)
    assert queues.first(AGENT) is entries[0]
    queues.take(AGENT, 5, unanswered=1)
    assert queues.first(AGENT) is entries[1]
    queues.take(AGENT, 5, unanswered=2)
    assert queues.first(AGENT) is None
    queues.lost(5)
    assert queues.first(AGENT) is entries[0]


@pytest.mark.parametrize(
    ("body", "given"),
    [
        (b'{"requestId":"d-12345678"}', "d-12345678"),
        (b'{"request\\u0049d":"d-12345678"}', ""),
        (b'{"requestId":7}', ""),
        (b'{"requestId":""}', ""),
        (b'{"requestId":"two words"}', ""),
        (b'{"value":"requestId"}', ""),
        (b"{}", ""),
        (b"", ""),
    ],
)
def test_an_id_that_another_node_gave_is_read_where_it_can_be_used(body: bytes, given: str) -> None:
    assert given_id(Message(b"1", "response", AGENT, OWNER, body, b"")) == given


def test_what_comes_back_between_others_waits_in_its_old_place() -> None:
    queues = RequestQueues()
    entries = [a_request(number) for number in (1, 2, 3, 4)]
    for entry in entries:
        queues.add(entry)
    queues.take(AGENT, 5, unanswered=3)
    queues.release(entries[1])
    queues.ask_again(AGENT, only_kept=True)
    queues.ask_again(AGENT)
    assert queues.take(AGENT, 5, unanswered=4) == entries
