"""`python -m benchmarks.pipeline.year [--days N] [--nodes N] [--picture FILE]`: what a night costs after a year.

A lake grows day by day through the pipeline's own writers: the ledger gets a segment of each node and hour, bronze gets
few records, and the jobs run over what is new. At some days a night is measured: one more day comes in, and each
command runs once. What costs more then than in the beginning depends on history. The bar is twice the first cost, the
start of Python included (not that of Spark): below that, milliseconds would decide.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from benchmarks.pipeline.growth_picture import draw
from benchmarks.pipeline.shapes import timed
from benchmarks.pipeline.traffic import DAY_US, START, START_US, Maker, Plan
from pipeline.core.findings import SegmentVerdict
from pipeline.core.statement_choice import Wanted
from pipeline.jobs import abuse, audit, compact, ingest, reconcile, refine, report, settle, show, statements, stubs
from pipeline.lake.lake_files import LakeFiles
from pipeline.lake.tables import Change, Lake
from pipeline.schemas import BRONZE_MDR
from pipeline.segments.ledger import Ledger
from pipeline.segments.spool import Place, Segment
from pipeline.spark.session import start_session
from protofly.record_segments import MANIFEST_SUFFIX, SegmentName
from protofly.records import RecordKind, SegmentManifest

HOURS: Final = 24
HOUR_US: Final = DAY_US // HOURS
FIRST_DAY: Final = -400
"""Relative to that of other benches, so that a year of it has passed."""
BAR: Final = 2.0
WARM_UP: Final = 2
"""Nights before the first that is measured: Java compiles what it runs often."""


@dataclass(slots=True)
class Year:
    """A lake that grows.

    Args:
        lake: Empty at first.
        nodes: Each of a domain of its own.
        messages: By day.
        faults: Factor on the usual share of faults: so few messages would have none.
    """

    lake: Lake
    nodes: int
    messages: int
    faults: float = 20.0
    day: int = 0
    seq: np.ndarray[Any, Any] = field(init=False)
    """The last number of each node's records."""
    _maker: Maker = field(init=False)

    def __post_init__(self) -> None:
        plan = Plan(messages=self.messages, domains=self.nodes, pairs=10 * self.nodes, days=1, faults=self.faults)
        self._maker = Maker(plan)
        self.seq = np.zeros(self.nodes, np.int64)

    def grow(self, until: int) -> None:
        """Bring all days before this one in; bronze and ledger day by day, then what the jobs make of them."""
        while self.day < until:
            self.bring()
        for job in (refine, settle, reconcile, stubs, abuse):
            job.run(self.lake)

    def bring(self) -> None:
        """One more day: its records and the segments that they came in."""
        rows, node, hour = self.records(self.messages)
        batch = self.day + 1
        segments = list(self._segments(node, hour))
        columns = {
            "v": pa.repeat(pa.scalar(2, pa.int16()), rows.num_rows),
            "seq": self._numbers(node),
            "segno": pa.array(self.day * HOURS + hour + 1),
            "batch": pa.repeat(batch, rows.num_rows),
        }
        schema = to_arrow_schema(BRONZE_MDR.schema)
        there = {name: rows.column(name) for name in rows.column_names} | columns
        whole = [
            _plain(there[field.name]).cast(field.type) if field.name in there else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ]
        self.lake.commit(pa.Table.from_arrays(whole, schema=schema), BRONZE_MDR, Change(txn=("year", batch)))
        Ledger(self.lake).write(segments, batch, self._name())
        self.day += 1

    def pass_by(self, node: np.ndarray[Any, Any]) -> None:
        """The next day came in by another way, with records of these nodes."""
        self._numbers(node)
        self.day += 1

    def _name(self) -> str:
        return (START + timedelta(days=FIRST_DAY + self.day)).strftime("%Y-%m-%d")

    def begin_us(self) -> int:
        """Begin of the next day, in µs since the Unix epoch."""
        return START_US + (FIRST_DAY + self.day) * DAY_US

    def records(self, messages: int) -> tuple[pa.Table, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Records of the next day, by node and time, with the node and the hour of each."""
        begin_us = self.begin_us()
        chunk = self._maker.chunk(FIRST_DAY + self.day, messages, begin_us + 10_000_000, DAY_US - 20_000_000)
        rows = pa.concat_tables([part.unify_dictionaries() for _, part in chunk], promote_options="permissive")
        rows = rows.append_column("dt", pa.repeat(self._name(), rows.num_rows))
        names = pc.utf8_slice_codeunits(rows.column("our_domain").cast(pa.string()), 1, 4)
        node = np.asarray(names.cast(pa.int64()))
        ts_us = np.asarray(rows.column("ts_us"))
        order = np.lexsort((ts_us, node))
        hour = np.clip((ts_us - begin_us) // HOUR_US, 0, HOURS - 1)
        return rows.take(pa.array(order)), node[order], hour[order]

    def _numbers(self, node: np.ndarray[Any, Any]) -> pa.Array:
        """Each node counts on from the day before."""
        counts = np.bincount(node, minlength=self.nodes)
        starts = np.cumsum(counts) - counts
        seq = self.seq[node] + np.arange(len(node)) - starts[node] + 1
        self.seq += counts
        return pa.array(seq)

    def _segments(self, node: np.ndarray[Any, Any], hour: np.ndarray[Any, Any]) -> Iterator[Segment]:
        counts = np.bincount(node * HOURS + hour, minlength=self.nodes * HOURS)
        before = np.cumsum(counts.reshape(-1, HOURS), axis=1).ravel() - counts
        for place, records in enumerate(counts.tolist()):
            number, of_day = divmod(place, HOURS)
            segno = self.day * HOURS + of_day + 1
            opened_us = self.begin_us() + of_day * HOUR_US
            first_seq = int(self.seq[number] + before[place]) + 1
            name = SegmentName(RecordKind.MESSAGE, f"mn-1.d{number:03}.example", 1, segno)
            manifest = SegmentManifest(
                kind=name.kind,
                node=name.node,
                boot=name.boot,
                segno=segno,
                first_seq=first_seq,
                last_seq=first_seq + records - 1,
                records=records,
                lost_records=0,
                size_bytes=1000,
                sha256=segment_hash(number, segno),
                prev_sha256=segment_hash(number, segno - 1) if segno > 1 else "",
                min_ts_us=opened_us,
                max_ts_us=opened_us + HOUR_US - 1,
                opened_us=opened_us,
                closed_us=opened_us + HOUR_US,
                closure="time",
                schema_version=2,
            )
            where = Place("/spool", f"d{number:03}/{name}{MANIFEST_SUFFIX}", 700, opened_us + HOUR_US)
            yield Segment(
                where, segment_hash(number, -segno), manifest, verdict=SegmentVerdict.ACCEPTED, rows_good=records
            )


def segment_hash(node: int, number: int) -> str:
    """That of a segment's content, which nobody has."""
    return f"{node:08x}{number % (1 << 64):056x}"


def _plain(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def commands(lake: Lake, folder: Path, name: str) -> dict[str, Callable[[], object]]:
    """Jobs of one night, in order, then queries of users. `name` is the newest day."""
    empty = folder / "spool"
    empty.mkdir(exist_ok=True)
    files = LakeFiles(lake.folder)
    return {
        "ingest": lambda: ingest.run(lake, [empty]),
        "refine": lambda: refine.run(lake),
        "settle": lambda: settle.run(lake),
        "reconcile": lambda: reconcile.run(lake),
        "stubs": lambda: stubs.run(lake),
        "abuse": lambda: abuse.run(lake, days=[name]),
        "compact": lambda: compact.run(lake),
        "report": lambda: report.run(lake, out=folder / "report.html"),
        "audit": lambda: audit.run(lake),
        "statements": lambda: statements.run(files, Wanted(from_day=name, until_day=name)),
        "show": lambda: show.rows(files, "recon_case", day=name),
    }


def night(year: Year, folder: Path) -> dict[str, float]:
    """One more day, and what each command then costs, in CPU seconds of all processes."""
    year.bring()
    name = (START + timedelta(days=FIRST_DAY + year.day - 1)).strftime("%Y-%m-%d")
    found = {}
    for command, run in commands(year.lake, folder, name).items():
        with timed() as spent:
            run()
        found[command] = spent.cpu_s
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Grow, measure, print; 2 when a command costs more than twice what it did in the beginning."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.year", description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--messages", type=int, default=500, help="by day; each is recorded by two domains")
    parser.add_argument("--picture", type=Path, help="an SVG of how costs grow")
    options = parser.parse_args(argv)
    with timed() as spent:
        subprocess.run([sys.executable, "-m", "pipeline", "show", "--help"], check=True, stdout=subprocess.DEVNULL)
    start_s = spent.cpu_s
    spark = start_session("local[2]", memory="1g")
    points: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="trapezoid-year-") as scratch:
        folder = Path(scratch)
        year = Year(Lake(folder / "lake", spark), options.nodes, options.messages)
        year.grow(1)
        for _ in range(WARM_UP):
            night(year, folder)
        for at in sorted({year.day, *(options.days * part // 4 for part in (1, 2, 4))}):
            year.grow(at)
            # Of two nights the cheaper one: others use this machine, too. What a worker took that has just ended may
            # be missing from the sum of all processes.
            nights = [night(year, folder) for _ in range(2)]
            points[at] = {name: min(one[name] for one in nights if one[name] > 0) for name in nights[0]}
            sys.stderr.write(f"day {at}: {points[at]}\n")
    spark.stop()
    sys.stdout.write(f"{_table(points)}\nThe start of Python: {start_s:.2f} CPU s.\n")
    if options.picture is not None:
        whole = {day: {name: cpu_s + start_s for name, cpu_s in found.items()} for day, found in points.items()}
        options.picture.write_text(draw(whole, bar=BAR), encoding="utf-8")
    first, last = points[min(points)], points[max(points)]
    return 2 if any(last[name] + start_s > BAR * (first[name] + start_s) for name in first) else 0


def _table(points: dict[int, dict[str, float]]) -> str:
    days = sorted(points)
    lines = ["| CPU s | " + " | ".join(f"day {day}" for day in days) + " | times |"]
    lines.append("|---|" + "---:|" * (len(days) + 1))
    for name, first in points[days[0]].items():
        cells = " | ".join(f"{points[day][name]:.2f}" for day in days)
        lines.append(f"| {name} | {cells} | {points[days[-1]][name] / max(first, 0.01):.1f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
