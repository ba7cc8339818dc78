"""Alarms: when they are raised and cleared, and who is notified."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from federation.core.contact_trouble import Side
from federation.core.stub_meters import StubMeters
from federation.links.link_events import LinkEvents
from msg_node.admin.alarm_watch import AlarmWatch
from msg_node.admin.core.alarms import Alarm, AlarmNews, Alarms, Raised, budget_spent
from msg_node.records.writer import RecordsStatistics, WriterState
from protofly.records import AdminEvent
from tests.msg_node.admin.test_traffic import sent
from tests.support.admin_rig import AdminRig, admin_rig, ask_admin
from tests.support.runtime_rig import FOREIGN, NODE

START = 1_800_000_000.0
STEP_SECONDS = 30.0
ALARMS_AT = f"{NODE}/alarms/status"
B = "b.example"


def changes(alarm: Alarm, values: list[float]) -> list[int]:
    """The looks, from 1 on, at which an alarm was raised, and cleared (negative)."""
    alarms, found = Alarms(), []
    for number, value in enumerate(values, start=1):
        for news in alarms.judge({(alarm, B): value}, START + number * STEP_SECONDS):
            assert news == AlarmNews(alarm, B, news.is_raised, value)
            found.append(number if news.is_raised else -number)
    return found


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([0.9] * 20, []),
        ([1.2, 0.7, 1.1, 1.3, 1.2, 0.7, 0.4, 0.4, 0.4], [5, -9]),
        ([1.0, 1.0, 1.0], [3]),
        ([1.0, 1.0, 0.99, 1.0, 1.0], []),
        ([5.0, 0.0] * 10, []),
        ([1.0, 1.0, 1.0, 0.6, 0.9, 0.5, 0.6, 0.99], [3]),
        ([1.0, 1.0, 1.0, 0.4, 0.6, 0.4, 0.4, 0.4, 1.0, 1.0, 1.0], [3, -8, 11]),
    ],
)
def test_an_alarm_wants_time_to_be_raised_and_to_be_cleared(values: list[float], expected: list[int]) -> None:
    assert changes(Alarm.BUDGET, values) == expected


def test_an_alarm_that_is_not_due_yet_is_not_among_those_that_are_raised() -> None:
    alarms = Alarms()
    alarms.judge({(Alarm.BUDGET, B): 2.0, (Alarm.EXPIRY, "root"): 1.0}, START)
    assert [one.alarm for one in alarms.raised()] == [Alarm.EXPIRY]
    alarms.judge({(Alarm.BUDGET, B): 2.0, (Alarm.EXPIRY, "root"): 1.0}, START + 60.0)
    assert [one.alarm for one in alarms.raised()] == [Alarm.EXPIRY, Alarm.BUDGET]


def test_an_alarm_without_a_time_changes_at_once() -> None:
    assert changes(Alarm.RECORDS, [0.0, 1.0, 1.0, 0.0, 1.0]) == [2, -4, 5]


def test_a_subject_that_is_not_measured_any_more_is_cleared_and_forgotten() -> None:
    alarms = Alarms()
    assert [one.is_raised for one in alarms.judge({(Alarm.EXPIRY, "root 1"): 1.0}, START)] == [True]
    [raised] = alarms.raised()
    assert raised == Raised(Alarm.EXPIRY, "root 1", 1.0, START)
    assert [one.is_raised for one in alarms.judge({}, START + 1)] == [False]
    assert (alarms.raised(), alarms._known) == ([], {})


def test_a_clock_that_is_set_back_begins_the_time_anew() -> None:
    alarms, key = Alarms(), (Alarm.BUDGET, B)
    assert alarms.judge({key: 2.0}, START) == []
    assert alarms.judge({key: 2.0}, START - 3600) == []
    assert alarms.judge({key: 2.0}, START - 3600 + Alarm.BUDGET.for_seconds) != []


@pytest.mark.parametrize(
    ("arrived", "failed", "spent"),
    [(0, 0, 0.0), (3, 1, 1.0), (9_900, 100, 1.0), (9_950, 50, 0.5), (0, 1, 1.0), (1_000_000, 0, 0.0), (0, 1000, 100.0)],
)
def test_a_hundredth_of_the_messages_of_an_hour_may_fail(arrived: int, failed: int, spent: float) -> None:
    assert budget_spent(arrived, failed) == pytest.approx(spent)


@pytest.mark.parametrize(
    ("alarm", "raise_at", "clear_at", "seconds"),
    [
        (Alarm.PARTNER, 1.0, 1.0, 300),
        (Alarm.BUDGET, 1.0, 0.5, 60),
        (Alarm.STUB, 1.0, 1.0, 60),
        (Alarm.EXPIRY, 1.0, 1.0, 0),
        (Alarm.RECORDS, 1.0, 1.0, 0),
        (Alarm.STATE, 1.0, 1.0, 5),
        (Alarm.BOUND, 0.9, 0.8, 60),
    ],
)
def test_each_alarm_is_raised_and_cleared_as_the_operators_guide_says(
    alarm: Alarm, raise_at: float, clear_at: float, seconds: float
) -> None:
    alarms, key = Alarms(), (alarm, B)

    def states(value: float, at: float) -> list[bool]:
        return [one.is_raised for one in alarms.judge({key: value}, START + at)]

    assert states(raise_at - 0.01, 0.0) == []
    if seconds:
        assert states(raise_at, 10.0) == states(raise_at, 9.0 + seconds) == []
    assert states(raise_at, 10.0 + seconds) == [True]
    assert states(clear_at, 1000.0) == states(clear_at, 2000.0) == []
    if seconds:
        assert states(clear_at - 0.01, 3000.0) == states(clear_at - 0.01, 2999.0 + seconds) == []
    assert states(clear_at - 0.01, 3000.0 + seconds) == [False]


def test_every_alarm_clears_where_it_is_not_raised() -> None:
    assert all(0 < one.clear_at <= one.raise_at for one in Alarm)
    assert len({one.word for one in Alarm}) == len(Alarm)


def watch_of(at: AdminRig, calls: list[Any]) -> AlarmWatch:
    records = RecordsStatistics(
        state=WriterState.WRITING,
        error="",
        waiting=0,
        written=0,
        lost=0,
        sealed_segments=0,
        recovered_segments=0,
        sealed_bytes=0,
    )
    watch = AlarmWatch(at.node, records=lambda: records, expiring=list, call=None)
    watch.calls.add = lambda body: calls.append(msgspec.json.decode(body))  # type: ignore[method-assign]
    return watch


@pytest.mark.parametrize(
    ("side", "text", "state", "raised", "says"),
    [
        (
            Side.LINE,
            "no-such-domain: address: no address",
            "deployment-failed",
            "partner-unreachable",
            "check the name",
        ),
        (Side.LINE, "connect-failed", "deployment-failed", "partner-unreachable", "no line to"),
        (Side.DOCUMENTS, "document-expired", "verify-failed", "stub-failing", "what beta.example publishes is refused"),
        (None, "", "quarantined", "stub-failing", "its stub is quarantined: it trapped"),
    ],
)
async def test_an_alarm_names_what_fails_and_a_domain_that_is_not_reached_has_no_failing_stub(
    tmp_path: Path, side: Side | None, text: str, state: str, raised: str, says: str
) -> None:
    async with admin_rig(tmp_path) as at:
        events, calls = LinkEvents(FOREIGN, lambda _record: None), list[Any]()
        if side is not None:
            events.met(side, text)
        link = SimpleNamespace(
            domain=FOREIGN,
            events=events,
            machine=SimpleNamespace(state=state, carriers=(), detail="it trapped"),
            stub=SimpleNamespace(state=state, meters=StubMeters()),
            now=time.monotonic,
        )
        at.node.federation.links = (link,)  # type: ignore[assignment, misc]
        watch, now = watch_of(at, calls), time.time()
        for seconds in range(0, 330, 30):
            watch.look(now + seconds)
        found = {one["alarm"]: one["detail"] for one in calls}
        assert says in found[raised]
        assert ("stub-failing" in found) == (raised == "stub-failing")
        ops = await at.operator()
        rows = (await ask_admin(ops, "alarms", "read"))["value"]["rows"]
        assert {row["alarm"]: row["detail"] for row in rows} == found


async def test_a_partner_whose_messages_fail_is_announced_on_every_way_and_so_is_its_recovery(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops, bob = await at.operator(), await at.rig.opened("bob")
        assert (await ops.subscribed(ALARMS_AT))["body"]["code"] == 200
        assert (await bob.subscribed(ALARMS_AT))["body"]["code"] != 200
        calls: list[Any] = []
        watch, now = watch_of(at, calls), time.time()
        at.node.traffic.observe([sent(FOREIGN, "timeout")] * 5, now)
        for seconds in (0, 30, 60, 90):
            watch.look(now + seconds)
        heard = await ops.heard()
        [raised] = (await ask_admin(ops, "alarms", "read"))["value"]["rows"]
        assert (raised["alarm"], raised["subject"], raised["value"]) == ("error-budget-spent", FOREIGN, 5.0)
        at.node.traffic.observe([sent(FOREIGN)] * 5000, now)
        for seconds in (120, 150, 180, 210):
            watch.look(now + seconds)
        expected = [("error-budget-spent", FOREIGN, state) for state in ("raised", "cleared")]
        assert [(one["alarm"], one["subject"], one["state"]) for one in calls] == expected
        events = [one["body"]["value"] for one in heard + await ops.heard() if one["to"] == ALARMS_AT]
        assert [(one["alarm"], one["subject"], one["state"]) for one in events] == expected
        assert [one for one in await bob.heard() if one["to"] == ALARMS_AT] == []
        recorded = [one for one in at.rig.records.taken if isinstance(one, AdminEvent)]
        assert [(one.operation, one.way) for one in recorded] == [("alarm", "node")] * 2
        assert at.node.alarms.raised() == []
