"""What partners have found out about us, as alerts: senders of ours that sent them very much, and what they return.

They are rows of the same form as those of `alert`, for the same receivers. An alert is about one report or one return,
so a partner causes no more of them than it may hand over files. Times are those of our records as far as there are
any; what a partner says of its clock is kept within the day on which it came.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pipeline.core.utc_days import day_of, end_us

HIGH_USAGE: Final = "high-usage"
RETURNED: Final = "returned"
PATTERNS: Final = frozenset({HIGH_USAGE, RETURNED})
_HOUR_US: Final = 3_600_000_000
_DAY_US: Final = 24 * _HOUR_US
_NAMED_MOST: Final = 5
_EVIDENCE_MOST: Final = 20


def of_usage(rows: Iterable[Mapping[str, Any]], domain: str) -> Iterator[dict[str, Any]]:
    """One alert for each report of high usage that a partner has made to us.

    Args:
        rows: Of `usage_named`.
        domain: Ours.
    """
    reports = defaultdict[tuple[str, str, int], list[Mapping[str, Any]]](list)
    for row in rows:
        if row["peer"] == domain:
            reports[row["domain"], row["dt"], row["made_us"]].append(row)
    for (partner, dt, made_us), named in sorted(reports.items()):
        most = sorted(named, key=lambda row: (-row["messages"], row["src_key"] or ""))
        shown = [
            f"{row['src_key'] or 'a sender without a record of ours'} ({row['messages']:,} messages)" for row in most
        ]
        more = f" and {len(shown) - _NAMED_MOST} more" if len(shown) > _NAMED_MOST else ""
        about = f"{partner} reports senders of ours that sent it very much: {', '.join(shown[:_NAMED_MOST])}{more}"
        when_us = min(max(made_us, end_us(dt) - _DAY_US), end_us(dt) - 1)
        yield _alert(domain, partner, HIGH_USAGE, when_us) | {
            "subject": f"usage-{made_us}",
            "observed": float(most[0]["messages"]),
            "explanation": about,
        }


def of_returns(rows: Iterable[Mapping[str, Any]], domain: str) -> Iterator[dict[str, Any]]:
    """One alert for each file and each set of records that a partner has returned to us.

    Args:
        rows: Of `peer_return`.
        domain: Ours.
    """
    returns = defaultdict[tuple[str, str, int], list[Mapping[str, Any]]](list)
    for row in rows:
        if row["peer"] == domain:
            returns[row["domain"], row["dt"], row["entered_us"]].append(row)
    for (partner, dt, entered_us), returned in sorted(returns.items()):
        files = sorted(f"{row['file']}: {row['reason']}: {row['detail'] or ''}" for row in returned if row["file"])
        records = [row for row in returned if not row["file"]]
        counts = Counter(str(row["reason"]) for row in records)
        said = [f"{partner} has refused {', '.join(files)}"] if files else []
        if records:
            classes = ", ".join(f"{counts[name]:,} {name}" for name in sorted(counts))
            said.append(f"{partner} does not accept {len(records):,} records of {dt}: {classes}; see peer_return")
        yield _alert(domain, partner, RETURNED, entered_us) | {
            "subject": f"{dt} at {entered_us}",
            "observed": float(len(returned)),
            "evidence": sorted(row["msg_id"].hex() for row in records if row["msg_id"])[:_EVIDENCE_MOST],
            "explanation": "; ".join(said),
        }


def _alert(domain: str, partner: str, pattern: str, when_us: int) -> dict[str, Any]:
    return {
        "our_domain": domain,
        "peer_domain": partner,
        "pattern": pattern,
        "hour_us": when_us // _HOUR_US * _HOUR_US,
        "expected": None,
        "threshold": None,
        "severity": "warning",
        "evidence": [],
        "proposed_policy": None,
        "dt": day_of(when_us),
    }
