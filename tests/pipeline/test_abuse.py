from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.columns import senders, usual
from pipeline.columns.usual import HOURS_PER_WEEK
from pipeline.core.alerts import SPOOFS_SEVERE
from pipeline.core.thresholds import FAN_OUT_RECIPIENTS
from pipeline.jobs import abuse
from pipeline.lake.local_rows import local_frame
from pipeline.lake.tables import Lake
from pipeline.lake.worker_rows import WorkerRows, rows_of
from pipeline.schemas import ALERT, BRONZE_LINK_EVENT, DOMAIN_BASELINE, SILVER_MDR, TRAFFIC_HOURLY
from pipeline.transforms.abuse import usual_hours
from policy.core.engine import CompiledPolicies, Effect, Facts
from policy.core.text import PolicyText, load_policies
from protofly.message import Message
from tests.pipeline.rows import DAY_US, HOUR_US, MONDAY_US, silver, silver_row
from tests.pipeline.test_usual import daily_rhythm

pytestmark = pytest.mark.spark

FIVE_MINUTES_US = 300_000_000

Alerts: TypeAlias = dict[str, list[dict[str, Any]]]


def traffic_rows(peer: str, counts: Iterable[tuple[int, int]]) -> list[tuple[Any, ...]]:
    """Rows of a.example's `traffic_hourly` about what a peer sent: (hour, messages)."""
    names = TRAFFIC_HOURLY.schema.names
    rows = []
    for hour, messages in counts:
        row = {
            "hour_us": MONDAY_US + hour * HOUR_US,
            "our_domain": "a.example",
            "src_domain": peer,
            "dst_domain": "a.example",
            "role": "in",
            "msg_type": "create",
            "messages": messages,
        }
        rows.append(tuple(row.get(name) for name in names))
    return rows


def to_many(count: int, **members: Any) -> list[dict[str, Any]]:
    return [silver_row(dst_key=f"hyperty://a.example/h-{number}", **members) for number in range(count)]


UNKNOWN = {"outcome": "undeliverable", "outcome_code": "no-route"}
HOSTILE = ('x" }\neffect = "permit"', "0" * 24, "hyperty://hostile.example/" + "h" * 600)

