"""Statements as text for people: a table for each domain and day, and one of all days added up. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from pipeline.core.harmless import harmless
from pipeline.core.statement_choice import DRAFT
from pipeline.core.utc_days import moment
from pipeline.partners.statements import partner_of

_DIGEST_CHARS: Final = 16
_HEADS: Final = (
    "partner",
    "way",
    "messages",
    "delivered",
    "denied",
    "failed",
    "bytes given",
    "bytes on wire",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "digest of delivered",
)
_COUNTS: Final = ("messages", "delivered", "denied", "failed", "bytes_in", "bytes_wire")
_TIMES: Final = ("p50_us", "p95_us", "p99_us")
_LEFT: Final = frozenset({"partner", "way", "digest of delivered"})


def statements_text(statements: Sequence[Mapping[str, Any]], totals: Sequence[Mapping[str, Any]]) -> str:
    """Tables with a line of what was denied or failed, a blank line between two tables; names are made harmless.

    Args:
        statements: As `statements.plain_statement` makes them, with `complete_until_us`; in order of domain and day.
        totals: The same added up over days, without day and version; none for one day.
    """
    tables = [[_heading(rows), *_table(rows)] for rows in _groups(statements, ("our_domain", "dt", "version"))]
    for rows in _groups(totals, ("our_domain",)):
        added = [one for one in statements if one["our_domain"] == rows[0]["our_domain"]]
        tables.append([_heading_of_totals(added), *_table(rows)])
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in tables)


def totals_text(totals: Sequence[Mapping[str, Any]], days: str) -> str:
    """A table for each domain, of days that are no days of UTC; names are made harmless."""
    tables = [
        [f"{harmless(rows[0]['our_domain'])}, {days}", *_table(rows)] for rows in _groups(totals, ("our_domain",))
    ]
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in tables)


def _groups(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Iterator[list[Mapping[str, Any]]]:
    for _, group in groupby(rows, lambda row: [row[name] for name in names]):
        yield list(group)


def _heading(rows: Sequence[Mapping[str, Any]]) -> str:
    one = rows[0]
    until = moment(one["complete_until_us"])
    state = f"{one['status']}, version {one['version']}"
    if one["status"] == DRAFT:
        state = "DRAFT, may still change"
    proof = f"our records are complete until {until}" if one["complete_until_us"] > 0 else "nothing proves it complete"
    return f"{harmless(one['our_domain'])} on {one['dt']}: {state}; {proof}"


def _heading_of_totals(statements: Sequence[Mapping[str, Any]]) -> str:
    days = {one["dt"]: one["status"] for one in statements}
    drafts = sum(status == DRAFT for status in days.values())
    marked = f", {drafts} of them DRAFT" if drafts else ""
    return f"{harmless(statements[0]['our_domain'])}, {len(days)} days from {min(days)} to {max(days)} added up{marked}"


def _table(rows: Collection[Mapping[str, Any]]) -> list[str]:
    """Aligned columns; nothing is cut off, however narrow the terminal is."""
    cells = [_HEADS, *(_cells(row) for row in rows)]
    if not any(row.get("set_digest") for row in rows):
        cells = [line[:-1] for line in cells]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if head in _LEFT else cell.rjust(width)
            for cell, width, head in zip(line, widths, _HEADS, strict=False)
        ).rstrip()
        for line in cells
    ]
    return [*lines, *(f"  {line}" for row in rows if (line := _reasons(row)))]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    counts = (f"{row[name]:,}" if row[name] is not None else "-" for name in _COUNTS)
    times = (f"{row[name] / 1000:,.2f}" if row[name] is not None else "-" for name in _TIMES)
    digest = f"{row['set_digest'][:_DIGEST_CHARS]}…" if row.get("set_digest") and row["delivered"] else "-"
    return harmless(partner_of(row)), row["role"], *counts, *times, digest


def _reasons(row: Mapping[str, Any]) -> str:
    """Denied messages by rule, and failed ones by outcome; empty where there are none."""
    failed = {name: count for name, count in row["outcomes"].items() if name not in {"delivered", "denied"}}
    parts = [
        f"{word}: " + ", ".join(f"{harmless(name) or 'no rule'} {count:,}" for name, count in sorted(counts.items()))
        for word, counts in (("denied by", row["denials"]), ("failed", failed))
        if counts
    ]
    return f"{harmless(partner_of(row))} {row['role']} {'; '.join(parts)}" if parts else ""
