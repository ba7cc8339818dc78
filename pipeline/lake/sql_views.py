"""The tables of a lake for Spark SQL: views named `lake.TABLE`, with times as times, days as days, and ids as text.

Columns have the names and types that the views for DuckDB have (`pipeline.lake.views`). A view names the files of one
version, as the log of its table does; it is made anew when there is a newer one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from pipeline.lake.tables import Lake
from pipeline.lake.views import is_moment, view_name
from pipeline.schemas import TABLES

DATABASE: Final = "lake"
SETTINGS: Final = {"spark.sql.globalTempDatabase": DATABASE}
"""What a session needs for `SqlViews`."""


@dataclass(slots=True)
class SqlViews:
    """Views that all sessions of this Spark see.

    Args:
        lake: Opened with a session that has `SETTINGS`.
    """

    lake: Lake
    _versions: dict[str, int] = field(default_factory=dict)

    def refresh(self) -> list[str]:
        """Make the views of tables that have changed; returns their names. Raises LakeError."""
        made = []
        for name, table in TABLES.items():
            version = self.lake.version(table)
            if version < 0 or self._versions.get(name) == version:
                continue
            rows = self.lake.read(table, version)
            rows.select([_shown(one) for one in table.schema]).createOrReplaceGlobalTempView(name)
            self._versions[name] = version
            made.append(name)
        return made


def _shown(column: StructField) -> Column:
    found = F.col(column.name)
    if is_moment(column):
        found = F.timestamp_micros(found)
    elif column.name == "dt":
        found = F.to_date(found)
    elif column.dataType.typeName() == "binary":
        found = F.lower(F.hex(found))
    return found.alias(view_name(column))
