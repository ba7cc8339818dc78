"""Sealed segments that are older than records of their kind are kept, and everything else that stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from msg_node.records.retention import DAY_SECONDS, SpoolRetention, remove_expired
from msg_node.settings.tables.records import KindWord, RecordSettings
from protofly.records import RecordKind

NOW = 1_800_000_000.0


def segment(spool: Path, kind: str, days: float, number: int = 1, *, parts: tuple[str, ...] = ()) -> set[str]:
    """The files of a sealed segment of that age."""
    suffixes = parts or (".blocks.zst" if kind == "mdr" else ".jsonl.zst", ".manifest.json")
    names = {f"{kind}-mn-1.a.example-1772409540000-{number:06d}{suffix}" for suffix in suffixes}
    for name in names:
        (spool / name).write_bytes(b"x")
        os.utime(spool / name, (NOW - days * DAY_SECONDS,) * 2)
    return names


def names_in(spool: Path) -> set[str]:
    return {path.name for path in spool.iterdir()}


def test_what_is_older_than_its_kind_is_kept_goes_with_its_manifest(tmp_path: Path) -> None:
    segment(tmp_path, "mdr", 31)
    segment(tmp_path, "mdr", 31, parts=(".erased",))
    kept = segment(tmp_path, "mdr", 29, 2) | segment(tmp_path, "admin_event", 3000)
    assert remove_expired(tmp_path, {"mdr": 30}, NOW) == {RecordKind.MESSAGE: 1}
    assert names_in(tmp_path) == kept
    assert not remove_expired(tmp_path, {"mdr": 30}, NOW)


def test_without_a_rule_nothing_goes(tmp_path: Path) -> None:
    kept = segment(tmp_path, "mdr", 9999)
    assert not remove_expired(tmp_path, {}, NOW)
    assert not remove_expired(tmp_path / "missing", {"mdr": 1}, NOW)
    assert names_in(tmp_path) == kept


def test_what_is_no_sealed_segment_stays_however_old(tmp_path: Path) -> None:
    for name in (
        "chain.json",
        ".lock",
        "notes.manifest.json",
        "mdr-x.manifest.json",
        "secret-mn-1.a.example-1-1.manifest.json",
    ):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (0, 0))
    segment(tmp_path, "mdr", 9999, parts=(".open",))
    segment(tmp_path, "mdr", 9999, 2, parts=(".blocks.zst",))
    before = names_in(tmp_path)
    assert not remove_expired(tmp_path, {"mdr": 1, "admin_event": 1}, NOW)
    assert names_in(tmp_path) == before


def test_a_link_out_of_the_folder_costs_the_link_only(tmp_path: Path) -> None:
    spool, outside = tmp_path / "spool", tmp_path / "outside"
    spool.mkdir()
    outside.write_text("precious")
    names = segment(spool, "decision", 9)
    data = spool / next(name for name in names if name.endswith(".jsonl.zst"))
    data.unlink()
    data.symlink_to(outside)
    assert remove_expired(spool, {"decision": 1}, NOW).total() == 1
    assert (names_in(spool), outside.read_text()) == (set(), "precious")


def test_a_manifest_that_a_crash_left_alone_goes_the_next_time(tmp_path: Path) -> None:
    segment(tmp_path, "decision", 9, parts=(".manifest.json",))
    assert remove_expired(tmp_path, {"decision": 1}, NOW) == {RecordKind.DECISION: 1}
    assert names_in(tmp_path) == set()


async def test_the_rules_of_the_moment_count_and_an_error_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(tmp_path, "mdr", 31)
    rules: dict[str, float] = {}
    removed: list[int] = []
    retention = SpoolRetention(tmp_path, lambda: rules, removed.append, now=lambda: NOW)
    await retention.look()
    rules["mdr"] = 30.0
    await retention.look()
    assert (removed, names_in(tmp_path)) == ([1], set())

    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr("msg_node.records.retention.remove_expired", fail)
    await retention.look()
    assert "the disk is gone" in caplog.text
    assert removed == [1]


def test_settings_name_every_kind_and_no_other() -> None:
    assert set(get_args(KindWord)) == {kind.value for kind in RecordKind}
    settings = msgspec.convert({"keep_days": {"mdr": 90, "admin_event": 0.5}}, RecordSettings)
    assert settings.keep_days == {"mdr": 90.0, "admin_event": 0.5}
    for wrong in ({"mails": 1}, {"mdr": 0}, {"mdr": -1}, {"mdr": "90"}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"keep_days": wrong}, RecordSettings)
