"""Each bound of parked requests, with entries in every place that they can have."""

from __future__ import annotations

import msgspec
import pytest

from msg_node.kernel.changes import Journal
from msg_node.kernel.credentials import Credential, Credentials, digest_of
from msg_node.kernel.rules import Rules
from msg_node.requests.core.delivery_messages import handed_over, mirrored_answer, wants_seconds
from msg_node.requests.core.delivery_status import EXPIRED, Status
from msg_node.requests.core.owed_replies import OwedReplies
from msg_node.requests.core.parked import ParkedRequest, ParkedRow, Sender, Submission, from_row, row_of
from msg_node.requests.core.parking import Bounds, Parking
from msg_node.requests.core.recipients import is_domain, recipient_of
from msg_node.requests.core.tables import is_sender
from protofly import codec
from protofly.errors import Code, HostError, PeerError
from protofly.limits import REPEATED_SECONDS, REQUEST_TTL_SECONDS
from tests.support.state_rig import StateRig

AGENT = "thing://alpha.example/a"
OTHER = "thing://alpha.example/b"
ANA = Sender("runtime://alpha.example/ana")
BO = Sender("runtime://alpha.example/bo")
REQUEST = codec.build(id=1, type="execute", from_="hyperty://x.example/h", to=f"{AGENT}/l/actions/x", body={"x": 1})


class Requests(Parking):
    """Parked requests that need no more than a queue and a sender."""

    count = 0

    def put(self, queue: str = AGENT, sender: Sender = ANA, *, now: float = 0.0) -> ParkedRequest:
        self.count += 1
        request_id = f"d-{self.count}"
        return self.submit(Submission(REQUEST, queue, sender, request_id, 60.0), now)

    def refusal(self, queue: str = AGENT, sender: Sender = ANA) -> Code:
        before = (len(self), self.size_bytes, len(self.queues.entries(queue)))
        with pytest.raises(PeerError) as caught:
            self.put(queue, sender)
        assert (len(self), self.size_bytes, len(self.queues.entries(queue))) == before
        return caught.value.code


def test_a_queue_is_full_wherever_its_entries_stand() -> None:
    parked = Requests(Journal(), Bounds(per_queue=3))
    waiting, handed, aside = [parked.put() for _ in range(3)]
    assert parked.queues.take(AGENT, 7, unanswered=2) == [waiting, handed]
    parked.queues.release(waiting)  # another node keeps it
    assert parked.queues.take(AGENT, 7, unanswered=2) == [aside]
    parked.queues.release(aside)
    assert parked.refusal() is Code.QUOTA
    parked.put(OTHER)
    parked.finish(aside, EXPIRED, 1.0)
    parked.put()
    assert parked.refusal() is Code.QUOTA


def test_what_was_acknowledged_before_a_loss_keeps_its_place_in_the_bound() -> None:
    parked = Requests(Journal(), Bounds(per_queue=2))
    first, second = parked.put(), parked.put()
    parked.queues.take(AGENT, 7, unanswered=2)
    for entry in (first, second):
        parked.acknowledged(entry, Status.PENDING)
    assert parked.queues.lost(7) == [AGENT]
    assert (parked.queues.waiting(AGENT), parked.queues.entries(AGENT)) == (0, [first, second])
    assert parked.refusal() is Code.QUOTA


def test_a_sender_is_bounded_over_all_queues_and_alone() -> None:
    parked = Requests(Journal(), Bounds(per_sender=2))
    parked.put(AGENT)
    entry = parked.put(OTHER)
    assert parked.refusal("thing://alpha.example/c") is Code.QUOTA
    parked.put(AGENT, BO)
    parked.finish(entry, EXPIRED, 1.0)
    parked.put(OTHER)
    assert parked.refusal(OTHER) is Code.QUOTA


def test_bytes_are_bounded_over_all_to_the_last_one() -> None:
    size = len(REQUEST.raw)
    parked = Requests(Journal(), Bounds(bytes=2 * size))
    entry = parked.put(AGENT)
    parked.put(OTHER, BO)
    assert parked.size_bytes == 2 * size
    assert parked.refusal(OTHER, BO) is Code.OVERLOAD
    parked.finish(entry, EXPIRED, 1.0)
    parked.put(OTHER, BO)
    assert parked.refusal() is Code.OVERLOAD


