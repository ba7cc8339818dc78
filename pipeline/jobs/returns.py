"""What is returned to a partner, and what a partner returns to us: refused files, and records that are not accepted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.jobs.exchange import PartnerDay
from pipeline.jobs.result import JobResult
from pipeline.lake.tables import Lake
from pipeline.partners.return_file import RECORDS_MAX, RETURN_FORMAT, Return, ReturnedRecord
from pipeline.partners.settings import Partner
from pipeline.schemas import PEER_RETURN, RECON_CASE
from protofly.signatures import SigningKey

_OF_SENDER: Final = ("lost", "altered", "duplicated", "size", "outcome", "skewed")
_OF_RECEIVER: Final = ("orphan", "altered", "duplicated", "size", "outcome", "skewed")


def unaccepted(lake: Lake, of: PartnerDay, partner: Partner, *, made_us: int) -> Return | None:
    """The records of a day that the partner has and we do not accept; None when there are none.

    Classes of which there are no more than was agreed on are left out.

    Args:
        lake: Reads `recon_case`.
        of: The day.
        partner: With what was agreed on.
        made_us: What distinguishes it from other returns of that day: the same when it is made again from the same.

    Raises:
        LakeError: As the lake does.
    """
    case = F.col("case_class")
    sent = (F.col("src_domain") == of.peer) & (F.col("dst_domain") == of.domain) & case.isin(*_OF_SENDER)
    received = (F.col("src_domain") == of.domain) & (F.col("dst_domain") == of.peer) & case.isin(*_OF_RECEIVER)
    cases = lake.read(RECON_CASE).where((F.col("dt") == of.day) & (sent | received))
    counts = {row["case_class"]: row["count"] for row in cases.groupBy("case_class").count().collect()}
    tolerated = partner.tolerance.by_class
    named = sorted(word for word, count in counts.items() if count > tolerated.get(word, 0))
    if not named:
        return None
    rows = cases.where(case.isin(*named)).orderBy("msg_id", "src_domain").limit(RECORDS_MAX).collect()
    records = tuple(
        ReturnedRecord(row["msg_id"].hex(), "out" if row["src_domain"] == of.peer else "in", row["case_class"])
        for row in rows
    )
    return Return(
        domain=of.domain,
        peer=of.peer,
        day=of.day,
        made_us=made_us,
        records=records,
        left_out=sum(counts[word] for word in named) - len(records),
    )


def write_return(lake: Lake, what: Return, path: Path, *, key: SigningKey) -> None:
    """Write and note a return of ours. Raises OSError and LakeError."""
    path.write_bytes(RETURN_FORMAT.encode(what, key))
    note_return(lake, what)


def note_return(lake: Lake, what: Return, result: JobResult | None = None) -> None:
    """Note what was returned, by us or to us; a return that is there already is not noted again. Raises LakeError."""
    now_us = time.time_ns() // 1000
    own = {"domain": what.domain, "peer": what.peer, "made_us": what.made_us}
    if own in lake.read_small(PEER_RETURN, tuple(own), partitions=[what.day]).to_pylist():
        return
    both = {**own, "entered_us": now_us, "dt": what.day}
    rows = [
        both | {"role": one.role, "msg_id": bytes.fromhex(one.msg_id), "reason": one.reason} for one in what.records
    ]
    if what.file is not None:
        file = what.file
        rows.append(both | {"file": file.name, "sha256": file.sha256, "reason": file.reason, "detail": file.detail})
    if not rows:
        return
    done = lake.commit(pa.Table.from_pylist(rows, to_arrow_schema(PEER_RETURN.schema)), PEER_RETURN)
    if result is not None:
        result.wrote(done.table, done.rows, done.version)


def times_returned(lake: Lake, author: str, reader: str, day: str) -> int:
    """Count the returns of an author to a reader about a day. Raises LakeError."""
    rows = lake.read_small(PEER_RETURN, ("domain", "peer", "entered_us"), partitions=[day]).to_pylist()
    return len({row["entered_us"] for row in rows if (row["domain"], row["peer"]) == (author, reader)})
