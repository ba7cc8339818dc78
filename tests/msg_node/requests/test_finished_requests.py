"""What is remembered of requests that ended: bounded by number and bytes, the oldest forgotten first."""

from __future__ import annotations

import pytest

from msg_node.kernel.changes import Journal, Table
from msg_node.requests.core import finished_requests
from msg_node.requests.core.delivery_status import Status, StatusReport
from msg_node.requests.core.finished_requests import FinishedRequests
from msg_node.requests.core.parked import FinishedRequest, Sender, row_key
from protofly import codec
from protofly.limits import REPEATED_SECONDS

MOST = 3
NOW = 1_000.0


def ended(
    number: int,
    *,
    domain: str = "",
    runtime: str = "runtime://a.example/ana",
    is_stored: bool = False,
    reason: str = "",
) -> FinishedRequest:
    word = StatusReport(Status.COMPLETED, 200, reason)
    sender = Sender(runtime, domain=domain)
    return FinishedRequest(f"d-{number}", "q", sender, "a:b", word, number, NOW + number, is_stored)


def ids(finished: FinishedRequests) -> list[str]:
    return [one.request_id for one in finished]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_requests, "FINISHED_REMEMBERED", MOST)


def test_the_oldest_is_forgotten_when_there_is_one_too_many_and_its_row_with_it() -> None:
    journal = Journal()
    finished = FinishedRequests(journal)
    for number in range(1, MOST + 1):
        finished.add(ended(number, is_stored=number == 1))
    assert (ids(finished), finished.stored, journal.take()) == (["d-1", "d-2", "d-3"], {1}, [])

    finished.add(ended(4))
    (gone,) = journal.take()
    assert (ids(finished), finished.stored) == (["d-2", "d-3", "d-4"], set())
    assert (gone.table, gone.key, gone.row) == (Table.PARKED, row_key(1), None)
    finished.add(ended(5))
    assert journal.take() == [], "what has no row leaves none behind"


def test_bytes_are_bounded_and_those_of_what_is_forgotten_count_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    finished = FinishedRequests(Journal())
    finished.add(ended(1, reason="x" * 100))
    monkeypatch.setattr(finished_requests, "FINISHED_BYTES", finished._bytes)
    for number in range(2, 30):
        finished.add(ended(number, reason="x" * 100))
        assert ids(finished) == ([f"d-{number}"] if number < 10 else []), "from two digits on it is a byte too large"
    assert finished._bytes == 0


@pytest.mark.parametrize("bound", ["FINISHED_REMEMBERED", "FINISHED_BYTES"])
@pytest.mark.parametrize(("domain", "runtime"), [("c.example", ""), ("", "runtime://a.example/eve")])
def test_who_has_more_than_its_share_makes_the_node_forget_its_own_only(
    monkeypatch: pytest.MonkeyPatch, bound: str, domain: str, runtime: str
) -> None:
    size = len(finished_requests._encode(ended(10, domain=domain, runtime=runtime)))
    monkeypatch.setattr(finished_requests, "FINISHED_REMEMBERED", 32 if bound == "FINISHED_REMEMBERED" else 1_000)
    if bound == "FINISHED_BYTES":
        monkeypatch.setattr(finished_requests, "FINISHED_BYTES", 32 * size)
    finished = FinishedRequests(Journal())
    for number in range(10, 60):
        finished.add(ended(number, domain=domain, runtime=runtime))
    finished.add(ended(60, domain="b.example"))
    finished.add(ended(61, domain="b.example"))
    assert ids(finished)[-2:] == ["d-60", "d-61"], "the oldest of all goes for a sender that has little"
    for number in range(10, 60):
        finished.add(ended(number, domain=domain, runtime=runtime))
    assert {"d-60", "d-61"} <= set(ids(finished))
    assert len(ids(finished)) in (31, 32)


