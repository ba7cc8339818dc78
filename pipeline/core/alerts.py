"""Alerts: what was found about a peer or a sender, in words, with its evidence and a gate entry to consider.

Every pattern is judged by the records of the domain that was the target: nobody is accused by a third party's records.
What a foreign domain wrote (addresses) gets into a proposed policy only when it is made of harmless characters;
otherwise, and when addresses are hashed, the proposal names the domain.

Source: pipeline study, section 8.3; trust and hosts, section 7, rows 13, 15 and 38.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pipeline.core.thresholds import FAN_OUT_RECIPIENTS, SCAN_SHARE

SPOOFS_SEVERE: Final = 10
_DOMAIN: Final = re.compile(r"[a-z0-9.-]{1,253}")
_HARMLESS: Final = re.compile(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9._~:/@%#-]{1,512}")


def fan_out(sender: Mapping[str, Any], evidence: Iterable[str]) -> dict[str, Any]:
    """A sender who wrote to very many different recipients within five minutes; a row of `senders.too_much`."""
    return _Alert(
        pattern="fan-out",
        subject=sender["src_key"],
        observed=sender["widest"],
        threshold=FAN_OUT_RECIPIENTS,
        explanation=f"One sender wrote to {sender['widest']} different recipients within five minutes.",
        policy=_sender_policy("fan-out", sender),
        evidence=evidence,
    ).row(sender)


def scan(sender: Mapping[str, Any], evidence: Iterable[str]) -> dict[str, Any]:
    """A sender most of whose messages of an hour were for addresses that do not exist; the same row."""
    return _Alert(
        pattern="scanning",
        subject=sender["src_key"],
        observed=sender["misses"] / sender["attempts"],
        threshold=SCAN_SHARE,
        explanation=f"{sender['misses']} of {sender['attempts']} messages of one sender went to addresses that do not "
        f"exist, {sender['unknown']} different ones.",
        policy=_sender_policy("scanning", sender),
        evidence=evidence,
    ).row(sender)


def spoofing(peer: Mapping[str, Any]) -> dict[str, Any]:
    """A peer that sent messages in the name of a domain that it had not proved to be; a row of `senders.claimed`."""
    return _Alert(
        pattern="spoofing",
        subject=peer["peer_domain"],
        observed=peer["attempts"],
        threshold=1,
        explanation=f"{peer['attempts']} messages claimed senders of domains that the peer had not proved to be, "
        f"{peer['senders']} different senders. None passed.",
        policy=_policy("spoofing", peer["peer_domain"], ""),
        is_severe=peer["attempts"] >= SPOOFS_SEVERE,
        evidence=peer["claimed"],
    ).row(peer)


def flood(hour: Mapping[str, Any]) -> dict[str, Any]:
    """A peer that sent far more in an hour than is usual at that hour of the week; a row of `usual.floods`.

    The evidence is the count itself: a list of messages would be that of the whole hour.
    """
    policy = None
    if _DOMAIN.fullmatch(hour["peer_domain"]):
        rate = max(math.floor(hour["level"] / 360 + 0.5) / 10, 0.1)
        policy = (
            f'# in the settings of the node\n[[peer]]\ndomain = "{hour["peer_domain"]}"\nmessages_per_second = {rate}\n'
        )
    return _Alert(
        pattern="flood",
        subject=hour["peer_domain"],
        observed=hour["messages"],
        expected=hour["median"],
        threshold=hour["level"],
        explanation=f"{int(hour['messages'])} messages in one hour, where {math.floor(hour['median'] + 0.5)} are usual "
        f"at that hour (over {hour['hours']} hours).",
        policy=policy,
        is_severe=hour["messages"] > 2 * hour["level"],
    ).row(hour)


def evidence_of(firsts: Iterable[Mapping[str, Any]], most: int) -> dict[tuple[Any, ...], list[str]]:
    """Message ids by sender, hour, and whether nobody was there: the first ones of all that workers have found.

    Args:
        firsts: Rows of `senders.first_of`.
        most: How many of each.
    """
    found: dict[tuple[Any, ...], list[tuple[int, bytes]]] = {}
    for row in firsts:
        key = (row["our_domain"], row["peer_domain"], row["src_key"], row["hour_us"], row["is_unknown"])
        found.setdefault(key, []).append((row["ts_us"], row["msg_id"]))
    return {key: sorted({msg_id.hex() for _, msg_id in sorted(its)[:most]}) for key, its in found.items()}


def of_senders(senders: Iterable[Mapping[str, Any]], evidence: Mapping[tuple[Any, ...], list[str]]) -> Iterator[Any]:
    """Alerts about rows of `senders.too_much`, each of one pattern or both, with `evidence_of` them."""
    for sender in senders:
        key = (sender["our_domain"], sender["peer_domain"], sender["src_key"], sender["hour_us"])
        if sender["widest"] >= FAN_OUT_RECIPIENTS:
            yield fan_out(sender, evidence.get((*key, False), ()))
        if sender["is_scan"]:
            yield scan(sender, evidence.get((*key, True), ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alert:
    """The contents of an alert, without the domains and the hour."""

    pattern: str
    subject: str | None
    observed: float
    threshold: float
    explanation: str
    policy: str | None
    expected: float = 0.0
    is_severe: bool = True
    evidence: Iterable[str] = ()

    def row(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """The row of `alert`, with the domains and the hour of what was counted."""
        return {
            "our_domain": about["our_domain"],
            "peer_domain": about["peer_domain"],
            "pattern": self.pattern,
            "hour_us": about["hour_us"],
            "subject": self.subject,
            "observed": float(self.observed),
            "expected": float(self.expected),
            "threshold": float(self.threshold),
            "severity": "severe" if self.is_severe else "warning",
            "evidence": list(self.evidence),
            "explanation": self.explanation,
            "proposed_policy": self.policy,
            "dt": datetime.fromtimestamp(about["hour_us"] // 1_000_000, tz=UTC).strftime("%Y-%m-%d"),
        }


def _sender_policy(pattern: str, sender: Mapping[str, Any]) -> str | None:
    """A set against the sender where its address is there and harmless, against its domain otherwise."""
    is_safe = sender["src_key"] is not None and _HARMLESS.fullmatch(sender["src_key"])
    return _policy(
        pattern, sender["peer_domain"], f', msgFrom = {{ equals = "{sender["src_key"]}" }}' if is_safe else ""
    )


def _policy(pattern: str, peer_domain: str, target: str) -> str | None:
    """A set that takes only these messages: all others go on to the sets after it."""
    if not _DOMAIN.fullmatch(peer_domain):
        return None
    return (
        f'id = "{pattern}-{peer_domain.replace(".", "-")}"\n'
        f'target = {{ hook = {{ equals = "in" }}, linkDomain = {{ equals = "{peer_domain}" }}{target} }}\n\n'
        '[[rules]]\nid = "refuse"\neffect = "deny"\n'
    )
