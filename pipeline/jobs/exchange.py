"""Reconciliation with a partner who shows no records beyond signed extracts: export, import, compare.

Each of the two operators does the same four things for a day: export totals; import the partner's; export details,
which are the records of those 5 minutes in which the totals differ; import the partner's. Then both can reconcile, each
with its own records on one side and what the partner has signed on the other. See docs/settlement.md.

Details are made from the version of the records that the totals were made from, so that they add up to them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial, reduce
from itertools import islice
from pathlib import Path
from statistics import median_low
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns.clock_course import delays_by_hour, offsets_by_hour
from pipeline.columns.clock_findings import clock_findings, finding_line
from pipeline.columns.clock_tables import ClockTables
from pipeline.columns.groups import column, numbers
from pipeline.columns.side_records import ALL, BUCKET_US, DAY_US, times_of
from pipeline.core.completeness import GRACE_S, NOTHING, Completeness, holes_between
from pipeline.core.tolerance import Tolerance
from pipeline.core.utc_days import end_us, moment
from pipeline.jobs.proofs import proved_completeness
from pipeline.jobs.reconcile import (
    NO_TOLERANCE,
    SKEW_MS,
    BothSides,
    Bounds,
    Comparison,
    conclude,
    entries_of_days,
    hold_together,
)
from pipeline.jobs.result import JobResult
from pipeline.jobs.retention import kept_from
from pipeline.lake import storage
from pipeline.lake.stages import StagedFile
from pipeline.lake.store_path import Location
from pipeline.lake.tables import Change, Lake
from pipeline.lake.worker_rows import WorkerRows, rows_of
from pipeline.partners.extract_file import (
    RAW_BYTES,
    Expected,
    ExtractEntry,
    ExtractError,
    ExtractFault,
    Header,
    Row,
    Step,
    Total,
    open_extract,
    write_extract,
)
from pipeline.schemas import (
    CLOCK_OFFSET,
    NODE_OWNER,
    PEER_EXTRACT,
    PEER_RECORD,
    PEER_TOTAL,
    RECON_BUCKET,
    SIDE_TOTAL,
    SILVER_MDR,
    Table,
)
from pipeline.transforms.clocks import typical_delays
from pipeline.transforms.reconcile import BUCKET, ENTRY, SIDES, compared, disputed, joined_totals, totals
from protofly.errors import SettingsError
from protofly.signatures import KeyRecord, SigningKey

_BATCH_ROWS: Final = 50_000
_ROLES: Final = ("out", "in")
_SKEW_US: Final = SKEW_MS * 1_000
"""Not a choice here: both sides must find the same 5 minutes different."""


@dataclass(frozen=True, slots=True)
class PartnerDay:
    """One UTC day (`YYYY-MM-DD`) of the traffic between our `domain` and a partner's, `peer`."""

    domain: str
    peer: str
    day: str


def export_totals(
    lake: Lake, of: PartnerDay, *, key: SigningKey, out: Path, declared: Mapping[str, int] | None = None
) -> JobResult:
    """Write what a partner needs first: one row per direction and 5 minutes.

    Args:
        lake: Reads `silver_mdr` and `segments`; notes the extract in `peer_extract`.
        of: The partner and the day.
        key: An Ed25519 key whose public half the partner has.
        out: The file to write; it must not exist yet.
        declared: Until when the operator vouches for a node that is silent, in µs.

    Raises:
        SettingsError: Retention has dropped records of the day.
        OSError: The file cannot be written, or exists.
        LakeError: As the lake does.
    """
    result = JobResult("export")
    if of.day <= (oldest := kept_from(lake)):  # also of the oldest one: some of its records may be on the day before
        raise SettingsError(
            f"records of days before {oldest} were dropped by retention, so {of.day} cannot be shown: name a later day"
        )
    version = lake.version(SILVER_MDR)
    proved = proved_completeness(lake, declared=declared).get(of.domain, NOTHING)
    rows = (
        Total(role, *(row[name] for name in Total.__struct_fields__[1:]))
        for role in ("in", "out")
        for row in _own_totals(lake, version, role, of).orderBy("bucket_us").collect()
    )
    header = _header("totals", of, version, proved)
    _note(lake, result, write_extract(out, header, rows, key), sha256="")
    return result


