"""Commands for analysts: views over the lake, and the data dictionary. They need no Spark and change nothing."""

from __future__ import annotations

import json as json_library
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.command_options import LakeOption
from pipeline.command_runs import errors_reported


def views(
    lake: LakeOption,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="File for the SQL. Default: print it.")] = None,
) -> None:
    """Print views by which DuckDB reads the lake, with times, days and ids as people read them."""
    with errors_reported(as_json=False):
        from pipeline import durable
        from pipeline.lake_files import LakeFiles
        from pipeline.views import views_sql

        sql = views_sql(LakeFiles.of(lake))
        if out is None:
            sys.stdout.write(sql)
        else:
            durable.replace(out, sql.encode())


def dictionary(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the files; it is made when it is missing.")],
) -> None:
    """Write the data dictionary: all tables and columns, and a JSON Schema of each record and file for partners."""
    with errors_reported(as_json=False):
        from pipeline import durable
        from pipeline.contracts import json_schemas
        from pipeline.views import dictionary as tables

        out.mkdir(parents=True, exist_ok=True)
        found = {f"{name}.schema.json": schema for name, schema in json_schemas()}
        for name, content in {"tables.json": tables(), **found}.items():
            text = json_library.dumps(content, indent=2, ensure_ascii=False) + "\n"
            durable.replace(out / name, text.encode())
    sys.stderr.write(f"{out}: tables.json and {len(found)} JSON Schemas\n")