@pytest.mark.parametrize("number", [1, 2])
def test_bytes_of_a_sender_are_bounded_to_the_last_one_and_others_do_not_notice(number: int) -> None:
    parked = Requests(Journal(), Bounds(bytes_per_sender=number * len(REQUEST.raw)))
    entries = [parked.put(OTHER) for _ in range(number)]
    assert parked.refusal() is Code.QUOTA
    parked.put(AGENT, BO)
    parked.finish(entries[0], EXPIRED, 1.0)
    parked.put()
    assert parked.refusal() is Code.QUOTA


@pytest.mark.parametrize(("seconds", "code"), [(0.0, Code.EXPIRED), (-1.0, Code.EXPIRED), (0.001, None)])
def test_a_request_has_some_time_or_is_refused(seconds: float, code: Code | None) -> None:
    parked = Requests(Journal(), Bounds())
    submission = Submission(REQUEST, AGENT, ANA, "d-1", seconds)
    if code is None:
        assert parked.submit(submission, 5.0).expires_at == 5.0 + seconds
        return
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        parked.submit(submission, 5.0)
    assert len(parked) == 0


def test_an_id_is_open_once_for_each_domain() -> None:
    parked = Requests(Journal(), Bounds())
    for sender in (ANA, Sender("", domain="beta.example"), Sender("", domain="gamma.example")):
        parked.submit(Submission(REQUEST, AGENT, sender, "d-1", 60.0), 0.0)
        with pytest.raises(PeerError, check=lambda error: error.code is Code.DUPLICATE):
            parked.submit(Submission(REQUEST, OTHER, sender, "d-1", 60.0), 0.0)
    newest, older = parked.find_foreign("d-1")
    assert (newest.sender.domain, older.sender.domain) == ("gamma.example", "beta.example")
    assert (parked.find_foreign("d-2"), parked.find("beta.example", "d-2")) == ([], None)
    parked.finish(newest, EXPIRED, 1.0)
    assert parked.find_foreign("d-1") == [older]


def test_a_request_is_repeated_by_the_same_words_of_the_same_sender_for_a_while() -> None:
    parked = Requests(Journal(), Bounds())
    entry = parked.put(now=10.0)
    other_body = codec.build(id=1, type="execute", from_=REQUEST.from_, to=REQUEST.to, body={"x": 2})
    nameless = codec.build(id=None, type="execute", from_=REQUEST.from_, to=REQUEST.to, body={"x": 1})
    assert parked.repeats(REQUEST, ANA, 10.0 + REPEATED_SECONDS, 0.0) is entry
    assert parked.repeats(REQUEST, ANA, 10.1 + REPEATED_SECONDS, 0.0) is None
    entry.taken_at = 5.0  # this process took it: the time of day does not matter
    assert parked.repeats(REQUEST, ANA, 9_999.0, 5.0 + REPEATED_SECONDS) is entry
    assert parked.repeats(REQUEST, ANA, 10.0, 5.1 + REPEATED_SECONDS) is None
    assert parked.repeats(REQUEST, BO, 10.0, 0.0) is None
    assert parked.repeats(other_body, ANA, 10.0, 0.0) is None
    assert parked.repeats(nameless, ANA, 10.0, 0.0) is None
    parked.finish(entry, EXPIRED, 11.0)
    assert parked.repeats(REQUEST, ANA, 11.0, 0.0) is None


def test_a_request_with_the_fresh_id_of_another_does_not_repeat_that() -> None:
    parked = Requests(Journal(), Bounds())
    nameless, named = (
        codec.build(id=one, type="execute", from_=REQUEST.from_, to=REQUEST.to, body={"x": 1}) for one in (None, "d-1")
    )
    parked.submit(Submission(nameless, AGENT, ANA, "d-1", 60.0), 10.0)
    assert parked.repeats(named, ANA, 10.0, 0.0) is None


@pytest.mark.parametrize("is_stored", [True, False])
def test_what_a_taker_says_is_news_once_and_is_stored_where_the_request_is(is_stored: bool) -> None:
    parked = Requests(journal := Journal(), Bounds())
    entry = parked.put()
    if is_stored:
        parked.store(entry)
    journal.take()
    for status, is_news in [
        (Status.PENDING, True),
        (Status.PENDING, False),
        (Status.DELIVERED, True),
        (Status.DELIVERED, False),
        (Status.PENDING, True),
    ]:
        assert parked.acknowledged(entry, status) is is_news
        assert len(journal.take()) == (is_news and is_stored)
        assert (entry.is_acknowledged, entry.status) == (True, status)


