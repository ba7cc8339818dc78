"""`trapezoid records`: search the audit records of a node in its spool, without Spark."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipeline.cli.option_groups import grouped
from protofly.printable import escaped, escaped_json
from trapezoid.output import FOUND_WANTING, errors_reported, print_json, print_rows

if TYPE_CHECKING:
    from protofly.record_segments import SegmentName
    from protofly.records import RecordKind
    from trapezoid.spool_reading import Line, Remarks, Segment
    from trapezoid.spool_search import ChangeQuery, Query

app = typer.Typer(help="Search the audit records of a node.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Domain = Annotated[str, typer.Option(help="Only records that involve this domain.")]
Refused = Annotated[bool, typer.Option("--refused", help="Only messages and sessions that were refused.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="Maximum number of rows; the newest.")]

FOLLOW_SECONDS = 0.5
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_JSON_MEMBERS = ("arguments", "before", "after")
"""Members of the record of a change that are JSON."""


@dataclass(frozen=True, slots=True)
class Spool:
    """A folder of segments, and what is known about its addresses.

    Attributes:
        folder: Where the segments are.
        hashed: Hashes an address as the node does; None when its secret is not known.
        is_hashed: The node writes hashes now. Older records may still have addresses.
    """

    folder: Path
    hashed: Callable[[str], str] | None = None
    is_hashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Source:
    """The spool to read."""

    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Configuration file of the node.")] = None
    spool: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of record segments, instead of --config.")
    ] = None

    def open(self) -> Spool:
        """The spool that is named. Raises SettingsError."""
        from functools import partial

        from protofly.errors import SettingsError
        from protofly.records import address_key, hash_address

        if self.config is not None and self.spool is None:
            from msg_node.settings.load import load_settings
            from stubs_cache.store import load_secret

            settings = load_settings(self.config)
            secret = settings.node.data_dir / "secret"
            hashed = partial(hash_address, key=address_key(load_secret(secret))) if secret.exists() else None
            return Spool(settings.spool_dir, hashed, settings.records.hash_addresses)
        if self.config is not None or self.spool is None:
            raise SettingsError("give either --config or --spool")
        return Spool(self.spool)


@dataclass(frozen=True, kw_only=True)
class Period:
    """The time to look at."""

    since: Annotated[
        str, typer.Option(metavar="TIME", help="Start: a UTC time (2026-03-01T12:00), or an age (90s 30m 2h 7d).")
    ] = ""
    until: Annotated[str, typer.Option(metavar="TIME", help="End, in the same forms.")] = ""

    def bounds_us(self) -> tuple[int, int | None]:
        """Both ends in µs since the Unix epoch; None is no end. Raises SettingsError."""
        return _time_us(self.since, "--since") or 0, _time_us(self.until, "--until")


@dataclass(frozen=True, kw_only=True)
class Filters:
    """The conditions that a record must meet to be found."""

    id_: Annotated[
        str, typer.Option("--id", metavar="ID", help="Message id as recorded, or a record as boot/sequence number.")
    ] = ""
    from_: Annotated[str, typer.Option("--from", metavar="ADDRESS", help="Sender, or the runtime of a session.")] = ""
    to: Annotated[str, typer.Option(metavar="ADDRESS", help="Recipient.")] = ""
    domain: Domain = ""
    code: Annotated[
        str, typer.Option(help="Code, result or event, for example domain-blocked, denied or taken-over.")
    ] = ""
    rule: Annotated[str, typer.Option(metavar="SET/RULE", help="Policy rule that decided.")] = ""
    refused: Refused = False


@app.command()
@grouped
def find(source: Source, filters: Filters, period: Period, *, limit: Limit = 50, json: Json = False) -> None:
    """Find records and explain each, oldest first. Exits with 1 if there are none."""
    with errors_reported(as_json=json):
        from trapezoid.spool_search import ANSWERED_KINDS, Query, address_words, domain_word

        spool = source.open()
        since_us, until_us = period.bounds_us()
        query = Query(
            id=filters.id_,
            sender=address_words(filters.from_, spool.hashed) if filters.from_ else frozenset(),
            recipient=address_words(filters.to, spool.hashed) if filters.to else frozenset(),
            domain=domain_word(filters.domain) if filters.domain else "",
            word=filters.code,
            rule=filters.rule,
            since_us=since_us,
            until_us=until_us,
            is_refused=filters.refused,
        )
        remarks = _new_remarks()
        found = _newest(_matching(spool.folder, ANSWERED_KINDS, query, remarks), limit)
    _show(found, remarks, as_json=json)
    raise typer.Exit(0 if found else FOUND_WANTING)


@app.command()
@grouped
def tail(
    source: Source,
    *,
    domain: Domain = "",
    refused: Refused = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new records until Ctrl-C.")] = False,
    limit: Limit = 20,
    json: Json = False,
) -> None:
    """Print the newest records. With --json and --follow, prints one object per line."""
    with errors_reported(as_json=json):
        from trapezoid.spool_search import ANSWERED_KINDS, Query, domain_word

        folder = source.open().folder
        query = Query(domain=domain_word(domain) if domain else "", is_refused=refused)
        remarks = _new_remarks()
        positions: dict[SegmentName, int] = {}
        found = _newest(_matching(folder, ANSWERED_KINDS, query, remarks, positions), limit)
        if not follow:
            _show(found, remarks, as_json=json)
            return
        try:
            _follow(folder, query, found, positions, as_json=json)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


@app.command()
@grouped
def who(
    source: Source,
    period: Period,
    *,
    by: Annotated[Literal["domain", "address"], typer.Option(help="Count by domain or by address.")] = "domain",
    domain: Domain = "",
    limit: Limit = 50,
    json: Json = False,
) -> None:
    """Count messages between domains, delivered and refused, busiest pair first. Exits with 1 if there are none."""
    with errors_reported(as_json=json):
        from protofly.records import RecordKind
        from trapezoid.spool_search import Query, domain_word, traffic_of, traffic_row

        spool = source.open()
        since_us, until_us = period.bounds_us()
        query = Query(domain=domain_word(domain) if domain else "", since_us=since_us, until_us=until_us)
        remarks = _new_remarks()
        lines = (line for _, line in _matching(spool.folder, frozenset({RecordKind.MESSAGE}), query, remarks))
        # Records from before addresses were hashed count with those from after.
        hashed = spool.hashed if spool.is_hashed else None
        pairs = traffic_of(lines, by_address=by == "address", hashed=hashed)
        rows = [traffic_row(pair, traffic) for pair, traffic in list(pairs.items())[:limit]]
    if json:
        print_json({"pairs": rows, "left_out": max(0, len(pairs) - limit), **_reading_facts(remarks)})
    elif rows:
        print_rows(rows, as_json=False)
        _warn(remarks, f"{len(pairs) - limit} more pairs; raise --limit to see them" if len(pairs) > limit else "")
    else:
        _warn(remarks, "no messages between domains in these records")
    raise typer.Exit(0 if rows else FOUND_WANTING)


@dataclass(frozen=True, kw_only=True)
class ChangeFilters:
    """Options that select records of changes by operators."""

    operation: Annotated[str, typer.Option(metavar="WORDS", help="Only these, for example peer, or `peer block`.")] = ""
    by: Annotated[
        str, typer.Option(metavar="NAME", help="Only changes by this operator; part of the name is enough.")
    ] = ""
    about: Annotated[
        str, typer.Option(metavar="TEXT", help="Only changes that say this: a domain, an address, a bundle, a reason.")
    ] = ""
    refused: Annotated[bool, typer.Option("--refused", help="Only what was refused.")] = False


@app.command()
@grouped
def changes(source: Source, filters: ChangeFilters, period: Period, *, limit: Limit = 50, json: Json = False) -> None:
    """Print changes by operators, oldest first: actor, operation, before and after. Exits with 1 if there are none.

    Alarms, and changes that ended by themselves, are among them.
    """
    with errors_reported(as_json=json):
        from protofly.records import RecordKind
        from trapezoid.spool_search import ChangeQuery, address_words

        spool = source.open()
        since_us, until_us = period.bounds_us()
        query = ChangeQuery(
            operation=filters.operation,
            by=filters.by,
            about=address_words(filters.about, spool.hashed) if filters.about else frozenset(),
            since_us=since_us,
            until_us=until_us,
            is_refused=filters.refused,
        )
        remarks = _new_remarks()
        found = _newest(_matching(spool.folder, frozenset({RecordKind.ADMIN}), query, remarks), limit)
    _show_changes(found, remarks, as_json=json)
    raise typer.Exit(0 if found else FOUND_WANTING)


@app.command("hash")
def hash_(
    address: Annotated[list[str], typer.Argument(metavar="ADDRESS", help="An address. Repeatable.")],
    *,
    config: Annotated[Path, typer.Option(metavar="FILE", help="Configuration file of the node.")],
    json: Json = False,
) -> None:
    """Print the keyed hash of an address, as the node's records and the pipeline's tables have it."""
    with errors_reported(as_json=json):
        from protofly.address import canonical_key
        from protofly.errors import SettingsError

        spool = Source(config=config).open()
        if spool.hashed is None:
            raise SettingsError(f"{config}: the node has no secret yet: it makes one when it starts first")
        rows = [{"address": one, "hash": spool.hashed(canonical_key(one))} for one in address]
    if json:
        print_json({"hashes": rows})
    else:
        print_rows(rows, as_json=False)


# Reading.


def _new_remarks() -> Remarks:
    from trapezoid.spool_reading import Remarks

    return Remarks()


def _matching(
    folder: Path,
    kinds: frozenset[RecordKind],
    query: Query | ChangeQuery,
    remarks: Remarks,
    positions: dict[SegmentName, int] | None = None,
) -> Iterator[tuple[RecordKind, Line]]:
    """Yield the records that a query admits, segment by segment.

    `positions` has the offset to start at in each segment, and is updated to where reading ended.
    """
    from trapezoid.spool_reading import lines_of, segments_in

    for segment in segments_in(folder, kinds):
        if _is_before(segment, query.since_us):
            continue
        start = 0 if positions is None else positions.get(segment.name, 0)
        for end, line in lines_of(segment, remarks, start=start):
            if positions is not None:
                positions[segment.name] = end
            if query.admits(line):
                yield segment.name.kind, line


def _is_before(segment: Segment, since_us: int) -> bool:
    newest_us = segment.newest_us() if since_us and not segment.is_open else None
    return newest_us is not None and newest_us < since_us


def _newest(found: Iterable[tuple[RecordKind, Line]], limit: int) -> list[tuple[RecordKind, Line]]:
    """The newest ones, in order of time."""
    from heapq import nlargest

    return sorted(nlargest(limit, found, key=_time_of), key=_time_of)


def _time_of(item: tuple[RecordKind, Line]) -> int:
    time_us: int = item[1]["ts_us"]
    return time_us


def _time_us(text: str, option: str) -> int | None:
    """A time in µs since the Unix epoch; None for no text. Raises SettingsError."""
    from datetime import UTC, datetime

    from protofly.errors import SettingsError

    if not text:
        return None
    try:
        if text[-1] in _UNITS and text[:-1].isascii() and text[:-1].isdigit():
            return int((time.time() - int(text[:-1]) * _UNITS[text[-1]]) * 1e6)
        moment = datetime.fromisoformat(text)
        return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1e6)
    except (ValueError, OverflowError) as exc:
        raise SettingsError(
            f"{option} {text}: expected a time such as 2026-03-01T12:00 (UTC), or an age such as 90s, 30m, 2h or 7d"
        ) from exc


# Showing.


def _show(found: list[tuple[RecordKind, Line]], remarks: Remarks, *, as_json: bool) -> None:
    from trapezoid.spool_search import row_of

    if as_json:
        print_json({"records": [_fact(kind, line) for kind, line in found], **_reading_facts(remarks)})
        return
    rows = [row_of(kind, line) for kind, line in _without_twins(found)]
    if rows:
        print_rows(rows, as_json=False)
    _warn(remarks, "" if rows else "no records match")


def _show_changes(found: list[tuple[RecordKind, Line]], remarks: Remarks, *, as_json: bool) -> None:
    from trapezoid.spool_search import change_row

    if as_json:
        rows = [{**line, **{name: _parsed(line[name]) for name in _JSON_MEMBERS if name in line}} for _, line in found]
        print_json({"changes": rows, **_reading_facts(remarks)})
        return
    if found:
        print_rows([change_row(line) for _, line in found], as_json=False)
    _warn(remarks, "" if found else "no changes match")


def _parsed(text: object) -> object:
    """What a member that is JSON says; as it is if it is none."""
    import json

    try:
        return json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return text


def _without_twins(found: list[tuple[RecordKind, Line]]) -> Iterator[tuple[RecordKind, Line]]:
    """Leave out the decision record of a message that has a message record as well, except for rules on trial."""
    from protofly.records import RecordKind

    recorded = [line.get("msg_id") for kind, line in found if kind is RecordKind.MESSAGE]  # any JSON value
    ids = {one for one in recorded if isinstance(one, str)}
    for kind, line in found:
        is_twin = isinstance(line.get("msg_id"), str) and line["msg_id"] in ids
        if kind is not RecordKind.DECISION or line.get("shadow") or not is_twin:
            yield kind, line


def _fact(kind: RecordKind, line: Line) -> dict[str, Any]:
    from trapezoid.spool_search import why

    return {"kind": kind.value, **line, "why": why(line)}


def _reading_facts(remarks: Remarks) -> dict[str, object]:
    return {"segments": remarks.segments, "damaged": remarks.texts()}


def _warn(remarks: Remarks, text: str) -> None:
    for remark in [text, *remarks.texts()]:
        if remark:
            sys.stderr.write(f"{escaped(remark)}\n")


def _follow(
    folder: Path,
    query: Query,
    found: list[tuple[RecordKind, Line]],
    positions: dict[SegmentName, int],
    *,
    as_json: bool,
) -> None:
    """Print the records found and then new ones, one line each, until interrupted."""
    import msgspec

    from trapezoid.spool_search import ANSWERED_KINDS, row_of

    while True:
        for kind, line in found:
            if as_json:
                sys.stdout.write(escaped_json(msgspec.json.encode(_fact(kind, line)).decode()) + "\n")
            else:
                sys.stdout.write(escaped("  ".join(filter(None, row_of(kind, line).values()))) + "\n")
        sys.stdout.flush()
        time.sleep(FOLLOW_SECONDS)
        found = sorted(_matching(folder, ANSWERED_KINDS, query, _new_remarks(), positions), key=_time_of)
