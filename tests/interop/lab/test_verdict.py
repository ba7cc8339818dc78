"""Each promise can be kept, broken, and untested; and what explains a case does so only where it should."""

from __future__ import annotations

import pytest

from interop.lab.core.operations import Operation
from interop.lab.core.scene import Bars, Fault, PromiseName
from interop.lab.core.seen import Answered, Arrived, Away, FaultSpan, Lure, Passage, Release, Running, Seen, Sent
from interop.lab.core.verdict import Judged, State, judge

ANNA, BRUNO = "hyperty://a.example/anna", "hyperty://b.example/bruno"


def sent(number: int, *, kind: str = "event", at: float | None = None) -> Sent:
    return Sent(
        key=("anna", "bruno", number),
        kind=kind,  # type: ignore[arg-type]
        at=number if at is None else at,
        digest=f"d{number}",
        trace=f"t{number}",
        record_id=f"r{number}",
    )


def arrived(number: int, *, at: float | None = None, sender: str = ANNA, digest: str = "") -> Arrived:
    return Arrived(
        runtime="bruno",
        sender=sender,
        key=("anna", "bruno", number),
        at=number + 0.1 if at is None else at,
        digest=digest or f"d{number}",
    )


def seen(sents: list[Sent], arrivals: list[Arrived], **more: object) -> Seen:
    return Seen(
        domains={"anna": "a.example", "bruno": "b.example", "carla": "c.example"},
        addresses={ANNA: "anna", BRUNO: "bruno"},
        sent=sents,
        arrived=arrivals,
        **more,  # type: ignore[arg-type]
    )


def span(does: str, began: float, ended: float, domain: str = "b.example", problem: str = "") -> FaultSpan:
    fault = Fault(does=does, at=began, domain=domain)  # type: ignore[arg-type]
    return FaultSpan(number=0, fault=fault, began=began, ended=ended, domains=(domain,), problem=problem)


def of(what: Seen, promise: PromiseName, *operations: Operation) -> Judged:
    bars = Bars(tests=(promise,), recovery_seconds=2, neighbours_p99_ms=500)
    [judged] = judge(what, bars, operations)
    return judged


def answers(*ends: tuple[float, int]) -> list[Answered]:
    return [Answered(key=("anna", "bruno", 1), at=at, code=code) for at, code in ends]


def releases(*runs: tuple[float, str], revoked: str = "") -> Seen:
    """An update from `old` to `new` at 1 s, and what a node ran at some times; the bar is ten seconds."""
    release = Release(domain="b.example", what="update b.example", at=1.0, wanted="new", revoked=revoked)
    running = [Running(node="a.example", domain="b.example", sha256=sha256, at=at) for at, sha256 in runs]
    return seen([], [], releases=[release], running=running)


GOOD = seen([sent(1), sent(2)], [arrived(1), arrived(2)])


@pytest.mark.parametrize("promise", ["once", "order", "kept", "genuine", "neighbours"])
def test_a_good_run_keeps_its_promises(promise: PromiseName) -> None:
    assert (of(GOOD, promise).state, of(GOOD, promise).cases) == (State.KEPT, 2)


@pytest.mark.parametrize(
    "promise", ["once", "order", "kept", "answered", "genuine", "recovery", "neighbours", "history", "stubs"]
)
def test_a_run_in_which_nothing_was_seen_tests_nothing(promise: PromiseName) -> None:
    assert of(seen([], []), promise).state is State.NOT_TESTED


