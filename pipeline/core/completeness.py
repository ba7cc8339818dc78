"""Completeness: from when until when a node's manifests prove that its records are complete.

A node numbers its segments, and each names the one before it by hash. So an unbroken chain up to a segment that was
closed at some time proves that nothing which was written until then is missing. What breaks that, and how long:

* a segment that is not there, was rejected, or does not follow the one before it: everything after;
* two segments that differ under one number, unless the one behind names the accepted one: everything from there on;
* records that the node itself counted as lost, or lines that are in quarantine: the time of that segment;
* a crash: from the last moment up to which everything was written until the next start, as the recovered segment says.

A node without messages seals an empty segment each hour. One that was taken out of service seals nothing, and that
proves nothing. An operator who knows better says so (`declared`), and the proof then says that it was said. That word
is about silence: it says nothing about segments that were written and are not here, so their time is a hole.

Times are those of the node's own clock, in µs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from pipeline.core.stretches import Accepted, Period, Stretch, clipped

GRACE_S: Final = 120
"""How long after its own time a message may be recorded: it waits 15 s for a link at most, and clocks are wrong."""


@dataclass(frozen=True, slots=True)
class Completeness:
    """Proof of completeness of the records of a node or a domain: a range of time, and holes in it.

    An empty range proves nothing.
    """

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
    last: Accepted
    holes: list[Period] = field(default_factory=list)
    crashes: list[Period] = field(default_factory=list)
    broken: str = ""


NOTHING = Completeness(0, 0, proof="no segments")


def completeness_of_nodes(
    stretches: Iterable[Stretch], declared: Mapping[str, int] | None = None
) -> dict[str, Completeness]:
    """Compute the proof of completeness of each node's records.

    Args:
        stretches: Of segments of messages, of any nodes; those of a node in their order.
        declared: Until when the operator vouches for a node, in µs; counts where it goes beyond what is proved.
    """
    declared = declared or {}
    of_node = defaultdict[str, list[Stretch]](list)
    for one in stretches:
        of_node[one.node].append(one)
    proved = {node: _of_chain(node, its) for node, its in sorted(of_node.items())}
    for node in sorted(declared):
        known = proved.get(node, NOTHING)
        if declared[node] > known.until_us:
            proof = f"{known.proof}, then by the operator's word"
            holes, crashes = _in_doubt(of_node[node])
            proved[node] = replace(known, until_us=declared[node], holes=holes, proof=proof, crashes=crashes)
    return proved


def _in_doubt(stretches: Sequence[Stretch]) -> tuple[tuple[Period, ...], tuple[Period, ...]]:
    """Holes and crashes of all that a node has written, also behind the place where its chain breaks."""
    if not stretches:
        return (), ()
    holes = {hole for one in stretches for hole in one.holes}
    crashes = {crash for one in stretches for crash in one.crashes}
    for before, one in zip([None, *stretches[:-1]], stretches, strict=True):
        written_us = one.first.opened_us if before is None else before.last.closed_us
        crashes |= {*clipped(one.first_uncertain_us, written_us)}
    for before, one in pairwise(stretches):
        if not _follows(before.last, one.first):
            begin_us, end_us = sorted((before.last.closed_us, one.first.opened_us))
            holes.add((begin_us, end_us))
    for one, behind in zip(stretches, [*stretches[1:], None], strict=True):
        if _is_doubtful(one, behind):
            holes.add((one.last.opened_us, one.last.closed_us))
    return tuple(sorted(holes)), tuple(sorted(crashes))


def completeness_of_domain(nodes: Iterable[str], proved: Mapping[str, Completeness]) -> Completeness:
    """Combine the proofs of the nodes of a domain: their common range, and all of their holes.

    A node without a proof leaves the range empty.
    """
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


def holes_between(known: Completeness, begin_us: int, until_us: int) -> tuple[Period, ...]:
    """Holes and crashes that reach into a range of time, those that meet as one."""
    found: list[Period] = []
    for begin, end in sorted({*known.holes, *known.crashes}):
        if end < begin_us or begin > until_us:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return tuple(found)


def _walk(stretches: Sequence[Stretch]) -> _Chain:
    """Follow the chain of one node from its first known segment as far as it holds."""
    first = stretches[0].first
    # Records that begin with the first segment ever have nothing before them.
    chain = _Chain(from_us=0 if not first.prev_sha256 else first.opened_us, until_us=first.opened_us, last=first)
    for one, behind in zip(stretches, [*stretches[1:], None], strict=True):
        is_oldest = one is stretches[0]
        if not is_oldest and not _follows(chain.last, one.first):
            chain.broken = f"boot {one.boot} segment {one.first.segno} does not follow it"
            break
        # What was sealed before was written: no crash reaches back behind that, whatever a manifest claims.
        written_us = one.first.opened_us if is_oldest else chain.last.closed_us
        crashes = [*clipped(one.first_uncertain_us, written_us), *one.crashes]
        chain.last = one.last
        if _is_doubtful(one, behind):
            chain.broken = "another one claims its number"
            if one.before_last_closed_us is not None:
                chain.until_us = one.before_last_closed_us
                chain.holes += [hole for hole in one.holes if hole != (one.last.opened_us, one.last.closed_us)]
                chain.crashes += [crash for crash in crashes if crash[1] <= chain.until_us]
            break
        chain.until_us = one.last.closed_us
        chain.holes += one.holes
        chain.crashes += crashes
    return chain


def _is_doubtful(one: Stretch, behind: Stretch | None) -> bool:
    """True if somebody says that other content belongs under the last number: another segment, or the one behind it."""
    if behind is not None and (behind.boot, behind.first.segno) == (one.boot, one.last.segno + 1):
        return behind.first.prev_sha256 != one.last.sha256
    return one.is_disputed and not (behind is not None and _follows(one.last, behind.first))


def _follows(last: Accepted, one: Accepted) -> bool:
    """True if a stretch begins where another one ended: only with the next start, or both would be one."""
    return one.segno == 1 and one.prev_sha256 == last.sha256


def _of_chain(node: str, stretches: Sequence[Stretch]) -> Completeness:
    chain = _walk(stretches)
    last = chain.last
    proof = f"node {node} boot {last.boot} segment {last.segno}"
    if chain.broken:
        proof += f" ({chain.broken})"
    seen_us = max(one.newest_closed_us for one in stretches)
    holes, crashes = tuple(chain.holes), tuple(chain.crashes)
    return Completeness(chain.from_us, chain.until_us, holes, proof, seen_us=seen_us, crashes=crashes)
