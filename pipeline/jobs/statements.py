"""Job `statements`: the statements that are there, to read, to keep, and to settle with a partner by.

It reads and writes no record, so it needs no Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns.days import HOUR, days_added_up, folds_of, with_quantiles
from pipeline.columns.set_digests import WHOSE
from pipeline.columns.side_records import DAY_US
from pipeline.core.completeness import GRACE_S, NOTHING
from pipeline.core.statement_choice import DRAFT, Choice, Known, Standing, Wanted, choose, known_of
from pipeline.core.utc_days import day_after, day_of
from pipeline.jobs.proofs import proved_completeness
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake import durable
from pipeline.lake.day_state import unsettled_days
from pipeline.lake.lake_files import LakeFiles
from pipeline.partners.statements import canonical_statements, partner_of, plain_statement
from pipeline.schemas import NODE_OWNER, STATEMENT_DAILY, TRAFFIC_HOURLY
from protofly.errors import SettingsError

APP: Final = "statements"
_STANDING: Final = ("our_domain", "dt", "version", "status")
_WARNINGS_SHOWN: Final = 50
_NAMES_SHOWN: Final = 8
ROWS_MAX: Final = 100_000
"""So many are a hundred partners in both directions for more than a year."""


def run(lake: LakeFiles, wanted: Wanted, *, out: Path | None = None) -> JobResult:
    """Select statements, and write them down in the form that is the same to the byte wherever it is made.

    `details` has: `statements`, as `plain_statement` makes them, with `complete_until_us`; `totals`, the same added up
    by domain pair and role where several days were selected; `bytes` and `sha256` of the canonical form; `out`.

    Args:
        lake: Reads `statement_daily`, `traffic_hourly` and which files `silver_mdr` has.
        wanted: Which ones.
        out: File for the canonical form, replaced as a whole; nothing is written when nothing is selected.

    Returns:
        Ends with FINDINGS when the records of a signed-off day say something else by now, with INCOMPLETE when a day,
        version or partner that was named has no statement, or has a draft only and drafts were not asked for. A day
        that is proved to be without traffic needs none.

    Raises:
        SettingsError: More than `ROWS_MAX` statements are meant.
        LakeError: The lake cannot be read.
        OSError: The file cannot be written.
    """
    result = JobResult(APP)
    result.versions[STATEMENT_DAILY.name] = version = lake.version(STATEMENT_DAILY)
    standings, known = standings_of(lake, wanted, version)
    choice, silent = _without_silent(lake, choose(standings, wanted, known), known, version)
    newest = set(choose(standings, Wanted(drafts=True)).taken)
    days = {one.day for one in choice.taken}
    parts = [lake.read_small(STATEMENT_DAILY, partitions=())]
    for day in sorted(days):
        taken = {one for one in choice.taken if one.day == day}
        of_day = _of(lake.read_small(STATEMENT_DAILY, version=version, partitions=[day]), taken)
        _check(lake, result, of_day, signed_off={one for one in taken & newest if one.status != DRAFT})
        parts.append(of_day.filter(_is_with(of_day, wanted.peer)) if wanted.peer else of_day)
        if sum(part.num_rows for part in parts) > ROWS_MAX:
            raise SettingsError(f"these are more than {ROWS_MAX:,} statements: name days, --domain or --peer")
    table = pa.concat_tables(parts)
    rows = sorted(table.to_pylist(), key=_place)
    _warn_of_missing(lake, result, wanted, choice, known, has_rows=bool(rows))
    if not rows:
        result.warnings += [f"{domain} had no traffic: {_periods(gaps)}" for domain, gaps in silent.items()]
    behind = sorted(days & unsettled_days(lake))
    if behind:
        result.warnings.append(f"records of {_several(behind)} came or were rewritten since: `settle` looks at them")
    content = canonical_statements(rows)
    if rows and out is not None:
        durable.replace(out, content)
        result.details["out"] = str(out.absolute())
    result.outcome = f"{len(rows):,} for {len(days):,} {'day' if len(days) == 1 else 'days'}" if rows else "none shown"
    result.details |= {
        "statements": [plain_statement(row) | {"complete_until_us": row["complete_until_us"]} for row in rows],
        "totals": totals_of(table) if len({row["dt"] for row in rows}) > 1 else [],
        "bytes": len(content),
        "sha256": sha256(content).hexdigest() if rows else None,
    }
    return result


def standings_of(lake: LakeFiles, wanted: Wanted, version: int) -> tuple[list[Standing], Known]:
    """The statements of the wanted days, which alone are opened, and what is known without opening those of others.

    Raises LakeError.
    """
    there = {file.partition["dt"] for file in lake.files(STATEMENT_DAILY, version)}
    days = {day for day in there if wanted.has_day(day)}
    heads = lake.read_small(STATEMENT_DAILY, _STANDING, version, partitions=days).group_by(list(_STANDING))
    standings = [Standing(*(row[name] for name in _STANDING)) for row in heads.aggregate([]).to_pylist()]
    domains = set(known_of(standings).domains)
    if there - days:
        newest = lake.read_small(STATEMENT_DAILY, ["our_domain"], version, partitions={max(there)})
        domains.update(newest.column("our_domain").to_pylist())
        domains.update(lake.read_small(NODE_OWNER, ["our_domain"]).column("our_domain").to_pylist())
    return standings, Known(frozenset(domains), frozenset(there))


def silent_until(lake: LakeFiles, domain: str, last_day: str, signed: str, known: Known, version: int) -> str:
    """The last UTC day up to which a day without a statement is proved to be one without traffic; empty: none.

    A domain without traffic on a day has no statement of it: manifests prove that none is missing, or one of a later
    day does, which was signed off by such a proof.

    Args:
        lake: Reads statements and the ledger.
        domain: Whose days.
        last_day: The last that is asked for.
        signed: The last day up to then whose statement is signed off; empty: none.
        known: As `standings_of` gives it.
        version: Of `statement_daily`.

    Raises:
        LakeError: The lake cannot be read.
    """
    for day in sorted(one for one in known.days if one > last_day):
        standings, _ = standings_of(lake, Wanted(from_day=day, until_day=day, domain=domain), version)
        if any(one.our_domain == domain and one.status != DRAFT for one in standings):
            return last_day
    until_us = proved_completeness(lake).get(domain, NOTHING).until_us - GRACE_S * 1_000_000
    return max(signed, day_of(until_us - DAY_US) if until_us >= DAY_US else "")


def _of(table: pa.Table, taken: Iterable[Standing]) -> pa.Table:
    """Rows of these versions."""
    meant = set(taken)
    heads = table.select(list(_STANDING)).to_pylist()
    return table.filter(pa.array([Standing(*row.values()) in meant for row in heads], pa.bool_()))


def _is_with(table: pa.Table, peer: str) -> pa.Array:
    """True if the other domain of a statement is this one."""
    is_out = pc.equal(table.column("role"), "out")
    return pc.equal(pc.if_else(is_out, table.column("dst_domain"), table.column("src_domain")), peer)


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["our_domain"], row["dt"], partner_of(row), row["role"] != "out"


def totals_of(table: pa.Table) -> list[dict[str, Any]]:
    """Statements added up over days, latency with them."""
    one_day = table.set_column(table.schema.get_field_index("dt"), "dt", pa.repeat("", table.num_rows))
    rows = with_quantiles(days_added_up(one_day.select(list(HOUR)))).to_pylist()
    return [
        {name: value for name, value in plain_statement(row).items() if name != "dt"}
        for row in sorted(rows, key=_place)
    ]


# What there is to say besides.


def _check(lake: LakeFiles, result: JobResult, table: pa.Table, *, signed_off: Collection[Standing]) -> None:
    """Find signed-off statements of a day whose hours add up to something else than their newest versions say."""
    for one in outdated(lake, table, signed_off):
        result.findings += 1
        result.warnings.append(outdated_line(one))
    if result.findings:
        result.exit_code = ExitCode.FINDINGS


def outdated_line(one: Standing) -> str:
    """The advice about a statement that its records no longer support."""
    return (
        f"{one.our_domain} {one.day}: the records have changed since the statement was {one.status} "
        f"(version {one.version}); look at `audit`, then settle this day with --restate"
    )


def outdated(lake: LakeFiles, table: pa.Table, signed_off: Collection[Standing]) -> list[Standing]:
    """Statements whose hours add up to something else than they say.

    Args:
        lake: Reads `traffic_hourly` of their days.
        table: Has the rows of these statements.
        signed_off: The newest version of each domain and day in question.

    Raises:
        LakeError: The lake cannot be read.
    """
    if not signed_off:
        return []
    hours = lake.read_small(TRAFFIC_HOURLY, HOUR, partitions={one.day for one in signed_off})
    ours = pa.array(sorted({one.our_domain for one in signed_off}))
    hours = hours.filter(pc.is_in(hours.column("our_domain"), ours))
    now = _folds(with_quantiles(days_added_up(hours))) if hours.num_rows else {}
    said = _folds(_of(table, signed_off))
    keys = {one: (one.our_domain, one.day) for one in sorted(signed_off)}
    return [one for one, key in keys.items() if now and now.get(key) != said.get(key)]


def _folds(statements: pa.Table) -> dict[tuple[str, str], tuple[int, int]]:
    rows = folds_of(statements, WHOSE).to_pylist() if statements.num_rows else []
    return {(row["our_domain"], row["dt"]): (row["set_xor"], row["set_sum"]) for row in rows}


def _warn_of_missing(
    lake: LakeFiles,
    result: JobResult,
    wanted: Wanted,
    choice: Choice,
    known: Known,
    *,
    has_rows: bool,
) -> None:
    """Warn of what was asked for and is not there, with what to do."""
    missing = list(islice(_missing(wanted, choice, known), _WARNINGS_SHOWN))
    drafts = [f"{one.our_domain} {one.day}" for one in choice.drafts]
    if drafts:
        left_out = (
            f"left out as drafts: {_several(drafts)}: our segments do not prove these days complete yet; "
            "ingest missing and later ones and settle, or take drafts with --drafts"
        )
        (missing if wanted.has_period or not choice.taken else result.warnings).append(left_out)
    if wanted.peer and choice.taken and not has_rows:
        peers = sorted(_peers(lake))
        if wanted.peer in peers:
            result.warnings.append(f"nothing was exchanged with {wanted.peer} on these days")
        else:
            missing.append(f"no statements with {wanted.peer} on any day; there are those with {_several(peers)}")
    if missing:
        result.warnings += missing
        result.exit_code = ExitCode.INCOMPLETE


def _missing(wanted: Wanted, choice: Choice, known: Known) -> Iterator[str]:
    domains = sorted(known.domains)
    if not known.days:
        yield "there are no statements yet: `run` or `settle` writes them"
    elif wanted.domain not in {"", *domains}:
        yield f"no statements of {wanted.domain}; there are those of {_several(domains)}"
    else:
        for domain, stretches in choice.missing.items():
            days = _periods(stretches)
            yield f"no statements of {domain} for {days}: nothing that its nodes wrote then was ingested and settled"
        for one in choice.other_versions:
            yield f"{one.our_domain} {one.day} has no version {wanted.version}; the newest is {one.version}"


def _without_silent(
    lake: LakeFiles, choice: Choice, known: Known, version: int
) -> tuple[Choice, dict[str, list[tuple[str, str]]]]:
    """The choice, in which days that are proved to be without traffic are not missing; and these, by domain."""
    missing, silent = {}, {}
    for domain, gaps in choice.missing.items():
        proved = ""
        if domain in known.domains:
            days = [one.day for one in choice.taken if one.our_domain == domain and one.status != DRAFT]
            proved = silent_until(lake, domain, gaps[-1][1], max(days, default=""), known, version)
        silent[domain] = [(first, min(last, proved)) for first, last in gaps if first <= proved]
        begin = day_after(proved) if proved else ""
        missing[domain] = tuple((max(first, begin), last) for first, last in gaps if last > proved)
    still = {domain: gaps for domain, gaps in missing.items() if gaps}
    return replace(choice, missing=still), {domain: gaps for domain, gaps in silent.items() if gaps}


def _periods(gaps: Iterable[tuple[str, str]]) -> str:
    """Stretches of days, by their ends."""
    return _several([first if first == last else f"{first} to {last}" for first, last in gaps])


def _peers(lake: LakeFiles) -> set[str]:
    """With whom there are statements."""
    names = ["role", "src_domain", "dst_domain"]
    return {
        partner_of(row) for row in lake.read_small(STATEMENT_DAILY, names).group_by(names).aggregate([]).to_pylist()
    }


def _several(names: Collection[str]) -> str:
    """Some names, and how many more there are."""
    shown, more = list(names)[:_NAMES_SHOWN], len(names) - _NAMES_SHOWN
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")
