"""Leases: when a name may be taken, until when it is held, and that the two never overlap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.cluster.core.lease import (
    LEASE_SECONDS,
    MARGIN_SECONDS,
    Lease,
    LeaseState,
    LeaseVerdict,
    NameRow,
    NameSearch,
)

TAKE, WAIT, REFUSE = LeaseVerdict.TAKE, LeaseVerdict.WAIT, LeaseVerdict.REFUSE
ROW = NameRow(epoch=3, beat=7, is_held=True, instance="there")
BEATEN = NameRow(epoch=3, beat=8, is_held=True, instance="there")
OTHER = NameRow(epoch=4, beat=0, is_held=True, instance="elsewhere")


@pytest.mark.parametrize(
    "row", [None, NameRow(3, 7, is_held=False, instance="there"), NameRow(3, 7, is_held=True, instance="here")]
)
def test_name_that_nobody_else_can_hold_is_taken_at_once(row: NameRow | None) -> None:
    assert NameSearch("here", is_standby=False).seen(row, now=100.0) is TAKE


@pytest.mark.parametrize(
    ("is_standby", "looks", "verdicts"),
    [
        (False, [(ROW, 0.0), (ROW, 2.5), (ROW, 4.99), (ROW, 5.0)], [WAIT, WAIT, WAIT, TAKE]),
        (False, [(ROW, 0.0), (BEATEN, 0.5)], [WAIT, REFUSE]),
        (False, [(ROW, 0.0), (OTHER, 4.9)], [WAIT, REFUSE]),
        (True, [(ROW, 0.0), (BEATEN, 0.5), (BEATEN, 5.4), (BEATEN, 5.5)], [WAIT, WAIT, WAIT, TAKE]),
        (True, [(ROW, 0.0), (BEATEN, 60.0), (BEATEN, 61.0)], [WAIT, WAIT, WAIT]),  # we slept, and it did not
        (True, [(ROW, 0.0), (OTHER, 4.9), (OTHER, 9.8), (OTHER, 9.9)], [WAIT, WAIT, WAIT, TAKE]),
        (True, [(ROW, 0.0), (None, 0.5)], [WAIT, TAKE]),
    ],
)
def test_name_is_taken_when_nothing_was_renewed_for_a_lease_that_we_watched(
    is_standby: bool, looks: list[tuple[NameRow | None, float]], verdicts: list[LeaseVerdict]
) -> None:
    search = NameSearch("here", is_standby=is_standby)
    assert [search.seen(row, now=now) for row, now in looks] == verdicts


def test_lease_is_held_until_just_before_others_may_take_it() -> None:
    lease = Lease(3, asked_at=100.0)
    assert lease.ends_at == 100.0 + LEASE_SECONDS - MARGIN_SECONDS
    assert lease.state(now=104.4) is LeaseState.HELD
    assert lease.state(now=104.5) is LeaseState.LAPSED
    lease.renewed(asked_at=104.0)
    assert lease.state(now=104.5) is LeaseState.HELD
    lease.renewed(asked_at=101.0)  # an answer that comes late shortens nothing
    assert lease.state(now=108.4) is LeaseState.HELD


def test_lease_that_ran_out_comes_back_when_nobody_took_the_name_and_never_after() -> None:
    lease = Lease(3, asked_at=0.0)
    assert lease.state(now=60.0) is LeaseState.LAPSED
    lease.renewed(asked_at=60.0)
    assert lease.state(now=60.1) is LeaseState.HELD
    lease.lost()
    lease.renewed(asked_at=61.0)
    assert lease.state(now=61.1) is LeaseState.LOST


@given(
    renewals=st.lists(st.tuples(st.floats(0.0, 6.0), st.floats(0.0, 3.0)), max_size=12),
    looks=st.lists(st.floats(0.01, 3.0), min_size=1, max_size=60),
    skew=st.floats(-1e6, 1e6),
)
def test_nobody_takes_a_name_while_its_holder_believes_to_hold_it(
    renewals: list[tuple[float, float]], looks: list[float], skew: float
) -> None:
    """The holder asks, the engine writes a little later; another process looks whenever it likes, by its own clock."""
    lease = Lease(1, asked_at=0.0)
    written: list[tuple[float, int]] = [(0.0, 0)]
    asked = 0.0
    for number, (pause, delay) in enumerate(renewals, 1):
        asked = max(asked + pause, written[-1][0])  # one renewal at a time
        lease.renewed(asked_at=asked)
        written.append((asked + delay, number))
    search = NameSearch("here", is_standby=True)
    now = 0.0
    for pause in looks:
        now += pause
        beat = max(number for at, number in written if at <= now)
        if search.seen(NameRow(1, beat, is_held=True, instance="there"), now=now + skew) is TAKE:
            if beat == len(renewals):  # else the condition of the write may still fail
                assert lease.state(now=now) is LeaseState.LAPSED
            return
