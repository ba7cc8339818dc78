"""A lake on a disk that is too small: `unshare -rm python -m tests.pipeline.full_disk FOLDER`.

Mounts are private to that namespace. Says as JSON: the error of the first ingest, rows that were visible after it, what
was left behind besides the plan of the batch, which had room, and rows after the disk has been given more.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from pipeline.jobs import ingest
from pipeline.lake.table_log import LakeError
from pipeline.lake.tables import Lake
from pipeline.schemas import BRONZE_MDR, INGEST_PLAN, SEGMENTS
from pipeline.spark.session import start_session
from tests.pipeline.on_disk import on_disk
from tests.pipeline.spools import SegmentWriter, message

RECORDS = 6000
SMALL, LARGE = "100k", "64m"


def main() -> None:
    home = Path(sys.argv[1])
    disk = home / "disk"
    disk.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(disk))
    writer = SegmentWriter(home / "spool")
    chance = random.Random(1)  # what cannot be compressed fills a disk
    writer.seal([message(number, digest=f"{chance.getrandbits(128):032x}") for number in range(1, RECORDS + 1)])
    spark = start_session("local[2]", memory="1g", shuffle_partitions=2)
    lake = Lake(disk / "lake", spark)
    error = ""
    try:
        ingest.run(lake, [writer.spool])
    except LakeError as exc:
        error = str(exc)
    folder = on_disk(lake.folder)
    shown = {
        "error": error,
        "visible": lake.read(BRONZE_MDR).count() + len(lake.read_small(SEGMENTS)),
        "left": [str(path) for path in folder.rglob("*.parquet") if folder / INGEST_PLAN.folder not in path.parents],
    }
    _mount("-o", f"remount,size={LARGE}", str(disk))
    ingest.run(lake, [writer.spool])
    shown["rows"] = lake.read(BRONZE_MDR).select("seq").distinct().count()
    shown["ledger"] = len(lake.read_small(SEGMENTS))
    spark.stop()
    sys.stdout.write(json.dumps(shown) + "\n")


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


if __name__ == "__main__":
    main()
