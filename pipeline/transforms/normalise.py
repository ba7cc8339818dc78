"""From records as they were taken in to records as they are worked with. Pure."""

from __future__ import annotations

from pyspark.sql import DataFrame

from pipeline.schemas import SILVER_MDR


def normalise(bronze: DataFrame) -> DataFrame:
    """Rows of `bronze_mdr` as rows of `silver_mdr`."""
    return bronze.select(*SILVER_MDR.schema.names)
