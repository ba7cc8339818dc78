"""Views and dictionary: DuckDB reads the newest version of each table, with types for people."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, cast

import duckdb
import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from typer.testing import CliRunner

from pipeline.cli.program import app
from pipeline.lake.tables import Change, Lake
from pipeline.lake.views import dictionary, lake_type, view_type
from pipeline.partners.contracts import json_schemas
from pipeline.schemas import NODE_OWNER, PEER_EXTRACT, RECON_CASE, STUB_HOURLY, TABLES, Table
from protofly.records import MessageRecord
from tests.pipeline.rows import MONDAY_US


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake of which nothing here asks Spark for anything."""
    return Lake(tmp_path / "it's a lake", cast("SparkSession", None))


def put(lake: Lake, table: Table, *rows: dict[str, Any], change: Change | None = None) -> None:
    lake.commit(pa.Table.from_pylist(list(rows), to_arrow_schema(table.schema)), table, change or Change())


def query(lake: Lake, sql: str) -> list[tuple[Any, ...]]:
    made = CliRunner().invoke(app, ["views", "--lake", str(lake.folder)])
    assert made.exit_code == 0, made.output
    connection = duckdb.connect()
    connection.execute(made.stdout)
    return connection.execute(sql).fetchall()


def test_times_days_and_ids_are_what_people_read(lake: Lake) -> None:
    case = {"src_domain": "a.example", "msg_id": b"\xab" * 16, "case_class": "lost", "out_ts_us": MONDAY_US + 1}
    put(lake, RECON_CASE, case | {"dt": "2026-03-02"}, case | {"dt": "2026-03-03", "out_ts_us": None})
    rows = query(lake, "SELECT msg_id, epoch_us(out_ts_time), dt, in_digest FROM recon_case ORDER BY dt")
    assert rows == [
        ("ab" * 16, MONDAY_US + 1, date(2026, 3, 2), None),
        ("ab" * 16, None, date(2026, 3, 3), None),
    ]
    [(hour,)] = query(lake, "SELECT strftime(out_ts_time, '%H:%M') FROM recon_case WHERE out_ts_time IS NOT NULL")
    assert hour == datetime.fromtimestamp(MONDAY_US / 1e6, UTC).strftime("%H:%M")


def test_only_the_newest_version_of_a_table_is_read(lake: Lake) -> None:
    put(lake, NODE_OWNER, {"our_domain": "a.example", "node": "old"})
    put(lake, NODE_OWNER, {"our_domain": "a.example", "node": "new"}, change=Change("overwrite"))
    assert query(lake, "SELECT node FROM node_owner") == [("new",)]


def test_lists_maps_and_structures_can_be_asked(lake: Lake) -> None:
    put(lake, PEER_EXTRACT, {"domain": "b.example", "holes": [{"from_us": 1, "until_us": 2}], "rows": 3})
    assert query(lake, "SELECT holes[1].until_us, rows FROM peer_extract") == [(2, 3)]
    histogram = next(field.name for field in STUB_HOURLY.schema if lake_type(field.dataType).startswith("MAP"))
    put(lake, STUB_HOURLY, {"our_domain": "a.example", histogram: [(4, 7)], "dt": "2026-03-02"})
    assert query(lake, f"SELECT {histogram}[4], our_domain FROM stub_hourly") == [(7, "a.example")]


def test_the_dictionary_has_every_column_as_its_view_has_it(lake: Lake) -> None:
    for table in TABLES.values():
        row = {name: "2026-03-02" if name == "dt" else "x" for name in table.partition}
        put(lake, table, row)
    found = {(one, name): kind for one, name, kind in query(lake, COLUMNS)}
    said = {(one["table"], c["view_name"]): c["view_type"] for one in dictionary() for c in one["columns"]}
    assert {place: kind.replace('"', "") for place, kind in found.items()} == {
        place: kind.replace('"', "") for place, kind in said.items()
    }
    assert all(view_type(field) for table in TABLES.values() for field in table.schema)


COLUMNS = "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal"


def test_the_dictionary_and_a_schema_of_each_contract_are_written(tmp_path: Path) -> None:
    out = tmp_path / "dictionary"
    assert CliRunner().invoke(app, ["dictionary", "--out", str(out)]).exit_code == 0
    names = {path.name for path in out.iterdir()}
    assert names == {"tables.json", *(f"{name}.schema.json" for name, _ in json_schemas())}
    assert {"record-mdr.schema.json", "extract-header.schema.json", "return.schema.json"} <= names
    schema = json.loads((out / "record-mdr.schema.json").read_text())
    members = schema["$defs"]["MessageRecord"]
    assert set(members["properties"]) == {field.encode_name for field in msgspec.structs.fields(MessageRecord)}
    assert "outcome" in members["required"]
    assert [one["table"] for one in json.loads((out / "tables.json").read_text())] == list(TABLES)
