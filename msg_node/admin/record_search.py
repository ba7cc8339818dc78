"""Older denials than memory has, out of the audit records, for those who ask as operators or policy managers.

Reading a spool takes seconds and a processor, so the program around the node does it beside the node, one at a time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import trio

from msg_node.admin.core.pages import Row
from msg_node.admin.core.recent_decisions import GATES_WITHOUT_LINK
from protofly.errors import Code, PeerError
from protofly.records import RecordKind

SEARCH_SECONDS: Final = 60.0
SEARCHED_ROWS: Final = 5_000
"""So many records are looked at, the newest of the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DenialQuery:
    """Conditions on a denial; "" and None match any. Times are seconds since the Unix epoch."""

    since: float = 0.0
    until: float | None = None
    domain: str = ""
    gate: str = ""
    rule: str = ""


FindRecords = Callable[[DenialQuery, int], Awaitable[Sequence[Mapping[str, Any]]]]
"""Finds the newest records of what was refused, at most so many, as the audit records have them. Raises HostError."""


class RecordSearch:
    """Searches the records of the node, one search at a time.

    Args:
        find: Does one.
    """

    def __init__(self, find: FindRecords) -> None:
        self._find = find
        self._is_busy = False

    async def denials(self, query: DenialQuery) -> list[Row]:
        """Denials of gates, the newest first, in the form of those in memory.

        Raises:
            PeerError: RATE: a search is under way; TIMEOUT: it takes too long.
            HostError: The records cannot be searched.
        """
        if self._is_busy:
            raise PeerError(Code.RATE, "a search is under way: ask again when it is done")
        self._is_busy = True
        try:
            with trio.fail_after(SEARCH_SECONDS):
                found = await self._find(query, SEARCHED_ROWS)
        except trio.TooSlowError as exc:
            raise PeerError(Code.TIMEOUT, f"not done within {SEARCH_SECONDS:.0f} s: ask for a shorter time") from exc
        finally:
            self._is_busy = False
        rows = [_row(one) for one in found if _is_denial(one)]
        return sorted(rows, key=lambda row: str(row["time"]), reverse=True)


def _is_denial(record: Mapping[str, Any]) -> bool:
    """True for a denial; of one between domains, the record of the message counts, and not that of the decision."""
    if record.get("kind") == RecordKind.MESSAGE.value:
        return record.get("decision") == "deny"
    is_decision = record.get("kind") == RecordKind.DECISION.value
    return is_decision and record.get("permitted") is False and record.get("hook") in GATES_WITHOUT_LINK


def _row(record: Mapping[str, Any]) -> Row:
    def first(*names: str) -> str:
        return next((str(record[name]) for name in names if record.get(name)), "")

    at = datetime.fromtimestamp(record["ts_us"] / 1e6, UTC)
    return {
        "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "gate": first("role", "hook"),
        "from": first("src_key"),
        "to": first("dst_key"),
        "type": first("msg_type"),
        "code": first("outcome_code", "reason"),
        "rule": first("rule_id", "reason") if "role" in record else first("rule_id"),
        "msg_id": first("msg_id"),
    }
