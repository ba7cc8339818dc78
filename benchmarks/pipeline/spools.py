"""From the segments of nodes to refined records, and what a policy would have done with them.

The traffic is that of `pipeline synth` without faults: real segments, signed and chained, of fifty domains.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import duckdb
from pyspark.sql import functions as F

from benchmarks.synth.run import KEYS_NAME, SPOOL_FOLDER, synth
from benchmarks.synth.world import SynthOptions
from pipeline.columns.replaying import GateSettings
from pipeline.jobs import ingest, refine
from pipeline.lake.tables import Lake
from pipeline.schemas import SILVER_MDR
from pipeline.segments.node_keys import load_trust
from pipeline.transforms.replay import READ, checks, flips, judged, replayed
from policy.core.text import PolicyText, load_policies

DOMAINS: Final = 50
RULES: Final = 80
IN_COLUMNS: Final = "traffic"
IN_LINES: Final = "traffic-in-lines"
INGESTED: Final = "ingested"
INGESTED_LINES: Final = "ingested-lines"


def make_traffic(folder: Path, name: str, rows: int) -> int:
    """Write spools of one form below a folder; says how many message records are in them."""
    options = SynthOptions(rows=rows, domains=DOMAINS, has_faults=False, has_blocks=name == IN_COLUMNS)
    return synth(options, folder / name).records["mdr"]


def ingest_on_spark(lake: Lake) -> dict[str, int]:
    """Verify, take in and refine everything that nodes wrote in columns."""
    return _ingest(lake, IN_COLUMNS)


def ingest_lines_on_spark(lake: Lake) -> dict[str, int]:
    """The same of nodes that write lines, as before version 2."""
    return _ingest(lake, IN_LINES)


def _ingest(lake: Lake, name: str) -> dict[str, int]:
    traffic = Path(str(lake.folder)).parent / name
    trust = load_trust(traffic / KEYS_NAME, requires_signatures=True)
    ingest.run(lake, [traffic / SPOOL_FOLDER], trust=trust)
    refine.run(lake)
    sums = lake.read(SILVER_MDR).agg(F.count("*"), F.sum("size_in")).collect()[0]
    return {"records": sums[0], "bytes": sums[1]}


def ingest_on_duckdb(connection: duckdb.DuckDBPyConnection, folder: Path) -> dict[str, int]:
    """Read the same messages in lines and write them as Parquet by day; nothing is verified, chained or committed."""
    segments = str(folder / IN_LINES / SPOOL_FOLDER / "*" / "mdr-*.jsonl.zst")
    target = folder / "by-duckdb"
    lines = connection.read_json(segments, format="newline_delimited", compression="zstd")
    rows = lines.project("*, strftime(make_timestamp(ts_us), '%Y-%m-%d') AS dt")
    rows.write_parquet(str(target), compression="zstd", partition_by=["dt"])
    written = connection.read_parquet(str(target / "*" / "*.parquet"))
    [(records, size_bytes)] = written.aggregate("count(*), sum(size_in)").fetchall()
    return {"records": records, "bytes": int(size_bytes)}


def replay_on_spark(lake: Lake) -> dict[str, int]:
    """Decide every record twice, under two policies of 80 rules alike; says how many decisions that was."""
    records = judged(lake.read_in_workers(SILVER_MDR, columns=READ))
    parts = replayed(records, _policies("old"), _policies("new")).persist()
    sums = flips(parts).agg(F.sum("messages")).collect()[0]
    checked = checks(parts).collect()[0]
    parts.unpersist()
    return {"decisions": 2 * ((sums[0] or 0) + checked["not_replayable"])}


def _policies(name: str) -> GateSettings:
    """Three quarters of the rules name a domain and a size, one quarter an address: that is looked at every time."""
    rules = [f'id = "{name}"\n']
    for number in range(RULES):
        domain = f"d{number % DOMAINS:03}.example"
        condition = f'linkDomain = {{ equals = "{domain}" }}, size = {{ moreThan = {9_000 + number} }}'
        if number % 4 == 0:
            condition = f'msgTo = {{ like = "hyperty://{domain}/secret-{number}/*" }}'
        rules.append(f'[[rules]]\nid = "r{number}"\neffect = "deny"\ncondition = {{ {condition} }}\n')
    return GateSettings(canonical=load_policies([PolicyText("rules.toml", "".join(rules), "toml")]).canonical)
