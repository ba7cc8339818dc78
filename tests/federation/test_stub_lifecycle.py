"""The life of a stub: back-off, circuit, quarantine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.core.stub_lifecycle import TRANSITIONS, StubLifecycle, StubState, diagram
from protofly import limits
from protofly.errors import MisuseError


def start(life: StubLifecycle, now: float) -> None:
    """Deploy and start, from wherever the stub is."""
    if life.state in (StubState.IN_PROGRESS, StubState.LIVE):
        life.draining()
        life.ended()
    life.deploying()
    life.deployed()
    life.started(now)


def crash(life: StubLifecycle, now: float) -> float:
    """Start at the earliest time and crash at once; the time of the crash."""
    now = max(now, life.starts_at())
    start(life, now)
    life.crashed(now, 0.0)
    return now


def test_first_start_waits_for_nothing_and_goes_live() -> None:
    life = StubLifecycle()
    assert life.may_start(0.0)
    start(life, 0.0)
    assert life.state is StubState.IN_PROGRESS
    assert life.reported("live", 1.0) is StubState.LIVE


def test_delays_double_up_to_a_minute() -> None:
    life = StubLifecycle()
    delays = []
    now = 0.0
    for _ in range(4):
        start(life, now)
        restart = life.crashed(now, 0.0)
        delays.append(restart.at - now)
        assert not restart.opens_circuit
        now = restart.at
    assert delays == [1.0, 2.0, 4.0, 8.0]


@given(jitter=st.floats(0, 1, exclude_max=True))
def test_jitter_only_makes_it_later_and_not_by_much(jitter: float) -> None:
    life = StubLifecycle()
    start(life, 0.0)
    assert 1.0 <= life.crashed(0.0, jitter).at <= 1.25


def test_start_before_its_time_is_our_bug() -> None:
    life = StubLifecycle()
    start(life, 0.0)
    life.crashed(0.0, 0.0)
    assert not life.may_start(0.9)
    with pytest.raises(MisuseError, match="too early"):
        start(life, 0.9)


@pytest.mark.parametrize("began", [0.0, 1e6])
def test_five_crashes_in_ten_minutes_open_the_circuit_for_ten_minutes(began: float) -> None:
    life = StubLifecycle()
    now = began
    for _ in range(5):
        now = crash(life, now)
    assert life.state is StubState.QUARANTINED
    assert life.is_circuit_open
    assert life.starts_at() == now + limits.CIRCUIT_OPEN_SECONDS
    assert not life.may_start(now + limits.CIRCUIT_OPEN_SECONDS - 1)


def test_probe_that_goes_live_closes_the_circuit() -> None:
    life = StubLifecycle()
    now = 0.0
    for _ in range(5):
        now = crash(life, now)
    start(life, life.starts_at())
    was_open = life.is_circuit_open
    life.reported("live", life.starts_at())
    assert (was_open, life.is_circuit_open) == (True, False)
    assert not life.crashed(life.starts_at() + 1, 0.0).opens_circuit


def test_probe_that_crashes_opens_it_again_at_once() -> None:
    life = StubLifecycle()
    now = 0.0
    for _ in range(5):
        now = crash(life, now)
    probe = life.starts_at()
    start(life, probe)
    assert life.crashed(probe, 0.0).opens_circuit
    assert life.starts_at() == probe + limits.CIRCUIT_OPEN_SECONDS


def test_rare_crashes_never_open_the_circuit_and_start_from_the_short_delay() -> None:
    life = StubLifecycle()
    now = 0.0
    for _ in range(20):
        start(life, now)
        life.reported("live", now)
        now += 300.0
        restart = life.crashed(now, 0.0)
        assert not restart.opens_circuit
        assert restart.at == now + limits.RESTART_BASE_SECONDS
        now = restart.at


def test_a_stub_may_be_drained_twice() -> None:
    life = StubLifecycle()
    start(life, 0.0)
    life.draining()
    life.draining()
    assert life.state is StubState.DRAINING


@pytest.mark.parametrize("word", ["in-progress", "live", "disconnected"])
def test_a_stub_may_report_the_state_again_that_it_has(word: str) -> None:
    life = StubLifecycle()
    start(life, 0.0)
    life.reported(word, 1.0)
    state = life.state
    assert life.reported(f"{word} still", 2.0) is state
    assert life.detail == "still"


def test_unknown_status_word_changes_nothing_and_detail_is_kept() -> None:
    life = StubLifecycle()
    start(life, 0.0)
    assert life.reported("quarantined", 0.0) is None
    assert life.reported("Live", 0.0) is None
    assert life.state is StubState.IN_PROGRESS
    assert life.reported("disconnected peer went away", 0.0) is StubState.DISCONNECTED
    assert life.detail == "peer went away"


def test_draining_stub_does_not_come_back_by_its_own_word() -> None:
    life = StubLifecycle()
    start(life, 0.0)
    life.draining()
    assert life.reported("live", 0.0) is None
    assert life.state is StubState.DRAINING


def test_another_package_starts_at_once_and_its_first_crash_opens_nothing() -> None:
    life = StubLifecycle()
    now = 0.0
    for _ in range(5):
        now = crash(life, now)
    life.replaced()
    assert (life.is_circuit_open, life.starts_at()) == (False, 0.0)
    start(life, now)
    restart = life.crashed(now, 0.0)
    assert (restart.opens_circuit, restart.at) == (False, now + limits.RESTART_BASE_SECONDS)


def test_a_worker_that_dies_before_the_probe_starts_is_no_failed_probe() -> None:
    life = StubLifecycle()
    now = 0.0
    for _ in range(5):
        now = crash(life, now)
    now += limits.CIRCUIT_OPEN_SECONDS
    life.deploying()
    life.deployed()
    assert not life.crashed(now, 0.0).opens_circuit


def test_a_stub_that_cannot_run_here_has_failed_and_says_why() -> None:
    life = StubLifecycle()
    start(life, 0.0)
    life.unusable("no memory", draw=0.5, is_refused=False)
    assert (life.state, life.detail) == (StubState.FAILED, "no memory")


def test_a_stub_that_was_live_for_less_than_a_minute_does_not_start_from_the_short_delay() -> None:
    for live_seconds, delay in ((limits.RESTART_MAX_SECONDS - 1, 2.0), (limits.RESTART_MAX_SECONDS, 1.0)):
        life = StubLifecycle()
        now = crash(life, 0.0) + 10.0
        start(life, now)
        life.reported("live", now)
        life.reported("live", now + live_seconds)  # live since the first time that it said so
        assert life.crashed(now + live_seconds, 0.0).at == now + live_seconds + delay


def test_a_new_instance_is_not_live_because_the_one_before_was() -> None:
    life = StubLifecycle()
    start(life, 0.0)
    life.reported("live", 0.0)
    life.replaced()
    now = crash(life, 1.0)
    start(life, life.starts_at())
    assert life.crashed(now + 1000.0, 0.0).at == now + 1000.0 + 2.0


def test_delays_stay_at_a_minute_however_often_it_crashes() -> None:
    life = StubLifecycle()
    now, delays = 0.0, []
    for _ in range(30):
        start(life, now)
        restart = life.crashed(now, 0.0)
        assert not restart.opens_circuit
        delays.append(restart.at - now)
        now = restart.at + limits.CRASH_WINDOW_SECONDS  # too rare for the circuit
    assert delays[6:] == [limits.RESTART_MAX_SECONDS] * 24


@pytest.mark.parametrize(("apart_seconds", "opens"), [(0.0, True), (1.0, False)])
def test_crashes_count_for_exactly_the_window(apart_seconds: float, opens: bool) -> None:
    life = StubLifecycle()
    moments = [0.0, *(limits.CRASH_WINDOW_SECONDS + apart_seconds - rest for rest in (192.0, 128.0, 64.0, 0.0))]
    for now in moments:
        start(life, now)
        restart = life.crashed(now, 0.0)
    assert restart.opens_circuit is opens


def test_a_probe_starts_when_the_rest_is_over_and_not_before() -> None:
    life = StubLifecycle()
    now = 0.0
    for _ in range(5):
        now = crash(life, now)
    assert not life.may_start(life.starts_at() - 0.001)
    start(life, life.starts_at())
    life.reported("in-progress", life.starts_at())
    was_open = life.is_circuit_open  # only `live` closes it
    life.reported("live", life.starts_at())
    assert (was_open, life.is_circuit_open) == (True, False)
    for _ in range(4):  # what came before the rest is forgotten
        start(life, now := max(now + 1.0, life.starts_at()))
        assert not life.crashed(now, 0.0).opens_circuit


def test_a_crash_is_a_failure_with_its_reason_and_a_late_word_closes_no_circuit() -> None:
    life = StubLifecycle()
    start(life, 0.0)
    life.crashed(0.0, 0.0, "trap: unreachable")
    assert (life.state, life.detail) == (StubState.FAILED, "trap: unreachable")
    now = life.starts_at()
    for _ in range(4):
        now = crash(life, now)
    assert (life.state, life.is_circuit_open) == (StubState.QUARANTINED, True)
    probe = life.starts_at()
    start(life, probe)
    life.crashed(probe, 0.0, "again")
    assert (life.state, life.detail) == (StubState.QUARANTINED, "again")
    assert life.reported("live", probe) is None  # what the dead instance had said
    assert life.is_circuit_open


@pytest.mark.parametrize("event", ["deployed", "draining", "ended"])
def test_an_event_that_the_state_does_not_allow_is_a_defect_and_changes_nothing(event: str) -> None:
    life = StubLifecycle()
    life.deploying()
    life.unusable("revoked", draw=0.5, is_refused=True)
    with pytest.raises(MisuseError, match="verify-failed cannot become"):
        getattr(life, event)()
    assert (life.state, life.detail) == (StubState.VERIFY_FAILED, "revoked")


def test_a_failure_before_the_stub_is_deployed_is_one_of_its_deployment() -> None:
    life = StubLifecycle()
    life.deploying()
    life.unreached("nobody answers", draw=0.5)
    assert (life.state, life.detail) == (StubState.DEPLOYMENT_FAILED, "nobody answers")
    start(life, 0.0)
    life.unreached("the far end refuses us", draw=0.5)
    assert life.state is StubState.FAILED


def test_tries_that_reach_nobody_come_at_doubling_pauses_until_the_stub_is_live() -> None:
    life = StubLifecycle()

    def try_in_vain() -> float:
        life.deploying()
        return life.unreached("nobody answers", draw=0.5).seconds

    first, most = limits.RECONNECT_BASE_SECONDS, limits.RECONNECT_MAX_SECONDS
    pauses = [try_in_vain() for _ in range(20)]
    assert pauses == pytest.approx([min(first * 2**number, most) for number in range(20)])
    start(life, 0.0)
    life.reported("live", 1.0)
    assert life.unreached("the far end refuses us", draw=0.5).seconds == pytest.approx(first)


@given(tries=st.integers(1, 40), draw=st.floats(0, 1, exclude_max=True), was_up=st.booleans())
def test_messages_shorten_pauses_of_links_that_were_up_to_ten_seconds_and_of_no_others(
    tries: int, draw: float, was_up: bool
) -> None:
    life = StubLifecycle()
    for _ in range(tries):
        life.deploying()
        pause = life.unreached("nobody answers", draw=draw, was_up=was_up)
    least = 0.9 * limits.RECONNECT_ASKED_SECONDS
    assert pause.asked_seconds <= (1.1 * limits.RECONNECT_ASKED_SECONDS if was_up else pause.seconds)
    assert pause.asked_seconds >= min(pause.seconds, least), "no storm: at least nine seconds, once pauses are longer"
    if not was_up:
        assert pause.asked_seconds == pause.seconds, "who writes to what never answered has nothing dialled sooner"


def test_a_stub_that_was_live_once_is_tried_again_after_ten_seconds_when_messages_wait() -> None:
    life = StubLifecycle()
    start(life, 0.0)
    life.reported("live", 1.0)
    for _ in range(20):
        pause = life.unreached("nobody answers", draw=0.5)
        life.deploying()
    assert (pause.seconds, pause.asked_seconds) == (limits.RECONNECT_MAX_SECONDS, limits.RECONNECT_ASKED_SECONDS)


def test_what_cannot_run_is_tried_at_doubling_pauses_until_an_instance_ended_in_good_order() -> None:
    life = StubLifecycle()

    def try_in_vain(*, is_refused: bool) -> float:
        life.deploying()
        return life.unusable("revoked", draw=0.5, is_refused=is_refused)

    first = limits.RESTART_BASE_SECONDS
    assert try_in_vain(is_refused=True) == pytest.approx(first)
    assert try_in_vain(is_refused=False) == pytest.approx(2 * first)
    start(life, 0.0)
    life.ended()
    assert try_in_vain(is_refused=True) == pytest.approx(first)


def test_every_state_is_reached_and_left_and_a_new_deployment_is_always_possible_in_the_end() -> None:
    assert set(TRANSITIONS) == set(StubState)
    reached = {StubState.CREATED}.union(*TRANSITIONS.values())
    assert reached == set(StubState)
    for state in StubState:
        seen = {state}
        while more := set[StubState]().union(*(TRANSITIONS[one] for one in seen)) - seen:
            seen |= more
        assert StubState.DEPLOYING in seen


def test_the_diagram_in_the_documents_is_that_of_the_table() -> None:
    text = (Path(__file__).parents[2] / "docs/architecture.md").read_text(encoding="utf-8")
    assert f"```mermaid\n{diagram()}\n```\n" in text
