"""`trapezoid pipeline nodes …`: what operators say about nodes that are silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.option_groups import grouped
from pipeline.cli.options import Json, LakeOption, SparkOptions
from pipeline.cli.runs import Commands, errors_reported, one_job
from pipeline.cli.terminal import Terminal
from pipeline.core.utc_days import checked_day

if TYPE_CHECKING:
    from pipeline.jobs.result import JobResult
    from pipeline.lake.tables import Lake
    from pipeline.segments.declarations import Declaration

app = typer.Typer(
    cls=Commands,
    help="Declare until when silent nodes wrote records, with a reason; the lake keeps it.",
    no_args_is_help=True,
)
Node = Annotated[str, typer.Argument(help="Name of the node, such as mn-1.a.example.")]
Why = Annotated[str, typer.Option(help="Reason; it is kept with the account that runs the command.")]


@app.command()
@grouped
def retire(node: Node, spark: SparkOptions, why: Why) -> None:
    """Declare that a node was shut down for good and will write no more records."""
    from pipeline.segments.declarations import Declaration

    _enter(spark, node, Declaration.RETIRED, why)


@app.command()
@grouped
def vouch(
    node: Node,
    spark: SparkOptions,
    why: Why,
    day: Annotated[str, typer.Option(help="Last UTC day that this covers, YYYY-MM-DD.")],
) -> None:
    """Declare that a node wrote nothing more up to the end of a day."""
    from pipeline.segments.declarations import Declaration

    with errors_reported(as_json=spark.json):
        checked_day(day)
    _enter(spark, node, Declaration.VOUCHED, why, day)


@app.command()
@grouped
def withdraw(node: Node, spark: SparkOptions, why: Why) -> None:
    """Withdraw a declaration about a node, for example because it runs again."""
    from pipeline.segments.declarations import Declaration

    _enter(spark, node, Declaration.WITHDRAWN, why)


@app.command("list")
def list_(lake: LakeOption, json: Json = False) -> None:
    """List the declarations with author and reason. Needs no Spark."""
    terminal = Terminal(as_json=json)
    with errors_reported(as_json=json):
        from pipeline.jobs import nodes as job
        from pipeline.lake.lake_files import LakeFiles

        opened = LakeFiles.of(lake)
        terminal.job("nodes", lambda: job.listed(opened))
    terminal.end()


def _enter(spark: SparkOptions, node: str, declaration: Declaration, why: str, day: str = "") -> None:
    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import nodes as job

        return job.enter(opened, node, declaration, why=why, day=day)

    one_job("nodes", spark, work)
