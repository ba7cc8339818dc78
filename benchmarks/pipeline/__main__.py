"""`python -m benchmarks.pipeline [--rows N] [--only SHAPE …] [--alone] [--json FILE]`: Spark and DuckDB in turns."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.pipeline.shapes import REFINED, SHAPES, Figures, measure
from benchmarks.pipeline.spools import make_traffic
from benchmarks.pipeline.traffic import Plan, Planted, fill_lake

BAR_ROWS: Final = 10_000_000
_FILL, _FILL_SPOOLS = "fill", "fill-spools"


def main(argv: Sequence[str] | None = None) -> int:
    """Read the arguments and run; 1 when answers are wrong, 2 when a bar is missed by 10 M rows or more."""
    arguments = _parser().parse_args(argv)
    if arguments.worker:
        return _work(arguments)
    console = Console(stderr=arguments.json == Path("-"))
    wanted = set(arguments.only or [shape.name for shape in SHAPES])
    wanted |= {shape.after for shape in SHAPES if shape.name in wanted and shape.after}
    shapes = [shape for shape in SHAPES if shape.name in wanted]
    runs = [(shape, engine) for shape in shapes for engine in shape.engines(is_alone=arguments.alone)]
    figures: list[Figures] = []
    planted = Planted()
    with tempfile.TemporaryDirectory(prefix="trapezoid-bench-", dir=arguments.folder) as scratch:
        folder = Path(scratch)
        if any(shape.lake == REFINED for shape in shapes):
            console.print(f"making {arguments.rows:,} messages, each recorded twice …")
            planted = _in_own_process(arguments, folder, _FILL, "spark", Planted)
        for name in sorted({shape.spools[engine] for shape, engine in runs if engine in shape.spools}):
            console.print(f"making segments with {arguments.rows:,} records: {name} …")
            _in_own_process(arguments, folder, _FILL_SPOOLS, name, int)
        for shape, engine in runs:
            figures.append(_in_own_process(arguments, folder, shape.name, engine, Figures))
            console.print(f"[dim]{shape.name} on {engine}: {figures[-1].cpu_s:.1f} CPU s[/]")
    verdict = judge(figures, planted, rows=arguments.rows)
    if arguments.json:
        facts = {"rows": arguments.rows, "memory": arguments.memory, "planted": planted, "figures": figures}
        encoded = msgspec.json.encode({**facts, "wrong": verdict.wrong, "missed": verdict.missed})
        if arguments.json == Path("-"):
            sys.stdout.buffer.write(encoded + b"\n")
        else:
            arguments.json.write_bytes(encoded + b"\n")
    show(console, figures, verdict, rows=arguments.rows)
    if verdict.wrong:
        return 1
    # Below the full size start-up costs weigh too much for a bar to say anything.
    return 2 if verdict.missed and arguments.rows >= BAR_ROWS else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description="Spark beside DuckDB.")
    parser.add_argument("--rows", type=int, default=2_000_000, help="messages; each is recorded by two domains")
    parser.add_argument("--only", nargs="*", choices=[shape.name for shape in SHAPES], help="these shapes alone")
    parser.add_argument("--alone", action="store_true", help="without DuckDB")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="figures, what is `wrong`, bars `missed`; - for stdout"
    )
    parser.add_argument("--memory", default="2g", help="heap of Spark, memory limit of DuckDB")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--folder", type=Path, help="where the data is put; about 120 bytes for each row")
    parser.add_argument("--worker", nargs=3, metavar=("LAKE", "SHAPE", "ENGINE"), help=argparse.SUPPRESS)
    return parser


_Answer = TypeVar("_Answer")


def _in_own_process(
    arguments: argparse.Namespace, folder: Path, shape: str, engine: str, answer: type[_Answer]
) -> _Answer:
    options = [f"--{name}={getattr(arguments, name)}" for name in ("rows", "memory", "threads")]
    command = [sys.executable, "-m", "benchmarks.pipeline", *options, "--worker", str(folder), shape, engine]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)  # noqa: S603  # this very program
    return msgspec.json.decode(done.stdout, type=answer)


def _work(arguments: argparse.Namespace) -> int:
    folder, name, engine = arguments.worker
    # Spark's children write where they like: what is answered goes to the standard output of before.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if name == _FILL:
        from pipeline.lake.tables import Lake
        from pipeline.spark.session import start_session

        spark = start_session("local[1]", memory="1g")
        answer: Figures | Planted | int = fill_lake(Lake(Path(folder, REFINED), spark), Plan(messages=arguments.rows))
        spark.stop()
    elif name == _FILL_SPOOLS:
        answer = make_traffic(Path(folder), engine, arguments.rows)
    else:
        [shape] = [one for one in SHAPES if one.name == name]
        answer = measure(
            shape,
            engine,
            Path(folder),
            rows=arguments.rows,
            memory=arguments.memory,
            threads=arguments.threads,
        )
    answers.write(msgspec.json.encode(answer))
    answers.close()
    return 0


@dataclass(frozen=True, slots=True)
class AnswersVerdict:
    """Return what is wrong with the answers, and which bars, in proportion to the rows, were missed; a line each."""

    wrong: list[str]
    missed: list[str]


def judge(figures: Sequence[Figures], planted: Planted, *, rows: int) -> AnswersVerdict:
    """Hold the answers against each other and against what was planted, and the figures against their bars."""
    verdict = AnswersVerdict([], [])
    for spark, duck in _pairs(figures):
        if duck is not None and spark.answer != duck.answer:
            verdict.wrong.append(f"{spark.shape}: Spark says {spark.answer}, DuckDB {duck.answer}")
        differing = any(spark.answer.get(word, 0) != count for word, count in planted.cases.items())
        if spark.shape == "reconcile" and differing:
            verdict.wrong.append(f"reconcile: planted {planted.cases}, found {spark.answer}")
        bar = _bar(spark.shape, rows)
        if bar is not None and spark.cpu_s > bar:
            verdict.missed.append(f"{spark.shape}: {spark.cpu_s:.1f} CPU s, bar {bar:.0f}")
    return verdict


def show(console: Console, figures: Sequence[Figures], verdict: AnswersVerdict, *, rows: int) -> None:
    """Print the table, and what is wrong with it; it fits into 80 columns."""
    table = Table(
        title=f"The pipeline on {rows:,} messages, records of both domains",
        box=box.SIMPLE_HEAD,
        header_style="bold",
        padding=(0, 1),
    )
    names = (
        "shape",
        "bar\nCPU s",
        "Spark\nCPU s",
        "DuckDB\nCPU s",
        "ratio",
        "Spark\nwall s",
        "DuckDB\nwall s",
        "Spark\nMiB",
    )
    for name in names:
        table.add_column(name, justify="left" if name == "shape" else "right", no_wrap=True)
    for spark, duck in _pairs(figures):
        bar = _bar(spark.shape, rows)
        table.add_row(
            spark.shape,
            "" if bar is None else f"{bar:.0f}",
            f"{spark.cpu_s:.1f}",
            f"{duck.cpu_s:.1f}" if duck else "–",
            f"{spark.cpu_s / max(duck.cpu_s, 0.01):.1f}×" if duck else "",
            f"{spark.wall_s:.1f}",
            f"{duck.wall_s:.1f}" if duck else "",
            f"{spark.peak_mib}",
        )
    console.print(table)
    for line in verdict.wrong:
        console.print(f"✗ {line}", style="red", markup=False, highlight=False)
    for line in verdict.missed:
        console.print(f"! misses its bar: {line}", style="yellow", markup=False, highlight=False)
    if not verdict.wrong:
        console.print("[green]✓[/] both engines give the same answers, and the planted faults")
    console.print(
        f"[dim]CPU: whole process tree, start of the session left out. Bars are for {BAR_ROWS:,}, here in proportion; "
        "below that size, compiling Java alone misses them, and the exit code leaves them out.[/]"
    )


def _pairs(figures: Sequence[Figures]) -> Iterator[tuple[Figures, Figures | None]]:
    for _, group in groupby(figures, key=lambda one: one.shape):
        by_engine = {one.engine: one for one in group}
        yield by_engine["spark"], by_engine.get("duckdb")


def _bar(shape: str, rows: int) -> float | None:
    bar = {one.name: one.bar_cpu_s for one in SHAPES}[shape]
    return None if bar is None else bar * rows / BAR_ROWS


if __name__ == "__main__":
    sys.exit(main())
