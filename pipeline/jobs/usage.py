"""Job `usage`: which senders of a partner sent us very much lately, for the partner to look at; and the way back.

The report goes out within minutes or hours, long before a day is settled, so it is made of the records that are there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns.side_records import DAY_US
from pipeline.core.harmless import harmless
from pipeline.core.utc_days import day_of, end_us, moment
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake import durable
from pipeline.lake.tables import Lake
from pipeline.partners.bounded_post import post
from pipeline.partners.usage_file import EVIDENCE, HOURS_MAX, USAGE_FORMAT, USERS_MAX, HighUser, UsageReport
from pipeline.schemas import SILVER_MDR, USAGE_NAMED
from protofly.errors import SettingsError
from protofly.signatures import SigningKey

APP: Final = "usage"
TIMEOUT_S: Final = 30.0
REPORTS_A_DAY: Final = 300
"""So many reports of one partner are taken in a day."""
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Terms of a report of high usage: senders, period, and the bounds from which one is named.

    Attributes:
        domain: We.
        peer: The partner whose senders they are.
        from_us: First moment.
        until_us: The first one behind it.
        messages: A sender is named from so many messages on.
        bytes: Or from so many bytes on; 0: bytes do not matter.
    """

    domain: str
    peer: str
    from_us: int
    until_us: int
    messages: int
    bytes: int = 0


def run(lake: Lake, of: Watched, *, key: SigningKey, out: Path | None = None, url: str = "") -> JobResult:
    """Name the senders, in a signed report to a file, to a URL of the partner's, or to both.

    `details` has `users` as the report has them, and the sender as our records have it, which the report leaves out.

    Args:
        lake: Reads `silver_mdr`.
        of: Whose senders.
        key: An Ed25519 key whose public half the partner has.
        out: The file, replaced as a whole.
        url: Gets the report by POST; nothing is sent when nobody is named.

    Returns:
        Ends with FINDINGS when a sender is named, with INCOMPLETE when the partner did not accept the report.

    Raises:
        LakeError: As the lake does.
        OSError: The file cannot be written.
    """
    result = JobResult(APP, versions={SILVER_MDR.name: lake.version(SILVER_MDR)})
    rows = _high_users(lake, of)
    report = _report(of, rows)
    _say(result, of, rows, report)
    content = USAGE_FORMAT.encode(report, key)
    if out is not None:
        durable.replace(out, content)
        result.details["out"] = str(out.absolute())
    if url and rows:
        _send(url, content, result)
    return result


def report_news(lake: Lake, of: Watched, *, key: SigningKey, put: Callable[[str, bytes], None]) -> JobResult:
    """Name senders that no report to this partner has named since the period began, if there are any.

    Args:
        lake: Reads `silver_mdr`, writes `usage_named`.
        of: Whose senders.
        key: An Ed25519 key whose public half the partner has.
        put: Takes the report: the name of a file, and its content.

    Raises:
        LakeError: As the lake does.
        OSError: As `put` does.
    """
    result = JobResult(APP, versions={SILVER_MDR.name: lake.version(SILVER_MDR)})
    named = {
        row["src_key"]
        for row in lake.read_small(USAGE_NAMED, ("domain", "peer", "until_us", "src_key")).to_pylist()
        if (row["domain"], row["peer"]) == (of.domain, of.peer) and row["until_us"] > of.from_us
    }
    rows = [row for row in _high_users(lake, of) if row["src_key"] not in named]
    if not rows:
        return result
    report = _report(of, rows)
    _say(result, of, rows, report)
    put(f"usage-{report.made_us}.report", USAGE_FORMAT.encode(report, key))
    # Who is left out of this report is named by the next one.
    note_named(lake, report, [[row["src_key"]] for row in rows[: len(report.users)]], result)
    return result


def note_named(lake: Lake, report: UsageReport, senders: Sequence[Sequence[str]], result: JobResult) -> None:
    """Note whom a report has named, for each of its users with the senders as our records have them. Raises LakeError.

    A report of a partner is noted as of now, whatever time it says; one that is there already is not noted again.
    """
    now_us = time.time_ns() // 1000
    own = {"domain": report.domain, "peer": report.peer, "made_us": report.made_us}
    if own in lake.read_small(USAGE_NAMED, tuple(own)).to_pylist():
        return
    both = {**own, "dt": day_of(now_us)}
    rows = [
        both
        | {"src_key": sender, "messages": user.messages, "bytes": user.bytes}
        | {"from_us": report.from_us, "until_us": report.until_us}
        for user, its in zip(report.users, senders, strict=True)
        for sender in (its or (None,))
    ]
    if not rows:
        return
    done = lake.commit(pa.Table.from_pylist(rows, to_arrow_schema(USAGE_NAMED.schema)), USAGE_NAMED)
    result.wrote(done.table, done.rows, done.version)


