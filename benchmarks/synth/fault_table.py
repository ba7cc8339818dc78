"""`python -m benchmarks.synth.fault_table TRAFFIC LAKE`: what was planted, and what the pipeline made of each of it.

TRAFFIC is what `benchmarks.synth` wrote, LAKE what `trapezoid pipeline run` made of it, policies included. Prints the
table of `docs/pipeline-faults.md`; 1 if anything was not found, or something was found that nobody planted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow.parquet as pq

from benchmarks.synth.truth import CASES_NAME, TRUTH_NAME, Abuse, Case, Flip, SegmentFault, Truth
from pipeline.core.stretches import missing_numbers
from pipeline.lake.lake_files import LakeFiles
from pipeline.schemas import (
    ALERT,
    CLOCK_OFFSET,
    RECON_CASE,
    REPLAY_FLIP,
    SEGMENTS,
    STATEMENT_DAILY,
    STUB_REGRESSION,
    Table,
)
from pipeline.segments.ledger import read_stretches
from protofly.record_segments import MANIFEST_SUFFIX, SEALED_SUFFIXES
from protofly.records import RecordKind

MESSAGES: Final = {
    "lost": "The receiver has no record of a message that the sender handed over",
    "orphan": "The sender has no record of a message that was delivered",
    "duplicated": "The receiver delivered a message twice",
    "altered": "The body that was delivered has another digest",
    "size": "The sides count other bytes",
    "outcome": "The sender gave up or denied a message, and it was delivered",
    "skewed": "The times of both records are a minute apart",
    "pending": "The other record is in a segment that is missing, damaged or not sealed",
}
"""What was planted for each class of a message."""
SEGMENT_FINDINGS: Final = {
    "copy": ("copy", "copy"),
    "reused-number": ("rejected", "reused"),
    "renumbered": ("rejected", "overlap"),
    "torn": ("rejected", "torn"),
    "truncated": ("rejected", "truncated"),
    "bit-flipped": ("rejected", "hash"),
    "bad-signature": ("rejected", "signature"),
    "lying-manifest": ("rejected", "count"),
    "unknown-version": ("rejected", "schema"),
}
"""Verdict and finding for each fault of a segment; of `gap` and `late` there is no manifest."""
SEGMENTS_PLANTED: Final = {
    "copy": "The same segment in another spool",
    "reused-number": "Another segment under a number that was used",
    "renumbered": "A segment once more, under a new number",
    "torn": "A file that ends within a frame",
    "truncated": "A file that ends behind a whole frame",
    "bit-flipped": "A flipped bit in a file",
    "bad-signature": "A manifest with a forged signature",
    "lying-manifest": "A signed manifest with a wrong number of records",
    "unknown-version": "A segment of an unknown version",
    "gap": "A segment that never came",
    "late": "The last segments of a node that did not come yet",
}
ABUSE: Final = {
    "fan-out": "One sender writes to many",
    "scanning": "One sender tries addresses that do not exist",
    "spoofing": "A peer sends in the name of others",
    "flood": "A peer sends many times the usual",
}
_HOUR: Final = ("our_domain", "peer_domain", "hour_us")


@dataclass(frozen=True, slots=True)
class FaultRow:
    """One kind of fault: what was planted, and what was reported under the name that it must get."""

    planted_as: str
    reported_as: str
    planted: frozenset[Hashable]
    reported: frozenset[Hashable]

    @property
    def found(self) -> int:
        """Number of planted faults that were reported."""
        return len(self.planted & self.reported)

    @property
    def false(self) -> int:
        """Number of reported faults that were not planted."""
        return len(self.reported - self.planted)

    @property
    def is_exact(self) -> bool:
        """True if all that was planted was found, and nothing else."""
        return self.planted == self.reported


def fault_rows(truth: Truth, lake: LakeFiles) -> list[FaultRow]:
    """Every fault that was planted. Raises LakeError."""
    return [
        *_messages(truth, lake),
        *_segments(truth, lake),
        *_abuse(truth, lake),
        _stubs(truth, lake),
        _flips(truth, lake),
        _clocks(truth, lake),
    ]


def as_markdown(rows: Sequence[FaultRow]) -> str:
    """The table, as it is in the documentation."""
    lines = ["| planted | reported as | planted | found | false |", "|---|---|---:|---:|---:|"]
    cells = (
        (row.planted_as, row.reported_as, f"{len(row.planted):,}", f"{row.found:,}", f"{row.false:,}") for row in rows
    )
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in cells)]) + "\n"


def _rows(lake: LakeFiles, table: Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.read_small(table).to_pylist()
    return rows


def _messages(truth: Truth, lake: LakeFiles) -> Iterator[FaultRow]:
    cases = _rows(lake, RECON_CASE)
    reported = {(one["case_class"], one["msg_id"].hex(), one["src_domain"], one["dst_domain"]) for one in cases}
    planted = {(one.case_class, one.msg_id, one.src_domain, one.dst_domain) for one in truth.case_list}
    for name in [*MESSAGES, *sorted({one[0] for one in reported} - MESSAGES.keys())]:
        of_class = (frozenset(one for one in some if one[0] == name) for some in (planted, reported))
        yield FaultRow(MESSAGES.get(name, "–"), f"`{name}`", *of_class)


def _segments(truth: Truth, lake: LakeFiles) -> Iterator[FaultRow]:
    ledger = _rows(lake, SEGMENTS)
    for fault, (verdict, finding) in SEGMENT_FINDINGS.items():
        # Either of two equal files may be called the copy.
        planted = frozenset(
            (one.node, one.segno if fault == "copy" else _stem(one.path))
            for one in truth.segments
            if one.fault == fault
        )
        reported = frozenset(
            (one["node"], one["segno"] if fault == "copy" else _stem(one["path"]))
            for one in ledger
            if one["verdict"] == verdict and one["findings"] == [finding]
        )
        reported_as = verdict if verdict == finding else f"{verdict}, `{finding}`"
        yield FaultRow(SEGMENTS_PLANTED[fault], reported_as, planted, reported)
    yield _gaps(truth, lake)
    late = {one.node.partition(".")[2] for one in truth.segments if one.fault == "late"}
    damaged = {one.node.partition(".")[2] for one in truth.segments if not one.is_readable} - late
    statements = _rows(lake, STATEMENT_DAILY)
    last_day = max(one["dt"] for one in statements)
    drafts = {one["our_domain"] for one in statements if one["dt"] == last_day and one["status"] == "draft"}
    yield FaultRow(SEGMENTS_PLANTED["late"], "day of the domain a draft", frozenset(late), frozenset(drafts - damaged))


def _gaps(truth: Truth, lake: LakeFiles) -> FaultRow:
    """Numbers that are missing: what never came, and what was refused and so counts as if it had not."""
    chains = read_stretches(lake).chains()
    reported = {
        (node, boot, number)
        for (node, kind), stretches in chains.items()
        if kind == RecordKind.MESSAGE.value
        for boot, first, last in missing_numbers(stretches)
        for number in range(first, last + 1)
    }
    never = {_number(one) for one in truth.segments if one.fault == "gap"}
    refused = {_number(one) for one in truth.segments if not one.is_readable and one.fault not in {"gap", "late"}}
    return FaultRow(SEGMENTS_PLANTED["gap"], "gap", frozenset(never), frozenset(reported - refused))


def _stem(path: str) -> str:
    """A segment's path, or that of its manifest, without what distinguishes them."""
    for suffix in (MANIFEST_SUFFIX, *SEALED_SUFFIXES):
        path = path.removesuffix(suffix)
    return path


