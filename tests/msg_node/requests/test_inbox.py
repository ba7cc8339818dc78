"""Inboxes: what is kept, what makes way, what is reported once, and how replies of agents become words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from msg_node.kernel.changes import Journal
from msg_node.requests.core import inbox
from msg_node.requests.core.delivery_status import Status, report_of
from msg_node.requests.core.inbox import Inboxes, Notice
from msg_node.requests.core.parked import Sender
from protofly import codec
from protofly.limits import PARKED_EXPIRED_AT_ONCE

ANA = "hyperty://alpha.example/h-ana"
BO = "domain://alpha.example/h-bo"
SENDER = Sender("runtime://alpha.example/ana", "c")
QUEUE = "thing://alpha.example/agent-4"


class Rig:
    """Inboxes and their rows."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.journal = Journal()
        self.rows: dict[str, bytes] = {}
        self.inboxes = Inboxes(self.journal, **options)

    def deposit(self, request_id: str, *, is_final: bool = True, now: float = 0.0, owner: str = ANA) -> int:
        entry = self.inboxes.deposit(Notice(owner, SENDER, request_id, QUEUE, b'{"code":200}', is_final), now)
        return entry.number

    def fill(self, request_id: str, size_bytes: int, *, runtime: str = "ana", owner: str = ANA) -> None:
        sender = Sender(f"runtime://alpha.example/{runtime}", "c")
        self.inboxes.deposit(Notice(owner, sender, request_id, QUEUE, b"1" * size_bytes, is_final=True), 0.0)

    @property
    def kept(self) -> list[str]:
        return [entry.request_id for entry in self.inboxes]

    def requests(self, owner: str = ANA) -> list[str]:
        return [entry.request_id for entry in self.inboxes.of_owner(owner)]

    def restarted(self) -> Rig:
        for change in self.journal.take():
            if change.row is None:
                del self.rows[change.key]
            else:
                self.rows[change.key] = msgspec.json.encode(change.row)
        again = Rig(**self.options)
        again.rows = self.rows
        again.inboxes.restore(self.rows)
        return again


def test_a_full_inbox_gives_up_its_oldest_word_that_is_not_final_first_and_then_the_oldest() -> None:
    rig = Rig(per_owner=3)
    rig.deposit("final-1")
    rig.deposit("running-1", is_final=False)
    rig.deposit("running-2", is_final=False)
    rig.deposit("final-2")
    assert rig.requests() == ["final-1", "running-2", "final-2"]
    rig.deposit("final-3")
    assert rig.requests() == ["final-1", "final-2", "final-3"]
    rig.deposit("final-4")
    assert rig.requests() == ["final-2", "final-3", "final-4"]
    assert rig.inboxes.dropped == 3


def test_one_full_inbox_takes_nothing_from_its_neighbours() -> None:
    rig = Rig(per_owner=2)
    rig.deposit("bo-1", owner="hyperty://alpha.example/h-bo")
    for number in range(5):
        rig.deposit(f"ana-{number}")
    assert rig.requests("hyperty://alpha.example/h-bo") == ["bo-1"]


def test_a_newer_word_about_a_request_takes_the_place_of_the_older_one() -> None:
    rig = Rig()
    rig.deposit("d-1", is_final=False)
    number = rig.deposit("d-1")
    assert [(entry.number, entry.is_final) for entry in rig.inboxes.of_owner(ANA)] == [(number, True)]


def test_entries_survive_a_restart_and_what_was_reported_is_not_reported_again() -> None:
    rig = Rig()
    rig.deposit("d-1")
    rig.deposit("d-2")
    rig.inboxes.notified(rig.inboxes.unnotified(ANA)[0])
    again = rig.restarted()
    assert again.requests() == ["d-1", "d-2"]
    assert [entry.request_id for entry in again.inboxes.unnotified(ANA)] == ["d-2"]
    assert again.deposit("d-3") > max(
        entry.number for entry in again.inboxes.of_owner(ANA) if entry.request_id != "d-3"
    )


def test_acknowledged_entries_are_gone_for_good_and_those_of_others_stay() -> None:
    rig = Rig()
    first, second = rig.deposit("d-1"), rig.deposit("d-2")
    assert rig.inboxes.acknowledge("hyperty://alpha.example/h-bo", [first]) == 0
    assert rig.inboxes.acknowledge(ANA, [first, first, 999]) == 1
    assert rig.requests() == ["d-2"]
    assert rig.inboxes.owners_of(SENDER.runtime_key) == [ANA]
    rig.inboxes.acknowledge(ANA, [second])
    assert rig.inboxes.owners_of(SENDER.runtime_key) == []
    assert rig.restarted().requests() == []


def test_entries_end_after_their_time_whatever_the_clock_does() -> None:
    rig = Rig(keep_seconds=100.0)
    rig.deposit("d-1", now=1000.0)
    assert rig.inboxes.expire(1000.0) == 0
    assert rig.inboxes.expire(1099.0) == 0
    assert rig.inboxes.expire(500.0) == 0  # set back: it is kept for its time from now
    assert rig.inboxes.expire(599.0) == 0
    assert rig.inboxes.expire(600.0) == 1
    assert len(rig.inboxes) == 0


