"""Two operators, two lakes, four files: both find the same, and a partner that cheats is found out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.jobs.exchange import PartnerDay, export_details, export_totals, import_extract, reconcile_with
from pipeline.jobs.result import ExitCode
from pipeline.lake.tables import Lake
from pipeline.partners.extract_file import (
    Expected,
    ExtractEntry,
    ExtractError,
    ExtractFault,
    Header,
    Row,
    Total,
    open_extract,
    write_extract,
)
from pipeline.schemas import PEER_RECORD, RECON_CASE, RECON_PAIR, SILVER_MDR
from protofly.signatures import SigningKey
from tests.pipeline.rows import commit_ledger, silver, silver_row
from tests.pipeline.side_rows import MINUTE_US, NOON_US, TRANSIT_US, uuid7

pytestmark = [pytest.mark.spark, pytest.mark.endurance]

A, B = "a.example", "b.example"
DAY = "2026-03-02"
KEYS = {A: SigningKey.from_seed("live-a", b"a" * 32), B: SigningKey.from_seed("live-b", b"b" * 32)}
LOST, ORPHAN, ALTERED = 3, 14, 25
B_IS_AHEAD_US = 400_000


def both_records(number: int) -> dict[str, dict[str, Any]]:
    """Message `number`, one a minute from noon, to and fro in turns, in the records of both."""
    src, dst = (A, B) if number % 2 else (B, A)
    sent_us = NOON_US + number * MINUTE_US
    clock_us = {A: 0, B: B_IS_AHEAD_US}
    message = {
        "msg_id": uuid7(sent_us + clock_us[src], number),
        "digest": bytes([number]) * 16,
        "src_domain": src,
        "dst_domain": dst,
        "size_wire": 300,
        "boot": 1,
        "seq": number,
    }
    out = silver_row(**message, role="out", node=f"mn-1.{src}", ts_us=sent_us + clock_us[src])
    in_ = silver_row(**message, role="in", node=f"mn-1.{dst}", ts_us=sent_us + TRANSIT_US + clock_us[dst])
    return {src: out, dst: in_}


def lakes(spark: SparkSession, folder: Path) -> dict[str, Lake]:
    """Thirty messages; of one B has no record, of one that B sent A has none, and one is not the same any more."""
    rows: dict[str, list[dict[str, Any]]] = {A: [], B: []}
    for number in range(1, 31):
        for domain, row in both_records(number).items():
            rows[domain].append(row)
    rows[B] = [row for row in rows[B] if row["seq"] != LOST]
    rows[B] = [row | ({"digest": b"\xff" * 16} if row["seq"] == ALTERED else {}) for row in rows[B]]
    rows[B] = [row for row in rows[B] if row["seq"] != ORPHAN]
    found = {}
    for domain in (A, B):
        lake = found[domain] = Lake(folder / domain, spark)
        lake.commit(silver(spark, rows[domain]).coalesce(1), SILVER_MDR)
        segment = {
            "node": f"mn-1.{domain}",
            "kind": "mdr",
            "boot": 1,
            "segno": 1,
            "first_seq": 1,
            "last_seq": 99,
            "sha256": domain,
            "prev_sha256": "",
            "opened_us": NOON_US,
            "closed_us": NOON_US + 90 * MINUTE_US,
            "lost_records": 0,
            "verdict": "accepted",
        }
        commit_ledger(lake, [segment])
    return found


def exchanged(folder: Path, found: dict[str, Lake], *, details: bool = True) -> None:
    """All four files there and back."""
    for domain, peer in ((A, B), (B, A)):
        out = folder / f"{domain}.totals"
        export_totals(found[domain], PartnerDay(domain, peer, DAY), key=KEYS[domain], out=out)
        import_extract(found[peer], out, PartnerDay(peer, domain, DAY), peer_key=KEYS[domain].record())
    for domain, peer in ((A, B), (B, A)) if details else ():
        out = folder / f"{domain}.details"
        export_details(found[domain], PartnerDay(domain, peer, DAY), key=KEYS[domain], out=out)
        import_extract(found[peer], out, PartnerDay(peer, domain, DAY), peer_key=KEYS[domain].record())


def rewritten(path: Path, author: str, reader: str, change: Any, *, name: str, **members: Any) -> Path:
    """What a partner would send that signs something else than its records."""
    with open_extract(path, Expected(author, reader, KEYS[author].record())) as (header, rows, _):
        changed: list[Row] = sorted(change(list(rows)), key=lambda row: row.order)
    other = path.with_name(name)
    facts = {name: getattr(header, name) for name in header.__struct_fields__} | members
    write_extract(other, Header(**facts), changed, KEYS[author])
    return other


def test_both_operators_find_the_same_cases_from_what_they_have_shown_each_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = lakes(spark, tmp_path)
    exchanged(tmp_path, found)
    expected = Counter(lost=1, orphan=1, altered=1)
    for domain, peer in ((A, B), (B, A)):
        result = reconcile_with(found[domain], PartnerDay(domain, peer, DAY))
        assert (result.exit_code, result.findings) == (ExitCode.FINDINGS, 3)
        cases = found[domain].read(RECON_CASE).collect()
        assert Counter(row.case_class for row in cases) == expected
        assert {int.from_bytes(row.msg_id[-4:], "big") for row in cases} == {LOST, ORPHAN, ALTERED}
        ahead_us = result.details["peer_clock_offset_us"]
        assert abs(ahead_us - (B_IS_AHEAD_US if peer == B else -B_IS_AHEAD_US)) <= 1_000
    [lost] = [row for row in found[A].read(RECON_CASE).collect() if row.case_class == "lost"]
    assert lost.evidence.startswith("a.example: node mn-1.a.example boot 1 segment 1 record 3; b.example: no record")
    assert "b.example: node mn-1.b.example boot 1 segment 1" in lost.evidence
    # Only the 5 minutes in dispute were shown: 5 of 30 messages each, less what is missing.
    with open_extract(tmp_path / f"{B}.details", Expected(B, A, KEYS[B].record())) as (header, _, _):
        assert header.rows <= 15


def test_an_extract_shows_no_address_and_nothing_of_other_partners(spark: SparkSession, tmp_path: Path) -> None:
    found = lakes(spark, tmp_path)
    stranger = silver_row(role="out", src_domain=A, dst_domain="c.example", ts_us=NOON_US, msg_id=uuid7(NOON_US, 77))
    found[A].commit(silver(spark, [stranger | {"node": f"mn-1.{A}"}]), SILVER_MDR)
    exchanged(tmp_path, found)
    with open_extract(tmp_path / f"{A}.details", Expected(A, B, KEYS[A].record())) as (_, rows, _):
        shown = list(rows)
    assert shown
    assert all(isinstance(row, ExtractEntry) for row in shown)
    assert "hyperty://" not in repr(shown)
    assert uuid7(NOON_US, 77).hex() not in repr(shown)


def test_details_that_do_not_add_up_to_the_signed_totals_are_refused_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = lakes(spark, tmp_path)
    exchanged(tmp_path, found)

    def leave_one_out(rows: list[Row]) -> list[Row]:
        return rows[1:]

    def invent_one(rows: list[Row]) -> list[Row]:
        assert isinstance(rows[0], ExtractEntry)
        invented = uuid7(NOON_US + 3 * MINUTE_US, 4711).hex()
        return [
            *rows,
            ExtractEntry("in", invented, NOON_US + 3 * MINUTE_US, "cd" * 16, 300, "delivered", None, "mn-1", 1, 99),
        ]

    for change in (leave_one_out, invent_one):
        path = rewritten(tmp_path / f"{B}.details", B, A, change, name=change.__name__)
        import_extract(found[A], path, PartnerDay(A, B, DAY), peer_key=KEYS[B].record())
        with pytest.raises(ExtractError) as caught:
            reconcile_with(found[A], PartnerDay(A, B, DAY))
        assert caught.value.verdict is ExtractFault.CONTRADICTION
        assert not found[A].has(RECON_PAIR)


def test_a_step_that_is_missing_is_named(spark: SparkSession, tmp_path: Path) -> None:
    found = lakes(spark, tmp_path)
    with pytest.raises(ExtractError, match="your own totals have not been exported"):
        export_details(found[A], PartnerDay(A, B, DAY), key=KEYS[A], out=tmp_path / "early")
    exchanged(tmp_path, found, details=False)
    with pytest.raises(ExtractError, match=r"details of b\.example have not been imported"):
        reconcile_with(found[A], PartnerDay(A, B, DAY))


def test_what_is_refused_leaves_nothing_in_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    found = lakes(spark, tmp_path)
    exchanged(tmp_path, found)
    before = found[A].version(PEER_RECORD)
    later_us = NOON_US + 2 * 86_400_000_000
    late = ExtractEntry("in", uuid7(later_us, 1).hex(), later_us, None, 1, "delivered", None, "mn-1", 1, 1)
    crooked = Total("out", NOON_US + 1, 1, 1, 1, 1, 1, 0, 0, 1, 1)
    details, totals = tmp_path / f"{B}.details", tmp_path / f"{B}.totals"
    forgeries = [
        (rewritten(details, B, A, lambda rows: [*rows, late], name="late"), ExtractFault.WRONG_DAY),
        (rewritten(totals, B, A, lambda rows: [*rows, crooked], name="crooked"), ExtractFault.MALFORMED),
        (rewritten(details, B, A, list, name="others", books_version=9), ExtractFault.MISSING_STEP),
        (rewritten(details, B, A, list, name="replayed", created_us=NOON_US), ExtractFault.SUPERSEDED),
        (rewritten(totals, B, A, list, name="kept", created_us=NOON_US), ExtractFault.SUPERSEDED),
        (rewritten(details, B, A, list, name="other-day", day="2026-03-03"), ExtractFault.WRONG_DAY),
    ]
    for path, verdict in forgeries:
        with pytest.raises(ExtractError) as caught:
            import_extract(found[A], path, PartnerDay(A, B, DAY), peer_key=KEYS[B].record())
        assert caught.value.verdict is verdict
    assert found[A].version(PEER_RECORD) == before
