"""From records as they were written to records as they are worked with. Pure."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.schemas import SILVER_MDR


def worked_with() -> dict[str, Column]:
    """Columns of message records that are not as nodes write them: ids as bytes, and who of the two domains is ours.

    The originating side writes role `out`, so the source is ours; the receiving side writes `in`.
    """
    return {
        "msg_id": F.unhex("msg_id"),
        "digest": F.unhex("digest"),
        "our_domain": _by_role("src_domain", "dst_domain"),
        "peer_domain": _by_role("dst_domain", "src_domain"),
    }


def normalise(bronze: DataFrame) -> DataFrame:
    """Rows of `bronze_mdr` as rows of `silver_mdr`."""
    return bronze.select(*SILVER_MDR.schema.names)


def _by_role(when_out: str, when_in: str) -> Column:
    return F.when(F.col("role") == "out", F.col(when_out)).otherwise(F.col(when_in))
