"""Records for a running node: what `trapezoid records find` finds, in a process of its own."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msg_node.admin.record_search import RecordQuery
from protofly.errors import Code, HostError
from trapezoid.beside import run_beside

_WORDS_CHARS = 500


async def find_beside(config: Path, query: RecordQuery, limit: int) -> list[dict[str, Any]]:
    """The newest records that a query wants, by a settings file as it is now.

    Raises:
        HostError: The process did not get as far as an answer.
    """
    words = [
        "records",
        "find",
        "--json",
        f"--config={config}",
        f"-n{limit}",
        *(["--refused"] if query.is_refused else []),
    ]
    asked = {
        "since": _moment(query.since),
        "until": "" if query.until is None else _moment(query.until),
        "domain": query.domain,
        "code": query.gate,
        "rule": query.rule,
        "from": query.sender,
        "to": query.recipient,
        "id": query.id,
    }
    words += [f"--{name}={value}" for name, value in asked.items() if value]
    done = await run_beside(words)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {}
    records = answer.get("records") if isinstance(answer, dict) else None
    if isinstance(records, list):
        return records
    error = answer.get("error") if isinstance(answer, dict) else None
    detail = error.get("detail") if isinstance(error, dict) else done.stderr.decode(errors="replace")[-_WORDS_CHARS:]
    raise HostError(Code.STORAGE, f"the search ended without an answer: {detail}")


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
