"""Months that are billed: once they are signed off, once only, and corrected by notes when they are restated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from pipeline.cli.program import app
from pipeline.cli.zones import zone_of
from pipeline.core.business_time import BusinessDays
from pipeline.core.completeness import GRACE_S
from pipeline.core.tariffs import Rate, Tariff
from pipeline.jobs import business, invoice, settle
from pipeline.jobs.result import ExitCode
from pipeline.lake.table_log import ConflictError
from pipeline.lake.tables import Change, Lake
from pipeline.partners.bill_file import read_bill
from pipeline.schemas import INVOICE, SILVER_MDR
from protofly.errors import SettingsError
from protofly.signatures import SigningKey
from tests.pipeline.rows import DAY_US, HOUR_US, MONDAY_US, commit_ledger, silver, silver_row

pytestmark = pytest.mark.spark
KEY = SigningKey.from_seed("live", b"k" * 32)

MARCH_1_US = MONDAY_US - DAY_US
NODE = "runtime://a.example/mn-1"
TARIFF = msgspec.convert(
    {
        "id": "b-2026",
        "peer": "b.example",
        "valid_from": "2026-01-01",
        "currency": "EUR",
        "rate": [
            {"role": "in", "counted": "delivered", "price": "0.50"},
            {"role": "out", "counted": "messages", "price": "0.10"},
        ],
    },
    Tariff,
)


def of(month: str = "2026-03", zone: str = "UTC") -> invoice.Billed:
    return invoice.billed("a.example", "b.example", month, (zone, zone_of(zone)))


def out_row(**members: Any) -> dict[str, Any]:
    return silver_row(role="out", src_domain="a.example", dst_domain="b.example", node=NODE, **members)


def proved_until(lake: Lake, until_us: int) -> None:
    segment = {
        "node": NODE,
        "kind": "mdr",
        "boot": 1,
        "segno": 1,
        "sha256": "hash",
        "prev_sha256": "",
        "opened_us": MARCH_1_US - DAY_US,
        "closed_us": until_us,
        "lost_records": 0,
        "verdict": "accepted",
    }
    commit_ledger(lake, [segment])


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Lake:
    """A month: four messages to us on the first day, one an hour before it in UTC, two from us, then one in April."""
    lake = Lake(tmp_path / "lake", spark)
    rows = [
        *(silver_row(node=NODE, ts_us=MARCH_1_US + number) for number in range(4)),
        silver_row(node=NODE, ts_us=MARCH_1_US - HOUR_US),
        silver_row(node=NODE, ts_us=MARCH_1_US + 5, src_domain="c.example"),
        silver_row(node=NODE, ts_us=MARCH_1_US + 6, outcome="denied", d_total_us=None),
        *(out_row(ts_us=MARCH_1_US + 9 * DAY_US + number) for number in range(2)),
        silver_row(node=NODE, ts_us=MARCH_1_US + 31 * DAY_US + 3 * HOUR_US),
    ]
    lake.commit(silver(spark, rows), SILVER_MDR)
    return lake


@pytest.fixture
def signed_off(lake: Lake) -> Lake:
    proved_until(lake, MARCH_1_US + 32 * DAY_US + HOUR_US)
    settle.run(lake)
    return lake


def amounts(result: Any) -> list[tuple[str, str, str, int, list[int]]]:
    return [
        (one["kind"], one["payer"], one["corrects"], one["amount"], [line["quantity"] for line in one["lines"]])
        for one in result.details["documents"]
    ]


def test_a_month_is_billed_once_in_both_directions(signed_off: Lake, tmp_path: Path) -> None:
    out = tmp_path / "march.json"
    result = invoice.run(signed_off, of(), [TARIFF], out=out, key=KEY)
    assert result.exit_code is ExitCode.FINE
    assert amounts(result) == [("invoice", "b.example", "", 200, [4]), ("invoice", "a.example", "", 20, [2])]
    assert result.outcome == (
        "invoice a.example-b.example-2026-03-1: b.example owes a.example 2.00 EUR; "
        "invoice b.example-a.example-2026-03-1: a.example owes b.example 0.20 EUR"
    )
    bill = read_bill(out, peer_key=KEY.record(), domain="b.example", peer="a.example")
    assert [one.amount for one in bill.documents] == [200, 20]
    assert json.loads(msgspec.json.encode(bill.documents)) == result.details["documents"]
    assert result.details["documents"][0]["statements"] == {"2026-03-01": 1, "2026-03-10": 1}
    version = signed_off.version(INVOICE)
    again = invoice.run(signed_off, of(), [TARIFF])
    assert (again.outcome, again.details["documents"], len(again.details["issued"])) == ("nothing issued", [], 2)
    assert signed_off.version(INVOICE) == version


def test_a_month_that_is_not_signed_off_is_not_billed(lake: Lake) -> None:
    proved_until(lake, MARCH_1_US + 2 * DAY_US)
    settle.run(lake)
    result = invoice.run(lake, of(), [TARIFF])
    assert (result.exit_code, result.details["documents"]) == (ExitCode.INCOMPLETE, [])
    assert "2026-03-10 (a draft)" in result.warnings[0]
    assert not lake.has(INVOICE)


@pytest.mark.parametrize(("lacks_us", "code"), [(0, ExitCode.FINE), (1, ExitCode.INCOMPLETE)])
def test_a_month_that_ends_in_silence_is_billed_when_manifests_prove_the_silence(
    tmp_path: Path, spark: SparkSession, lacks_us: int, code: ExitCode
) -> None:
    lake = Lake(tmp_path / "lake", spark)
    lake.commit(silver(spark, [out_row(ts_us=MARCH_1_US + number) for number in range(2)]), SILVER_MDR)
    proved_until(lake, MARCH_1_US + 31 * DAY_US + GRACE_S * 1_000_000 - lacks_us)
    settle.run(lake)
    result = invoice.run(lake, of(), [TARIFF])
    assert result.exit_code is code
    assert [one["amount"] for one in result.details["documents"]] == ([20] if code is ExitCode.FINE else [])
    assert ("2026-03-31 (no statements)" in "".join(result.warnings)) == (code is not ExitCode.FINE)


@pytest.mark.parametrize(("rows", "kind", "amount"), [(3, "debit-note", 150), (0, "credit-note", -50)])
def test_a_restated_month_is_corrected_by_a_note_over_the_difference(
    signed_off: Lake, spark: SparkSession, rows: int, kind: str, amount: int
) -> None:
    invoice.run(signed_off, of(), [TARIFF])
    late = [silver_row(node=NODE, ts_us=MARCH_1_US + 10 + number, batch=9) for number in range(rows)]
    if late:
        signed_off.commit(silver(spark, late), SILVER_MDR)
    else:  # one that was counted turns out to be none of ours
        kept = signed_off.read(SILVER_MDR).where(f"ts_us <> {MARCH_1_US}").toArrow()
        signed_off.commit(kept, SILVER_MDR, Change("overwrite"))
    assert invoice.run(signed_off, of(), [TARIFF]).exit_code is ExitCode.INCOMPLETE  # not settled yet
    settle.run(signed_off)
    result = invoice.run(signed_off, of(), [TARIFF])
    assert (result.exit_code, result.details["documents"]) == (ExitCode.FINDINGS, [])
    assert "settle this day with --restate" in result.warnings[0]
    settle.run(signed_off, restate=True)

    result = invoice.run(signed_off, of(), [TARIFF])

    first = "a.example-b.example-2026-03-1"
    assert amounts(result) == [(kind, "b.example", first, amount, [rows or -1])]
    assert result.details["documents"][0]["number"] == "a.example-b.example-2026-03-2"
    assert result.details["documents"][0]["statements"]["2026-03-01"] == 2
    assert invoice.run(signed_off, of(), [TARIFF]).outcome == "nothing issued"
    if rows == 0:
        assert "b.example gets back from a.example 0.50 EUR" in result.outcome


def test_a_month_of_another_zone_has_other_hours_and_is_not_mixed_with_those_of_utc(signed_off: Lake) -> None:
    result = invoice.run(signed_off, of(zone="Europe/Berlin"), [TARIFF])
    assert amounts(result)[0] == ("invoice", "b.example", "", 250, [5])
    with pytest.raises(SettingsError, match="were billed in Europe/Berlin: in UTC"):
        invoice.run(signed_off, of(), [TARIFF])


@pytest.mark.parametrize(
    ("zone", "cut_us", "counted"),
    [
        ("Asia/Kolkata", -22 * HOUR_US // 4, 6),  # 5:30 before midnight in UTC
        ("Asia/Kathmandu", -23 * HOUR_US // 4, 6),
        ("America/St_Johns", 14 * HOUR_US // 4, 1),  # 3:30 after it, and after the other messages
    ],
)
def test_a_month_whose_midnight_is_within_an_hour_of_utc_is_billed_by_quarters_of_hours(
    signed_off: Lake, spark: SparkSession, zone: str, cut_us: int, counted: int
) -> None:
    """Of three more messages two are before that midnight."""
    around = [silver_row(node=NODE, ts_us=MARCH_1_US + cut_us + more_us, batch=9) for more_us in (-2, -1, 0)]
    signed_off.commit(silver(spark, around), SILVER_MDR)
    settle.run(signed_off, restate=True)
    result = invoice.run(signed_off, of(zone=zone), [TARIFF])
    assert (result.exit_code, result.details["documents"]) == (ExitCode.INCOMPLETE, [])
    assert "no quarters of hours: settle --quarter-hours" in result.warnings[0]

    settled = settle.run(signed_off, quarters=True)

    assert settled.rows["traffic_quarter_hourly"] > 0
    result = invoice.run(signed_off, of(zone=zone), [TARIFF])
    assert amounts(result)[0][-1] == [counted]
    whole = {name: signed_off.read_small(name) for name in ("traffic_hourly", "traffic_quarter_hourly")}
    assert len({sum(rows.column("messages").to_pylist()) for rows in whole.values()}) == 1
    assert "traffic_quarter_hourly" not in settle.run(signed_off).rows, "what has not changed is not made again"


def test_prices_that_change_under_the_name_of_a_tariff_are_refused_unless_asked_for(signed_off: Lake) -> None:
    invoice.run(signed_off, of(), [TARIFF])
    dearer = msgspec.structs.replace(TARIFF, rate=(Rate("in", "delivered", "0.75"), *TARIFF.rate[1:]))
    with pytest.raises(SettingsError, match="--reprice"):
        invoice.run(signed_off, of(), [dearer])
    result = invoice.run(signed_off, of(), [dearer], reprices=True)
    assert amounts(result) == [("debit-note", "b.example", "a.example-b.example-2026-03-1", 100, [-4, 4])]
    assert invoice.run(signed_off, of(), [dearer]).details["documents"] == [], "it was asked for once"
    with pytest.raises(SettingsError, match="--reprice"):
        invoice.run(signed_off, of(), [TARIFF])
    renamed = msgspec.structs.replace(dearer, id="b-2026-agreed")
    again = invoice.run(signed_off, of(), [renamed], reprices=True)
    assert [(one["kind"], one["amount"]) for one in again.details["documents"]] == [("debit-note", 0)] * 2
    assert invoice.run(signed_off, of(), [renamed]).details["documents"] == []


def test_a_tariff_that_was_ended_since_is_no_reason_to_refuse_a_month_in_which_nothing_is_due(
    signed_off: Lake,
) -> None:
    invoice.run(signed_off, of(), [TARIFF])
    ended = msgspec.structs.replace(TARIFF, valid_until=msgspec.convert("2026-12-31", type(TARIFF.valid_from)))
    result = invoice.run(signed_off, of(), [ended])
    assert (result.details["documents"], result.exit_code) == ([], ExitCode.FINE)
    assert len(result.details["issued"]) == 2


def test_of_two_who_bill_at_the_same_moment_one_fails(signed_off: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    invoice.run(signed_off, of(), [TARIFF])
    monkeypatch.setattr(invoice, "_issued", lambda *_: [])  # what the slower one has read before
    with pytest.raises(ConflictError, match="at the same moment"):
        invoice.run(signed_off, of(), [TARIFF])
    assert len(signed_off.read_small(INVOICE)) == 2


def test_a_tariff_in_another_currency_gives_documents_of_its_own(signed_off: Lake, tmp_path: Path) -> None:
    tariffs = [
        msgspec.structs.replace(TARIFF, valid_until=msgspec.convert("2026-03-05", type(TARIFF.valid_from))),
        msgspec.structs.replace(
            TARIFF, id="yen", currency="JPY", valid_from=msgspec.convert("2026-03-06", type(TARIFF.valid_from))
        ),
    ]
    out = tmp_path / "march.json"
    documents = invoice.run(signed_off, of(), tariffs, out=out).details["documents"]
    assert json.loads(out.read_text()) == documents
    assert [(one["number"], one["currency"], one["amount"]) for one in documents] == [
        ("a.example-b.example-2026-03-1", "EUR", 200),
        ("b.example-a.example-2026-03-1", "JPY", 0),  # 2 × 0.10 yen
    ]


def test_business_days_are_added_up_from_hours_and_say_if_they_are_signed_off(signed_off: Lake) -> None:
    days = BusinessDays("2026-03-01", "2026-03-31", ZoneInfo("Europe/Berlin"))
    result = business.run(signed_off, days, peer="b.example")
    counts = {(row["dt"], row["role"]): (row["messages"], row["status"]) for row in result.details["statements"]}
    assert counts == {("2026-03-01", "in"): (6, "signed off"), ("2026-03-10", "out"): (2, "signed off")}
    assert [row["messages"] for row in result.details["totals"]] == [2, 6]
    done = CliRunner().invoke(
        app,
        ["statements", "--lake", str(signed_off.folder), "--month", "2026-03", "--zone", "Europe/Berlin", "--json"],
    )
    assert done.exit_code == 0, done.output
    [job] = json.loads(done.stdout)["jobs"]
    assert sum(row["messages"] for row in job["details"]["totals"]) == 9


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--zone", "Europe/Berlin"], "name days, or a --month"),
        (["--month", "2026-03", "--day", "2026-03-01"], "either days or a --month"),
        (["--month", "2026-03", "--zone", "Mars/Olympus"], "Europe/Berlin, or UTC"),
        (["--month", "2026-03", "--zone", "../../etc/passwd"], "Europe/Berlin, or UTC"),
        (["--month", "2026-03", "--zone", "UTC", "--drafts"], "no versions"),
    ],
)
def test_a_wrong_call_ends_with_2(lake: Lake, arguments: list[str], shown: str) -> None:
    done = CliRunner().invoke(app, ["statements", "--lake", str(lake.folder), *arguments])
    assert done.exit_code == 2
    assert shown in done.stderr
