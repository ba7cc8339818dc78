"""Each promise can be kept, broken, and untested; and what explains a case does so only where it should."""

from __future__ import annotations

from dataclasses import replace

import pytest

from interop.lab.core.operations import Operation
from interop.lab.core.scene import PROMISES, Bars, Fault, PromiseName
from interop.lab.core.seen import (
    Answered,
    Arrived,
    Away,
    Denial,
    FaultSpan,
    Lure,
    Passage,
    Release,
    Running,
    Seen,
    Sent,
)
from interop.lab.core.verdict import Judged, State, judge, recoveries

A, B, C = (f"{name}.example" for name in "abc")
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


@pytest.mark.parametrize(("outcome", "state"), [("denied", State.BROKEN), ("delivered", State.KEPT)])
def test_what_a_node_has_denied_and_arrives_all_the_same_breaks_genuine(outcome: str, state: State) -> None:
    passages = {"r2": [Passage(node="b.example", role="in", outcome=outcome)]}
    judged = of(seen([sent(1), sent(2)], [arrived(1), arrived(2)], passages=passages), "genuine")
    assert judged.state is state
    assert [one.what for one in judged.evidence] == (
        ["arrived, and b.example has recorded that it was denied"] if state is State.BROKEN else []
    )


def denied(source: str = "anna") -> dict[str, object]:
    """A policy of `b.example` that was asked for at 3 s, in force from 4 to 6 s, and gone at 7 s."""
    pairs = frozenset({(source, "bruno")})
    denial = Denial(domain="b.example", pairs=pairs, asked=3.0, since=4.0, until=6.0, ended=7.0)
    return {"denials": [denial], "faults": [span("policy", 3.0, 7.0)]}


def test_what_arrives_against_the_policy_in_force_breaks_genuine_with_its_evidence() -> None:
    judged = of(seen([sent(1, at=4.0)], [arrived(1, at=5.9)], **denied()), "genuine")
    assert judged.state is State.BROKEN
    [case] = judged.evidence
    assert (case.message, case.sent_at, case.arrived_at) == ("anna→bruno #1", 4.0, (5.9,))
    assert case.what == "arrived, and the policy that b.example had since 4.00 s denies it"
    assert judged.figure == "1 sent against a policy"


@pytest.mark.parametrize(("sent_at", "arrived_at"), [(3.9, 4.5), (5.9, 6.0), (6.0, 6.1), (2.0, 2.1)])
def test_what_was_under_way_when_a_policy_came_or_went_may_arrive(sent_at: float, arrived_at: float) -> None:
    what = seen([sent(1, at=sent_at), sent(2, at=5.0)], [arrived(1, at=arrived_at)], **denied())
    assert of(what, "genuine").state is State.KEPT


def test_a_policy_that_nothing_met_has_tested_nothing() -> None:
    for what in (
        seen([sent(1, at=3.9)], [arrived(1, at=4.0)], **denied()),
        seen([sent(1, at=4.0)], [arrived(1, at=4.1)], **denied("carla")),
        seen([sent(1, at=4.0)], [arrived(1, at=4.1)], faults=[span("policy", 3.0, 7.0)]),
    ):
        [case] = of(what, "genuine").evidence
        assert case.what == "policy b.example: nobody sent what it denies, so it tested nothing"