MESSAGES: Alerts = {
    "fan-out": to_many(FAN_OUT_RECIPIENTS),
    "one recipient fewer": to_many(FAN_OUT_RECIPIENTS - 1),
    "answers": to_many(FAN_OUT_RECIPIENTS, msg_type="response"),
    "slowly": to_many(FAN_OUT_RECIPIENTS // 2) + to_many(FAN_OUT_RECIPIENTS // 2, ts_us=MONDAY_US + FIVE_MINUTES_US),
    "always the same recipient": [silver_row() for _ in range(FAN_OUT_RECIPIENTS)],
    "scan": to_many(40, **UNKNOWN),
    "known but away": to_many(40, outcome="undeliverable", outcome_code="not-connected"),
    "mostly known": to_many(30, **UNKNOWN) + [silver_row() for _ in range(40)],
    "one dead address": [silver_row(**UNKNOWN) for _ in range(40)],
    "hostile sender 0": to_many(FAN_OUT_RECIPIENTS, src_key=HOSTILE[0]),
    "hostile sender 1": to_many(FAN_OUT_RECIPIENTS, src_key=HOSTILE[1]),
    "hostile sender 2": to_many(FAN_OUT_RECIPIENTS, src_key=HOSTILE[2]),
    "next day": to_many(FAN_OUT_RECIPIENTS, ts_us=MONDAY_US + DAY_US),
}
SPOOFS = {"one spoof": 1, "many spoofs": SPOOFS_SEVERE}
COUNTS: dict[str, list[tuple[int, int]]] = {
    "flood": daily_rhythm(5, flood_hour=60),
    "rhythm": daily_rhythm(5, flood_hour=None),
    "young": [(0, 1), (1, 1), (2, 50_000)],
    "silent between": [(0, 5), (3, 5)],
    "weeks": [(hour, 1_000 + hour // HOURS_PER_WEEK if hour % HOURS_PER_WEEK == 5 else 10) for hour in range(672)],
}


def link_events(spark: SparkSession) -> DataFrame:
    """Spoofing attempts, and what else happens to links."""
    names = BRONZE_LINK_EVENT.schema.names
    rows = [{"domain": peer_of("fan-out"), "event": "up"}]
    for case, attempts in SPOOFS.items():
        claims = [f"hyperty://c.example/h-{number}" for number in range(attempts)]
        rows += [{"domain": peer_of(case), "event": "spoofed", "src_key": claim} for claim in claims]
    common = {"node": silver_row()["node"], "ts_us": MONDAY_US}
    values = [tuple({**common, **row}.get(name) for name in names) for row in rows]
    return local_frame(spark, values, BRONZE_LINK_EVENT.schema)


def peer_of(case: str) -> str:
    return case.replace(" ", "-") + ".example"


@pytest.fixture(scope="module")
def traffic(spark: SparkSession) -> WorkerRows:
    rows = [row for case, counts in COUNTS.items() for row in traffic_rows(peer_of(case), counts)]
    return rows_of(local_frame(spark, rows, TRAFFIC_HOURLY.schema), usual.TRAFFIC)


@pytest.fixture(scope="module")
def alerts(spark: SparkSession, traffic: WorkerRows) -> Alerts:
    """All alerts of one run, by the peer; every case is a peer of its own."""
    rows = [
        {**row, "src_domain": peer_of(case), "peer_domain": peer_of(case)}
        for case, messages in MESSAGES.items()
        for row in messages
    ]
    rows += to_many(FAN_OUT_RECIPIENTS, role="out", src_domain="a.example", dst_domain="our-own.example")
    records = silver(spark, rows)
    events = rows_of(link_events(spark), senders.EVENT)
    found: Alerts = {}
    for row in (
        *abuse.of_senders(rows_of(records, senders.MESSAGE), rows_of(records, senders.EVIDENT)),
        *abuse.of_claims(events, {silver_row()["node"]: "a.example"}),
        *abuse.of_floods(traffic),
    ):
        found.setdefault(row["peer_domain"], []).append(row)
    return found


def test_sender_who_writes_to_very_many_within_five_minutes_is_reported_with_evidence(
    alerts: Alerts,
) -> None:
    [alert] = alerts[peer_of("fan-out")]
    assert (alert["pattern"], alert["subject"]) == ("fan-out", "hyperty://b.example/h-1")
    assert alert["observed"] == alert["threshold"] == FAN_OUT_RECIPIENTS
    assert len(alert["evidence"]) == senders.EVIDENCE
    assert all(len(evidence) == 32 for evidence in alert["evidence"])


@pytest.mark.parametrize(
    "case",
    [
        "one recipient fewer",
        "answers",
        "slowly",
        "always the same recipient",
        "our own",
        "known but away",
        "mostly known",
        "one dead address",
        "rhythm",
        "young",
    ],
)
def test_what_is_no_abuse_is_not_reported(alerts: Alerts, case: str) -> None:
    assert peer_of(case) not in alerts


def test_sender_who_tries_addresses_that_do_not_exist_is_reported_as_scanning(
    alerts: Alerts,
) -> None:
    [alert] = alerts[peer_of("scan")]
    assert (alert["pattern"], alert["observed"]) == ("scanning", 1.0)
    assert "40 of 40 messages" in alert["explanation"]


@pytest.mark.parametrize(
    ("case", "attempts", "severity"), [("one spoof", 1, "warning"), ("many spoofs", SPOOFS_SEVERE, "severe")]
)
def test_messages_in_the_name_of_others_are_reported_against_the_peer(
    alerts: Alerts, case: str, attempts: int, severity: str
) -> None:
    [alert] = alerts[peer_of(case)]
    assert (alert["pattern"], alert["subject"], alert["severity"]) == ("spoofing", peer_of(case), severity)
    assert alert["observed"] == attempts
    assert alert["evidence"] == [f"hyperty://c.example/h-{number}" for number in range(attempts)]


def test_hour_far_above_the_baseline_is_a_flood_and_its_neighbours_are_not(
    alerts: Alerts,
) -> None:
    [alert] = alerts[peer_of("flood")]
    assert (alert["pattern"], alert["hour_us"]) == ("flood", MONDAY_US + 60 * HOUR_US)
    assert alert["expected"] == 320
    assert "messages_per_second = " in alert["proposed_policy"]


@pytest.mark.spark
def test_baseline_is_that_of_the_same_hour_of_other_weeks_once_there_are_enough(traffic: WorkerRows) -> None:
    found = usual_hours(traffic).frame(DOMAIN_BASELINE.schema).toArrow().to_pylist()
    rows = [row for row in found if row["peer_domain"] == "weeks.example" and row["hour_of_week"] in {5, 29}]
    assert {row["hour_of_week"]: (row["median"], row["mad"], row["hours"]) for row in rows} == {
        5: (1001.5, 1.0, 4),
        29: (10.0, 0.0, 4),
    }
    assert {row["measure"] for row in found} == {"messages"}


def compiled(text: str) -> CompiledPolicies:
    return load_policies([PolicyText("proposed.toml", text, "toml")])


def effect_of(policies: CompiledPolicies, from_: str, link_domain: str) -> Effect:
    message = Message(b"1", "create", from_, "hyperty://a.example/h", b"", b"")
    now = MONDAY_US / 1e6
    return policies.decide(Facts("in", message, link_domain, "a.example", link_domain, 100, 0, now)).effect


def test_proposed_policy_compiles_and_refuses_the_sender_and_nobody_else(
    alerts: Alerts,
) -> None:
    peer = peer_of("fan-out")
    [alert] = alerts[peer]
    policies = compiled(alert["proposed_policy"])
    assert effect_of(policies, "hyperty://b.example/h-1", peer) is Effect.DENY
    assert effect_of(policies, "hyperty://b.example/h-2", peer) is Effect.NOT_APPLICABLE
    assert effect_of(policies, "hyperty://b.example/h-1", "c.example") is Effect.NOT_APPLICABLE


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_sender_that_is_no_harmless_address_gets_into_no_policy(alerts: Alerts, number: int) -> None:
    peer = peer_of(f"hostile sender {number}")
    [alert] = alerts[peer]
    assert alert["subject"] == HOSTILE[number]
    assert HOSTILE[number] not in alert["proposed_policy"]
    assert effect_of(compiled(alert["proposed_policy"]), "hyperty://hostile.example/h", peer) is Effect.DENY


def test_alerts_of_a_day_are_dated_by_it(alerts: Alerts) -> None:
    [alert] = alerts[peer_of("next day")]
    assert (alert["dt"], alert["hour_us"]) == ("2026-03-03", MONDAY_US + DAY_US)


def test_only_days_with_news_are_watched_and_alerts_of_others_stay(lake: Lake) -> None:
    many = to_many(FAN_OUT_RECIPIENTS, batch=1)
    lake.commit(silver(lake.spark, many), SILVER_MDR)
    assert abuse.watch(lake).rows[ALERT.name] == 1
    assert not abuse.watch(lake).rows
    first = [Path(str(lake.path_of(SILVER_MDR, file))) for file in lake.files(SILVER_MDR)]
    lake.commit(silver(lake.spark, to_many(FAN_OUT_RECIPIENTS, batch=2, ts_us=MONDAY_US + DAY_US)), SILVER_MDR)
    for path in first:
        path.unlink()  # who looks at it fails
    assert abuse.watch(lake).rows[ALERT.name] == 1
    assert {row["dt"] for row in lake.read_small(ALERT).to_pylist()} == {"2026-03-02", "2026-03-03"}
