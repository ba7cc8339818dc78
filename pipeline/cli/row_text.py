"""Rows of tables as text for people: one member a line, times as UTC. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pipeline.core.harmless import harmless

_TIMES_US: Final = range(1_577_836_800_000_000, 4_102_444_800_000_000)
"""From 2020 to 2099: a number of µs in here is a time; one below is a duration."""


def rows_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Members that are null or empty are left out; a blank line stands between two rows."""
    blocks = []
    for row in rows:
        shown = {name: _text_of(name, value) for name, value in row.items() if value not in (None, "", [], {})}
        width = max(map(len, shown), default=0)
        behind = "\n" + " " * (width + 2)
        lines = (f"{name:{width}}  {behind.join(value.splitlines())}\n" for name, value in shown.items())
        blocks.append("".join(lines))
    return "\n".join(blocks)


def tables_text(tables: Sequence[Mapping[str, Any]]) -> str:
    """A line for each table: name, rows, version, days."""
    lines = [("table", "rows", "version", "days")]
    for one in tables:
        first, last = one["first_day"], one["last_day"]
        days = f"{first} to {last}" if first != last else first
        lines.append((one["table"], f"{one['rows']:,}", str(one["version"]), days))
    name, rows, version, _ = (max(map(len, column)) for column in zip(*lines, strict=True))
    return "".join(
        f"{line[0]:{name}}  {line[1]:>{rows}}  {line[2]:>{version}}  {line[3]}".rstrip() + "\n" for line in lines
    )


def _text_of(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{harmless(str(key)) or '-'}: {_text_of('', one)}" for key, one in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_text_of("", one) for one in value)
    if name.endswith("_us") and isinstance(value, int) and value in _TIMES_US:
        time = datetime.fromtimestamp(value // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        return f"{value} ({time}.{value % 1_000_000:06d} UTC)"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "\n".join(harmless(line) for line in str(value).strip().split("\n"))
