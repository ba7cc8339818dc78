"""What follows from what a newer version of a stub does: the whole table, by values."""

from __future__ import annotations

import pytest

from federation.core.stub_release import TABLE, ReleaseAction, ReleaseEvent, Stage, StubRelease
from protofly.limits import RELEASE_TRIAL_SECONDS

LIVE, FAULT, NO_LINE = ReleaseEvent.LIVE, ReleaseEvent.FAULT, ReleaseEvent.NO_LINE
NOTHING, ROLL_BACK, TRY_OLDER, TAKE_OVER = (
    ReleaseAction.NOTHING,
    ReleaseAction.ROLL_BACK,
    ReleaseAction.TRY_OLDER,
    ReleaseAction.TAKE_OVER,
)


@pytest.mark.parametrize(
    ("is_beside", "events", "actions", "stage"),
    [
        (True, [LIVE], [TAKE_OVER], Stage.CARRYING),
        (True, [FAULT], [ROLL_BACK], Stage.FAILED),
        (True, [ReleaseEvent.NO_LINE_BUT_OLDER], [ROLL_BACK], Stage.FAILED),
        (True, [NO_LINE], [TRY_OLDER], Stage.SET_ASIDE),
        (True, [ReleaseEvent.OLDER_ENDED, FAULT], [NOTHING, ROLL_BACK], Stage.FAILED),
        (True, [LIVE, FAULT], [TAKE_OVER, ROLL_BACK], Stage.FAILED),
        (False, [LIVE], [NOTHING], Stage.CARRYING),
        (False, [FAULT], [ROLL_BACK], Stage.FAILED),
        (False, [NO_LINE, ReleaseEvent.OLDER_LIVE], [TRY_OLDER, ROLL_BACK], Stage.FAILED),
        (False, [NO_LINE, LIVE, FAULT], [TRY_OLDER, TAKE_OVER, ROLL_BACK], Stage.FAILED),
        (False, [LIVE, LIVE], [NOTHING, NOTHING], Stage.CARRYING),
        (False, [LIVE, NO_LINE, LIVE], [NOTHING, TRY_OLDER, TAKE_OVER], Stage.CARRYING),
        (False, [FAULT, LIVE, FAULT], [ROLL_BACK, NOTHING, NOTHING], Stage.FAILED),
    ],
)
def test_each_history_of_a_newer_version_leads_to_its_verdicts(
    is_beside: bool, events: list[ReleaseEvent], actions: list[ReleaseAction], stage: Stage
) -> None:
    release = StubRelease(is_beside=is_beside)
    assert [release.handle(one, 1.0) for one in events] == actions
    assert release.stage is stage


@pytest.mark.parametrize("event", list(ReleaseEvent))
def test_nothing_is_held_against_a_version_after_its_ten_minutes(event: ReleaseEvent) -> None:
    release = StubRelease(is_beside=False)
    release.handle(LIVE, 100.0)
    assert release.seconds_until_proved(100.0 + RELEASE_TRIAL_SECONDS - 1) == 1.0
    assert release.handle(event, 100.0 + RELEASE_TRIAL_SECONDS) is NOTHING
    assert release.stage is Stage.PROVED
    assert release.seconds_until_proved(900.0) is None


def test_the_ten_minutes_go_on_over_a_lost_line_and_end_with_a_failure() -> None:
    release = StubRelease(is_beside=True)
    assert release.seconds_until_proved(0.0) is None
    release.handle(LIVE, 0.0)
    release.handle(NO_LINE, 10.0)
    assert release.seconds_until_proved(10.0) is None
    release.handle(LIVE, 50.0)
    assert release.seconds_until_proved(50.0) == RELEASE_TRIAL_SECONDS - 50.0
    assert release.handle(FAULT, RELEASE_TRIAL_SECONDS - 0.5) is ROLL_BACK
    assert release.seconds_until_proved(RELEASE_TRIAL_SECONDS) is None


def test_the_table_never_leads_back_from_a_failure() -> None:
    assert not any(stage in {Stage.FAILED, Stage.PROVED} for stage, _ in TABLE)
    assert {stage for stage, action in TABLE.values() if action is ROLL_BACK} == {Stage.FAILED}
