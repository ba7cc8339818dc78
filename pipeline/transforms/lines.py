"""From the lines of verified segments to records and what is wrong with them. Pure."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from pipeline.quality import is_good, record_rules, with_errors
from pipeline.schemas import LONG, TABLES, TEXT, Table
from protofly.records import Kind

SEGMENT_FACTS: Final = StructType(
    [
        StructField("file", TEXT),
        StructField("m_node", TEXT),
        *(
            StructField(name, LONG)
            for name in (
                "m_boot",
                "m_segno",
                "m_first_seq",
                "m_last_seq",
                "m_min_ts_us",
                "m_max_ts_us",
                "m_opened_us",
                "m_closed_us",
            )
        ),
        StructField("m_day", TEXT),
    ]
)
"""What lines are compared with: a row per file, taken from its manifest."""
_SPOILT: Final = "_spoilt"
_ADDED: Final = ("segno", "errors", "dt")


def bronze_table(kind: Kind) -> Table:
    """Where good records of a kind belong."""
    return TABLES[f"bronze_{kind.value}"]


def judged_lines(lines: DataFrame, facts: DataFrame, kind: Kind) -> DataFrame:
    """Parse lines, and find what is wrong with each.

    A row per line, whatever is in it: the columns of the bronze table, then `line` (where the row is not good),
    `m_node`, `m_boot`, `severity` and `is_good`. `dt` is the record's day, or the segment's where that is not good.

    Args:
        lines: Columns `line` and `file`.
        facts: `SEGMENT_FACTS`, few rows.
        kind: Of all lines.
    """
    table = bronze_table(kind)
    members = [field for field in table.schema.fields if field.name not in _ADDED]
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _SPOILT}
    parsed = F.from_json("line", StructType([*members, StructField(_SPOILT, TEXT)]), options)
    rows = (
        lines.select("line", "file", parsed.alias("record"))
        .select("line", "file", *[F.col(f"record.{field.name}") for field in members], f"record.{_SPOILT}")
        .withColumn("spoilt", F.col(_SPOILT).isNotNull())
        .join(F.broadcast(facts), on="file", how="inner")
    )
    judged = with_errors(rows, record_rules(kind)).withColumn("is_good", is_good())
    record_day = F.date_format(F.timestamp_micros("ts_us"), "yyyy-MM-dd")
    return judged.select(
        *[field.name for field in members],
        F.col("m_segno").alias("segno"),
        "errors",
        F.when(~F.col("is_good"), F.col("line")).alias("line"),
        "m_node",
        "m_boot",
        "severity",
        "is_good",
        F.when(F.col("is_good"), record_day).otherwise(F.col("m_day")).alias("dt"),
    )


def quarantined(judged: DataFrame, kind: Kind) -> DataFrame:
    """Rows of `quarantine`, from judged lines that are not good."""
    return judged.select(
        F.col("m_node").alias("node"),
        F.lit(kind.value).alias("kind"),
        "segno",
        F.col("m_boot").alias("boot"),
        "seq",
        "line",
        "errors",
        "severity",
        "dt",
    )
