"""When which job of a pipeline that serves is due."""

from __future__ import annotations

from pipeline.core.schedule import FIRST_PAUSE_S, Schedule


def test_all_jobs_are_due_at_once_in_their_order_and_again_after_their_periods() -> None:
    schedule = Schedule({"ingest": 5.0, "settle": 60.0, "retention": None}, 100.0)
    assert schedule.due(100.0) == ["ingest", "settle"]
    for name in ("ingest", "settle"):
        schedule.done(name, 101.0, is_failed=False)
    assert (schedule.due(105.9), schedule.wait_s(104.0)) == ([], 2.0)
    assert schedule.due(106.0) == ["ingest"]
    assert schedule.due(161.0) == ["ingest", "settle"]


def test_a_job_that_has_something_to_do_is_hastened() -> None:
    schedule = Schedule({"refine": 60.0}, 0.0)
    schedule.done("refine", 1.0, is_failed=False)
    schedule.hasten("refine", 2.0)
    schedule.hasten("retention", 2.0)
    assert schedule.due(2.0) == ["refine"]


def test_a_job_that_fails_pauses_longer_each_time_and_nobody_hastens_it() -> None:
    schedule = Schedule({"settle": 600.0}, 0.0)
    now, pauses = 0.0, []
    for _ in range(10):
        schedule.done("settle", now, is_failed=True)
        schedule.hasten("settle", now)
        pauses.append(schedule.wait_s(now))
        now += schedule.wait_s(now)
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == 600.0
    schedule.done("settle", now, is_failed=False)
    schedule.hasten("settle", now)
    assert schedule.wait_s(now) == 0.0