def test_who_has_no_more_than_its_share_of_bytes_makes_the_node_forget_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = len(finished_requests._encode(ended(10, domain="a.example")))
    monkeypatch.setattr(finished_requests, "FINISHED_REMEMBERED", 1_000)
    monkeypatch.setattr(finished_requests, "FINISHED_BYTES", 8 * size)
    finished = FinishedRequests(Journal())
    for number, letter in enumerate("abcdefghi", start=10):
        finished.add(ended(number, domain=f"{letter}.example"))
    assert ids(finished) == [f"d-{number}" for number in range(11, 19)]


def test_what_is_remembered_again_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_requests, "FINISHED_REMEMBERED", 2)
    journal = Journal()
    finished = FinishedRequests(journal)
    finished.add(ended(1, is_stored=True))
    finished.add(ended(1, runtime="runtime://a.example/eve"))
    assert [change.row for change in journal.take()] == [None]
    finished.add(ended(2))
    assert ids(finished) == ["d-1", "d-2"]
    finished.forget("", "d-1")
    finished.forget("", "d-2")
    assert (finished._bytes, finished._shares) == (0, {})


def test_a_request_is_forgotten_by_domain_and_id_and_others_stay() -> None:
    finished = FinishedRequests(Journal())
    finished.add(ended(1, domain="b.example"))
    finished.add(ended(2))
    finished.forget("", "d-1")
    finished.forget("c.example", "d-2")
    assert finished.find("", "d-1") is None
    assert finished.find("b.example", "d-1") == ended(1, domain="b.example")
    assert finished.find("", "d-2") == ended(2)
    finished.forget("", "d-2")
    assert ids(finished) == ["d-1"]


@pytest.mark.parametrize(("now", "left"), [(NOW + 0.5, 3), (NOW + 1, 2), (NOW + 2.5, 1), (NOW + 3, 0)])
def test_what_would_have_expired_is_forgotten_at_that_moment(now: float, left: int) -> None:
    finished = FinishedRequests(Journal())
    for number in (1, 2, 3):
        finished.add(ended(number))
    assert finished.forget_old(now) == 3 - left
    assert len(ids(finished)) == left
    assert (finished._bytes > 0) is (left > 0)


def test_few_of_the_oldest_are_looked_at_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_requests, "PARKED_EXPIRED_AT_ONCE", 2)
    finished = FinishedRequests(Journal())
    for number in (1, 2, 3):
        finished.add(ended(number))
    assert [finished.forget_old(NOW + 9), finished.forget_old(NOW + 9), finished.forget_old(NOW + 9)] == [2, 1, 0]


def test_a_second_reply_is_late_for_as_long_as_a_request_may_be_repeated_and_no_longer() -> None:
    finished = FinishedRequests(Journal())
    reply = codec.build(id=7, type="response", from_="c:d", to="a:b", body={"code": 200})
    other = codec.build(id=8, type="response", from_="c:d", to="a:b", body={"code": 200})
    nameless = codec.build(id=None, type="response", from_="c:d", to="a:b", body={"code": 200})
    finished.ended((reply.to_key, b"7", reply.from_key), NOW)
    assert finished.is_late(reply, NOW)
    assert finished.is_late(reply, NOW + REPEATED_SECONDS - 0.5)
    assert not finished.is_late(reply, NOW + REPEATED_SECONDS)
    assert not finished.is_late(other, NOW)
    assert not finished.is_late(nameless, NOW)


def test_ends_are_remembered_by_their_newest_time_and_bounded_by_number_and_time() -> None:
    finished = FinishedRequests(Journal())
    for number in range(MOST):
        finished.ended(("a:b", b"%d" % number, "c:d"), NOW + number)
    finished.ended(("a:b", b"0", "c:d"), NOW + MOST)  # again: it is the newest now
    finished.ended(("a:b", b"9", "c:d"), NOW + MOST)
    assert list(finished._ended_at) == [("a:b", number, "c:d") for number in (b"2", b"0", b"9")]
    finished.ended(("a:b", b"9", "c:d"), NOW + 2 + REPEATED_SECONDS)
    assert len(finished._ended_at) == MOST, "just as old as a repetition may be"
    finished.ended(("a:b", b"9", "c:d"), NOW + 2.5 + REPEATED_SECONDS)
    assert list(finished._ended_at) == [("a:b", number, "c:d") for number in (b"0", b"9")]