def test_what_waits_for_one_runtime_is_bounded_in_bytes_for_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "INBOX_BYTES_PER_RUNTIME", 100)
    rig, second = Rig(), "hyperty://alpha.example/h-second"
    rig.fill("a", 40)
    rig.fill("b", 40, owner=second)
    rig.fill("other", 100, runtime="bo", owner=BO)
    rig.fill("c", 20)
    assert (rig.kept, rig.inboxes.dropped) == (["a", "b", "other", "c"], 0)
    rig.fill("c", 20)  # in place of the one before
    assert rig.kept == ["a", "b", "other", "c"]
    rig.fill("d", 1, owner=second)
    assert (rig.kept, rig.inboxes.dropped) == (["b", "other", "c", "d"], 1)
    rig.inboxes.acknowledge(second, [entry.number for entry in rig.inboxes.of_owner(second)])
    rig.fill("e", 80)
    assert rig.kept == ["other", "c", "e"]
    rig.fill("large", 101)  # what is longer than the bound is there alone
    assert (rig.kept, rig.inboxes.dropped) == (["other", "large"], 3)


@pytest.mark.parametrize(("total_bytes", "entries"), [(100, 9), (1_000, 3)])
def test_where_all_inboxes_are_full_the_runtime_for_which_most_waits_makes_way(
    total_bytes: int, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "INBOX_BYTES", total_bytes)
    rig = Rig(max_entries=entries)
    rig.fill("old", 10)
    rig.fill("large-1", 40, runtime="bo", owner=BO)
    rig.fill("large-2", 50, runtime="bo", owner=BO)
    assert rig.kept == ["old", "large-1", "large-2"]
    rig.fill("new", 1)
    assert (rig.kept, rig.inboxes.dropped) == (["old", "large-2", "new"], 1)
    rig.fill("huge", total_bytes + 1)  # what is longer than all bounds is there alone
    assert rig.kept == ["huge"]


def test_an_address_is_of_every_runtime_that_sent_in_its_name_until_nothing_of_it_waits() -> None:
    rig, ana, bo = Rig(), "runtime://alpha.example/ana", "runtime://alpha.example/bo"
    rig.fill("a", 1)
    rig.fill("b", 1, runtime="bo")
    rig.fill("c", 1, runtime="bo", owner=BO)
    assert (rig.inboxes.owners_of(ana), rig.inboxes.owners_of(bo)) == ([ANA], [BO, ANA])
    found = rig.inboxes.find("b")
    assert found is not None
    rig.inboxes.acknowledge(ANA, [found.number])
    assert (rig.inboxes.owners_of(ana), rig.inboxes.owners_of(bo)) == ([ANA], [BO])
    assert (rig.inboxes.find("b"), sorted(rig.inboxes.owners()), len(rig.inboxes)) == (None, [BO, ANA], 2)


def test_what_was_pushed_or_is_gone_is_not_pushed_again() -> None:
    rig = Rig(first_number=7)
    assert [rig.deposit("a"), rig.deposit("b"), rig.deposit("c")] == [7, 8, 9]
    first, second, _ = rig.inboxes.unnotified(ANA)
    rig.inboxes.notified(first)
    rig.inboxes.acknowledge(ANA, [second.number])
    assert [one.request_id for one in rig.inboxes.unnotified(ANA)] == ["c"]
    rig.inboxes.acknowledge(ANA, [first.number, 9])
    assert (rig.inboxes.has_unnotified(ANA), rig.inboxes.unnotified(ANA), rig.requests()) == (False, [], [])


def test_what_was_stored_comes_back_by_age_whatever_its_numbers() -> None:
    rig = Rig()
    rig.deposit("later", now=20.0)
    rig.deposit("earlier", now=10.0)
    again = rig.restarted()
    assert again.requests() == ["earlier", "later"]
    assert again.inboxes.expire(10.0 + again.inboxes.keep_seconds) == 1
    assert (again.requests(), again.deposit("new")) == (["later"], 3)


def test_a_stored_word_that_says_no_more_is_neither_final_nor_pushed() -> None:
    row = {"number": 5, "owner": ANA, "request_id": "d", "queue": QUEUE, "body": {}, "at": 1.0, "runtime_key": "ana"}
    inboxes = Inboxes(Journal())
    inboxes.restore({"5": msgspec.json.encode(row)})
    [entry] = inboxes.unnotified(ANA)
    assert (entry.number, entry.is_final, entry.is_notified, entry.sender) == (5, False, False, Sender("ana"))


def test_of_many_old_words_so_many_end_at_a_time() -> None:
    rig = Rig()
    for number in range(PARKED_EXPIRED_AT_ONCE + 1):
        rig.deposit(str(number))
    gone = [rig.inboxes.expire(1e9) for _ in range(3)]
    assert gone == [PARKED_EXPIRED_AT_ONCE, 1, 0]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"code": 200, "value": 1}, Status.COMPLETED, 200),
        ({"code": "2XX"}, Status.COMPLETED, 200),
        ({"code": 100}, Status.DELIVERED, 100),
        ({"code": 183, "status": "running"}, Status.DELIVERED, 183),
        ({"code": 202, "status": "queued"}, Status.PENDING, 202),
        ({"code": 202, "status": "delivered"}, Status.DELIVERED, 202),
        ({"code": 202}, Status.COMPLETED, 202),
        ({"code": 200, "status": "canceled"}, Status.CANCELLED, 200),
        ({"code": 410, "status": "cancelled"}, Status.CANCELLED, 410),
        ({"code": 410, "status": "expired"}, Status.EXPIRED, 410),
        ({"code": 500, "status": "completed"}, Status.FAILED, 500),
        ({"code": 403, "reason": "policy"}, Status.FAILED, 403),
        ({"code": "error"}, Status.FAILED, 500),
        ({"value": 1}, Status.FAILED, 502),
        ({}, Status.FAILED, 502),
    ],
)
def test_every_reply_is_one_of_six_words(body: dict[str, object], status: Status, code: int) -> None:
    reply = codec.build(id=1, type="response", from_=QUEUE, to=ANA, body=body)
    word = report_of(reply)
    assert (word.status, word.code) == (status, code)
