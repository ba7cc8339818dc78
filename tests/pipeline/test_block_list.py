"""The block list that alerts make: who is on it, and that subscribers can read it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from typer.testing import CliRunner

from pipeline.cli.program import app
from pipeline.jobs import block_list
from pipeline.lake.tables import Lake
from pipeline.schemas import ALERT, NODE_OWNER
from protofly.block_list import BlockList, read_block_list, sign_block_list
from protofly.errors import SettingsError
from protofly.signatures import SigningKey

KEY = SigningKey.from_seed("k", bytes(32))
HOUR_US = 3_600_000_000


def alert(domain: str | None, hours_ago: int, **members: Any) -> dict[str, Any]:
    return {
        "our_domain": "a.example",
        "peer_domain": domain,
        "pattern": "flood",
        "severity": "severe",
        "hour_us": int(time.time() * 1e6) - hours_ago * HOUR_US,
        "dt": "2026-03-01",
    } | members


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake of which nothing here asks Spark for anything."""
    made = Lake(tmp_path / "lake", cast("SparkSession", None))
    rows = [
        *(alert("evil.example", number) for number in range(1, 4)),
        alert("evil.example", 4, pattern="spoofing"),
        *(alert(name, number) for number in range(1, 9) for name in ("Evil Example\n", "", "*.example", None)),
        *(alert("seldom.example", number) for number in range(1, 3)),
        *(alert("mild.example", number, severity="warning") for number in range(1, 9)),
        *(alert("user.example", number, pattern="fan-out", subject="user://user.example/x") for number in range(1, 9)),
        *(alert("past.example", 24 * 8 + number) for number in range(1, 9)),
        *(alert("elsewhere.example", number, our_domain="c.example") for number in range(1, 9)),
    ]
    made.commit(pa.Table.from_pylist(rows, to_arrow_schema(ALERT.schema)), ALERT)
    return made


def test_domains_with_enough_severe_alerts_of_their_own_are_on_the_list(lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / "list.json"
    result = block_list.run(lake, author="a.example", key=KEY, out=out, rule=block_list.Listed(hours=2))
    found = read_block_list(out.read_bytes(), author="a.example", keys=[KEY.record()], now=time.time())
    assert [(one.domain, one.reason) for one in found.entries] == [
        ("evil.example", "flood in 3 hours, spoofing in 1 hour of 7 days")
    ]
    assert found.expires == pytest.approx(time.time() + 7200, abs=60)
    assert result.details["entries"][0]["domain"] == "evil.example"
    block_list.run(lake, author="a.example", key=KEY, out=out)
    again = read_block_list(out.read_bytes(), author="a.example", keys=[KEY.record()], now=time.time())
    assert again.serial > found.serial


def test_everybody_on_the_machine_may_read_the_list_whatever_the_umask(lake: Lake, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        block_list.run(lake, author="a.example", key=KEY, out=tmp_path / "list.json")
    finally:
        os.umask(before)
    assert (tmp_path / "list.json").stat().st_mode & 0o777 == 0o644


def test_no_list_is_signed_for_a_domain_without_records_in_the_lake(lake: Lake, tmp_path: Path) -> None:
    owner = {"our_domain": "a.example", "node": "mn-1.a.example"}
    lake.commit(pa.Table.from_pylist([owner], to_arrow_schema(NODE_OWNER.schema)), NODE_OWNER)
    with pytest.raises(SettingsError, match=r"A\.example has no records in this lake, which has those of a\.example$"):
        block_list.run(lake, author="A.example", key=KEY, out=tmp_path / "list.json")
    assert not (tmp_path / "list.json").exists()


def test_a_list_has_a_higher_number_than_the_published_one_although_the_clock_was_set_back(
    lake: Lake, tmp_path: Path
) -> None:
    out, now = tmp_path / "list.json", time.time()
    ahead = BlockList(author="a.example", serial=int((now + 86_400) * 1e6), issued=now, expires=now + 60)
    out.write_bytes(sign_block_list(ahead, KEY))
    block_list.run(lake, author="a.example", key=KEY, out=out)
    found = read_block_list(
        out.read_bytes(), author="a.example", keys=[KEY.record()], now=now, least_serial=ahead.serial
    )
    assert (found.serial, len(found.entries)) == (ahead.serial + 1, 1)
    for broken in (b"", b"{}", sign_block_list(msgspec.structs.replace(ahead, serial=2**53), KEY)):
        out.write_bytes(broken)
        block_list.run(lake, author="a.example", key=KEY, out=out)
        found = read_block_list(out.read_bytes(), author="a.example", keys=[KEY.record()], now=now)
        assert found.serial <= int(time.time() * 1e6)


def test_a_list_of_nobody_is_published_too(lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / "list.json"
    block_list.run(lake, author="a.example", key=KEY, out=out, rule=block_list.Listed(alerts=99))
    assert read_block_list(out.read_bytes(), author="a.example", keys=[KEY.record()], now=time.time()).entries == ()


@pytest.mark.parametrize("hours", [0, -1, 169])
def test_a_list_that_is_valid_for_too_long_is_refused(lake: Lake, tmp_path: Path, hours: float) -> None:
    with pytest.raises(SettingsError, match="--hours"):
        block_list.run(lake, author="a.example", key=KEY, out=tmp_path / "x", rule=block_list.Listed(hours=hours))
    assert not (tmp_path / "x").exists()


def test_the_command_writes_the_list_without_spark(lake: Lake, tmp_path: Path) -> None:
    key = tmp_path / "live.pem"
    key.write_bytes(KEY.to_pem())
    key.chmod(0o600)
    out = tmp_path / "list.json"
    arguments = ["--lake", str(lake.folder), "--domain", "a.example", "--key", str(key), "--out", str(out)]
    done = CliRunner().invoke(app, ["block-list", *arguments])
    assert done.exit_code == 0, done.output
    assert "evil.example" in done.stderr
    assert read_block_list(out.read_bytes(), author="a.example", keys=[KEY.record()], now=time.time()).entries
