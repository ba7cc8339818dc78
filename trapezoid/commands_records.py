"""`trapezoid records`: what a node wrote down, read from its spool: why was this refused, who talks with whom."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protofly.printable import escaped, escaped_json
from trapezoid.output import FOUND_WANTING, errors_reported, print_json, print_rows

if TYPE_CHECKING:
    from protofly.record_segments import SegmentName
    from protofly.records import Kind
    from trapezoid.spool_reading import Line, Remarks, Segment
    from trapezoid.spool_search import Query

app = typer.Typer(help="Read what a node wrote down.", no_args_is_help=True)

Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings of the node, for example node.toml.")
]
Spool = Annotated[
    Path | None, typer.Option("--spool", metavar="DIR", help="A folder of segments, instead of --config.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Since = Annotated[
    str, typer.Option(help="From then on: a time (2026-03-01T12:00) in UTC, or how long ago: 90s 30m 2h 7d.")
]
Until = Annotated[str, typer.Option(help="Up to then, in the same forms.")]
Domain = Annotated[str, typer.Option(help="Only what concerns this domain.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="The newest so many.")]

FOLLOW_SECONDS = 0.5
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@app.command()
def find(
    config: Config = None,
    spool: Spool = None,
    *,
    id_: Annotated[str, typer.Option("--id", help="A message by its id in the records, or a record as boot/seq.")] = "",
    from_: Annotated[str, typer.Option("--from", metavar="ADDRESS", help="Sender, or runtime of a session.")] = "",
    to: Annotated[str, typer.Option("--to", metavar="ADDRESS", help="Recipient.")] = "",
    domain: Domain = "",
    code: Annotated[str, typer.Option(help="A code, outcome or event: domain-blocked, denied, taken-over.")] = "",
    rule: Annotated[str, typer.Option(help="The rule that decided, as set/rule.")] = "",
    since: Since = "",
    until: Until = "",
    refused: Annotated[bool, typer.Option("--refused", help="Only what was not let through.")] = False,
    limit: Limit = 50,
    json: Json = False,
) -> None:
    """Find records, the newest last, and say why each is as it is; exit code 1 when there is none."""
    with errors_reported(as_json=json):
        from trapezoid.spool_search import ANSWERED_KINDS, Query, address_words, domain_word

        folder, hashed = _spool_of(config, spool)
        query = Query(
            id=id_,
            sender=address_words(from_, hashed) if from_ else frozenset(),
            recipient=address_words(to, hashed) if to else frozenset(),
            domain=domain_word(domain) if domain else "",
            word=code,
            rule=rule,
            since_us=_time_us(since, "--since") or 0,
            until_us=_time_us(until, "--until"),
            is_refused=refused,
        )
        remarks = _new_remarks()
        found = _newest(_matching(folder, ANSWERED_KINDS, query, remarks), limit)
    _show(found, remarks, as_json=json)
    raise typer.Exit(0 if found else FOUND_WANTING)


@app.command()
def tail(
    config: Config = None,
    spool: Spool = None,
    *,
    domain: Domain = "",
    refused: Annotated[bool, typer.Option("--refused", help="Only what was not let through.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    limit: Limit = 20,
    json: Json = False,
) -> None:
    """Show the newest records; with --json and --follow one object per line."""
    with errors_reported(as_json=json):
        from trapezoid.spool_search import ANSWERED_KINDS, Query, domain_word

        folder, _ = _spool_of(config, spool)
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
def who(
    config: Config = None,
    spool: Spool = None,
    *,
    by: Annotated[str, typer.Option(help="domain, or address.")] = "domain",
    domain: Domain = "",
    since: Since = "",
    until: Until = "",
    limit: Limit = 50,
    json: Json = False,
) -> None:
    """Show who talks with whom: messages between domains, delivered and refused, the busiest pair first."""
    with errors_reported(as_json=json):
        from protofly.errors import SettingsError
        from protofly.records import Kind
        from trapezoid.spool_search import Query, domain_word, traffic_of, traffic_row

        if by not in {"domain", "address"}:
            raise SettingsError("--by: `domain` or `address`")
        folder, _ = _spool_of(config, spool)
        query = Query(
            domain=domain_word(domain) if domain else "",
            since_us=_time_us(since, "--since") or 0,
            until_us=_time_us(until, "--until"),
        )
        remarks = _new_remarks()
        lines = (line for _, line in _matching(folder, frozenset({Kind.MESSAGE}), query, remarks))
        pairs = traffic_of(lines, by_address=by == "address")
        rows = [traffic_row(pair, traffic) for pair, traffic in list(pairs.items())[:limit]]
    if json:
        print_json({"pairs": rows, "left_out": max(0, len(pairs) - limit), **_told(remarks)})
    elif rows:
        print_rows(rows, as_json=False)
        _warn(remarks, f"{len(pairs) - limit} more pairs: --limit" if len(pairs) > limit else "")
    else:
        _warn(remarks, "no message between domains in these records")
    raise typer.Exit(0 if rows else FOUND_WANTING)


# Reading.


def _spool_of(config: Path | None, spool: Path | None) -> tuple[Path, Callable[[str], str] | None]:
    """The folder, and how its addresses are hashed if they are. Raises SettingsError."""
    from functools import partial

    from protofly.errors import SettingsError
    from protofly.records import address_key, hash_address

    if (config is None) == (spool is None):
        raise SettingsError("say either --config or --spool")
    if spool is not None or config is None:
        assert spool is not None
        return spool, None
    from msg_node.settings.load import load_settings

    settings = load_settings(config)
    secret = settings.node.data_dir / "secret"
    if not settings.records.hash_addresses or not secret.exists():
        return settings.spool_dir, None
    from stubs_cache.store import load_secret

    return settings.spool_dir, partial(hash_address, key=address_key(load_secret(secret)))


def _new_remarks() -> Remarks:
    from trapezoid.spool_reading import Remarks

    return Remarks()


def _matching(
    folder: Path,
    kinds: frozenset[Kind],
    query: Query,
    remarks: Remarks,
    positions: dict[SegmentName, int] | None = None,
) -> Iterator[tuple[Kind, Line]]:
    """Records that a query admits, segment by segment; `positions` says where to begin, and then where they ended."""
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


def _newest(found: Iterable[tuple[Kind, Line]], limit: int) -> list[tuple[Kind, Line]]:
    """The newest ones, in order of time."""
    from heapq import nlargest

    return sorted(nlargest(limit, found, key=_time_of), key=_time_of)


def _time_of(item: tuple[Kind, Line]) -> int:
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
        raise SettingsError(f"{option} {text}: a time such as 2026-03-01T12:00 (UTC), or 90s 30m 2h 7d ago") from exc


# Showing.


def _show(found: list[tuple[Kind, Line]], remarks: Remarks, *, as_json: bool) -> None:
    from trapezoid.spool_search import row_of

    if as_json:
        print_json({"records": [_fact(kind, line) for kind, line in found], **_told(remarks)})
        return
    rows = [row_of(kind, line) for kind, line in _without_twins(found)]
    if rows:
        print_rows(rows, as_json=False)
    _warn(remarks, "" if rows else "no such record")


def _without_twins(found: list[tuple[Kind, Line]]) -> Iterator[tuple[Kind, Line]]:
    """A denied message has two records; people need the second one only for rules on trial."""
    from protofly.records import Kind

    told = [line.get("msg_id") for kind, line in found if kind is Kind.MESSAGE]  # whatever it is: not all are texts
    ids = {one for one in told if isinstance(one, str)}
    for kind, line in found:
        is_told = isinstance(line.get("msg_id"), str) and line["msg_id"] in ids
        if kind is not Kind.DECISION or line.get("shadow") or not is_told:
            yield kind, line


def _fact(kind: Kind, line: Line) -> dict[str, Any]:
    from trapezoid.spool_search import why

    return {"kind": kind.value, **line, "why": why(line)}


def _told(remarks: Remarks) -> dict[str, object]:
    return {"segments": remarks.segments, "damaged": remarks.texts()}


def _warn(remarks: Remarks, text: str) -> None:
    for remark in [text, *remarks.texts()]:
        if remark:
            sys.stderr.write(f"{escaped(remark)}\n")


def _follow(
    folder: Path, query: Query, found: list[tuple[Kind, Line]], positions: dict[SegmentName, int], *, as_json: bool
) -> None:
    """Print what is there and then what comes, one line each, until interrupted."""
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
