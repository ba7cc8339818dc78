"""Reports of high usage: who is named, what is in the file, and how the partner finds its senders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipeline.jobs import usage
from pipeline.jobs.result import ExitCode
from pipeline.lake.tables import Lake
from pipeline.partners.usage_file import EVIDENCE, FILE_BYTES, MAGIC, USAGE_FORMAT, HighUser, UsageReport, read_usage
from pipeline.schemas import SILVER_MDR
from protofly.errors import SettingsError
from protofly.signatures import SigningKey, base64url
from tests.pipeline.receivers import receiver
from tests.pipeline.rows import DAY_US, HOUR_US, MONDAY_US, silver, silver_row

KEY = SigningKey.from_seed("k", bytes(32))
REPORT = UsageReport(
    domain="a.example",
    peer="b.example",
    from_us=1,
    until_us=2,
    made_us=3,
    messages=4,
    bytes=0,
    left_out=0,
    users=(HighUser(5, 6, 1, 1, ("0" * 32,)),),
)


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "usage"
    path.write_bytes(content)
    return path


def read(path: Path) -> UsageReport:
    return read_usage(path, peer_key=KEY.record(), domain="b.example", peer="a.example")


def signed(line: bytes) -> bytes:
    text = MAGIC + line + b"\n"
    return text + base64url(KEY.sign(text)).encode() + b"\n"


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read(written(tmp_path, USAGE_FORMAT.encode(REPORT, KEY))) == REPORT


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "malformed"),
        (b"x" * (FILE_BYTES + 1), "too-large"),
        (USAGE_FORMAT.encode(REPORT, KEY)[:-5] + b"\n", "bad-signature"),
        (USAGE_FORMAT.encode(REPORT, KEY).replace(b'"messages":5', b'"messages":6'), "bad-signature"),
        (USAGE_FORMAT.encode(REPORT, SigningKey.from_seed("k", b"1" * 32)), "bad-signature"),
        (USAGE_FORMAT.encode(REPORT, KEY) + b"\n", "malformed"),
        (signed(b"{}"), "malformed"),
        (signed(b"[" * 5000), "malformed"),
        (signed(msgspec.json.encode(REPORT).replace(b'"bytes":0', b'"bytes":-1')), "malformed"),
        (signed(msgspec.json.encode(REPORT).replace(b"0" * 32, b"../" * 10 + b"xx")), "malformed"),
        (USAGE_FORMAT.encode(msgspec.structs.replace(REPORT, until_us=1 + 31 * DAY_US + 1), KEY), "malformed"),
        (USAGE_FORMAT.encode(msgspec.structs.replace(REPORT, from_us=3), KEY), "malformed"),
        (USAGE_FORMAT.encode(msgspec.structs.replace(REPORT, peer="c.example"), KEY), "wrong-domain"),
        (USAGE_FORMAT.encode(msgspec.structs.replace(REPORT, domain="c.example"), KEY), "wrong-domain"),
    ],
)
def test_what_is_no_report_for_us_is_refused_with_its_code(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(written(tmp_path, content))
    assert f": {reason}: " in caught.value.detail


@given(st.binary(max_size=200), st.integers(0, 400))
def test_anything_in_place_of_a_report_is_refused_and_nothing_else_happens(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int
) -> None:
    whole = USAGE_FORMAT.encode(REPORT, KEY)
    content = whole[:at] + noise + whole[at + len(noise) :]
    path = written(tmp_path_factory.mktemp("noise"), content)
    if content == whole:
        assert read(path) == REPORT
    else:
        with pytest.raises(SettingsError):
            read(path)


def rows_of(key: str, count: int, **members: Any) -> list[dict[str, Any]]:
    return [silver_row(src_key=key, **({"ts_us": MONDAY_US + HOUR_US + number} | members)) for number in range(count)]


@pytest.mark.spark
def test_high_users_are_named_by_their_messages_and_found_by_the_partner(spark: SparkSession, tmp_path: Path) -> None:
    ours, theirs = Lake(tmp_path / "a", spark), Lake(tmp_path / "b", spark)
    loud = rows_of("user://b.example/loud", 30)
    rows = [
        *loud,
        *rows_of("user://b.example/large", 2, size_wire=10_000),
        *rows_of("user://b.example/quiet", 9),
        *rows_of("user://b.example/before", 30, ts_us=MONDAY_US - DAY_US),
        *rows_of("user://c.example/other", 30, src_domain="c.example"),
    ]
    ours.commit(silver(spark, rows), SILVER_MDR)
    sent = [
        row
        | {"role": "out", "our_domain": "b.example", "peer_domain": "a.example", "src_key": "user://b.example/known"}
        for row in loud
    ]
    theirs.commit(silver(spark, sent), SILVER_MDR)
    of = usage.Watched(
        domain="a.example",
        peer="b.example",
        from_us=MONDAY_US,
        until_us=MONDAY_US + 2 * HOUR_US,
        messages=10,
        bytes=20_000,
    )
    out = tmp_path / "usage.report"

    result = usage.run(ours, of, key=KEY, out=out)

    assert (result.exit_code, result.findings) == (ExitCode.FINDINGS, 2)
    assert b"user://" not in out.read_bytes()
    report = read(out)
    assert [(user.messages, user.bytes, len(user.evidence)) for user in report.users] == [
        (30, 30 * 210, EVIDENCE),
        (2, 20_000, 2),
    ]
    assert report.users[0].evidence == tuple(sorted(row["msg_id"].hex() for row in loud[:EVIDENCE]))

    answer = usage.look_up(theirs, report)

    assert [user["senders"] for user in answer.details["users"]] == [["user://b.example/known"], []]
    assert (answer.exit_code, answer.details["unknown"]) == (ExitCode.INCOMPLETE, 1)


@pytest.mark.spark
def test_nobody_is_named_below_the_numbers(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "a", spark)
    lake.commit(silver(spark, rows_of("user://b.example/quiet", 9)), SILVER_MDR)
    of = usage.Watched(
        domain="a.example", peer="b.example", from_us=MONDAY_US, until_us=MONDAY_US + DAY_US, messages=10
    )
    result = usage.run(lake, of, key=KEY, url="https://127.0.0.1:1/")
    assert (result.exit_code, result.findings, result.warnings) == (ExitCode.FINE, 0, [])


@pytest.mark.spark
def test_a_report_that_the_partner_does_not_take_is_incomplete(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "a", spark)
    lake.commit(silver(spark, rows_of("user://b.example/loud", 3)), SILVER_MDR)
    of = usage.Watched(domain="a.example", peer="b.example", from_us=MONDAY_US, until_us=MONDAY_US + DAY_US, messages=3)
    with receiver([200], bytes) as (url, got):
        assert usage.run(lake, of, key=KEY, url=url).exit_code is ExitCode.FINDINGS
    assert got[0][1].startswith(MAGIC)
    with receiver([500], bytes) as (url, _):
        result = usage.run(lake, of, key=KEY, url=url)
    assert result.exit_code is ExitCode.INCOMPLETE
    assert "answered 500" in result.warnings[-1]