def reports_of_day(lake: Lake, author: str, reader: str) -> int:
    """Count the reports of an author to a reader that were taken in today (UTC). Raises LakeError."""
    today = day_of(time.time_ns() // 1000)
    rows = lake.read_small(USAGE_NAMED, ("domain", "peer", "made_us"), partitions=[today]).to_pylist()
    return len({row["made_us"] for row in rows if (row["domain"], row["peer"]) == (author, reader)})


def _report(of: Watched, rows: Sequence[dict[str, Any]]) -> UsageReport:
    users = tuple(
        HighUser(row["messages"], row["bytes"], row["first_us"], row["last_us"], tuple(row["evidence"])) for row in rows
    )
    return UsageReport(
        domain=of.domain,
        peer=of.peer,
        from_us=of.from_us,
        until_us=of.until_us,
        made_us=time.time_ns() // 1000,
        messages=of.messages,
        bytes=of.bytes,
        left_out=max(0, len(users) - USERS_MAX),
        users=users[:USERS_MAX],
    )


def _say(result: JobResult, of: Watched, rows: Sequence[dict[str, Any]], report: UsageReport) -> None:
    result.findings = len(rows)
    result.outcome = f"{len(rows):,} senders of {of.peer} since {moment(of.from_us)}"
    result.warnings += [
        f"{row['src_key']}: {row['messages']:,} messages, {row['bytes']:,} bytes" for row in rows[:_SHOWN]
    ]
    result.details = {"users": rows, "left_out": report.left_out}
    if rows:
        result.exit_code = ExitCode.FINDINGS


def _high_users(lake: Lake, of: Watched) -> list[dict[str, Any]]:
    """The senders with most messages first, one more than a report may have at most."""
    rows = _between(lake, of.from_us, of.until_us).where(
        (F.col("role") == "in")
        & (F.col("our_domain") == of.domain)
        & (F.col("src_domain") == of.peer)
        & (F.col("ts_us") >= of.from_us)
        & (F.col("ts_us") < of.until_us)
        & F.col("msg_id").isNotNull()
        & F.col("src_key").isNotNull()
    )
    size = F.coalesce("size_wire", "size_in", F.lit(0))
    totals = rows.groupBy("src_key").agg(
        F.count("*").alias("messages"),
        F.sum(size).alias("bytes"),
        F.min("ts_us").alias("first_us"),
        F.max("ts_us").alias("last_us"),
    )
    many = F.col("messages") >= of.messages
    if of.bytes:
        many |= F.col("bytes") >= of.bytes
    order = (F.desc("messages"), F.desc("bytes"), F.asc("src_key"))
    high = totals.where(many).orderBy(*order).limit(USERS_MAX + 1).cache()
    try:
        place = F.row_number().over(Window.partitionBy("src_key").orderBy("ts_us", "msg_id"))
        firsts = rows.join(F.broadcast(high.select("src_key")), "src_key", "left_semi").withColumn("place", place)
        its = F.sort_array(F.collect_set(F.lower(F.hex("msg_id")))).alias("evidence")
        evidence = firsts.where(F.col("place") <= EVIDENCE).groupBy("src_key").agg(its)
        found = high.join(evidence, "src_key").orderBy(*order).collect()
    finally:
        high.unpersist()
    return [row.asDict() for row in found]


def _between(lake: Lake, from_us: int, until_us: int) -> DataFrame:
    """Records of the days that a time touches."""
    files = [
        file
        for file in lake.files(SILVER_MDR)
        if end_us(file.partition["dt"]) > from_us and end_us(file.partition["dt"]) - DAY_US < until_us
    ]
    return lake.read_files(SILVER_MDR, [file for file in files if file.may_have("ts_us", from_us, until_us - 1)])


def _send(url: str, content: bytes, result: JobResult) -> None:
    try:
        status, _ = post(url, content, {"content-type": "application/octet-stream"}, limit_s=TIMEOUT_S)
        problem = "" if 200 <= status < 300 else f"it answered {status}"
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as exc:
        problem = str(exc)
    if problem:
        result.warnings.append(f"{url} did not accept the report: {problem}; send it again")
        result.exit_code = ExitCode.INCOMPLETE


def look_up(lake: Lake, report: UsageReport) -> JobResult:
    """Find the senders that a partner's report is about in our own records.

    `details` has `users`: what the report says about each, with `senders`, as our records have them.

    Returns:
        Ends with FINDINGS when the report names somebody, with INCOMPLETE when we have no record of some.

    Raises:
        LakeError: As the lake does.
    """
    result = JobResult(APP, versions={SILVER_MDR.name: lake.version(SILVER_MDR)})
    named = {message: place for place, user in enumerate(report.users) for message in user.evidence}
    rows = _between(lake, max(0, report.from_us - DAY_US), report.until_us + DAY_US).where(
        (F.col("role") == "out") & (F.col("our_domain") == report.peer) & (F.col("dst_domain") == report.domain)
    )
    wanted = lake.spark.createDataFrame([(bytes.fromhex(message),) for message in sorted(named)], "msg_id binary")
    found = rows.join(F.broadcast(wanted), "msg_id").select("msg_id", "src_key").distinct().collect() if named else []
    senders: dict[int, set[str]] = {}
    for row in found:
        senders.setdefault(named[row["msg_id"].hex()], set()).add(row["src_key"] or "?")
    users = []
    for place, user in enumerate(report.users):
        its = sorted(senders.get(place, ()))
        users.append({"messages": user.messages, "bytes": user.bytes, "senders": its})
        who = (
            ", ".join(map(harmless, its)) or "a sender of whom we have no record: look at `audit`, or doubt the report"
        )
        result.warnings.append(f"{user.messages:,} messages, {user.bytes:,} bytes: {who}")
    unknown = sum(not user["senders"] for user in users)
    result.findings = len(users)
    result.details = {"users": users, "unknown": unknown, "left_out": report.left_out}
    result.outcome = f"{report.domain} names {len(users):,} of our senders since {moment(report.from_us)}"
    if users:
        result.exit_code = ExitCode.INCOMPLETE if unknown else ExitCode.FINDINGS
    return result


def watched_period(hours: float, until: int | None = None) -> tuple[int, int]:
    """From when until when so many hours are, up to a moment or to now. Raises SettingsError."""
    if not 0 < hours <= HOURS_MAX:
        raise SettingsError(f"--hours: expected more than 0 and at most {HOURS_MAX}")
    until_us = time.time_ns() // 1000 if until is None else until
    return until_us - int(hours * 3_600_000_000), until_us
