"""The same questions put to DuckDB: SQL written from the definitions, which shares nothing with the Spark code.

The benchmark times it beside Spark; the tests hold every row of Spark's answers against it.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

_SQL = Path(__file__).with_name("sql")


def open_oracle(
    silver: Path,
    *,
    member: str = "hash(msg_id, digest)",
    roles: str = "role IN ('in', 'out')",
    threads: int = 1,
    memory: str = "1GB",
) -> duckdb.DuckDBPyConnection:
    """A connection whose view `records` is `silver_mdr` in that folder.

    Args:
        silver: Folder of the Parquet files.
        member: What stands for a message in set folds; DuckDB has no xxHash64.
        roles: Which records to look at.
        threads: How many to use.
        memory: How much to use before spilling.
    """
    connection = duckdb.connect(config={"threads": threads, "memory_limit": memory})
    files = connection.read_parquet(str(silver / "*" / "*.parquet"), hive_partitioning=True)
    files.filter(roles).project(f"*, {member} AS member").create_view("records")
    connection.execute("CREATE VIEW judged AS FROM records")
    return connection


def statement(name: str) -> str:
    """The text of a query beside this module."""
    return (_SQL / f"{name}.sql").read_text(encoding="utf-8")


def answer(connection: duckdb.DuckDBPyConnection, *names: str) -> None:
    """Make these tables, in this order: `hourly daily messages delays classes` or `levels messages classes counted`."""
    for name in names:
        connection.execute(statement(name))


def numbers(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[int, ...]:
    """The one row that a query gives."""
    row = connection.execute(query).fetchone()
    return tuple(map(int, row or ()))
