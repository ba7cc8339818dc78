"""What partners report and return goes to the receivers of alerts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.partner_alerts import of_returns, of_usage
from pipeline.core.utc_days import day_of, end_us
from pipeline.jobs.result import JobResult
from pipeline.jobs.returns import note_return
from pipeline.jobs.usage import note_named
from pipeline.lake.tables import Lake
from pipeline.partners.return_file import Return, ReturnedFile, ReturnedRecord
from pipeline.partners.usage_file import HighUser, UsageReport
from pipeline.serving.alert_sinks import send_new, sinks_of
from pipeline.serving.settings import Alerts
from tests.pipeline.receivers import receiver

A, B = "a.example", "b.example"
DAY = "2026-03-02"
NOON_US = end_us(DAY) - 12 * 3_600_000_000
ID = bytes(range(16))


def named(**members: Any) -> dict[str, Any]:
    """A sender of ours, in a report of the partner's."""
    return {"domain": B, "peer": A, "made_us": NOON_US, "src_key": "user://eve", "messages": 9, "dt": DAY} | members


def returned(**members: Any) -> dict[str, Any]:
    """A record of ours that the partner does not accept."""
    row = {"domain": B, "peer": A, "entered_us": NOON_US, "reason": "lost", "msg_id": ID, "dt": "2026-03-01"}
    return row | {"file": None, "detail": None} | members


def test_a_report_is_one_alert_that_names_those_who_sent_most() -> None:
    rows = [named(src_key=f"user://{number}", messages=number) for number in range(1, 8)]
    [alert] = of_usage([*rows, named(domain=A, peer=B), named(src_key=None, messages=100)], A)
    assert (alert["our_domain"], alert["peer_domain"], alert["pattern"], alert["observed"]) == (A, B, "high-usage", 100)
    assert "a sender without a record of ours (100 messages), user://7 (7 messages)" in alert["explanation"]
    assert alert["explanation"].endswith("and 3 more")


@pytest.mark.parametrize(
    ("made_us", "hour_us"),
    [
        (NOON_US, NOON_US),
        (NOON_US + 1, NOON_US),
        (NOON_US - 1, NOON_US - 3_600_000_000),
        (0, NOON_US - 12 * 3_600_000_000),
        (NOON_US + 10**12, NOON_US + 11 * 3_600_000_000),
    ],
)
def test_a_report_is_of_the_hour_in_which_it_was_made_within_its_day(made_us: int, hour_us: int) -> None:
    [alert] = of_usage([named(made_us=made_us)], A)
    assert alert["hour_us"] == hour_us


def test_those_who_sent_alike_are_named_by_their_addresses() -> None:
    for senders in (["user://b", None, "user://a"], ["user://a", "user://b", None]):
        [alert] = of_usage([named(src_key=one) for one in senders], A)
        named_in_order = "a sender without a record of ours (9 messages), user://a (9 messages), user://b (9 messages)"
        assert alert["explanation"].endswith(named_in_order)


def test_a_return_is_one_alert_with_its_classes_and_the_ids() -> None:
    rows = [returned(), returned(reason="altered"), returned(domain=A, peer=B)]
    file = returned(entered_us=NOON_US + 1, msg_id=None, file=f"{DAY}.totals", reason="damaged", detail="cut off")
    records, refused = of_returns([*rows, file], A)
    assert (records["pattern"], records["observed"], records["evidence"]) == ("returned", 2, [ID.hex()] * 2)
    assert records["explanation"] == f"{B} does not accept 2 records of 2026-03-01: 1 altered, 1 lost; see peer_return"
    assert refused["explanation"] == f"{B} has refused {DAY}.totals: damaged: cut off"
    assert records["subject"] != refused["subject"]


def test_a_return_of_many_records_names_the_first_twenty_and_counts_all() -> None:
    [alert] = of_returns([returned(msg_id=bytes([number]) * 16) for number in range(21)], A)
    assert alert["evidence"] == [(bytes([number]) * 16).hex() for number in range(20)]
    assert alert["observed"] == 21


@given(st.integers(0, 2**53))
def test_whatever_clock_a_partner_has_its_report_is_of_the_day_on_which_it_came(made_us: int) -> None:
    [alert] = of_usage([named(made_us=made_us)], A)
    assert (alert["dt"], day_of(alert["hour_us"])) == (DAY, DAY)


@pytest.mark.spark
def test_reports_and_returns_of_partners_reach_each_receiver_once(lake: Lake, tmp_path: Path) -> None:
    now_us = time.time_ns() // 1000
    user = HighUser(5_000, 70_000, now_us - 9, now_us, ())
    report = UsageReport(
        domain=B,
        peer=A,
        from_us=now_us - 99,
        until_us=now_us,
        made_us=now_us,
        messages=1,
        bytes=0,
        left_out=0,
        users=(user,),
    )
    note_named(lake, report, [["user://eve"]], JobResult("usage"))
    note_named(lake, report, [["user://eve"]], JobResult("usage"))  # by a round that was cut off before
    record = ReturnedRecord(ID.hex(), "out", "lost")
    note_return(lake, Return(domain=B, peer=A, day=DAY, made_us=1, records=(record,)))
    file = ReturnedFile(f"{DAY}.totals", "0" * 64, "damaged", "cut off")
    note_return(lake, Return(domain=B, peer=A, day=DAY, made_us=2, file=file))
    note_return(lake, Return(domain=A, peer=B, day=DAY, made_us=3, records=(record,)))
    since_us = now_us - 2 * 86_400_000_000
    with receiver([200]) as (hook, posted), receiver([200], read=bytes) as (manager, raw):
        sinks = sinks_of(Alerts(webhook=(hook,), alertmanager=(manager,)))
        assert send_new(lake, sinks, least="warning", since_us=since_us).rows == {}, (
            "without an exchange there are none"
        )
        assert send_new(lake, sinks, least="severe", since_us=since_us, domain=A).rows == {}
        first = send_new(lake, sinks, least="warning", since_us=since_us, domain=A)
        again = send_new(lake, sinks, least="warning", since_us=since_us, domain=A)
    assert (first.rows, again.rows) == ({"alert_sent": 6}, {})
    [(_, body)] = posted
    assert sorted(alert["pattern"] for alert in body["alerts"]) == ["high-usage", "returned", "returned"]
    [(path, content)] = raw
    assert path == "/api/v2/alerts"
    assert {alert["labels"]["alertname"] for alert in json.loads(content)} == {"TrapezoidPartner"}