@pytest.mark.parametrize("is_stored", [True, False])
def test_what_is_to_be_cancelled_is_so_after_a_restart_where_it_is_stored(is_stored: bool) -> None:
    parked = Requests(journal := Journal(), Bounds())
    entry = parked.put()
    if is_stored:
        parked.store(entry)
    journal.take()
    parked.cancelling(entry)
    rows = [change.row for change in journal.take()]
    assert [isinstance(row, ParkedRow) and row.is_cancelling for row in rows] == [True] * is_stored


def test_a_request_expires_at_its_time_and_is_looked_at_again_when_that_is_asked_for() -> None:
    parked = Requests(Journal(), Bounds())
    entry = parked.put()
    assert [parked.expired(now) for now in (59.9, 60.0, 60.0)] == [[], [entry], []]
    parked.look_again(entry, 70.0)
    assert [parked.expired(now) for now in (69.9, 70.0)] == [[], [entry]]


@pytest.mark.parametrize(("now", "expires_at"), [(1_000.0, 1_060.0), (900.0, 1_000.0)])
def test_after_a_restart_a_request_keeps_its_time_unless_the_clock_was_set_back(now: float, expires_at: float) -> None:
    row = row_of(Requests(Journal(), Bounds()).put(now=1_000.0))
    restored = Parking(Journal(), Bounds(longest_seconds=100.0))
    restored.restore({"1": msgspec.json.encode(row)}, now=now)
    assert [one.expires_at for one in restored.of_senders([ANA])] == [expires_at]


def test_the_row_of_what_ended_goes_when_it_is_forgotten_after_a_restart() -> None:
    parked = Requests(journal := Journal(), Bounds())
    parked.finish(parked.put(sender=Sender("", domain="beta.example")), EXPIRED, 1.0)
    [row] = journal.take()
    restored = Parking(journal, Bounds())
    restored.restore({row.key: msgspec.json.encode(row.row)}, now=2.0)
    assert restored.finished.forget_old(60.0) == 1
    assert [(change.key, change.row) for change in journal.take()] == [(row.key, None)]


def test_nothing_is_held_of_requests_that_ended_but_what_is_remembered_of_them() -> None:
    parked = Requests(Journal(), Bounds(per_sender=2_000, per_queue=2_000))
    for sender in (ANA, Sender("", domain="beta.example")):
        entry = parked.put(sender=sender)
        parked.owed.add(entry, 10.0)
        parked.finish(entry, EXPIRED, 1.0)
        assert entry not in parked.owed
    assert {name: held for name, held in vars(parked).items() if isinstance(held, dict | set) and held} == {}
    assert parked.find_foreign(entry.request_id) == []


def test_times_of_requests_that_ended_long_before_are_forgotten_and_those_that_are_open_expire_in_their_order() -> None:
    parked = Requests(Journal(), Bounds(longest_seconds=9_000.0))
    seconds = [300.0, 100.0, 200.0]
    for number, lasts in enumerate(seconds):
        parked.submit(Submission(REQUEST, OTHER, BO, f"open-{number}", lasts), 0.0)
    for number in range(3_000):
        parked.finish(parked.submit(Submission(REQUEST, AGENT, ANA, f"d-{number}", 9_000.0), 0.0), EXPIRED, 1.0)
        assert len(parked._expiries) <= 2 * (len(seconds) + 1) + 1_000
    assert [[one.request_id for one in parked.expired(now)] for now in (60.0, 100.0, 200.0, 300.0)] == [
        [],
        ["open-1"],
        ["open-2"],
        ["open-0"],
    ]


def test_only_a_reply_with_the_header_of_a_request_answers_it() -> None:
    parked = Requests(Journal(), Bounds())
    entry = parked.put()
    for id_, from_, found in (
        (1, REQUEST.to, entry),
        (2, REQUEST.to, None),
        (None, REQUEST.to, None),
        (1, AGENT, None),
    ):
        reply = codec.build(id=id_, type="response", from_=from_, to=REQUEST.from_, body={"code": 200})
        assert parked.answered_by(reply) is found
    assert parked.is_open(entry)
    parked.finish(entry, EXPIRED, 1.0)
    assert not parked.is_open(entry)


