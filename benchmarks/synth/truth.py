"""What was planted: counted exactly, and named message by message."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

TRUTH_NAME = "truth.json"
CASES_NAME = "cases.parquet"


class Case(msgspec.Struct, frozen=True):
    """One message on which the sides differ. `case_class` is a word of `recon_case`."""

    case_class: str
    msg_id: str
    src_domain: str
    dst_domain: str


@dataclass(frozen=True, slots=True)
class SegmentFault:
    """A file that was tampered with after it was sealed; `path` is relative to the folder of all spools.

    `is_readable` says whether its records still count: they do for a copy and for a renumbered segment (once), they
    do not for the others.
    """

    fault: str
    path: str
    node: str
    kind: str
    boot: int
    segno: int
    records: int
    is_readable: bool


@dataclass(frozen=True, slots=True)
class Abuse:
    """One piece of bad behaviour. `our_domain` is whom it strikes, `subject` the sender's address as recorded there."""

    pattern: str
    our_domain: str
    peer_domain: str
    hour_us: int
    subject: str
    messages: int


@dataclass(frozen=True, slots=True)
class StubChange:
    """A newer stub version of a domain. The factors are exact for latency and fuel, an expectation for traps."""

    peer_domain: str
    baseline: str
    candidate: str
    at_us: int
    traps: float
    latency: float
    fuel: float
    is_regression: bool


@dataclass(frozen=True, slots=True)
class Flip:
    """Decisions that the proposed policies would turn, of one rule, role and domain pair."""

    role: str
    src_domain: str
    dst_domain: str
    old_decision: str
    new_decision: str
    old_rule: str
    new_rule: str
    messages: int
    bytes: int


@dataclass(slots=True)
class Truth:
    """Everything that a pipeline must find, for the records that can be read (those of damaged segments cannot).

    `cases` by class: what reconciliation lists. `pending` are those whose other record is in a segment that is
    missing, damaged or not sealed yet; the other classes were planted where both sides are complete. A message that
    the sender's node handed over and the receiver's gate denied is matched: `delivered` at the sender says that the
    peer's node took it, `outcome` are only those that the sender gives up and the receiver delivers.
    `matched` counts messages with one record on each side that agree.
    `decisions` counts message records that a gate judged, all of which the deployed policies reproduce.
    """

    seed: int
    start_us: int
    end_us: int
    records: dict[str, int] = field(default_factory=dict)
    """Readable ones, each once, by kind."""
    roles: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    """Readable message records by `role outcome`."""
    matched: int = 0
    decisions: int = 0
    deployed_rev: str = ""
    proposed_rev: str = ""
    flips: list[Flip] = field(default_factory=list)
    clock_offsets_us: dict[str, int] = field(default_factory=dict)
    segments: list[SegmentFault] = field(default_factory=list)
    abuse: list[Abuse] = field(default_factory=list)
    stubs: list[StubChange] = field(default_factory=list)
    case_list: list[Case] = field(default_factory=list)
    """Not in `truth.json` but beside it, in `cases.parquet`."""

    @property
    def cases(self) -> dict[str, int]:
        """Number of `case_list` by class."""
        return dict(sorted(Counter(case.case_class for case in self.case_list).items()))

    def save(self, folder: Path) -> None:
        """Write `truth.json` and `cases.parquet`. Raises OSError."""
        members = asdict(self) | {"cases": self.cases}
        del members["case_list"]
        text = msgspec.json.format(msgspec.json.encode(members), indent=1)
        (folder / TRUTH_NAME).write_bytes(text + b"\n")
        columns = [[getattr(case, name) for case in self.case_list] for name in Case.__struct_fields__]
        table = pa.table([pa.array(column, pa.string()) for column in columns], names=list(Case.__struct_fields__))
        pq.write_table(table, folder / CASES_NAME, compression="zstd")
