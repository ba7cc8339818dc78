"""Jobs ended by SIGKILL before and after each of their commits, and run again: nothing may be other than undisturbed.

    python -m tests.pipeline.commit_kills --job settle --home DIR --kill-at 3

A test gives a child a copy of what a job starts from, and the moment at which it kills itself: before or after the
commit of a table, or a file that appears for others. The child is a process of its own that works with the Java of the
test's Spark, which has nothing to do at such a moment. So ending one costs a second, and not the start of a Spark.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from pipeline.cli.zones import zone_of
from pipeline.core.statement_choice import Wanted
from pipeline.core.tariffs import Tariff
from pipeline.jobs import (
    abuse,
    audit,
    compact,
    concede,
    erase,
    ingest,
    invoice,
    partners,
    reconcile,
    refine,
    retention,
    settle,
    statements,
    stubs,
)
from pipeline.jobs.exchange import PartnerDay, export_details, export_totals, import_extract
from pipeline.jobs.partners import Exchanging
from pipeline.lake import durable
from pipeline.lake.delta_log import DeltaLog
from pipeline.lake.lake_files import LakeFiles
from pipeline.lake.tables import Change, Lake
from pipeline.partners.bill_file import read_bill
from pipeline.partners.bill_return_file import BillObjection, BillReturn, ReturnedItem
from pipeline.partners.folders import PartnerFolders
from pipeline.partners.return_file import RETURN_FORMAT, Return, ReturnedRecord
from pipeline.partners.settings import Exchange, Partner
from pipeline.schemas import DAY_STATE, INVOICE, SILVER_MDR, TABLES, TRAFFIC_HOURLY
from protofly.errors import SettingsError
from protofly.records import RecordKind
from tests.pipeline.moments import Moments
from tests.pipeline.rows import DAY_US, HOUR_US, MONDAY_US, silver, silver_row
from tests.pipeline.spools import SECOND_US, START_US, SegmentWriter, link_event, message
from tests.pipeline.test_exchange import DAY, KEYS, A, B, lakes
from tests.pipeline.test_invoice import TARIFF, proved_until

ROOT: Final = Path(__file__).parents[2]
CHILD_SECONDS: Final = 240.0
EVE: Final = "hyperty://b.example/eve"
TIMES: Final = {"version", "input_version", "entered_us", "issued_us", "made_us"}
"""Columns that say which commit a row came of, or when; others, when a job was begun twice."""
_MOMENT: Final = re.compile(r"\d{16,}")
PLACES: Final[tuple[tuple[Any, str], ...]] = (
    (DeltaLog, "commit"),
    (durable, "replace"),
    (PartnerFolders, "put"),
    (partners, "keep"),
)
"""What others see at once when it is done; each has a moment before and one after."""


# What jobs start from: each function fills an empty folder.


def three_days(home: Path, spark: SparkSession) -> None:
    """A lake of three days, of which one was signed off before more records of it came."""
    writer = SegmentWriter(home / "spool")
    lake = Lake(home / "lake", spark)
    for day in range(3):
        for half in range(2):
            first = START_US + day * DAY_US + half * 3600 * SECOND_US
            writer.seal(
                [message(10 * day + 5 * half + number, ts_us=first + number * SECOND_US) for number in range(4)]
            )
        ingest.run(lake, [writer.spool])
        refine.run(lake)
    settle.run(lake)
    reconcile.run(lake)
    late = lake.read_small(SILVER_MDR, partitions=["2026-03-01"]).slice(0, 1)
    again = late.set_column(late.schema.get_field_index("seq"), "seq", pa.array([999], pa.int64()))
    lake.commit(again, SILVER_MDR)


def nothing_settled(home: Path, spark: SparkSession) -> None:
    """The same without hours: they are to be made anew."""
    three_days(home, spark)
    lake = Lake(home / "lake", spark)
    lake.commit(lake.read_small(TRAFFIC_HOURLY).slice(0, 0), TRAFFIC_HOURLY, Change("overwrite"))


def nothing_done(home: Path, spark: SparkSession) -> None:
    """The same without notes: all days are to be reconciled."""
    nothing_settled(home, spark)
    lake = Lake(home / "lake", spark)
    lake.commit(lake.read_small(DAY_STATE).slice(0, 0), DAY_STATE, Change("overwrite"))


def a_month(home: Path, spark: SparkSession) -> None:
    """A month that is signed off."""
    lake = Lake(home / "lake", spark)
    march_us = MONDAY_US - DAY_US
    node = "runtime://a.example/mn-1"
    april = silver_row(node=node, ts_us=march_us + 31 * DAY_US + 3 * HOUR_US)
    to_us = [silver_row(node=node, ts_us=march_us + number) for number in range(4)] + [april]
    out = [
        silver_row(node=node, role="out", src_domain=A, dst_domain=B, ts_us=march_us + 9 * DAY_US + number)
        for number in range(2)
    ]
    lake.commit(silver(spark, to_us + out), SILVER_MDR)
    proved_until(lake, march_us + 32 * DAY_US + HOUR_US)
    settle.run(lake)


def a_billed_month(home: Path, spark: SparkSession) -> None:
    """The same, and billed."""
    a_month(home, spark)
    _invoice(Lake(home / "lake", spark), home)


def a_person(home: Path, spark: SparkSession) -> None:
    """A lake and its spool with records of somebody, in several tables and segments."""
    messages, links = SegmentWriter(home / "spool"), SegmentWriter(home / "spool", kind=RecordKind.LINK)
    messages.seal([message(1, src_key=EVE), message(2)])
    messages.seal([message(3)])
    messages.seal([message(4, dst_key=EVE)])
    spoofed = link_event(1)
    spoofed.src_key = EVE
    links.seal([spoofed])
    lake = Lake(home / "lake", spark)
    ingest.run(lake, [home / "spool"])
    refine.run(lake)


def two_operators(home: Path, spark: SparkSession) -> None:
    """Our lake, and what the partner has prepared for us: totals, details, a return, and a file that is none."""
    found = lakes(spark, home)
    prepared = home / "prepared"
    prepared.mkdir()
    shutil.copytree(home / A, home / "other")  # our half of the exchange, as the partner knows it
    ours = Lake(home / "other", spark)
    for domain, peer, lake in ((A, B, ours), (B, A, found[B])):
        export_totals(lake, PartnerDay(domain, peer, DAY), key=KEYS[domain], out=prepared / f"{domain}.totals")
    import_extract(found[B], prepared / f"{A}.totals", PartnerDay(B, A, DAY), peer_key=KEYS[A].record())
    export_details(found[B], PartnerDay(B, A, DAY), key=KEYS[B], out=prepared / f"{B}.details")
    traffic = {"our_domain": A, "src_domain": A, "dst_domain": B, "role": "out", "dt": DAY}
    ours = Lake(home / A, spark)
    schema = ours.read_small(TRAFFIC_HOURLY).schema
    ours.commit(pa.Table.from_pylist([traffic], schema), TRAFFIC_HOURLY)
    (home / A).rename(home / "lake")
    said = ReturnedRecord("0" * 32, "out", "size")
    returned = Return(domain=B, peer=A, day=DAY, made_us=1_772_600_000_000_000, records=(said,))
    (prepared / "return").write_bytes(RETURN_FORMAT.encode(returned, KEYS[B]))


# The jobs.


def _exchange(lake: Lake, home: Path) -> None:
    """Three rounds: a file that is refused, the totals of the partner, and the rest."""
    settings = Exchange(domain=A, key="", folder=str(home / "exchange"), inbox=str(home / "in"))
    partner = Partner(domain=B, url="http://127.0.0.1:1", keys=(KEYS[B].record().pub,))
    later = datetime(2026, 3, 4, 1, tzinfo=UTC).timestamp()
    what = Exchanging(settings=settings, partners=[partner], key=KEYS[A], clock=lambda: later)
    inbox = PartnerFolders.of(settings, B).inbox
    nonsense = home / "nonsense"
    nonsense.write_bytes(b"nonsense")
    prepared = home / "prepared"
    for name, source in (
        ("2026-03-01.totals", nonsense),
        (f"{DAY}.totals", prepared / f"{B}.totals"),
        (f"{DAY}.details", prepared / f"{B}.details"),
        (f"{DAY}.return-1772600000000000", prepared / "return"),
    ):
        if not list(inbox.rglob(f"*{name}")):
            durable.publish_once(inbox / name, source.read_bytes())
        partners.run(lake, what)


def _invoice(lake: Lake, home: Path) -> None:
    zone = "UTC"
    of = invoice.billed(A, B, "2026-03", (zone, zone_of(zone)))
    invoice.run(lake, of, [msgspec.convert(TARIFF, Tariff)], out=home / "bill", key=KEYS[A])


def _concede(lake: Lake, home: Path) -> None:
    """A message less than was billed, by `bill-concede`, and the credit note. Who repeats it hears that it is done."""
    number = min(row["number"] for row in lake.read_small(INVOICE).to_pylist() if row["role"] == "in")
    item = ReturnedItem(currency="EUR", role="in", counted="delivered", price="0.50", per=1)
    objection = BillObjection(number=number, reason="quantity", detail="", quantity=4, ours=3, item=item)
    what = BillReturn(domain=B, peer=A, made_us=1, sha256=("0" * 64,), objections=(objection,))
    try:
        concede.run(lake, what, concede.Part(), why="their count is right")
    except SettingsError as exc:
        if not exc.detail.startswith("conceded-before"):
            raise
    _invoice(lake, home)


def _erase(lake: Lake, home: Path) -> None:
    erase.run(lake, [EVE], why="request 12", spools=[home / "spool"], vacuum_after_s=0)


Begin = Callable[[Path, SparkSession], None]
Job = Callable[[Lake, Path], object]
JOBS: Final[dict[str, tuple[Begin, Job]]] = {
    "settle": (nothing_settled, lambda lake, _: settle.run(lake)),
    "settle --restate": (three_days, lambda lake, _: settle.run(lake, restate=True)),
    "reconcile": (three_days, lambda lake, _: reconcile.run(lake)),
    "reconcile all": (nothing_done, lambda lake, _: reconcile.run(lake)),
    "statements": (a_month, lambda lake, home: statements.run(lake, Wanted(), out=home / "statements")),
    "invoice": (a_month, _invoice),
    "bill-concede": (a_billed_month, _concede),
    "exchange": (two_operators, _exchange),
    "erase": (a_person, _erase),
    "stubs": (three_days, lambda lake, _: stubs.run(lake)),
    "abuse": (three_days, lambda lake, _: abuse.watch(lake)),
    "retention": (
        three_days,
        lambda lake, _: retention.run(lake, today=date(2026, 3, 4), keep_days=2, vacuum_after_s=0),
    ),
    "compact": (three_days, lambda lake, _: compact.run(lake, files_min=2, keep_s=0)),
    "audit": (three_days, lambda lake, _: audit.run(lake)),
}
"""Each with what it starts from. `tests.pipeline.kill_points` has ingest and refine."""


# One child.


def run_child(job: str, home: Path, spark: SparkSession, kill_at: int) -> int:
    """Run a job in a child. Returns how many moments it had; -1 when it was killed. Raises RuntimeError: it failed."""
    gateway: Any = spark.sparkContext._gateway
    parameters = gateway.java_parameters
    environment = {
        **os.environ,
        "PYSPARK_GATEWAY_PORT": str(parameters.port),
        "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
    }
    command = [sys.executable, "-m", "tests.pipeline.commit_kills", "--job", job, "--home", str(home)]
    done = subprocess.run(
        [*command, "--kill-at", str(kill_at)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=CHILD_SECONDS,
        check=False,
    )
    if done.returncode == -signal.SIGKILL:
        return -1
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    return int(done.stdout.split()[-1])


def found_in(home: Path) -> dict[str, Any]:
    """What a job has left behind: rows of all tables, and files for others, without what says when."""
    lake = LakeFiles.of(home / "lake")
    found: dict[str, Any] = {name: _rows(lake, name) for name in sorted(TABLES)}
    found["files"] = sorted(
        _MOMENT.sub("…", str(path.relative_to(home)))
        for folder in ("in", "exchange", "spool")
        for path in (home / folder).rglob("*")
        if path.is_file()
    )
    if (home / "bill").exists():
        bill = read_bill(home / "bill", peer_key=KEYS[A].record(), domain=B, peer=A)
        found["bill"] = [msgspec.structs.replace(one, issued_us=0) for one in bill.documents]
    if (home / "statements").exists():
        found["statements"] = (home / "statements").read_bytes()
    return found


def _rows(lake: LakeFiles, name: str) -> list[str]:
    """Rows in an order. An extract may be noted twice, once by a process that ended before it was there for others."""
    rows = lake.read_small(name)
    left_out = (TIMES | _OF_RUNS.get(name, set())) - _KEPT.get(name, set())
    kept = [column for column in rows.column_names if column not in left_out]
    lines = sorted(_MOMENT.sub("…", repr(row)) for row in rows.select(kept).to_pylist())
    return sorted(set(lines)) if name in {"peer_extract", "erasure"} else lines


_KEPT: Final = {"statement_daily": {"version"}}
_OF_RUNS: Final = {"erasure": {"rows", "segments"}}
"""What only one run did of something that two have done together."""


def child(job: str, home: Path, kill_at: int) -> int:
    """Run a job; die at the given moment, if it comes. Returns how many moments there were."""
    lake = Lake(home / "lake", _joined())
    moments = Moments(kill_at)
    moments.stand_around(PLACES)
    JOBS[job][1](lake, home)
    return moments.count


def _joined() -> SparkSession:
    """A session of the Spark that runs for somebody else; where it is, is in the environment."""
    launch: Any = launch_gateway
    gateway = launch()
    jvm = gateway.jvm
    java = jvm.JavaSparkContext.fromSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    return SparkSession(SparkContext(gateway=gateway, jsc=java))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--job", choices=JOBS, required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--kill-at", type=int, default=0)
    options = parser.parse_args()
    sys.stdout.write(f"{child(options.job, options.home, options.kill_at)}\n")
    sys.stdout.flush()
    os._exit(0)  # the Spark is somebody else's: it is not stopped


if __name__ == "__main__":
    sys.exit(main())
