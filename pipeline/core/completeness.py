"""Completeness: from when until when a node's manifests prove that its records are complete.

A node numbers its segments, and each names the one before it by hash. So an unbroken chain up to a segment that was
closed at some time proves that nothing which was written until then is missing. What breaks that, and how long:

* a segment that is not there, was rejected, or does not follow the one before it: everything after;
* two segments that differ under one number, unless the one behind names the accepted one: everything from there on;
* records that the node itself counted as lost, or lines that are in quarantine: the time of that segment;
* a crash: from the last moment up to which everything was written until the next start, as the recovered segment says.

A node without messages seals an empty segment each hour. One that was taken out of service seals nothing, and that
proves nothing. An operator who knows better says so (`declared`), and the proof then says that it was said.

Times are those of the node's own clock, in µs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

GRACE_S: Final = 120
"""How long after its own time a message may be recorded: it waits 15 s for a link at most, and clocks are wrong."""


@dataclass(frozen=True, slots=True, order=True)
class SegmentFact:
    """What the ledger says about one accepted segment of message records."""

    node: str
    boot: int
    segno: int
    sha256: str
    prev_sha256: str
    opened_us: int
    closed_us: int
    missing: int
    """Records that the node lost, and lines in quarantine."""
    is_disputed: bool = False
    """Another one came under its number."""
    uncertain_us: tuple[int, int] = (0, 0)
    """From when until when a crash may have taken records that were not written yet; zeros for no crash."""


@dataclass(frozen=True, slots=True)
class Completeness:
    """What is proved about the records of a node or of a domain. An empty range proves nothing."""

    from_us: int
    until_us: int
    holes: tuple[tuple[int, int], ...] = ()
    proof: str = ""
    held_by: str = ""
    """The proof that ends first, of those of several nodes."""
    seen_us: int = field(default=0, compare=False)
    """The end of the last segment that there is, whether it proves anything or not."""
    crashes: tuple[tuple[int, int], ...] = ()
    """Times in which records may be missing because a node crashed."""


@dataclass(slots=True)
class _Chain:
    from_us: int
    until_us: int
    last: SegmentFact
    holes: list[tuple[int, int]] = field(default_factory=list)
    crashes: list[tuple[int, int]] = field(default_factory=list)
    broken: str = ""


NOTHING = Completeness(0, 0, proof="no segments")


def completeness_of_nodes(
    segments: Iterable[SegmentFact], declared: Mapping[str, int] | None = None
) -> dict[str, Completeness]:
    """What is proved about each node's records.

    Args:
        segments: Accepted ones, in any order; the same one may come more than once.
        declared: Until when the operator vouches for a node, in µs; counts where it goes beyond what is proved.
    """
    declared = declared or {}
    proved = {node: _of_chain(list(facts)) for node, facts in groupby(sorted(set(segments)), key=_node)}
    for node in sorted(declared):
        known = proved.get(node, NOTHING)
        if declared[node] > known.until_us:
            proof = f"{known.proof}, then by the operator's word"
            proved[node] = replace(known, until_us=declared[node], proof=proof)
    return proved


def completeness_of_domain(nodes: Iterable[str], proved: Mapping[str, Completeness]) -> Completeness:
    """What is proved about the records of a domain: what is proved about each of its nodes."""
    parts = [proved.get(node, NOTHING) for node in sorted(set(nodes))]
    if not parts:
        return NOTHING
    holes = sorted({hole for part in parts for hole in part.holes})
    return Completeness(
        from_us=max(part.from_us for part in parts),
        until_us=min(part.until_us for part in parts),
        holes=tuple(holes),
        proof=", ".join(part.proof for part in parts),
        held_by=min(parts, key=lambda part: part.until_us).proof,
        seen_us=max(part.seen_us for part in parts),
        crashes=tuple(sorted({crash for part in parts for crash in part.crashes})),
    )


def _node(fact: SegmentFact) -> str:
    return fact.node


def _walk(facts: list[SegmentFact]) -> _Chain:
    """Follow the chain of one node from its first known segment as far as it holds."""
    first = facts[0]
    # Records that begin with the first segment ever have nothing before them.
    chain = _Chain(from_us=0 if not first.prev_sha256 else first.opened_us, until_us=first.opened_us, last=first)
    for fact, behind in zip(facts, [*facts[1:], None], strict=True):
        if fact is not first and not _follows(chain.last, fact):
            chain.broken = f"boot {fact.boot} segment {fact.segno} does not follow it"
            break
        # What was sealed before was written: no crash reaches back behind that, whatever a manifest claims.
        written_us = fact.opened_us if fact is first else chain.last.closed_us
        chain.last = fact
        if _is_doubtful(fact, behind):
            chain.broken = "another one claims its number"
            break
        chain.until_us = fact.closed_us
        if fact.missing:
            chain.holes.append((fact.opened_us, fact.closed_us))
        from_us, until_us = fact.uncertain_us
        if until_us > max(from_us, written_us):
            chain.crashes.append((max(from_us, written_us), until_us))
    return chain


def _is_doubtful(fact: SegmentFact, behind: SegmentFact | None) -> bool:
    """Whether somebody says that other content belongs under this number: another segment, or the one behind it."""
    if behind is not None and (behind.boot, behind.segno) == (fact.boot, fact.segno + 1):
        return behind.prev_sha256 != fact.sha256
    return fact.is_disputed and not (behind is not None and _follows(fact, behind))


def _follows(last: SegmentFact, fact: SegmentFact) -> bool:
    is_next = fact.segno == last.segno + 1 if fact.boot == last.boot else fact.segno == 1
    return is_next and fact.prev_sha256 == last.sha256


def _of_chain(facts: list[SegmentFact]) -> Completeness:
    chain = _walk(facts)
    last = chain.last
    proof = f"node {last.node} boot {last.boot} segment {last.segno}"
    if chain.broken:
        proof += f" ({chain.broken})"
    seen_us = max(fact.closed_us for fact in facts)
    holes, crashes = tuple(chain.holes), tuple(chain.crashes)
    return Completeness(chain.from_us, chain.until_us, holes, proof, seen_us=seen_us, crashes=crashes)
