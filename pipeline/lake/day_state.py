"""From which records the tables of each day were made, and of which days the records are others by now.

What is compared is said by the records themselves: how many a day has, and the newest batch that brought some. So days
stay what they are when their files are rewritten, by `compact` or by another program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.lake.lake_files import LakeFiles, partition_of
from pipeline.lake.table_log import ConflictError, DataFile
from pipeline.lake.tables import Change, Lake
from pipeline.schemas import DAY_STATE, SILVER_MDR, Table

HOURLY: Final = "settle-hourly"
QUARTER_HOURLY: Final = "settle-quarter-hourly"
DAILY: Final = "settle-daily"
_ATTEMPTS: Final = 5


def newest_batch(lake: LakeFiles, table: Table, file: DataFile) -> int:
    """The newest batch that a file has rows of. Raises LakeError."""
    known = file.bounds.get("batch")
    if known is not None:
        return int(known[1])
    rows = lake.read_files_small(table, [file], ("batch",))
    return int(pc.max(rows.column("batch")).as_py() or 0)


def inputs_by_day(lake: LakeFiles, version: int, table: Table = SILVER_MDR) -> dict[str, str]:
    """For each day with records, in their order, which these are, in a version of a table. Raises LakeError."""
    rows = defaultdict[str, int](int)
    batches = defaultdict[str, int](int)
    for file in lake.files(table, version):
        day = partition_of(table, file)
        rows[day] += file.rows
        batches[day] = max(batches[day], newest_batch(lake, table, file))
    return {day: f"{rows[day]} records up to batch {batches[day]}" for day in sorted(rows)}


def done_inputs(lake: LakeFiles, job: str) -> dict[str, str]:
    """For each day that a job has done, from which records. Raises LakeError."""
    rows = lake.read_small(DAY_STATE, ("day", "input"), partitions=[job])
    return dict(zip(rows.column("day").to_pylist(), rows.column("input").to_pylist(), strict=True))


def note_done(lake: Lake, job: str, inputs: Mapping[str, str], *, is_all: bool = False) -> None:
    """Note from which records a job has done these days; called when its tables are committed.

    Args:
        lake: Where to.
        job: Which.
        inputs: By day.
        is_all: Forget other days.

    Raises:
        LakeError: The lake cannot be written.
    """
    schema = to_arrow_schema(DAY_STATE.schema)
    for attempt in range(_ATTEMPTS):
        base = max(lake.version(DAY_STATE), 0)
        known = done_inputs(lake, job)
        whole = dict(inputs) if is_all else {**known, **inputs}
        if whole == known:
            return
        rows = pa.table({"job": [job] * len(whole), "day": list(whole), "input": list(whole.values())}, schema)
        try:
            lake.commit(rows, DAY_STATE, Change("replace_partitions", partitions=[job], base_version=base))
        except ConflictError:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return


def changed_days(lake: LakeFiles, job: str, version: int, table: Table = SILVER_MDR) -> dict[str, str]:
    """Days whose records are others than those from which a job has done them, and which these are. Raises LakeError.

    Args:
        lake: Which.
        job: As `note_done` was given it.
        version: Of the table.
        table: What the job reads.
    """
    done = done_inputs(lake, job)
    return {day: input_ for day, input_ in inputs_by_day(lake, version, table).items() if done.get(day) != input_}


def unsettled_days(lake: LakeFiles, job: str = HOURLY) -> set[str]:
    """Days whose records are others than those that were settled. Raises LakeError."""
    return set(changed_days(lake, job, lake.version(SILVER_MDR)))
