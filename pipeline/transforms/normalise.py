"""From records as they were written to records as they are worked with. Pure."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from pipeline.schemas import SILVER_MDR

WORKED_WITH: Final = {
    "msg_id": "unhex(msg_id)",
    "digest": "unhex(digest)",
    "our_domain": "IF(role = 'out', src_domain, dst_domain)",
    "peer_domain": "IF(role = 'out', dst_domain, src_domain)",
}
"""Columns of message records that are not as nodes write them, as SQL: ids as bytes, and which domain is ours.

The originating side writes role `out`, so the source is ours; the receiving side writes `in`.
"""


def normalise(bronze: DataFrame) -> DataFrame:
    """Rows of `bronze_mdr` as rows of `silver_mdr`."""
    return bronze.select(*SILVER_MDR.schema.names)