def _number(fault: SegmentFault) -> tuple[str, int, int]:
    return fault.node, fault.boot, fault.segno


def _abuse(truth: Truth, lake: LakeFiles) -> Iterator[FaultRow]:
    alerts = _rows(lake, ALERT)
    for pattern, planted_as in ABUSE.items():
        planted = frozenset(_hour_of(one) for one in truth.abuse if one.pattern == pattern)
        # Who tries many addresses, or writes to many, sends more than usual in that very hour, too.
        explained = {_hour_of(one) for one in truth.abuse if pattern == "flood" and one.pattern != pattern}
        reported = (
            frozenset(tuple(one[name] for name in _HOUR) for one in alerts if one["pattern"] == pattern) - explained
        )
        yield FaultRow(planted_as, f"alert `{pattern}`", planted, reported)


def _hour_of(abuse: Abuse) -> tuple[str, str, int]:
    return abuse.our_domain, abuse.peer_domain, abuse.hour_us


def _stubs(truth: Truth, lake: LakeFiles) -> FaultRow:
    planted = frozenset((one.peer_domain, one.candidate) for one in truth.stubs if one.is_regression)
    worse = [one for one in _rows(lake, STUB_REGRESSION) if one["verdict"] == "worse"]
    reported = frozenset((one["peer_domain"], one["candidate"]) for one in worse)
    return FaultRow("A newer stub version that is slower and traps more often", "`worse`", planted, reported)


def _flips(truth: Truth, lake: LakeFiles) -> FaultRow:
    names = Flip.__dataclass_fields__
    flips = [one for one in _rows(lake, REPLAY_FLIP) if one["old_decision"] != one["new_decision"]]
    reported = frozenset(tuple(one[name] for name in names) for one in flips)
    planted_as = "A policy that decides otherwise: by rule, role and pair, with messages and bytes"
    return FaultRow(planted_as, "changed decisions", frozenset(map(astuple, truth.flips)), reported)


def _clocks(truth: Truth, lake: LakeFiles) -> FaultRow:
    """Clocks whose offset could be measured; it is found if it is right within its bound in all hours."""
    true_us = truth.clock_offsets_us
    offsets = _rows(lake, CLOCK_OFFSET)
    wrong = {
        one["domain"]
        for one in offsets
        if abs(one["offset_us"] - true_us[one["domain"]] + true_us[one["reference"]]) > one["error_us"] + 1
    }
    known = {one["domain"] for one in offsets}
    reported = frozenset((domain, domain not in wrong) for domain in known)
    return FaultRow(
        "A clock that is off, in every hour within the bound that is reported",
        "offset of the domain",
        frozenset((domain, True) for domain in known),
        reported,
    )


def read_truth(folder: Path) -> Truth:
    """Read the truth that `benchmarks.synth` wrote. Raises OSError, DecodeError."""
    truth = msgspec.json.decode((folder / TRUTH_NAME).read_bytes(), type=Truth)
    truth.case_list = [Case(**row) for row in pq.read_table(folder / CASES_NAME).to_pylist()]
    return truth


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.synth.fault_table", description=__doc__)
    parser.add_argument("traffic", type=Path, metavar="TRAFFIC")
    parser.add_argument("lake", type=Path, metavar="LAKE")
    options = parser.parse_args(argv)
    rows = fault_rows(read_truth(options.traffic), LakeFiles.of(options.lake))
    sys.stdout.write(as_markdown(rows))
    return 0 if all(row.is_exact for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
