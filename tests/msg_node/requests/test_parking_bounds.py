"""Each bound of parked requests, with entries in every place that they can have."""

from __future__ import annotations

import pytest

from msg_node.kernel.changes import Journal
from msg_node.requests.core.delivery_status import EXPIRED, Status
from msg_node.requests.core.parked import ParkedRequest, Sender, Submission
from msg_node.requests.core.parking import Bounds, Parking
from protofly import codec
from protofly.errors import Code, PeerError

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
