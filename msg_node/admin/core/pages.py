"""Lists for operators: filtered by one member, a page at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from msg_node.admin.core.operations import Value
from protofly.errors import Code, PeerError

DEFAULT_ROWS: Final = 100
MOST_ROWS: Final = 1000

Row = Mapping[str, object]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the rows of a list.

    Attributes:
        rows: In the order of the list.
        total: Rows that pass the filter.
        next: What to give as `after` for the next page; None on the last one.
    """

    rows: list[Row]
    total: int
    next: int | None


def page_of(rows: Iterable[Row], arguments: Mapping[str, Value]) -> Page:
    """Filter a list and cut a page out of it.

    Args:
        rows: All of it.
        arguments: `where`, `limit` and `after`, each of them only if given.

    Raises:
        PeerError: BAD_BODY for a filter that is none, or a member that no row has.
    """
    limit, after = int(arguments.get("limit", DEFAULT_ROWS)), int(arguments.get("after", 0))
    if not 0 < limit <= MOST_ROWS:
        raise PeerError(Code.BAD_BODY, f"`limit` is from 1 to {MOST_ROWS}")
    chosen = _filtered(list(rows), str(arguments.get("where", "")))
    taken = chosen[after : after + limit]
    end = after + len(taken)
    return Page(rows=taken, total=len(chosen), next=end if end < len(chosen) else None)


def _filtered(rows: list[Row], where: str) -> list[Row]:
    if not where or not rows:
        return rows
    member, has_text, text = where.partition("=")
    if not has_text or member not in rows[0]:
        raise PeerError(Code.BAD_BODY, f"`where` is `member=text`; members are {', '.join(rows[0])}")
    return [row for row in rows if text in str(row[member])]
