"""Commands for analysts: views over the lake, the data dictionary, and the SQL server. They change nothing."""

from __future__ import annotations

import json as json_library
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from pipeline.cli.option_groups import grouped
from pipeline.cli.options import LakeOption, SparkOptions
from pipeline.cli.runs import errors_reported, opened_lake


def views(
    lake: LakeOption,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="File for the SQL. Default: print it.")] = None,
) -> None:
    """Print views by which DuckDB reads the lake, with times, days and ids as people read them."""
    with errors_reported(as_json=False):
        from pipeline.lake import durable
        from pipeline.lake.lake_files import LakeFiles
        from pipeline.lake.views import views_sql

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
        from pipeline.lake import durable
        from pipeline.lake.views import dictionary as tables
        from pipeline.partners.contracts import json_schemas

        out.mkdir(parents=True, exist_ok=True)
        found = {f"{name}.schema.json": schema for name, schema in json_schemas()}
        for name, content in {"tables.json": tables(), **found}.items():
            text = json_library.dumps(content, indent=2, ensure_ascii=False) + "\n"
            durable.replace(out / name, text.encode())
    sys.stderr.write(f"{out}: tables.json and {len(found)} JSON Schemas\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Options that say where SQL is taken, and from whom."""

    token_file: Annotated[
        Path, typer.Option(metavar="FILE", help="Token that clients need; mode 600. A missing file is made.")
    ]
    port: Annotated[int, typer.Option(help="Port on loopback; 0: any that is free.", min=0, max=65535)] = 15002
    every: Annotated[float, typer.Option(help="Look for newer tables each so many seconds.", min=1.0)] = 60.0


@grouped
def sql(spark: SparkOptions, server: Listener) -> None:
    """Take SQL over Spark Connect from clients on this machine, until SIGTERM or Ctrl-C."""
    with errors_reported(as_json=spark.json):
        from pipeline.spark import sql_server

        os.environ[sql_server.TOKEN_VARIABLE] = sql_server.token_of(server.token_file)
    stop = Event()

    def opened(port: int, count: int) -> None:
        where = f"connect to sc://localhost:{port}/ with the token of {server.token_file}"
        sys.stderr.write(f"{count} views; {where}\n")
        sys.stderr.flush()

    with opened_lake(spark, spools=None, settings=sql_server.settings_of(server.port)) as lake:
        if sql_server.may_change(lake):
            sys.stderr.write("warning: this user can write to the lake, so clients with the token can change it\n")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        sql_server.keep_open(lake, every_s=server.every, stop=stop, on_open=opened)
