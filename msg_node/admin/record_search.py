"""What the audit records have, for those who ask as operators: any record, and older denials than memory has.

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
class RecordQuery:
    """Conditions on a record; "" and None match any. Times are seconds since the Unix epoch.

    Attributes:
        gate: One that has denied.
        sender: An address as it is, or as records have it.
        recipient: Likewise.
        id: A message by its `msg_id`, or by the id that its sender gave it.
        is_refused: Only what was refused.
    """

    since: float = 0.0
    until: float | None = None
    domain: str = ""
    gate: str = ""
    rule: str = ""
    sender: str = ""
    recipient: str = ""
    id: str = ""
    is_refused: bool = True


FindRecords = Callable[[RecordQuery, int], Awaitable[Sequence[Mapping[str, Any]]]]
"""Finds the newest records, at most so many, as the audit records have them, each with `why`. Raises HostError."""


class RecordSearch:
    """Searches the records of the node, one search at a time.

    Args:
        find: Does one.
    """

    def __init__(self, find: FindRecords) -> None:
        self._find = find
        self._is_busy = False

    async def denials(self, query: RecordQuery) -> list[Row]:
        """Denials of gates, the newest first, in the form of those in memory. Raises as `records`."""
        rows = [_denial_row(one) for one in await self._found(query) if _is_denial(one)]
        return sorted(rows, key=lambda row: str(row["time"]), reverse=True)

    async def records(self, query: RecordQuery) -> list[Row]:
        """Find records of messages, decisions, links, stubs and sessions, newest first.

        Raises:
            PeerError: RATE: a search is under way; TIMEOUT: it takes too long.
            HostError: The records cannot be searched.
        """
        rows = [_row(one) for one in await self._found(query) if not _has_record_of_message(one)]
        return sorted(rows, key=lambda row: str(row["time"]), reverse=True)

    async def _found(self, query: RecordQuery) -> Sequence[Mapping[str, Any]]:
        if self._is_busy:
            raise PeerError(Code.RATE, "a search is under way: ask again when it is done")
        self._is_busy = True
        try:
            with trio.fail_after(SEARCH_SECONDS):
                return await self._find(query, SEARCHED_ROWS)
        except trio.TooSlowError as exc:
            raise PeerError(Code.TIMEOUT, f"not done within {SEARCH_SECONDS:.0f} s: ask for a shorter time") from exc
        finally:
            self._is_busy = False


def _is_denial(record: Mapping[str, Any]) -> bool:
    """True for a denial; of one between domains, the record of the message counts, and not that of the decision."""
    if record.get("kind") == RecordKind.MESSAGE.value:
        return record.get("decision") == "deny"
    is_decision = record.get("kind") == RecordKind.DECISION.value
    return is_decision and record.get("permitted") is False and record.get("hook") in GATES_WITHOUT_LINK


def _has_record_of_message(record: Mapping[str, Any]) -> bool:
    """True for the decision of a gate of a link: the record of its message says the same; not for rules on trial."""
    is_decision = record.get("kind") == RecordKind.DECISION.value
    return is_decision and record.get("hook") not in GATES_WITHOUT_LINK and not record.get("shadow")


def _denial_row(record: Mapping[str, Any]) -> Row:
    return {
        "time": _time(record),
        "gate": _first(record, "role", "hook"),
        "from": _first(record, "src_key"),
        "to": _first(record, "dst_key"),
        "type": _first(record, "msg_type"),
        "code": _first(record, "outcome_code", "reason"),
        "rule": _first(record, "rule_id", "reason") if "role" in record else _first(record, "rule_id"),
        "msg_id": _first(record, "msg_id"),
    }


def _row(record: Mapping[str, Any]) -> Row:
    return {
        "time": _time(record),
        "kind": _first(record, "kind"),
        "from": _first(record, "src_key", "runtime_key", "src_domain", "domain"),
        "to": _first(record, "dst_key", "dst_domain"),
        "type": _first(record, "msg_type", "step"),
        "result": _first(record, "outcome", "event") or ("permitted" if record.get("permitted") else "denied"),
        "place": _first(record, "role", "hook", "direction"),
        "why": _first(record, "why"),
        "msg_id": _first(record, "msg_id"),
    }


def _first(record: Mapping[str, Any], *names: str) -> str:
    return next((str(record[name]) for name in names if record.get(name)), "")


def _time(record: Mapping[str, Any]) -> str:
    at = datetime.fromtimestamp(record["ts_us"] / 1e6, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
