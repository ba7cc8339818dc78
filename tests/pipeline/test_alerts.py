"""Alerts as rows: their thresholds, and policies that a hostile name cannot bend. Spark finds what they are about."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from pipeline.core.alerts import evidence_of, flood, of_senders, spoofing
from pipeline.core.thresholds import FAN_OUT_RECIPIENTS

HOUR_US = 1_795_219_200_000_000
SENDER: dict[str, Any] = {
    "our_domain": "a.example",
    "peer_domain": "b.example",
    "src_key": "hyperty://b.example/eve",
    "hour_us": HOUR_US,
    "widest": FAN_OUT_RECIPIENTS,
    "is_scan": True,
    "misses": 40,
    "attempts": 50,
    "unknown": 30,
}
HOSTILE = ['b.example" }', "b.example\n[[rules]]", "", "x" * 300, "B.EXAMPLE", "b.example }", "ä.example"]


@pytest.mark.parametrize(
    ("changes", "patterns"),
    [
        ({}, ["fan-out", "scanning"]),
        ({"widest": FAN_OUT_RECIPIENTS - 1}, ["scanning"]),
        ({"is_scan": False}, ["fan-out"]),
        ({"is_scan": False, "widest": FAN_OUT_RECIPIENTS - 1}, []),
    ],
)
def test_a_sender_is_reported_for_what_it_did(changes: dict[str, Any], patterns: list[str]) -> None:
    key = ("a.example", "b.example", SENDER["src_key"], HOUR_US)
    evidence = {(*key, False): ["f"], (*key, True): ["s"]}
    alerts = list(of_senders([SENDER | changes], evidence))
    assert [one["pattern"] for one in alerts] == patterns
    assert {one["pattern"]: one["evidence"] for one in alerts}.items() <= {"fan-out": ["f"], "scanning": ["s"]}.items()
    assert all(one["dt"] == "2026-11-21" for one in alerts)


@pytest.mark.parametrize(("later_us", "dt"), [(-1, "2026-11-20"), (0, "2026-11-21"), (86_399_999_999, "2026-11-21")])
def test_an_alert_is_of_the_day_in_utc(later_us: int, dt: str) -> None:
    alerts = of_senders([SENDER | {"hour_us": HOUR_US + later_us}], {})
    assert {one["dt"] for one in alerts} == {dt}


def test_a_policy_against_a_sender_takes_only_messages_of_that_sender() -> None:
    for alert in of_senders([SENDER], {}):
        policy = tomllib.loads(alert["proposed_policy"])
        assert policy["target"] == {
            "hook": {"equals": "in"},
            "linkDomain": {"equals": "b.example"},
            "msgFrom": {"equals": "hyperty://b.example/eve"},
        }
        assert [rule["effect"] for rule in policy["rules"]] == ["deny"]


@pytest.mark.parametrize("address", [None, 'hyperty://b.example/"', "a\nb", "hyperty://b.example/ä b"])
def test_an_address_that_could_bend_the_policy_is_left_out_of_it(address: str | None) -> None:
    for alert in of_senders([SENDER | {"src_key": address}], {}):
        policy = tomllib.loads(alert["proposed_policy"])
        assert set(policy["target"]) == {"hook", "linkDomain"}
        assert alert["subject"] == address


@pytest.mark.parametrize("domain", HOSTILE)
def test_no_policy_is_proposed_for_a_domain_that_is_no_name(domain: str) -> None:
    hour = {"messages": 9000, "level": 3600.0, "median": 100.0, "hours": 4}
    peer = {"attempts": 1, "senders": 1, "claimed": []}
    for alert in (
        *of_senders([SENDER | {"peer_domain": domain}], {}),
        flood({**SENDER, **hour, "peer_domain": domain}),
        spoofing({**SENDER, **peer, "peer_domain": domain}),
    ):
        assert alert["proposed_policy"] is None
    assert tomllib.loads(flood({**SENDER, **hour})["proposed_policy"])["peer"][0]["messages_per_second"] == 1.0


@pytest.mark.parametrize(("messages", "severity"), [(7200, "warning"), (7201, "severe")])
def test_a_flood_is_severe_beyond_twice_its_level(messages: int, severity: str) -> None:
    alert = flood({**SENDER, "messages": messages, "level": 3600.0, "median": 0.5, "hours": 4})
    assert (alert["severity"], alert["observed"], alert["threshold"]) == (severity, messages, 3600.0)


def test_evidence_is_the_earliest_of_each_kind_once() -> None:
    rows = [
        SENDER | {"is_unknown": is_unknown, "ts_us": ts_us, "msg_id": bytes([ts_us])}
        for is_unknown, ts_us in ((False, 3), (False, 1), (False, 2), (True, 9))
    ]
    key = ("a.example", "b.example", SENDER["src_key"], HOUR_US)
    assert evidence_of(rows, 2) == {(*key, False): ["01", "02"], (*key, True): ["09"]}


def test_alerts_about_a_sender_say_what_was_seen_and_from_where_on_it_counts() -> None:
    fan_out, scan = of_senders([SENDER], {})
    assert (fan_out["observed"], fan_out["expected"], fan_out["threshold"]) == (100, 0, 100)
    assert (scan["observed"], scan["expected"], scan["threshold"]) == (0.8, 0, 0.5)
    assert {fan_out["severity"], scan["severity"]} == {"severe"}
    assert "100 different recipients" in fan_out["explanation"]
    assert scan["explanation"].startswith("40 of 50 messages")


@pytest.mark.parametrize(("attempts", "severity"), [(1, "warning"), (9, "warning"), (10, "severe")])
def test_spoofing_is_severe_from_the_tenth_message(attempts: int, severity: str) -> None:
    alert = spoofing({**SENDER, "attempts": attempts, "senders": 1, "claimed": ["x"]})
    assert (alert["severity"], alert["observed"], alert["threshold"]) == (severity, attempts, 1)
    assert (alert["subject"], alert["evidence"]) == ("b.example", ["x"])
    assert set(tomllib.loads(alert["proposed_policy"])["target"]) == {"hook", "linkDomain"}


@pytest.mark.parametrize(
    ("level", "rate"), [(100.0, 0.1), (539.0, 0.1), (540.0, 0.2), (899.0, 0.2), (900.0, 0.3), (36_000.0, 10.0)]
)
def test_a_flood_is_answered_by_the_rate_of_its_level_in_tenths(level: float, rate: float) -> None:
    alert = flood({**SENDER, "messages": 50_000, "level": level, "median": 40.5, "hours": 4})
    assert tomllib.loads(alert["proposed_policy"])["peer"] == [{"domain": "b.example", "messages_per_second": rate}]
    assert (alert["subject"], alert["expected"]) == ("b.example", 40.5)
    assert alert["explanation"] == "50000 messages in one hour, where 41 are usual at that hour (over 4 hours)."


@pytest.mark.parametrize(("length", "is_named"), [(512, True), (513, False)])
def test_a_policy_names_a_sender_of_at_most_512_characters(length: int, is_named: bool) -> None:
    for alert in of_senders([SENDER | {"src_key": "hyperty://" + "x" * length}], {}):
        assert ("msgFrom" in tomllib.loads(alert["proposed_policy"])["target"]) is is_named
