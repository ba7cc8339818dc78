"""Parked actions against a model: one final word each, in order, never too many unanswered, nothing stored lost."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from msg_node.kernel.changes import Journal
from msg_node.requests.core.delivery_status import EXPIRED, Status, StatusReport
from msg_node.requests.core.parked import ParkedRequest, Sender, Submission
from msg_node.requests.core.parking import Bounds, Parking
from protofly import codec
from protofly.errors import PeerError

QUEUES = ("thing://alpha.example/a", "thing://alpha.example/b")
SENDERS = (
    Sender("runtime://alpha.example/ana"),
    Sender("runtime://alpha.example/bo", "c"),
    Sender("", "", "b.example"),
)
BOUNDS = Bounds(per_queue=6, per_sender=8, bytes=2000, longest_seconds=50.0)
UNANSWERED = 2
DONE = StatusReport(Status.COMPLETED, 200, value=b'{"on":true}')
CHOICE = st.integers(min_value=0, max_value=20)


@dataclass
class Known:
    """What the model knows of one request."""

    number: int
    queue: str
    sender: Sender
    expires_at: float
    size: int
    stored: bool = False
    acknowledged: bool = False
    stored_as_acknowledged: bool = False
    place: str = "waiting"  # handed, aside


@dataclass
class Model:
    open: dict[str, Known] = field(default_factory=dict)
    finals: dict[str, list[Status]] = field(default_factory=dict)

    def of_queue(self, queue: str, *places: str) -> list[Known]:
        found = [one for one in self.open.values() if one.queue == queue and one.place in (places or (one.place,))]
        return sorted(found, key=lambda one: one.number)


class ParkedActionsMachine(RuleBasedStateMachine):
    """Senders, agents that come and go, the clock, and kills of the process."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = Journal()
        self.rows: dict[str, bytes] = {}
        self.parking = Parking(self.journal, BOUNDS)
        self.model = Model()
        self.now = 1000.0
        self.count = 0
        self.takers: dict[str, int] = {}
        self.next_taker = 1

    def commit(self) -> None:
        for change in self.journal.take():
            if change.row is None:
                self.rows.pop(change.key, None)
            else:
                self.rows[change.key] = msgspec.json.encode(change.row)

    def entry(self, choice: int) -> tuple[str, Known, ParkedRequest]:
        request_id = sorted(self.model.open)[choice % len(self.model.open)]
        known = self.model.open[request_id]
        entry = self.parking.find(known.sender.domain, request_id)
        assert entry is not None
        return request_id, known, entry

    @rule(
        queue=st.sampled_from(QUEUES),
        sender=st.sampled_from(SENDERS),
        number=st.integers(1, 3),
        seconds=st.sampled_from([-1.0, 0.0, 5.0, 20.0, 900.0]),
        size=st.sampled_from([0, 400]),
    )
    def submit(self, queue: str, sender: Sender, number: int, seconds: float, size: int) -> None:
        self.count += 1
        request_id = f"d-{self.count:05d}"
        request = codec.build(
            id=number,
            type="execute",
            from_="hyperty://x.example/h",
            to=f"{queue}/l/actions/x",
            body={"pad": "x" * size},
        )
        theirs = [one for one in self.model.open.values() if one.sender == sender]
        fits = (
            seconds > 0
            and len(self.model.of_queue(queue)) < BOUNDS.per_queue
            and len(theirs) < BOUNDS.per_sender
            and sum(one.size for one in self.model.open.values()) + len(request.raw) <= BOUNDS.bytes
        )
        try:
            entry = self.parking.submit(Submission(request, queue, sender, request_id, seconds), self.now)
        except PeerError:
            assert not fits
            return
        assert fits
        expires_at = self.now + min(seconds, BOUNDS.longest_seconds)
        assert entry.expires_at == expires_at
        self.model.open[request_id] = Known(entry.number, queue, sender, expires_at, len(request.raw))
        self.model.finals[request_id] = []

    @precondition(lambda self: self.model.open)
    @rule(choice=CHOICE)
    def store(self, choice: int) -> None:
        _, known, entry = self.entry(choice)
        self.parking.store(entry)
        known.stored = True
        known.stored_as_acknowledged = known.acknowledged
        self.commit()

    @rule(queue=st.sampled_from(QUEUES))
    def take(self, queue: str) -> None:
        taker = self.takers.get(queue)
        if taker is None:
            taker = self.takers[queue] = self.next_taker
            self.next_taker += 1
        taken = self.parking.queues.take(queue, taker, unanswered=UNANSWERED)
        room = UNANSWERED - len(self.model.of_queue(queue, "handed"))
        expected = self.model.of_queue(queue, "waiting")[: max(room, 0)]
        assert [one.number for one in taken] == [one.number for one in expected]
        for one in expected:
            assert not one.acknowledged
            one.place = "handed"

    @rule(queue=st.sampled_from(QUEUES))
    def lose(self, queue: str) -> None:
        taker = self.takers.pop(queue, None)
        if taker is None:
            return
        self.parking.queues.lost(taker)
        for one in self.model.of_queue(queue, "handed"):
            one.place = "aside" if one.acknowledged else "waiting"

    @precondition(lambda self: self.model.open)
    @rule(choice=CHOICE)
    def give_back(self, choice: int) -> None:
        """What was handed over did not leave."""
        _, known, entry = self.entry(choice)
        if known.place == "handed" and not known.acknowledged:
            self.parking.queues.untaken([entry])
            known.place = "waiting"

    @rule(queue=st.sampled_from(QUEUES), only_kept=st.booleans())
    def ask_again(self, queue: str, only_kept: bool) -> None:
        """The other node is asked about what it has."""
        self.parking.queues.ask_again(queue, only_kept=only_kept)
        for one in self.model.of_queue(queue, "aside", "handed"):
            if one.place == "aside" or not only_kept:
                one.place, one.acknowledged = "waiting", False

    @precondition(lambda self: self.model.open)
    @rule(choice=CHOICE)
    def acknowledge(self, choice: int) -> None:
        _, known, entry = self.entry(choice)
        if known.place == "waiting":
            return
        self.parking.acknowledged(entry, Status.DELIVERED)
        known.acknowledged = True
        known.stored_as_acknowledged = known.stored
        self.commit()

    @precondition(lambda self: self.model.open)
    @rule(choice=CHOICE)
    def answer(self, choice: int) -> None:
        request_id, known, entry = self.entry(choice)
        if known.place == "waiting":
            return
        reply = codec.build(
            id=entry.wire_id, type="response", from_=entry.request.to, to=entry.request.from_, body={"code": 200}
        )
        assert self.parking.answered_by(reply) is entry
        self.finish(request_id, entry, DONE)

    def finish(self, request_id: str, entry: ParkedRequest, word: StatusReport) -> None:
        self.parking.finish(entry, word, self.now)
        self.model.finals[request_id].append(word.status)
        del self.model.open[request_id]
        self.commit()
        finished = self.parking.finished.find(entry.sender.domain, request_id)
        assert finished is not None
        assert finished.word.status is word.status

    @rule(seconds=st.sampled_from([0.5, 6.0, 60.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = {request_id for request_id, one in self.model.open.items() if one.expires_at <= self.now}
        over = self.parking.expired(self.now, most=1_000)
        assert {entry.request_id for entry in over} == due
        for entry in over:
            self.finish(entry.request_id, entry, EXPIRED)
        self.commit()

    @rule()
    def kill(self) -> None:
        """`kill -9`: what was stored is all there is."""
        self.parking = Parking(self.journal, BOUNDS)
        self.parking.restore(dict(sorted(self.rows.items())), now=self.now)
        self.takers.clear()
        self.model.open = {request_id: one for request_id, one in self.model.open.items() if one.stored}
        for one in self.model.open.values():
            one.acknowledged = one.stored_as_acknowledged
            one.place = "aside" if one.acknowledged else "waiting"

    @invariant()
    def the_tables_hold_what_the_model_holds(self) -> None:
        assert len(self.parking) == len(self.model.open)
        assert self.parking.size_bytes == sum(one.size for one in self.model.open.values())
        for queue in QUEUES:
            assert [one.number for one in self.parking.queues.entries(queue)] == [
                one.number for one in self.model.of_queue(queue)
            ]
            assert self.parking.queues.waiting(queue) == len(self.model.of_queue(queue, "waiting"))
        assert set(self.parking.queues.names()) == {one.queue for one in self.model.open.values()}
        assert set(self.parking.senders()) == {one.sender for one in self.model.open.values()}

    @invariant()
    def no_request_has_two_final_words(self) -> None:
        assert all(len(words) <= 1 for words in self.model.finals.values())

    @invariant()
    def what_is_stored_is_what_is_open_and_what_other_domains_may_ask_again(self) -> None:
        stored = sum(one.stored for one in self.model.open.values())
        marks = len(self.rows) - stored
        assert 0 <= marks <= sum(bool(words) for words in self.model.finals.values())


TestParkedActions = ParkedActionsMachine.TestCase
TestParkedActions.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