@pytest.mark.parametrize(("domain", "is_kept"), [("beta.example", True), ("", False)])
def test_the_answer_for_another_domain_is_stored_where_the_request_was(domain: str, is_kept: bool) -> None:
    parked = Requests(journal := Journal(), Bounds())
    entry = parked.put(sender=Sender("" if domain else "runtime://alpha.example/ana", domain=domain))
    parked.store(entry)
    journal.take()
    parked.finish(entry, EXPIRED, 1.0)
    [change] = journal.take()
    assert (change.row is not None) is is_kept


def test_who_has_waited_longest_is_owed_a_reply_first() -> None:
    parked = Requests(Journal(), Bounds())
    first, second, owed = parked.put(), parked.put(), OwedReplies()
    owed.add(first, 10.0)
    owed.add(second, 20.0)
    assert [owed.overdue(now) for now in (9.9, 10.0, 19.9, 20.0)] == [[], [first], [first], [first, second]]
    assert owed.overdue(20.0, most=1) == [first]
    owed.add(first, 30.0)
    assert owed.overdue(25.0) == [second]
    owed.discard(second)
    owed.discard(second)
    assert (first in owed, second in owed, owed.overdue(30.0)) == (True, False, [first])


@pytest.mark.parametrize("ahead_seconds", [7_200.0, -7_200.0])
def test_who_is_owed_a_reply_waits_as_long_when_the_clock_is_set_meanwhile(ahead_seconds: float) -> None:
    parked = Requests(Journal(), Bounds())
    before, since, owed = parked.put(), parked.put(), OwedReplies()
    owed.add(before, 10_000.0 + REQUEST_TTL_SECONDS)
    now = 10_000.0 + ahead_seconds + 1.0
    owed.add(since, now + REQUEST_TTL_SECONDS)
    owed.clock_set(now, ahead_seconds)
    seen = [owed.overdue(now + later) for later in (REQUEST_TTL_SECONDS - 1.1, REQUEST_TTL_SECONDS - 1.0)]
    assert seen == [[], [before]]
    assert owed.overdue(now + REQUEST_TTL_SECONDS) == [before, since]


def test_a_sender_is_its_runtime_or_the_owner_of_its_address_with_the_same_credential() -> None:
    ana, bo, own = "runtime://alpha.example/ana", "runtime://alpha.example/bo", "hyperty://alpha.example/own"
    gate = Credentials([Credential(digest_of("secret"), ana)])
    rig = StateRig(gate=gate)
    (mine, _), (theirs, _) = rig.open("ana", 1, {"credentials": {"token": "secret"}}), rig.open("bo", 2)
    credential = digest_of("secret")
    cases = [
        (mine, Sender(ana), ana, True),
        (mine, Sender(ana, credential), ana, True),
        (mine, Sender(ana, "another"), ana, False),
        (mine, Sender(bo), bo, False),
        (mine, Sender(ana, domain="beta.example"), ana, False),
        (theirs, Sender(ana), ana, False),
        (theirs, Sender(bo, credential), bo, False),
        (99, Sender(ana), ana, False),
    ]
    assert [is_sender(rig.state, sid, sender, key) for sid, sender, key, _ in cases] == [one[3] for one in cases]
    rig.state.owners.claim(theirs, own)
    assert [is_sender(rig.state, sid, Sender(ana), own) for sid in (mine, theirs)] == [False, True]


def test_a_request_whose_id_is_taken_goes_out_under_another_and_is_answered_under_its_own() -> None:
    parked = Requests(Journal(), Bounds())
    first, second = parked.put(), parked.put()
    assert [handed_over(one, 0.0).id for one in (first, second)] == [b"1", b'"d-2"']
    assert codec.body_members(handed_over(second, 0.0).body) == {"x": 1, "requestId": "d-2"}
    answers = [codec.build(id=one, type="response", from_=AGENT, to=OTHER, body={"code": 200}) for one in (1, "d-2")]
    assert [mirrored_answer(*pair).id for pair in zip((first, second), answers, strict=True)] == [b"1", b"1"]
    assert mirrored_answer(first, answers[0]) is answers[0]


@pytest.mark.parametrize(
    ("ttl", "seconds"), [({}, None), ({"ttl": None}, None), ({"ttl": 5}, 5.0), ({"ttl": 0.5}, 0.5), ({"ttl": 0}, 0.0)]
)
def test_a_request_says_how_long_it_may_wait(ttl: dict[str, object], seconds: float | None) -> None:
    assert wants_seconds(codec.build(id=1, type="execute", from_="a", to="b", body=ttl)) == seconds
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        wants_seconds(codec.build(id=1, type="execute", from_="a", to="b", body={"ttl": "x"}))


