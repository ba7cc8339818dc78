"""Job `block-list`: domains against which alerts of the last days speak, as a signed list that others can subscribe to.

It reads the few rows of `alert` and writes no table, so it needs no Spark.
"""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from pipeline.core.utc_days import moment
from pipeline.jobs.result import JobResult
from pipeline.lake import durable
from pipeline.lake.lake_files import LakeFiles
from pipeline.schemas import ALERT, NODE_OWNER
from protofly.block_list import (
    ENTRIES_MAX,
    SERIAL_MAX,
    VALID_SECONDS_MAX,
    BlockedDomain,
    BlockList,
    sign_block_list,
)
from protofly.errors import PeerError, SettingsError
from protofly.signatures import SigningKey, decode_envelope

APP: Final = "block-list"
PATTERNS: Final = frozenset({"flood", "spoofing"})
"""What a domain does as a whole. Its users may do the others without it, and a list of persons would be no business of
others."""
_DOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""What is none would make subscribers refuse the whole list."""
_DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Rule by which domains are listed, and the validity of the list.

    Attributes:
        days: Alerts of so many days back count.
        alerts: A domain with so many severe ones is listed.
        hours: So long the list is valid.
    """

    days: int = 7
    alerts: int = 3
    hours: float = 24.0


def run(lake: LakeFiles, rule: Listed = Listed(), *, author: str, key: SigningKey, out: Path) -> JobResult:
    """Write the list anew, also when nobody is on it: an empty list says that nobody is.

    `details` has `entries`, `expires` and `out`.

    Args:
        lake: Reads `alert`.
        rule: Who is on it.
        author: Our domain; only alerts by its own records count.
        key: An Ed25519 key whose public half subscribers have.
        out: The file, replaced as a whole. Everybody may read it, so any web server can serve it.

    Raises:
        SettingsError: Valid for too long, or not at all; or the lake has records of other domains only.
        LakeError: The lake cannot be read.
        OSError: The file cannot be written.
    """
    if not 0 < rule.hours <= VALID_SECONDS_MAX / 3600:
        raise SettingsError(f"--hours: expected more than 0 and at most {VALID_SECONDS_MAX / 3600:.0f}")
    owners = sorted({row["our_domain"] for row in lake.read_small(NODE_OWNER, ("our_domain",)).to_pylist()})
    if owners and author not in owners:
        raise SettingsError(f"{author} has no records in this lake, which has those of {', '.join(owners)}")
    result = JobResult(APP, versions={ALERT.name: lake.version(ALERT)})
    now = time.time()
    since_us = int(now * 1e6) - rule.days * _DAY_US
    found = defaultdict[str, Counter[str]](Counter)
    columns = ("our_domain", "peer_domain", "pattern", "hour_us", "severity")
    for row in lake.read_small(ALERT, columns).to_pylist():
        is_meant = row["our_domain"] == author and row["pattern"] in PATTERNS and row["severity"] == "severe"
        if is_meant and row["hour_us"] >= since_us and _DOMAIN.fullmatch(row["peer_domain"] or ""):
            found[row["peer_domain"]][row["pattern"]] += 1
    listed = {domain: counts for domain, counts in found.items() if counts.total() >= rule.alerts}
    worst = sorted(listed, key=lambda domain: (-listed[domain].total(), domain))[:ENTRIES_MAX]
    entries = tuple(BlockedDomain(domain=domain, reason=_reason(listed[domain], rule.days)) for domain in sorted(worst))
    block_list = BlockList(
        author=author,
        serial=_serial_after(out, int(now * 1e6)),
        issued=now,
        expires=now + rule.hours * 3600,
        entries=entries,
    )
    durable.replace(out, sign_block_list(block_list, key), is_public=True)
    result.outcome = f"{len(entries):,} domains, valid until {moment(int(block_list.expires * 1e6))}"
    result.warnings += [f"{one.domain}: {one.reason}" for one in entries]
    result.details = {
        "entries": [{"domain": one.domain, "reason": one.reason} for one in entries],
        "expires": block_list.expires,
        "out": str(out.absolute()),
    }
    return result


def _serial_after(out: Path, serial: int) -> int:
    """A number above that of the list that is published: the clock may have been set back since. Raises OSError."""
    try:
        published = msgspec.json.decode(decode_envelope(out.read_bytes()).payload, type=BlockList).serial
    except (FileNotFoundError, PeerError, ValueError):  # none, or not one of ours
        published = 0
    return max(serial, published + 1) if published < SERIAL_MAX else serial


def _reason(counts: Counter[str], days: int) -> str:
    return (
        ", ".join(f"{pattern} in {count} hour{'s' * (count > 1)}" for pattern, count in sorted(counts.items()))
        + f" of {days} days"
    )