def export_details(lake: Lake, of: PartnerDay, *, key: SigningKey, out: Path) -> JobResult:
    """Write the records of those 5 minutes in which our totals and the imported ones of the partner differ.

    Raises:
        ExtractError: MISSING_STEP: totals have not been exported and imported yet.
        OSError: The file cannot be written, or exists.
        LakeError: As the lake does.
    """
    result = JobResult("export")
    ours = _newest_own(lake, of)
    _newest_imported(lake, of, "totals")
    buckets = _compared(lake, ours["books_version"], of).persist()
    different = buckets.where(~F.col("is_equal"))
    rows = (
        _entry(role, row)
        for role in ("in", "out")
        for row in disputed(_own_records(lake, ours["books_version"], role, of), different)
        .orderBy("msg_id", "node", "boot", "seq")
        .toLocalIterator()
    )
    proved = Completeness(ours["from_us"], ours["until_us"], _pairs(ours["holes"]), ours["proof"])
    header = _header("details", of, ours["books_version"], proved)
    _note(lake, result, write_extract(out, header, rows, key), sha256="")
    buckets.unpersist()
    return result


def import_extract(
    lake: Lake, path: Path, of: PartnerDay, *, peer_key: KeyRecord, raw_bytes: int = RAW_BYTES
) -> JobResult:
    """Take in what a partner has sent, all of it or nothing.

    Args:
        lake: Writes `peer_total` or `peer_book`, and notes the extract in `peer_extract`.
        path: The file.
        of: The partner, and the day that we are reconciling.
        peer_key: The partner's public key, from somewhere else than the file.
        raw_bytes: It may unpack to so much.

    Raises:
        ExtractError: It is refused, and nothing of it is in the lake.
        LakeError: As the lake does.
    """
    result = JobResult("import")
    with open_extract(path, Expected(of.peer, of.domain, peer_key, raw_bytes)) as (header, rows, signed_sha256):
        if header.day != of.day:
            raise ExtractError(ExtractFault.WRONG_DAY, f"of {header.day}, expected of {of.day}")
        _refuse_older(lake, header)
        table = PEER_TOTAL
        if header.step == "details":
            table = PEER_RECORD
            known = _newest_imported(lake, of, "totals")
            if known["books_version"] != header.books_version:
                raise ExtractError(
                    ExtractFault.MISSING_STEP, f"{of.peer} has made these details from other records than its totals"
                )
        extract = _extract(of.peer, of.day)
        with lake.stage() as stage:
            partition = {"extract": extract}
            file = stage.new_file(table, partition)
            stored = _store(_checked(rows, header), file, table, header)
            done = lake.adopt(
                [StagedFile(file, stored, partition)] if stored else [],
                table,
                Change("replace_partitions", partitions=[extract], meta={"signed_sha256": signed_sha256}),
            )
        result.wrote(done.table, done.rows, done.version)
        # Last: what is not noted here does not count.
        _note(lake, result, header, sha256=signed_sha256)
    return result


