"""What a terminal shows of segments: what became of them and what to do, in few lines however many there are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pipeline.core.findings import Finding, SegmentVerdict, Severity
from pipeline.segments.spool import Segment

LINES: Final = 20
_BY_GAPS: Final = frozenset({Finding.GAP})
"""Reported by `missing_line`, for the chains as they are in the end."""


class FindingSummary:
    """Everything about segments that someone should look at; of each kind of finding one segment, and how many.

    Segments of one node and kind with the same verdict for the same reason share a line, which names the first.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, SegmentVerdict, Finding], tuple[Segment, int]] = {}

    def add(self, segments: Iterable[Segment]) -> None:
        """Take in what became of these."""
        for segment in segments:
            worst = max(segment.findings, key=segment.severity_of, default=None)
            if worst is None or segment.severity_of(worst) < Severity.WARNING or worst in _BY_GAPS:
                continue
            name = segment.name
            whose = (name.node, name.kind.value) if name else ("", "")
            first, count = self._groups.get((*whose, segment.verdict, worst), (segment, 0))
            self._groups[*whose, segment.verdict, worst] = first, count + 1

    def lines(self) -> list[str]:
        """The gravest first; of very many kinds the rest is counted."""
        ordered = sorted(self._groups.items(), key=lambda item: (-item[1][0].severity_of(item[0][3]), *item[0][:2]))
        lines = [_line(*key, *its) for key, its in ordered[:LINES]]
        if len(ordered) > LINES:
            more = len(ordered) - LINES
            lines.append(f"{more:,} more kinds of findings: `trapezoid pipeline show segments` has all")
        return lines


def _line(node: str, kind: str, verdict: SegmentVerdict, finding: Finding, first: Segment, count: int) -> str:
    many = f"{count:,} {kind} segments" if count > 1 else f"{kind} segment".strip()
    where = f"first: {first.place.path}" if count > 1 else first.place.path
    remark = f" ({first.remarks[0]})" if first.remarks and count == 1 else ""
    became = "rejected," if verdict is SegmentVerdict.REJECTED else f"{verdict.value}, but"
    who = f"{node}: " if node else ""
    return f"{who}{many} {became} {finding.code}: {finding.meaning}{remark}; {finding.advice} [{where}]"


def missing_line(node: str, kind: str, boot: int, first: int, last: int) -> str:
    """A stretch of numbers of which no segment was accepted; `last` 0 for an end that is not known."""
    whose = f"{node}: {kind}"
    if first == last:
        return f"{whose} segment {first} of boot {boot} did not come or was rejected: fetch it, unless it was erased"
    numbers = f"segments {first} and behind" if not last else f"segments {first}…{last}"
    return f"{whose} {numbers} of boot {boot} did not come or were rejected: fetch them, unless they were erased"
