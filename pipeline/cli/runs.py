"""How a command of the pipeline runs: errors as one line, Spark and the lake around a job, and its exit code."""

from __future__ import annotations

import json as json_library
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from pipeline.cli.options import SparkOptions
from pipeline.cli.terminal import FAILURE, Terminal
from pipeline.core.completeness import GRACE_S
from pipeline.core.harmless import harmless
from pipeline.core.utc_days import vouched_until

if TYPE_CHECKING:
    from pipeline.jobs.result import JobResult
    from pipeline.lake.store_path import Location
    from pipeline.lake.tables import Lake

_EXTRA = frozenset({"deltalake", "jinja2", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark"})
"""What the extra `pipeline` brings; anything else that is missing is a defect of ours."""


def vouched(words: Sequence[str] | None, *, as_json: bool) -> dict[str, int]:
    """Until when the operator vouches for which node, in µs. Raises typer.Exit."""
    with errors_reported(as_json=as_json):
        return vouched_until(words or (), grace_s=GRACE_S)


class Commands(TyperGroup):
    """Commands that end with the same code for whatever is wrong with how they are called."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named. Raises typer.TyperException."""
        try:
            return super().invoke(ctx)
        except typer.TyperException as exc:
            exc.exit_code = FAILURE
            raise


@contextmanager
def errors_reported(*, as_json: bool) -> Iterator[None]:
    """Report an error as one line and exit code 2, as all commands do; defects of ours keep their traceback."""
    from pipeline.lake.table_log import LakeError
    from pipeline.partners.extract_file import ExtractError
    from protofly.errors import Code, HostError

    try:
        yield
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in _EXTRA:
            raise
        detail = f"{exc.name} is not installed; `pip install 'trapezoid[pipeline]'` brings it"
        _report(Code.NOT_INSTALLED.word, detail, as_json=as_json)
        raise typer.Exit(FAILURE) from exc
    except HostError as exc:
        _report(exc.code.word, exc.detail or exc.code.description, as_json=as_json)
        raise typer.Exit(FAILURE) from exc
    except ExtractError as exc:
        _report(exc.verdict.code, f"{exc.detail}; {exc.verdict.advice}", as_json=as_json)
        raise typer.Exit(FAILURE) from exc
    except LakeError as exc:
        _report(Code.LAKE.word, str(exc), as_json=as_json)
        raise typer.Exit(FAILURE) from exc
    except OSError as exc:
        detail = str(exc) if exc.filename is None else f"{exc.filename}: {exc.strerror}"
        _report(Code.SETTINGS.word, detail, as_json=as_json)
        raise typer.Exit(FAILURE) from exc


def _report(code: str, detail: str, *, as_json: bool) -> None:
    from protofly.plain_words import without_types

    detail = without_types(detail)
    if as_json:
        sys.stdout.write(json_library.dumps({"error": {"code": code, "detail": detail}}, indent=2) + "\n")
    sys.stderr.write(f"error: {harmless(detail)} [{code}]\n")


@contextmanager
def opened_lake(
    spark: SparkOptions,
    *,
    spools: Sequence[Location] | None = (),
    makes: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Lake]:
    """The lake, in a Spark session of its own. Without the extra `pipeline`, the error says how to install it.

    `spools` will be read, too; None: nobody knows how much there will be. Only a command that `makes` a lake gets one
    where there is none; for the others that is an error, which is reported before Spark is started. `settings` are
    further ones of Spark.
    """
    with errors_reported(as_json=spark.json):
        from pipeline.lake.lake_files import LakeFiles
        from pipeline.lake.tables import Lake
        from pipeline.spark.executor_sight import check_sight, proofs_of
        from pipeline.spark.pack import archive_settings
        from pipeline.spark.session import DEFAULT_MASTER, bytes_in, is_this_process, spread, start_session

        if not makes:
            LakeFiles.of(spark.lake)
        input_bytes = None if spools is None else bytes_in([spark.lake, *spools])
        more = {**(settings or {}), **({} if spark.archive is None else archive_settings(spark.archive))}
        session = start_session(spark.master or None, memory=spark.memory, input_bytes=input_bytes, more=more)
        try:
            lake = Lake(spark.lake, session)
            if not is_this_process(session.sparkContext.master or DEFAULT_MASTER):
                check_sight(session, proofs_of(lake.folder, spools or ()))
                spread(session, input_bytes)
            yield lake
        finally:
            session.stop()


def one_job(name: str, spark: SparkOptions, work: Callable[[Lake], JobResult]) -> None:
    """Run one job by itself."""
    terminal = Terminal(as_json=spark.json)
    with opened_lake(spark) as lake:
        terminal.job(name, lambda: work(lake))
    terminal.end()
