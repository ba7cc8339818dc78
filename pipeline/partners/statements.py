"""Statements as bytes that two runs, or two people, can compare. Pure; no Spark.

One JSON object a line, members sorted, no white space, lines sorted. What is said about the exchange is in it, and
which version of the statement says it. How far proofs reached and which table version was read is not, because the
same statement may come about in several ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from pipeline.schemas import STATEMENT

STATEMENT_MEMBERS: Final = (*STATEMENT.fieldNames(), "status", "version", "set_digest")
_MAPS: Final = ("outcomes", "denials", "latency")


def canonical_statements(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Rows of `statement_daily` as sorted JSON lines, each ended by a line feed."""
    return b"".join(sorted(_line(row) for row in rows))


def plain_statement(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a row to JSON values: the members of a statement that it has, and its version."""
    members = {name: row[name] for name in STATEMENT_MEMBERS if name in row}
    # Arrow hands maps over as lists of pairs.
    return members | {name: {str(key): count for key, count in dict(members[name] or {}).items()} for name in _MAPS}


def partner_of(row: Mapping[str, Any]) -> str:
    """The other domain of a statement."""
    return str(row["dst_domain"] if row["role"] == "out" else row["src_domain"])


def _line(row: Mapping[str, Any]) -> bytes:
    members = {name: row[name] for name in STATEMENT_MEMBERS}
    return msgspec.json.encode(plain_statement(members), order="sorted") + b"\n"
