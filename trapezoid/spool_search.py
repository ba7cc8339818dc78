"""Search records: find them, explain refusals, count traffic. Pure; `spool_reading` reads the files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from protofly.address import canonical_key, domain_of
from protofly.errors import Code, PeerError
from protofly.records import RecordKind

Line = Mapping[str, Any]
ANSWERED_KINDS: Final = frozenset({RecordKind.MESSAGE, RecordKind.DECISION, RecordKind.LINK, RecordKind.SESSION})
"""Kinds that record the fate of a message or a connection."""
GOOD_OUTCOMES: Final = frozenset({"delivered", "duplicate"})
REFUSED_EVENTS: Final = frozenset({"refused", "spoofed"})
_DOMAINS: Final = ("src_domain", "dst_domain", "link_domain", "domain")
_NAMES: Final = {code.word: code.description for code in reversed(Code)}
_STEPS: Final = {
    "rate": "the rate of the [[peer]] entry",
    "list": "a list of the settings",
    "policy": "a rule",
    "default": "no rule applied, and the [[peer]] entry denies by default",
    "node": "the node itself, before or after the gates",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Conditions on a record, all of which must hold. Empty values match everything.

    Attributes:
        id: A message by its `msg_id` or the `id` of its sender, or a record as `boot/seq`.
        sender, recipient: Addresses as the records have them (`AddressWords`).
        word: A code, an outcome or an event.
        since_us, until_us: Bounds of the time, in µs since the Unix epoch.
        is_refused: Match only refusals (`is_refusal`).
    """

    id: str = ""
    sender: frozenset[str] = frozenset()
    recipient: frozenset[str] = frozenset()
    domain: str = ""
    word: str = ""
    rule: str = ""
    since_us: int = 0
    until_us: int | None = None
    is_refused: bool = False

    def admits(self, line: Line) -> bool:
        """Return True if a record matches."""
        return (
            line["ts_us"] >= self.since_us
            and (self.until_us is None or line["ts_us"] <= self.until_us)
            and (not self.is_refused or is_refusal(line))
            and (not self.domain or self.domain in (line.get(name) for name in _DOMAINS))
            and (not self.sender or _senders(line) & self.sender != frozenset())
            and (not self.recipient or _text(line, "dst_key") in self.recipient)
            and (not self.word or self.word in _words(line))
            and (not self.rule or self.rule == line.get("rule_id"))
            and (not self.id or self.id in _ids(line))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeQuery:
    """Conditions on the record of a change by an operator, all of which must hold. Empty values match everything.

    Attributes:
        operation: Its first words, for example `peer` or `peer block`.
        by: Who asked, or part of it.
        about: A text in the arguments, or in what was so before and after.
        since_us, until_us: As in `Query`.
        is_refused: Match only what was refused.
    """

    operation: str = ""
    by: str = ""
    about: frozenset[str] = frozenset()
    since_us: int = 0
    until_us: int | None = None
    is_refused: bool = False

    def admits(self, line: Line) -> bool:
        """Return True if a record matches."""
        said = " ".join(_text(line, name) for name in ("arguments", "before", "after"))
        return (
            line["ts_us"] >= self.since_us
            and (self.until_us is None or line["ts_us"] <= self.until_us)
            and (not self.is_refused or bool(_text(line, "code")))
            and f"{_text(line, 'operation')} ".startswith(f"{self.operation} " if self.operation else "")
            and self.by in _text(line, "actor")
            and (not self.about or any(one in said for one in self.about))
        )


def change_row(line: Line) -> dict[str, str]:
    """The record of a change as a row of texts: time, who, what, before, after, and the code of a refusal."""
    actor, way = _text(line, "actor"), _text(line, "way")
    code = _text(line, "code")
    return {
        "time": time_text(line["ts_us"]),
        "by": f"{actor} by {way}" if way and way != "node" else actor,
        "operation": _text(line, "operation"),
        "result": "; ".join(filter(None, (code, _text(line, "detail")))) if code else "done",
        "arguments": _text(line, "arguments"),
        "before": _text(line, "before"),
        "after": _text(line, "after"),
    }


def is_refusal(line: Line) -> bool:
    """Return True for the record of a message, decision or connection that was refused."""
    if "outcome" in line:
        return _text(line, "outcome") not in GOOD_OUTCOMES
    if "permitted" in line:
        return line["permitted"] is False
    return _text(line, "event") in REFUSED_EVENTS


def _senders(line: Line) -> frozenset[object]:
    return frozenset(line[name] for name in ("src_key", "runtime_key") if isinstance(line.get(name), str))


def _words(line: Line) -> set[object]:
    names = ("outcome", "outcome_code", "code", "reason", "event", "effect", "decision", "hook", "role")
    return {line[name] for name in names if isinstance(line.get(name), str)}


def _ids(line: Line) -> set[object]:
    facts = line.get("facts")
    own = facts.get("msgId") if isinstance(facts, Mapping) else None
    ids = line.get("msg_id"), own, f"{line.get('boot', 0)}/{line.get('seq', 0)}"
    return {one for one in ids if isinstance(one, str)}


def address_words(address: str, hashed: Callable[[str], str] | None) -> frozenset[str]:
    """All forms in which records may have an address: as written, canonical, and hashed."""
    forms = {address}
    with contextlib.suppress(PeerError):  # already a hash, or not an address
        forms.add(canonical_key(address))
    return frozenset(forms | ({hashed(form) for form in forms} if hashed is not None else set()))


# Texts.


def row_of(kind: RecordKind, line: Line) -> dict[str, str]:
    """A record as a row of texts: time, kind, sender, recipient, type, outcome, reason and id."""
    return {
        "time": time_text(line["ts_us"]),
        "kind": kind.value,
        "from": _text(line, "src_key", "runtime_key", "src_domain", "domain"),
        "to": _text(line, "dst_key", "dst_domain"),
        "type": _text(line, "msg_type", "step"),
        "outcome": _outcome(line),
        "why": why(line),
        "id": _text(line, "msg_id") or f"{line.get('boot', 0)}/{line.get('seq', 0)}",
    }


def _outcome(line: Line) -> str:
    outcome = _text(line, "outcome", "event") or ("permitted" if line.get("permitted") else "denied")
    place = _text(line, "role", "hook", "direction")
    return f"{outcome} ({place})" if place else outcome


def why(line: Line) -> str:
    """Explain a record: its code with the meaning, the step that decided, the rule, and the policy revision."""
    code = _text(line, "outcome_code", "code") or ("" if "outcome" in line else _text(line, "reason"))
    parts = [f"{code}: {_NAMES[code]}" if code in _NAMES else code]
    if "outcome" in line and _text(line, "reason") in _STEPS and is_refusal(line):
        parts.append(f"by {_STEPS[line['reason']]}")
    rule, revision = _text(line, "rule_id"), _text(line, "policy_rev")
    parts += [f"rule {rule}" if rule else "", f"policies {revision}" if rule and revision else ""]
    shadow = line.get("shadow")
    parts += [f"on trial: {', '.join(map(str, shadow))}" if isinstance(shadow, list) and shadow else ""]
    parts += [_text(line, "trap"), _text(line, "detail")]
    return "; ".join(filter(None, parts))


def time_text(ts_us: int) -> str:
    """A time in UTC, to the millisecond."""
    try:
        moment = datetime.fromtimestamp(ts_us / 1e6, UTC)
    except (OverflowError, ValueError, OSError):
        return str(ts_us)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _text(line: Line, *names: str) -> str:
    """The first of these members that is a non-empty text, else empty."""
    return next((line[name] for name in names if isinstance(line.get(name), str) and line[name]), "")


# Traffic.


@dataclass(slots=True)
class Traffic:
    """Counts of the messages between two domains or addresses."""

    delivered: int = 0
    refused: int = 0
    size_bytes: int = 0
    first_us: int = 0
    last_us: int = 0

    def add(self, line: Line) -> None:
        """Count one message record."""
        is_bad = is_refusal(line)
        self.refused += is_bad
        self.delivered += not is_bad
        size = line.get("size_in")
        self.size_bytes += size if isinstance(size, int) else 0
        self.first_us = min(self.first_us or line["ts_us"], line["ts_us"])
        self.last_us = max(self.last_us, line["ts_us"])


def traffic_of(
    lines: Iterable[Line], *, by_address: bool, hashed: Callable[[str], str] | None = None
) -> dict[tuple[str, str], Traffic]:
    """Count messages by sender and recipient, busiest pair first; `hashed` joins addresses with their hashes."""
    names = ("src_key", "dst_key") if by_address else ("src_domain", "dst_domain")
    found: dict[tuple[str, str], Traffic] = {}
    for line in lines:
        source, target = _text(line, names[0]), _text(line, names[1])
        if by_address and hashed is not None:
            source, target = (hashed(one) if "://" in one else one for one in (source, target))
        found.setdefault((source, target), Traffic()).add(line)
    return dict(sorted(found.items(), key=lambda item: -(item[1].delivered + item[1].refused)))


def traffic_row(pair: tuple[str, str], traffic: Traffic) -> dict[str, object]:
    """One pair as a row."""
    return {
        "from": pair[0],
        "to": pair[1],
        "delivered": traffic.delivered,
        "refused": traffic.refused,
        "bytes": traffic.size_bytes,
        "first": time_text(traffic.first_us),
        "last": time_text(traffic.last_us),
    }


def domain_word(domain: str) -> str:
    """A domain in the form of records; of an address, its domain."""
    return domain_of(domain) if "://" in domain else domain.strip().rstrip(".").lower()