def reconcile_with(
    lake: Lake,
    of: PartnerDay,
    *,
    grace_s: int = GRACE_S,
    tolerance: Tolerance = NO_TOLERANCE,
    declared: Mapping[str, int] | None = None,
) -> JobResult:
    """Reconcile one day with a partner, from our records and what the partner has signed; both directions.

    The tables that `jobs.reconcile` writes get this day and these two domains anew. Clocks are judged by the totals, to
    the millisecond; how far the partner's is ahead of ours is in the details of the result.

    Raises:
        ExtractError: MISSING_STEP, or CONTRADICTION: the partner's details do not add up to the partner's totals.
        LakeError: As the lake does.
    """
    result, domain, peer = JobResult("reconcile"), of.domain, of.peer
    ours = _newest_own(lake, of)
    theirs = _newest_imported(lake, of, "totals")
    details = _newest_imported(lake, of, "details")
    if details["books_version"] != theirs["books_version"]:
        raise ExtractError(ExtractFault.MISSING_STEP, f"details and totals of {peer} are of different records")
    version = ours["books_version"]
    result.versions[SILVER_MDR.name] = version
    own, partners = partial(_own_records, lake, version, of=of), partial(_peer_records, lake, of=of)
    out_totals, in_totals = _both_totals(lake, version, of)
    clocks = _clocks(in_totals)
    sides = _side_by_side(out_totals, in_totals)
    buckets = compared(sides, clocks, skew_us=_SKEW_US).frame(RECON_BUCKET.schema).persist()
    _refuse_contradictions(lake, buckets, of)
    proved = proved_completeness(lake, declared=declared).get(domain, NOTHING)
    known = {
        domain: proved,
        peer: Completeness(
            theirs["from_us"], theirs["until_us"], _pairs(theirs["holes"]), f"{peer}: {theirs['proof']}"
        ),
    }
    entries = [_as_entries(side(role), role) for role in _ROLES for side in (own, partners)]
    both = rows_of(reduce(DataFrame.unionByName, entries), ENTRY.names)
    compared_sides = BothSides(both, sides, known)
    meta = {"input_versions": {SILVER_MDR.name: version}, "peer": peer, "signed": [theirs["sha256"], details["sha256"]]}
    bounds = Bounds(grace_s * 1_000_000, _SKEW_US)
    hold_together(lake, result, Comparison(compared_sides, clocks, [of.day], bounds, [domain, peer]), meta)
    buckets.unpersist()
    conclude(result, day=of.day, tolerance=tolerance)
    hours = offsets_by_hour(delays_by_hour(clocks.delays))
    if any(hours.values()):
        by_hour = [{one.domain: one for one in offsets} for offsets in hours.values() if offsets]
        ahead_us = [one[peer].offset_us - one[domain].offset_us for one in by_hour]
        result.details["peer_clock_offset_us"] = median_low(ahead_us)
        result.details["peer_clock_error_us"] = max(each.error_us for one in by_hour for each in one.values())
        found = clock_findings(hours)
        result.details["clocks"] = [asdict(one) for one in found]
        result.warnings += [finding_line(one, of.day) for one in found]
    return result


def own_domain(lake: Lake, named: str = "") -> str:
    """The domain that the lake has records of; `named` chooses one of several. Raises SettingsError."""
    if named:
        return named
    domains = sorted(set(lake.read_small(NODE_OWNER, ["our_domain"]).column("our_domain").to_pylist()))
    if not domains:
        raise SettingsError("the lake has no records of messages: `ingest` and `refine` first")
    if len(domains) != 1:
        raise SettingsError(f"the lake has records of {len(domains)} domains: name yours with --domain")
    return str(domains[0])


# Our side.


def _own_records(lake: Lake, version: int, role: str, of: PartnerDay) -> DataFrame:
    entries = entries_of_days(lake, version, [of.day], columns=ALL, domains=[of.domain, of.peer])
    own = F.col("src_domain" if role == "out" else "dst_domain") == of.domain
    is_out = F.col("is_out") == (role == "out")
    return entries.frame(ENTRY).where(is_out & own).drop("is_out")


def _own_totals(lake: Lake, version: int, role: str, of: PartnerDay) -> DataFrame:
    return _totals(_own_records(lake, version, role, of), role)


def _totals(records: DataFrame, role: str) -> DataFrame:
    return totals(rows_of(_as_entries(records, role), ENTRY.names)).frame(SIDE_TOTAL)


def _as_entries(records: DataFrame, role: str) -> DataFrame:
    return records.withColumn("is_out", F.lit(role == "out"))


def _entry(role: Any, row: Any) -> ExtractEntry:
    return ExtractEntry(
        role,
        row.msg_id.hex(),
        row.ts_us,
        None if row.digest is None else row.digest.hex(),
        row["size"],
        row.outcome,
        row.span_us,
        row.node,
        row.boot,
        row.seq,
    )


# The partner's side.


def _peer_totals(lake: Lake, role: str, of: PartnerDay) -> DataFrame:
    return _of_extract(lake, PEER_TOTAL, role, of)


def _peer_records(lake: Lake, role: str, of: PartnerDay) -> DataFrame:
    return _of_extract(lake, PEER_RECORD, role, of)


def _of_extract(lake: Lake, table: Table, role: str, of: PartnerDay) -> DataFrame:
    rows = lake.read(table).where((F.col("extract") == _extract(of.peer, of.day)) & (F.col("role") == role))
    return rows.where(F.col("dst_domain" if role == "out" else "src_domain") == of.domain).drop("extract", "role")


def _compared(lake: Lake, version: int, of: PartnerDay) -> DataFrame:
    """Level one of both directions, from our records and the partner's totals; both sides find the same."""
    out_totals, in_totals = _both_totals(lake, version, of)
    sides = _side_by_side(out_totals, in_totals)
    return compared(sides, _clocks(in_totals), skew_us=_SKEW_US).frame(RECON_BUCKET.schema)


