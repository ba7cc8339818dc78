"""`python -m benchmarks.pipeline.night [--days N] [--messages N] [--new N]`: a night on a full lake and an empty one.

A lake gets its days as that of `benchmarks.pipeline.year` does. Then nodes write one more day, as real segments in
columns that continue the chains of the ledger, and `pipeline run` does all its jobs over them, in a process of its own.
The same records, in chains that begin with them, go to an empty lake. What the first costs more depends on history.
The bar is 25 CPU seconds more, with a million new records.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.pipeline.shapes import timed
from benchmarks.pipeline.year import HOUR_US, HOURS, Year, segment_hash
from pipeline.jobs.result import JobResult
from pipeline.jobs.whole import WholeRun, jobs
from pipeline.lake.tables import Lake
from pipeline.segments.node_keys import Trust
from pipeline.spark.session import start_session
from protofly.limits import RECORD_FRAME_RECORDS
from protofly.record_encoding import BlocksEncoding
from protofly.record_segments import (
    MANIFEST_SUFFIX,
    SegmentFacts,
    SegmentFile,
    SegmentName,
    encode_manifest,
    frame_compressor,
    make_manifest,
    sealed_suffix,
)
from protofly.records import MessageRecord, RecordKind

BAR_S: Final = 25.0
AT_ONCE: Final = 25
"""Days of history over which the jobs run together."""
USERS: Final = 240

Numbers = NDArray[np.int64]


def main(argv: Sequence[str] | None = None) -> int:
    """Fill, measure, print; 2 when the bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.night", description=__doc__)
    parser.add_argument("--days", type=int, default=125, help="of history")
    parser.add_argument("--nodes", type=int, default=100, help="each of a domain, with a segment an hour")
    parser.add_argument("--messages", type=int, default=400_000, help="by day of history; two domains record each")
    parser.add_argument("--new", type=int, default=500_000, help="messages of the night")
    parser.add_argument("--nights", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the lakes are put; about 100 bytes for each record")
    parser.add_argument("--worker", nargs=2, metavar=("LAKE", "SPOOL"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.worker:
        return _run_jobs(*map(Path, options.worker))
    costs: dict[str, list[dict[str, float]]] = {"full": [], "empty": []}
    with tempfile.TemporaryDirectory(prefix="trapezoid-night-", dir=options.folder) as scratch:
        folder = Path(scratch)
        spark = start_session("local[2]", memory="1g")
        full = Year(Lake(folder / "full", spark), options.nodes, options.messages, faults=1.0)
        _fill(full, options.days, folder)
        stored, segments = _stored(full)
        sys.stdout.write(f"{stored:,} records of {full.day} days, {segments:,} segments\n")
        ends: dict[int, str] = {}
        for _ in range(options.nights):
            day = full.day
            _write_night(full, options.new, folder, ends)
            for name, lake in (("full", folder / "full"), ("empty", folder / f"empty-{day}")):
                spent = _in_own_process(lake, folder / f"{name}-spool-{day}")
                costs[name].append(spent)
                sys.stdout.write(f"day {day + 1}, {name}: {_sum(spent):.1f} CPU s\n")
                sys.stdout.flush()
        spark.stop()
    more_s = min(_sum(one) for one in costs["full"]) - min(_sum(one) for one in costs["empty"])
    sys.stdout.write(f"\n{_table(costs)}\n{more_s:+.1f} CPU s, bar {BAR_S:.0f}\n")
    return 2 if more_s > BAR_S else 0


def _sum(spent: dict[str, float]) -> float:
    return sum(spent.values())


def _fill(year: Year, days: int, folder: Path) -> None:
    (folder / "no-spool").mkdir()
    while year.day < days:
        for _ in range(min(AT_ONCE, days - year.day)):
            year.bring()
        for _ in _all_jobs(year.lake, folder / "no-spool"):
            pass
        sys.stderr.write(f"day {year.day}\n")


def _all_jobs(lake: Lake, spool: Path) -> Iterator[tuple[str, JobResult]]:
    out = Path(str(lake.folder)) / "report.html"
    what = WholeRun(spools=[spool], trust=Trust(), deployed=None, proposed=None, out=out)
    for name, work in jobs(lake, what):
        yield name, work()


def _stored(year: Year) -> tuple[int, int]:
    tables = ("silver_mdr", "segments")
    records, segments = (sum(file.rows for file in year.lake.files(name)) for name in tables)
    return records, segments


def _write_night(year: Year, messages: int, folder: Path, ends: dict[int, str]) -> None:
    """Write one more day as nodes would have, behind those of the lake, and as the first that there is.

    `ends` has the hash of each node's last segment, and gets that of the new one.
    """
    begin_us, seq, segno, number = year.begin_us(), year.seq.copy(), year.day * HOURS, year.day
    rows, node, hour = year.records(messages)
    for of_node in range(year.nodes):
        mine = node == of_node
        whole = rows.filter(pa.array(mine)), hour[mine]
        end = ends.get(of_node, segment_hash(of_node, segno))
        chains = {"full": (int(seq[of_node]), segno, end), "empty": (0, 0, "")}
        for name, chain in chains.items():
            spool = folder / f"{name}-spool-{number}" / f"d{of_node:03}"
            spool.mkdir(parents=True)
            end = _write_node(spool, of_node, whole, behind=chain, begin_us=begin_us)
            if name == "full":
                ends[of_node] = end
    year.pass_by(node)


def _write_node(
    spool: Path, node: int, of: tuple[pa.Table, Numbers], *, behind: tuple[int, int, str], begin_us: int
) -> str:
    """Write a node's segments of a day behind a record, a segment and its hash; returns the hash of the last one."""
    rows, hour = of
    seq, segno, before = behind
    counts = np.bincount(hour, minlength=HOURS)
    starts = np.cumsum(counts) - counts
    for of_day, (start, count) in enumerate(zip(starts.tolist(), counts.tolist(), strict=True)):
        name = SegmentName(RecordKind.MESSAGE, f"mn-1.d{node:03}.example", 1, segno + of_day + 1)
        opened_us = begin_us + of_day * HOUR_US
        facts = SegmentFacts(seq + 1, opened_us, BlocksEncoding.version)
        content = b"".join(_frames(name, rows.slice(start, count), facts))
        sha = sha256(content).hexdigest()
        file = SegmentFile(size_bytes=len(content), sha256=sha, prev_sha256=before)
        manifest = make_manifest(name, facts, file=file, closure="time", closed_us=opened_us + HOUR_US)
        (spool / f"{name}{sealed_suffix(facts.schema_version)}").write_bytes(content)
        (spool / f"{name}{MANIFEST_SUFFIX}").write_bytes(encode_manifest(manifest))
        seq, before = seq + count, sha
    return before


def _frames(name: SegmentName, rows: pa.Table, facts: SegmentFacts) -> Iterator[bytes]:
    encoding, compress = BlocksEncoding(name.node, name.boot), frame_compressor().compress
    records = [_record(row) for row in rows.to_pylist()]
    for start in range(0, len(records), RECORD_FRAME_RECORDS):
        for one in encoding.encode(records[start : start + RECORD_FRAME_RECORDS], facts.last_seq + 1):
            facts.add(one.times_us, one.policy_revs, one.stub_vers)
            yield compress(one.content)


def _record(row: dict[str, Any]) -> MessageRecord:
    """A record as the node had it; senders and receivers are some users of the two domains."""
    members = {name: row[name] for name in MessageRecord.__struct_fields__ if row.get(name) is not None}
    user, other = row["seq"] % USERS, row["seq"] // USERS % USERS
    return MessageRecord(
        **members
        | {
            "msg_id": row["msg_id"].hex(),
            "digest": row["digest"].hex(),
            "src_key": f"hyperty://{row['src_domain']}/h-{user:03x}",
            "dst_key": f"hyperty://{row['dst_domain']}/h-{other:03x}",
        }
    )


def _in_own_process(lake: Path, spool: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.pipeline.night", "--worker", str(lake), str(spool)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)  # noqa: S603  # this very program
    return msgspec.json.decode(done.stdout, type=dict[str, float])


def _run_jobs(folder: Path, spool: Path) -> int:
    # Spark's children write where they like: what is answered goes to the standard output of before.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    spark = start_session("local[2]", memory="1g")
    steps = _all_jobs(Lake(folder, spark), spool)
    found: dict[str, float] = {}
    while True:
        with timed() as spent:
            step = next(steps, None)
        if step is None:
            break
        name, result = step
        found[name] = round(spent.cpu_s, 2)
        sys.stderr.write(f"{name}: {spent.cpu_s:.1f} CPU s, {result.rows}, {result.outcome} {result.warnings[:3]}\n")
    spark.stop()
    answers.write(msgspec.json.encode(found))
    answers.close()
    return 0


def _table(costs: dict[str, list[dict[str, float]]]) -> str:
    heads = [f"{name} {number + 1}" for name, nights in costs.items() for number in range(len(nights))]
    nights = [one for several in costs.values() for one in several]
    lines = ["| CPU s | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    lines += [f"| {name} | " + " | ".join(f"{one[name]:.1f}" for one in nights) + " |" for name in nights[0]]
    lines.append("| all | " + " | ".join(f"{_sum(one):.1f}" for one in nights) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