@pytest.mark.parametrize(("at", "is_waited_for"), [(0.9, True), (1.0, False), (5.0, False), (6.9, False), (7.0, True)])
def test_what_a_policy_may_have_met_is_not_waited_for(*, at: float, is_waited_for: bool) -> None:
    assert bool(seen([sent(1, at=at)], [], **denied()).outstanding()) is is_waited_for
    assert seen([sent(1, at=at)], [], **denied("carla")).outstanding()


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
    "twice, after a kill that had ended before the first": (
        "once",
        seen([sent(1)], [arrived(1, at=8), arrived(1, at=9)], faults=[span("kill", 1.5, 3)]),
    ),
    "three times, and a kill explains only the last": (
        "once",
        seen([sent(1)], [arrived(1), arrived(1, at=1.2), arrived(1, at=4)], faults=[span("kill", 1.5, 3)]),
    ),
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
    "a reply after a request was given up, and no kill between": (
        "answered",
        seen(
            [sent(1, kind="request")], [], answered=answers((17, 504), (20, 200)), faults=[span("restart", 18, 19, A)]
        ),
    ),
    "a reply after a request was given up, long after the kill": (
        "answered",
        seen([sent(1, kind="request")], [], answered=answers((17, 504), (40, 200)), faults=[span("kill", 18, 19, A)]),
    ),
    "another reply after a reply, around a kill": (
        "answered",
        seen([sent(1, kind="request")], [], answered=answers((17, 200), (20, 404)), faults=[span("kill", 18, 19, A)]),
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


def test_a_message_that_nobody_sent_is_shown_with_the_time_at_which_it_first_arrived() -> None:
    [evidence] = of(seen([], [arrived(7, at=3), arrived(7, at=4)]), "once").evidence
    assert (evidence.at, evidence.sent_at, evidence.arrived_at) == (3, None, (3, 4))


def test_neighbours_may_take_as_long_as_the_bar_says() -> None:
    for took, state in ((0.4998, State.KEPT), (0.5002, State.BROKEN)):
        what = seen([sent(1)], [arrived(1, at=1 + took)], faults=[span("kill", 0, 3, domain="c.example")])
        assert of(what, "neighbours").state is state


def test_each_node_is_judged_by_the_stubs_that_it_runs_itself() -> None:
    what = releases((5.0, "new"), (20.0, "new"))
    others = [
        Running(node="c.example", domain="b.example", sha256="old", at=20.0),
        Running(node="a.example", domain="d.example", sha256="old", at=20.0),
    ]
    judged = of(replace(what, running=[*what.running, *others]), "stubs")
    assert [one.what for one in judged.evidence] == ["update b.example: c.example runs old 10 s later, not new"]
    assert judged.cases == 2


def test_a_pair_that_a_later_fault_hits_is_judged_for_that_one() -> None:
    faults = [span("pause", 2, 3), span("pause", 3.5, 8)]
    what = seen([sent(1), sent(9), sent(12)], [arrived(1), arrived(9)], faults=faults)
    judged = of(what, "recovery")
    assert (judged.state, judged.cases) == (State.KEPT, 1)


def test_a_fault_that_begins_when_a_pair_is_heard_again_does_not_excuse_the_one_before() -> None:
    faults = [span("pause", 2, 3), span("pause", 9.1, 12)]
    what = seen([sent(1), sent(9), sent(20)], [arrived(1), arrived(9), arrived(20)], faults=faults)
    assert (of(what, "recovery").state, of(what, "recovery").cases) == (State.BROKEN, 2)


def test_the_longest_time_to_follow_a_release_is_said() -> None:
    assert of(releases((2.0, "old"), (5.0, "new"), (20.0, "new")), "stubs").figure == "longest 4.00 s"


def test_a_pair_that_stopped_sending_too_early_is_not_judged() -> None:
    what = seen([sent(1), sent(4)], [arrived(1)], faults=[span("pause", 2, 3)])
    assert of(what, "recovery").state is State.NOT_TESTED


def test_a_fault_of_others_is_not_judged_for_a_pair() -> None:
    what = seen([sent(1), sent(9)], [arrived(1), arrived(9)], faults=[span("pause", 2, 3, "c.example")])
    assert of(what, "recovery").state is State.NOT_TESTED


def test_a_request_that_was_answered_and_not_received_is_broken_even_around_a_kill() -> None:
    answered = [Answered(key=("anna", "bruno", 1), at=2, code=200)]
    what = seen([sent(1, kind="request")], [], answered=answered, faults=[span("kill", 1.5, 3)])
    assert of(what, "kept").state is State.BROKEN


def test_false_documents_that_are_met_at_the_last_moment_were_met() -> None:
    lures = [Lure(reader="a.example", what="documents", at=2)]
    assert of(seen([], [], lures=lures, faults=[span("forged-documents", 1, 2)]), "genuine").state is State.KEPT


def test_two_faults_of_one_kind_have_recoveries_of_their_own() -> None:
    spans = [
        FaultSpan(number=number, fault=Fault(does="kill", at=1, domain=B), began=began, ended=began + 1, domains=(B,))
        for number, began in ((1, 1.5), (2, 4.5))
    ]
    messages = [number for number in range(1, 9) if number not in (2, 5)]
    found = recoveries(seen([sent(one) for one in range(1, 9)], [arrived(one) for one in messages], faults=spans), 2)
    assert [(one.number, one.fault) for one in found] == [(1, "kill b.example"), (2, "kill b.example")]


def test_a_promise_that_nothing_tested_says_why() -> None:
    judged = {name: of(seen([], []), name) for name in PROMISES}
    assert {one.state for one in judged.values()} == {State.NOT_TESTED}
    assert judged["recovery"].figure == "no pair that a fault hit sent after its end, or a later fault hit it first"
    assert all(one.figure for one in judged.values())


def test_requests_that_were_refused_are_counted_by_their_answer() -> None:
    key = ("anna", "bruno", 1)
    ends = [Answered(key=key, at=2, code=code, reason=why) for code, why in ((503, "busy"), (200, ""), (503, "busy"))]
    refused = of(seen([sent(1, kind="request")], [], answered=[*ends, *answers((9, 404), (9, 0))]), "answered")
    assert refused.figure == "1 with 404, 2 with 503 busy"


def test_what_was_not_shown_is_not_among_the_figures() -> None:
    assert of(seen([sent(1)], [arrived(1)], forged=3), "genuine").figure == "3 forged"


def test_what_ran_before_a_release_says_nothing_about_it() -> None:
    what = releases((0.5, "new"), (5.0, "old"), (10.5, "new"), (20.0, "new"))
    assert of(what, "stubs").figure == "longest 9.50 s"
    second = Release(domain="b.example", what="second", at=30.0, wanted="third")
    both = replace(what, releases=[*what.releases, second])
    runs = [Running(node="a.example", domain="b.example", sha256="third", at=at) for at in (32.0, 45.0)]
    assert of(replace(both, running=[*what.running, *runs]), "stubs").state is State.KEPT


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
    "a reply after a request was given up, and its node was killed": (
        "answered",
        seen([sent(1, kind="request")], [], answered=answers((17, 504), (20, 200)), faults=[span("kill", 18, 19, A)]),
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


PAUSE = span("pause", 9, 11, A)  # holds what anna sends until 13, with the two seconds of recovery


@pytest.mark.parametrize(
    ("faults", "is_explained"),
    [
        ([], False),
        ([span("kill", 12, 14)], True),
        ([span("kill", 12.01, 14)], False),
        ([span("kill", 4, 5)], True),
        ([span("kill", 4, 4.99)], False),
        ([span("kill", 9, 11, C)], False),
        ([span("cut", 9, 11)], False),
        ([PAUSE, span("kill", 15, 16)], True),
        ([PAUSE, span("kill", 15.01, 16)], False),
        ([span("pause", 9, 11, C), span("kill", 15, 16)], False),
        ([span("pause", 9, 11, B), span("kill", 15, 16)], True),
        ([span("pause", 7, 8, A), span("kill", 12, 16)], True),
        ([span("pause", 7, 8, A), span("kill", 12.01, 16)], False),
        ([span("pause", 6, 7.99, A), span("kill", 12.01, 16)], False),
        ([PAUSE, span("pause", 13, 15, A), span("kill", 19, 20)], True),
        ([PAUSE, span("pause", 13.01, 15, A), span("kill", 15.01, 16)], False),
        ([span("pause", 11, 20, A), span("kill", 13, 14)], False),
    ],
)
def test_a_lost_event_is_explained_by_a_fault_within_its_time(faults: list[FaultSpan], is_explained: bool) -> None:
    judged = of(seen([sent(1, at=10)], [], faults=faults), "kept")
    assert (judged.excused, judged.broken) == (is_explained, not is_explained)


@pytest.mark.parametrize(
    ("began", "ended", "is_explained"), [(12, 14, True), (13, 14, False), (8, 10, True), (8, 9, False)]
)
@pytest.mark.parametrize(("runtime", "is_meant"), [("anna", True), ("bruno", True), ("carla", False)])
def test_a_lost_event_is_explained_by_the_absence_of_one_of_both(
    runtime: str, is_meant: bool, began: float, ended: float, is_explained: bool
) -> None:
    judged = of(seen([sent(1, at=10)], [], away=[Away(runtime=runtime, began=began, ended=ended)]), "kept")
    assert judged.excused == (is_explained and is_meant)


@pytest.mark.parametrize(
    ("silent", "began", "ended", "is_explained"),
    [
        ("", 9, 11, False),
        (C, 9, 11, False),
        (A, 9, 11, True),
        (B, 12, 14, True),
        (B, 12.01, 14, False),
        (B, 7, 8, True),
        (B, 7, 7.99, False),
    ],
)
def test_what_a_node_that_acknowledges_nothing_loses_is_explained_by_a_fault_about_then(
    silent: str, began: float, ended: float, is_explained: bool
) -> None:
    for domain, hits in ((B, True), (C, False)):
        for kind, promise in (("event", "kept"), ("request", "answered")):
            faults = [span("cut", began, ended, domain)]
            judged = of(seen([sent(1, kind=kind, at=10)], [], faults=faults, silent=frozenset({silent})), promise)  # type: ignore[arg-type]
            assert (judged.excused, judged.broken) == (is_explained and hits, not (is_explained and hits))


@pytest.mark.parametrize(("code", "cases"), [(0, 0), (199, 0), (200, 1), (299, 1), (300, 0), (404, 0)])
def test_a_request_has_to_arrive_only_if_it_was_answered_with_success(code: int, cases: int) -> None:
    judged = of(seen([sent(1, kind="request")], [], answered=answers((2, code))), "kept")
    assert (judged.cases, judged.broken) == (cases, cases)


@pytest.mark.parametrize(("after_seconds", "is_early"), [(2.9, True), (3, False)])
def test_a_request_is_given_up_too_early_by_the_time_since_it_was_sent(after_seconds: float, is_early: bool) -> None:
    what = seen([sent(1, kind="request", at=100)], [], answered=answers((100 + after_seconds, 504)))
    assert (of(what, "answered").state is State.BROKEN) is is_early


@pytest.mark.parametrize(
    ("runtime", "ended", "is_explained"), [("anna", 10, True), ("anna", 9.9, False), ("bruno", 12, False)]
)
def test_a_request_without_an_answer_is_explained_by_the_end_of_its_senders_session(
    runtime: str, ended: float, is_explained: bool
) -> None:
    what = seen([sent(1, kind="request", at=10)], [], away=[Away(runtime=runtime, began=5, ended=ended)])
    assert of(what, "answered").excused == is_explained


@pytest.mark.parametrize(
    ("fault", "is_explained"),
    [
        (span("kill", 10.5, 11), True),
        (span("restart", 12, 13), True),
        (span("kill", 12.01, 13), False),
        (span("kill", 8, 8.1), True),
        (span("kill", 7.99, 9), False),
        (span("kill", 10.5, 11, C), False),
        (span("pause", 10.5, 11), False),
    ],
)
def test_a_second_arrival_is_explained_by_an_end_of_a_node_between_sending_and_then(
    fault: FaultSpan, is_explained: bool
) -> None:
    what = seen([sent(1, at=10)], [arrived(1, at=10.1), arrived(1, at=12)], faults=[fault])
    judged = of(what, "once")
    assert (judged.excused, judged.broken) == (is_explained, not is_explained)


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


def test_outstanding_is_what_neither_arrived_nor_was_answered() -> None:
    what = seen([sent(1, kind="request"), sent(2), sent(3)], [arrived(2)], answered=answers((1.5, 503)))
    assert what.outstanding() == [sent(3)]


def test_a_message_may_wait_until_the_faults_that_follow_each_other_have_had_their_time_to_recover() -> None:
    faults = [span("kill", 1, 2), span("kill", 6, 8), span("kill", 5, 9, domain="c.example"), span("kill", 90, 91)]
    what = seen([], [], faults=faults)
    assert what.may_wait_until(sent(1, at=1.5), 15) == 23
    assert what.may_wait_until(sent(1, at=0.5), 15) == 0.5
    assert what.may_wait_until(sent(1, at=30), 15) == 30


@pytest.mark.parametrize(
    ("began", "ended", "cases"), [(1.0, 3.0, 1), (0.0, 1.0, 1), (1.001, 3.0, 0), (0.0, 0.999, 0), (0.0, 3.0, 1)]
)
def test_neighbours_are_judged_by_what_they_send_while_a_fault_lasts(began: float, ended: float, cases: int) -> None:
    what = seen([sent(1)], [arrived(1, at=1.1)], faults=[span("kill", began, ended, domain="c.example")])
    assert of(what, "neighbours").cases == cases