def _side_by_side(out_totals: DataFrame, in_totals: DataFrame) -> WorkerRows:
    return rows_of(joined_totals(out_totals, in_totals), SIDES.names)


def _clocks(in_totals: DataFrame) -> ClockTables:
    nothing = to_arrow_schema(CLOCK_OFFSET.schema).empty_table()
    return ClockTables(typical_delays(in_totals).toArrow(), nothing)


def _both_totals(lake: Lake, version: int, of: PartnerDay) -> tuple[DataFrame, DataFrame]:
    """Of both senders and of both receivers: our own and the partner's."""
    out_totals = _own_totals(lake, version, "out", of).unionByName(_peer_totals(lake, "out", of))
    in_totals = _own_totals(lake, version, "in", of).unionByName(_peer_totals(lake, "in", of))
    return out_totals, in_totals


def _refuse_contradictions(lake: Lake, buckets: DataFrame, of: PartnerDay) -> None:
    """Details must add up to the signed totals, in every 5 minutes that differ. Raises ExtractError CONTRADICTION."""
    different = buckets.where(~F.col("is_equal")).select(*BUCKET)
    wrong = []
    for role in _ROLES:
        detailed = _totals(_peer_records(lake, role, of), role)
        signed = _peer_totals(lake, role, of).join(different, on=list(BUCKET), how="left_semi")
        wrong += detailed.exceptAll(signed.select(detailed.columns)).select("bucket_us").collect()
        wrong += signed.select(detailed.columns).exceptAll(detailed).select("bucket_us").collect()
    if wrong:
        times = sorted({row.bucket_us for row in wrong})
        first = datetime.fromtimestamp(times[0] / 1e6, tz=UTC).strftime("%H:%M")
        raise ExtractError(
            ExtractFault.CONTRADICTION,
            f"the details of {of.peer} do not add up to the totals that it has signed, in {len(times)} times "
            f"5 minutes, the first at {first}; nothing was reconciled: ask for both anew",
        )


# Taking in.


def _checked(rows: Iterator[Row], header: Header) -> Iterator[Row]:
    """Totals belong to the day that the header names, or to one beside it. Raises ExtractError."""
    begin_us = _begin_us(header)
    for row in rows:
        if isinstance(row, Total):
            # Ids without a time: records of the 5 minutes around the day may be anywhere in the days beside it.
            if not begin_us - DAY_US <= row.bucket_us < begin_us + 2 * DAY_US:
                raise ExtractError(ExtractFault.WRONG_DAY, f"a row is not of {header.day}")
            if row.bucket_us % BUCKET_US:
                raise ExtractError(ExtractFault.MALFORMED, "a bucket does not begin where 5 minutes do")
        yield row


