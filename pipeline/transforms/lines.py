"""From the lines of verified segments to records and what is wrong with them. Pure."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from pipeline.quality import is_sound, record_rules, with_errors
from pipeline.schemas import BYTES, LONG, TABLES, TEXT, Table
from pipeline.transforms.normalise import WORKED_WITH
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
DAY_US: Final = 86_400_000_000
_RECORD_DAY: Final = f"CAST(date_from_unix_date(int(ts_us DIV {DAY_US})) AS string)"
"""Far cheaper than formatting the time."""
SPOILT: Final = "_spoilt"
_ADDED: Final = ("segno", "errors", "our_domain", "peer_domain", "dt")


def bronze_table(kind: Kind) -> Table:
    """Where good records of a kind belong."""
    return TABLES[f"bronze_{kind.value}"]


def record_schema(kind: Kind) -> StructType:
    """How lines are to be parsed: the record's members, and a column that is null unless a line does not fit."""
    return StructType([*_members(kind), StructField(SPOILT, TEXT)])


def parsed_lines(lines: DataFrame, kind: Kind) -> DataFrame:
    """Columns `line` and `file` of a kind, with the members of `record_schema`. A row per line, whatever is in it.

    Of lines of a file with the same number, all but one are marked as `repeated`, the same ones on every run.
    """
    schema = record_schema(kind)
    record = F.from_json("line", schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": SPOILT})
    rows = lines.select("line", "file", record.alias("record"))
    members = rows.select("line", "file", *[F.col(f"record.{name}") for name in schema.names])
    place = F.row_number().over(Window.partitionBy("file", "seq").orderBy("line"))
    return members.withColumn("repeated", F.col("seq").isNotNull() & (place > 1))


def judged_records(parsed: DataFrame, facts: DataFrame, kind: Kind) -> DataFrame:
    """Find what is wrong with each parsed line.

    Returns the columns of the bronze table, then `line` (where the row is not good), `m_node`, `m_boot`, `severity` and
    `is_good`. `dt` is the record's day, or the segment's where that is not good.

    Args:
        parsed: Members of `record_schema`, `line`, `file`, `repeated`; `line` may be null throughout.
        facts: `SEGMENT_FACTS`, few rows.
        kind: Of all lines.
    """
    judged = with_errors(_beside_facts(parsed, facts), record_rules(kind))
    return judged.selectExpr(
        *_stored(kind),
        "errors",
        "IF(is_good, NULL, line) AS line",
        "m_node",
        "m_boot",
        "severity",
        "is_good",
        f"IF(is_good, {_RECORD_DAY}, m_day) AS dt",
    )


def sound_records(parsed: DataFrame, facts: DataFrame, kind: Kind) -> DataFrame:
    """Rows of the bronze table from those parsed lines with which nothing is wrong, nothing to warn of included.

    Much faster than `judged_records`, and says nothing about the others. Arguments are the same.
    """
    sound = _beside_facts(parsed, facts).where(is_sound(record_rules(kind)))
    return sound.selectExpr(*_stored(kind), "CAST(array() AS array<string>) AS errors", f"{_RECORD_DAY} AS dt")


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


def _members(kind: Kind) -> list[StructField]:
    """What a line has; bytes are hexadecimal digits there."""
    return [
        StructField(field.name, TEXT if field.dataType == BYTES else field.dataType)
        for field in bronze_table(kind).schema.fields
        if field.name not in _ADDED
    ]


def _beside_facts(parsed: DataFrame, facts: DataFrame) -> DataFrame:
    return parsed.withColumn("spoilt", F.col(SPOILT).isNotNull()).join(F.broadcast(facts), on="file", how="inner")


def _stored(kind: Kind) -> list[str]:
    """Columns of the bronze table, without what was found out about the row, and its day."""
    other = WORKED_WITH if kind is Kind.MESSAGE else {}
    names = [name for name in bronze_table(kind).schema.names if name not in {"segno", "errors", "dt"}]
    return [*(f"{other.get(name, name)} AS {name}" for name in names), "m_segno AS segno"]