def test_what_ended_is_forgotten_when_it_would_have_expired() -> None:
    parked = Requests(Journal(), Bounds())
    parked.finish(parked.put(), EXPIRED, 1.0)
    assert [parked.finished.forget_old(now) for now in (59.9, 60.0, 60.0)] == [0, 1, 0]


@pytest.mark.parametrize("message", [b'{"type":"x"}', b'{"type":"x","from":"a","to":["b","c"]}', b"7"])
def test_a_row_that_holds_no_message_is_a_fault_of_the_store(message: bytes) -> None:
    row = msgspec.structs.replace(row_of(Requests(Journal(), Bounds()).put()), message=msgspec.Raw(message))
    with pytest.raises(HostError, check=lambda error: error.code is Code.STORAGE):
        from_row(row, 60.0)


def test_what_is_unknown_is_not_asked_for_again_and_an_empty_queue_gives_nothing() -> None:
    parked = Requests(Journal(), Bounds())
    parked.queues.ask_again(AGENT)
    assert parked.queues.take(AGENT, 7, unanswered=2) == []
    entry = parked.put()
    assert parked.queues.take(AGENT, 7, unanswered=2) == [entry]
    assert (parked.queues.take(AGENT, 7, unanswered=2), parked.queues.taker_of(AGENT)) == ([], 7)


@pytest.mark.parametrize(
    ("to", "is_abroad", "found"),
    [
        ("user://alpha.example/nobody", False, Code.NOT_REGISTERED),
        ("user://beta.example/ben", False, "beta.example"),
        ("user://beta.example/ben", True, Code.NOT_REGISTERED),
        ("runtime://alpha.example/rt/sm", False, "runtime://alpha.example/rt"),
        (f"{AGENT}/lamp/actions/x", True, AGENT),
        ("hyperty://alpha.example/h", False, "hyperty://alpha.example/h"),
        ("domain://alpha.example/x", False, Code.NO_ROUTE),
        ("runtime://alpha.example", False, Code.NO_ROUTE),
    ],
)
def test_a_request_is_for_an_agent_a_domain_or_nobody(to: str, is_abroad: bool, found: str | Code) -> None:
    rig = StateRig(rules=Rules(resolves_users=True))
    own, _ = rig.open("rt", 1)
    origin = rig.state.links.number("gamma.example") if is_abroad else own
    message = codec.build(id=1, type="execute", from_="a", to=to, body={})
    if isinstance(found, str):
        assert recipient_of(rig.state, message, origin) == found
        return
    with pytest.raises(PeerError, check=lambda error: error.code is found):
        recipient_of(rig.state, message, origin)


@pytest.mark.parametrize("is_stored", [True, False])
def test_how_a_request_stands_is_stored_once_and_only_where_it_is_stored_itself(*, is_stored: bool) -> None:
    parked = Requests(journal := Journal(), Bounds())
    entry = parked.put()
    if is_stored:
        parked.store(entry)
    journal.take()
    stored = []
    for status in (Status.PENDING, Status.PENDING, Status.DELIVERED, Status.DELIVERED):
        parked.acknowledged(entry, status)
        stored.append(len(journal.take()))
    assert stored == [is_stored, 0, is_stored, 0]


@pytest.mark.parametrize(
    ("ttl", "with_lifetime", "shown"), [(50, False, 40), (50, True, 40), (None, True, 40), (None, False, None)]
)
def test_what_is_left_of_its_time_goes_with_a_request_that_said_one_or_where_it_is_wanted(
    ttl: int | None, with_lifetime: bool, shown: int | None
) -> None:
    body: dict[str, object] = {"x": 1} if ttl is None else {"x": 1, "ttl": ttl}
    request = codec.build(id=1, type="execute", from_="hyperty://x.example/h", to=f"{AGENT}/l", body=body)
    entry = Requests(Journal(), Bounds()).submit(Submission(request, AGENT, ANA, "d-1", 50.0), 0.0)
    given = codec.body_members(handed_over(entry, 10.0, with_lifetime=with_lifetime).body)
    assert given.get("ttl") == shown


@pytest.mark.parametrize(
    ("queue", "is_one"),
    [
        ("a.example", True),
        ("thing://a.example/x", False),
        ("a.example/x", False),
        ("a", False),
        ("comm:x.y", False),
    ],
)
def test_a_queue_of_a_domain_differs_from_that_of_an_address(queue: str, *, is_one: bool) -> None:
    assert is_domain(queue) is is_one