def _begin_us(header: Header) -> int:
    return int(datetime.strptime(header.day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * 1_000_000


def _store(rows: Iterator[Row], path: Location, table: Table, header: Header) -> int:
    """Write rows as a file of the table; how many. Raises ExtractError: details of another day."""
    stored = 0
    schema = to_arrow_schema(table.schema)
    schema = schema.remove(schema.get_field_index("extract"))
    columns = partial(_columns, header=header)
    with storage.parquet_writer(path, schema, compression="zstd") as writer:
        while batch := [columns(row) for row in islice(rows, _BATCH_ROWS)]:
            found = pa.Table.from_pylist(batch, schema=schema)
            writer.write_table(_with_times(found, header) if header.step == "details" else found)
            stored += len(batch)
    return stored


def _with_times(entries: pa.Table, header: Header) -> pa.Table:
    begin_us = _begin_us(header)
    times = times_of(column(entries, "msg_id"), numbers(entries, "ts_us"))
    if times[0].min() < begin_us - BUCKET_US or times[0].max() >= begin_us + DAY_US + BUCKET_US:
        raise ExtractError(ExtractFault.WRONG_DAY, f"a row is not of {header.day}")
    for name, time_us in zip(("sent_us", "bucket_us"), times, strict=True):
        entries = entries.set_column(entries.schema.get_field_index(name), name, pa.array(time_us))
    return entries


def _columns(row: Row, *, header: Header) -> dict[str, Any]:
    """A row as a column each; who sent to whom follows from whose record it is."""
    members: dict[str, Any] = {name: getattr(row, name) for name in row.__struct_fields__}
    ours, theirs = header.domain, header.peer
    src_domain, dst_domain = (ours, theirs) if row.role == "out" else (theirs, ours)
    members |= {"src_domain": src_domain, "dst_domain": dst_domain}
    if isinstance(row, ExtractEntry):
        members["msg_id"] = bytes.fromhex(row.msg_id)
        members["digest"] = None if row.digest is None else bytes.fromhex(row.digest)
    return members


# Which extracts there are.


def _header(step: Step, of: PartnerDay, version: int, proved: Completeness) -> Header:
    begin_us = end_us(of.day) - DAY_US
    return Header(
        step=step,
        domain=of.domain,
        peer=of.peer,
        day=of.day,
        created_us=time.time_ns() // 1000,
        books_version=max(version, 0),
        complete_from_us=proved.from_us,
        complete_until_us=proved.until_us,
        holes=list(holes_between(proved, begin_us - DAY_US, begin_us + 2 * DAY_US)),
        proof=proved.proof[:1024],
        rows=0,
        raw_bytes=0,
        body_bytes=0,
        body_sha256="0" * 64,
        key_id="",
    )


def _note(lake: Lake, result: JobResult, header: Header, *, sha256: str) -> None:
    row = {
        "domain": header.domain,
        "peer": header.peer,
        "step": header.step,
        "entered_us": time.time_ns() // 1000,
        "books_version": header.books_version,
        "from_us": header.complete_from_us,
        "until_us": header.complete_until_us,
        "holes": [{"from_us": begin, "until_us": end} for begin, end in header.holes],
        "proof": header.proof,
        "rows": header.rows,
        "sha256": sha256 or header.body_sha256,
        "day": header.day,
        "created_us": header.created_us,
    }
    done = lake.commit(pa.Table.from_pylist([row], schema=to_arrow_schema(PEER_EXTRACT.schema)), PEER_EXTRACT)
    result.wrote(done.table, done.rows, done.version)
    result.details = {"step": header.step, "rows": header.rows, "body_bytes": header.body_bytes}
    result.outcome = (
        f"{header.step} of {header.domain} for {header.peer}, {header.day}: {header.rows:,} rows, "
        f"complete until {moment(header.complete_until_us)}"
    )


def _newest_own(lake: Lake, of: PartnerDay) -> dict[str, Any]:
    return _newest(lake, (of.domain, of.peer, of.day, "totals"), "your own totals have not been exported")


def _newest_imported(lake: Lake, of: PartnerDay, step: Step) -> dict[str, Any]:
    return _newest(lake, (of.peer, of.domain, of.day, step), f"the {step} of {of.peer} have not been imported")


def _newest(lake: Lake, wanted: tuple[str, str, str, Step], problem: str) -> dict[str, Any]:
    """The newest extract by author, reader, day and step. Raises ExtractError MISSING_STEP, with the problem."""
    found = _noted(lake, wanted)
    if not found:
        raise ExtractError(ExtractFault.MISSING_STEP, f"{problem} for {wanted[2]} yet")
    return max(found, key=lambda row: int(row["entered_us"]))


def _noted(lake: Lake, wanted: tuple[str, str, str, Step]) -> list[dict[str, Any]]:
    """All extracts by author, reader, day and step."""
    rows = lake.read_small(PEER_EXTRACT)
    rows = rows.filter(pc.equal(rows.column("day"), wanted[2])).to_pylist()
    return [row for row in rows if (row["domain"], row["peer"], row["day"], row["step"]) == wanted]


def _refuse_older(lake: Lake, header: Header) -> None:
    """Refuse an extract that was made before one that is here. Raises ExtractError SUPERSEDED."""
    noted = _noted(lake, (header.domain, header.peer, header.day, header.step))
    # What claims to be of the future is as old as when it came: the author's clock may be right again.
    newest_us = max((min(row["created_us"] or 0, row["entered_us"]) for row in noted), default=0)
    if header.created_us < newest_us:
        raise ExtractError(
            ExtractFault.SUPERSEDED, f"made {moment(header.created_us)}, one of {moment(newest_us)} is here"
        )


def _pairs(holes: list[Mapping[str, int]]) -> tuple[tuple[int, int], ...]:
    return tuple((hole["from_us"], hole["until_us"]) for hole in holes)


def _extract(author: str, day: str) -> str:
    return f"{author}_{day}"