BROKEN: dict[str, tuple[PromiseName, Seen]] = {
    "a message twice": ("once", seen([sent(1)], [arrived(1), arrived(1, at=1.2)])),
    "twice, long before a kill": (
        "once",
        seen([sent(1)], [arrived(1), arrived(1, at=1.2)], faults=[span("kill", 30, 31)]),
    ),
    "twice, after a cut line": ("once", seen([sent(1)], [arrived(1), arrived(1, at=4)], faults=[span("pause", 1, 2)])),
    "out of order": ("order", seen([sent(1), sent(2)], [arrived(2, at=2), arrived(1, at=3)])),
    "an event lost": ("kept", seen([sent(1), sent(2)], [arrived(2)])),
    "an event lost long before a fault at a node that acknowledges nothing": (
        "kept",
        seen([sent(1)], [], faults=[span("cut", 30, 31)], silent=frozenset({"b.example"})),
    ),
    "an event lost beside a killed neighbour": (
        "kept",
        seen([sent(1)], [], faults=[span("kill", 1, 2, domain="c.example")]),
    ),
    "answered and not received": (
        "kept",
        seen([sent(1, kind="request")], [], answered=[Answered(key=("anna", "bruno", 1), at=2, code=200)]),
    ),
    "a request without an answer": ("answered", seen([sent(1, kind="request")], [arrived(1)])),
    "a request with two answers": (
        "answered",
        seen(
            [sent(1, kind="request")],
            [arrived(1)],
            answered=[Answered(key=("anna", "bruno", 1), at=at, code=200) for at in (2.0, 3.0)],
        ),
    ),
    "a request with an answer, another one and no kill": (
        "answered",
        seen([sent(1, kind="request")], [], answered=answers((2, 200), (3, 503)), faults=[span("kill", 1.5, 2.5)]),
    ),
    "a request that was given up too early": (
        "answered",
        seen([sent(1, kind="request")], [], answered=answers((1.4, 504))),
    ),
    "an impostor that was believed": (
        "genuine",
        seen([], [], lures=[Lure(reader="a.example", what="an impostor of b.example", at=1, is_believed=True)]),
    ),
    "false documents that nobody read": (
        "genuine",
        seen([sent(1)], [arrived(1)], faults=[span("forged-documents", 1, 2)]),
    ),
    "an update that was not taken": ("stubs", releases((1.0, "old"), (20.0, "old"))),
    "an update that was taken, and left": ("stubs", releases((5.0, "new"), (20.0, "old"))),
    "an update that was followed by nothing": ("stubs", releases((5.0, "old"), (20.0, ""))),
    "an update that nobody watched for long enough": ("stubs", releases((5.0, "new"))),
    "a revoked stub that goes on": ("stubs", releases((5.0, "old"), (20.0, "old"), revoked="old")),
    "a message that nobody sent": ("genuine", seen([sent(1)], [arrived(1), arrived(7)])),
    "a message in another's name": ("genuine", seen([sent(1)], [arrived(1, sender="hyperty://c.example/eve")])),
    "a message with other content": ("genuine", seen([sent(1)], [arrived(1, digest="other")])),
    "no traffic after a fault": (
        "recovery",
        seen([sent(1), sent(9)], [arrived(1)], faults=[span("pause", 2, 3)]),
    ),
    "late traffic after a fault": (
        "recovery",
        seen([sent(1), sent(9)], [arrived(1), arrived(9)], faults=[span("pause", 2, 3)]),
    ),
    "a fault that could not be done": (
        "recovery",
        seen([sent(1)], [arrived(1)], faults=[span("kill", 1, 1, problem="x")]),
    ),
    "a slow neighbour": (
        "neighbours",
        seen([sent(1)], [arrived(1, at=2)], faults=[span("kill", 0, 3, domain="c.example")]),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_promise_can_be_broken(name: str) -> None:
    promise, what = BROKEN[name]
    judged = of(what, promise)
    assert judged.state is State.BROKEN
    assert judged.evidence


def test_a_pair_that_a_later_fault_hits_is_judged_for_that_one() -> None:
    faults = [span("pause", 2, 3), span("pause", 3.5, 8)]
    what = seen([sent(1), sent(9), sent(12)], [arrived(1), arrived(9)], faults=faults)
    judged = of(what, "recovery")
    assert (judged.state, judged.cases) == (State.KEPT, 1)


def test_a_pair_that_stopped_sending_too_early_is_not_judged() -> None:
    what = seen([sent(1), sent(4)], [arrived(1)], faults=[span("pause", 2, 3)])
    assert of(what, "recovery").state is State.NOT_TESTED


KEPT: dict[str, tuple[PromiseName, Seen]] = {
    "an answer that came after the session had ended": (
        "answered",
        seen([sent(1, kind="request")], [], answered=answers((2, 0), (4, 504))),
    ),
    "an impostor that was not believed": (
        "genuine",
        seen(
            [],
            [],
            lures=[Lure(reader="a.example", what="documents", at=1.5)],
            faults=[span("forged-documents", 1, 2)],
        ),
    ),
    "an update that was taken in time": ("stubs", releases((2.0, "old"), (5.0, "new"), (20.0, "new"))),
    "a revoked stub that was stopped": ("stubs", releases((2.0, "old"), (5.0, ""), (20.0, ""), revoked="old")),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_as_it_should_be_keeps_its_promise(name: str) -> None:
    promise, what = KEPT[name]
    judged = of(what, promise)
    assert (judged.state, judged.cases, judged.excused) == (State.KEPT, 1, 0)


EXPLAINED: dict[str, tuple[PromiseName, Seen]] = {
    "twice around a kill": (
        "once",
        seen([sent(1)], [arrived(1), arrived(1, at=4)], faults=[span("kill", 1.5, 3)]),
    ),
    "lost in a killed node": ("kept", seen([sent(1)], [], faults=[span("kill", 1.5, 3)])),
    "lost while its receiver was away": (
        "kept",
        seen([sent(1)], [], away=[Away(runtime="bruno", began=0.5, ended=2)]),
    ),
    "held by a fault until its receiver was away": (
        "kept",
        seen(
            [sent(1)],
            [],
            away=[Away(runtime="bruno", began=6, ended=9)],
            faults=[span("pause", 0.5, 7, domain="a.example")],
        ),
    ),
    "refused, as the record says": (
        "kept",
        seen([sent(1)], [], passages={"r1": [Passage(node="b.example", role="in", outcome="denied")]}),
    ),
    "lost on the way to a node that acknowledges nothing": (
        "kept",
        seen([sent(1)], [], faults=[span("cut", 1.5, 2)], silent=frozenset({"b.example"})),
    ),
    "no answer from a node that acknowledges nothing": (
        "answered",
        seen([sent(1, kind="request")], [], faults=[span("cut", 1.5, 2)], silent=frozenset({"b.example"})),
    ),
    "the same answer twice, around a kill": (
        "answered",
        seen([sent(1, kind="request")], [], answered=answers((2, 200), (3, 200)), faults=[span("kill", 2.1, 2.5)]),
    ),
    "lost with the bus between nodes of a domain": ("kept", seen([sent(1)], [], faults=[span("partition", 1.5, 3)])),
    "no answer after the session ended": (
        "answered",
        seen(
            [sent(1, kind="request")],
            [],
            answered=[Answered(key=("anna", "bruno", 1), at=2, code=0)],
            away=[Away(runtime="anna", began=1.5, ended=3)],
        ),
    ),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_what_the_documents_allow_is_explained_and_counted(name: str) -> None:
    promise, what = EXPLAINED[name]
    judged = of(what, promise)
    assert (judged.state, judged.broken, judged.excused) == (State.KEPT, 0, 1)


def test_a_history_without_an_explanation_breaks_its_promise() -> None:
    claims = [
        Operation(runtime=name, kind="claim", object="thing", result="ok", began=at, ended=at + 1)
        for name, at in (("anna", 0.0), ("bruno", 2.0))
    ]
    assert of(GOOD, "history", *claims).state is State.BROKEN
    assert of(GOOD, "history", claims[0]).state is State.KEPT


def test_how_often_something_false_was_shown_is_said_with_the_promise() -> None:
    lures = [Lure(reader="a.example", what="documents", at=1.5)]
    assert of(seen([], [], forged=3, lures=lures), "genuine").figure == "3 forged, 1 false documents and impostors met"
