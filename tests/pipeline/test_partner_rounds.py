"""Rounds with many partners: what goes wrong with one costs that one alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from threading import Barrier
from typing import Any, cast

import msgspec
import pytest
from pyspark.sql import SparkSession

from pipeline.jobs import exchange, partners, retention, settle
from pipeline.jobs.partners import Exchanging
from pipeline.jobs.result import ExitCode
from pipeline.lake.table_log import LakeError
from pipeline.lake.tables import Lake
from pipeline.partners.post import NotTakenError
from pipeline.partners.settings import Exchange, Partner
from pipeline.schemas import SILVER_MDR
from protofly.errors import SettingsError
from protofly.signatures import SigningKey
from tests.pipeline.rows import DAY_US, MONDAY_US, silver, silver_row

KEY = SigningKey.from_seed("live", b"k" * 32)
NO_LAKE = cast("Lake", None)
"""Reports of usage are taken by what the tests put in place of that."""


def exchanging(folder: Path, *domains: str) -> Exchanging:
    return Exchanging(
        settings=Exchange(domain="a.example", key="", folder=str(folder), inbox=str(folder / "in")),
        partners=[Partner(domain=one, url="https://x", keys=(KEY.record().pub,), extracts=False) for one in domains],
        key=KEY,
    )


def came(folder: Path, *domains: str) -> dict[str, Path]:
    """A report of usage from each, which waits."""
    found = {}
    for domain in domains:
        found[domain] = folder / "in" / domain / "usage-1.report"
        found[domain].parent.mkdir(parents=True)
        found[domain].write_bytes(domain.encode())
    return found


def fates(folder: Path) -> dict[str, str]:
    """By partner, what became of its file."""
    files = (path.relative_to(folder / "in") for path in (folder / "in").rglob("*usage-1.report"))
    return {path.parts[0]: path.parts[1] if len(path.parts) == 3 else "waits" for path in files}


def test_a_file_on_which_this_program_fails_costs_its_author_alone_and_is_met_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def take(self: Any, path: Path) -> None:
        if b"bad" in path.read_bytes():
            raise ValueError("what nobody thought of\x1b[2J")

    monkeypatch.setattr(partners._Round, "_take_usage", take)
    came(tmp_path, "bad.example", "good.example")

    first, second = (partners.run(NO_LAKE, exchanging(tmp_path, "bad.example", "good.example")) for _ in range(2))

    assert fates(tmp_path) == {"bad.example": "refused", "good.example": "taken"}
    assert (first.exit_code, second.exit_code) == (ExitCode.INCOMPLETE, ExitCode.FINE)
    [warning] = first.warnings
    assert warning.startswith("bad.example: ValueError in test_partner_rounds.py, line ")
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "\x1b" not in caplog.text


@pytest.mark.parametrize("error", [LakeError("the lake is away"), OSError("the disk is full"), MemoryError()])
def test_a_failure_of_this_machine_is_no_verdict_on_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def take(*_: object) -> None:
        raise error

    monkeypatch.setattr(partners._Round, "_take_usage", take)
    came(tmp_path, "b.example")
    assert partners.run(NO_LAKE, exchanging(tmp_path, "b.example")).exit_code is ExitCode.INCOMPLETE
    assert fates(tmp_path) == {"b.example": "waits"}


def test_a_partner_whose_folder_cannot_be_used_is_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partners._Round, "_take_usage", lambda *_: None)
    came(tmp_path, "good.example")
    (tmp_path / "in" / "odd.example").write_bytes(b"")
    result = partners.run(NO_LAKE, exchanging(tmp_path, "odd.example", "good.example"))
    assert fates(tmp_path) == {"good.example": "taken"}
    assert (result.exit_code, list(result.details["partners"])) == (ExitCode.INCOMPLETE, ["good.example"])
    assert result.warnings[0].startswith("odd.example: ")


def test_files_are_handed_to_all_partners_at_once_so_nobody_waits_for_a_slow_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    domains = [f"p{number}.example" for number in range(5)]
    all_there = Barrier(len(domains), timeout=120)
    monkeypatch.setattr(partners, "hand_over", lambda *_, **__: all_there.wait())
    for domain in domains:
        (tmp_path / "out" / domain).mkdir(parents=True)
        (tmp_path / "out" / domain / "usage-1.report").write_bytes(b"")
    result = partners.run(NO_LAKE, exchanging(tmp_path, *domains))
    assert (result.exit_code, result.warnings) == (ExitCode.FINE, [])
    assert {facts["waiting"] for facts in result.details["partners"].values()} == {0}


@pytest.mark.spark
def test_days_of_which_retention_has_dropped_records_are_shown_to_nobody(
    lake: Lake, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise NotTakenError("away")

    monkeypatch.setattr(partners, "hand_over", away)
    lake.commit(silver(spark, [silver_row(ts_us=MONDAY_US + day * DAY_US + 5) for day in range(3)]), SILVER_MDR)
    settle.run(lake)
    retention.run(lake, today=date(2026, 3, 5), keep_days=2)
    [partner] = exchanging(tmp_path, "b.example").partners
    what = msgspec.structs.replace(partner, extracts=True)
    now = (MONDAY_US + 4 * DAY_US) / 1e6 + 3600

    partners.run(lake, replace(exchanging(tmp_path), partners=[what], clock=lambda: now))

    assert [path.name for path in (tmp_path / "out" / "b.example").iterdir()] == ["2026-03-04.totals"]
    for day in ("2026-03-02", "2026-03-03"):
        of = exchange.PartnerDay("a.example", "b.example", day)
        with pytest.raises(SettingsError, match="before 2026-03-03 were dropped by retention"):
            exchange.export_totals(lake, of, key=KEY, out=tmp_path / "by-hand")
    assert not (tmp_path / "by-hand").exists()
