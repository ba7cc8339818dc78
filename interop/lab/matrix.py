"""Play a matrix: some cells at a time, each result kept as soon as it is there, so that a second run goes on."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import trio
from msgspec import structs

from interop.lab.core.matrix import Cell, Matrix, cells, check_matrix
from interop.lab.core.scene import LabScene
from interop.lab.core.verdict import State
from interop.lab.run import run_scene
from interop.lab.scene_file import load_scene, policy_path, scene_path
from interop.lab.world import WorldPlan
from interop.processes import leaves
from protofly.errors import HostError, SettingsError
from protofly.toml_lines import placed, read_toml

SHIPPED: Final = Path(__file__).parent / "matrices"
CELL_SECONDS: Final = 300.0
_BEGINNING: Final = b'{"left":'
"""Of each result, as it is written."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one cell. `verdict` is `kept`, `broken`, `failed` (it could not run) or `impossible`.

    `promises` has the state of each promise, `why` what speaks against it, or the problem.
    """

    left: str
    right: str
    scene: str
    fault: str
    digest: str
    verdict: str
    seconds: float = 0.0
    sent: int = 0
    arrived: int = 0
    explained: int = 0
    promises: dict[str, str] = {}
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixReport:
    """A matrix that was played. `reused` counts results of an earlier run."""

    matrix: Matrix
    results: tuple[Result, ...]
    reused: int
    seconds: float

    def count(self, verdict: str) -> int:
        """Count the cells with this verdict."""
        return sum(one.verdict == verdict for one in self.results)

    @property
    def is_good(self) -> bool:
        """True if every cell that can be played kept its promises, and there was one."""
        return self.count("kept") > 0 and not self.count("broken") and not self.count("failed")


def shipped_matrices() -> list[str]:
    """Names of the matrices that come with the program."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load_matrix(name: str) -> tuple[Matrix, list[Cell]]:
    """Read and check a matrix and its scenes: a shipped one by its name, else a file.

    Raises:
        SettingsError: A file cannot be read, or does not hold what it should; the text names all problems.
    """
    path = SHIPPED / f"{name}.toml" if name in shipped_matrices() else Path(name)
    try:
        text = path.read_bytes()
    except OSError as exc:
        names = ", ".join(shipped_matrices())
        raise SettingsError(f"{path}: {exc.strerror}; matrices that come with the program: {names}") from exc
    matrix, lines = read_toml(text, Matrix, str(path))
    scenes = {one: _scene(path, one) for one in matrix.scene}
    check_matrix(matrix, scenes, str(path))
    faults = []
    for index, one in enumerate(matrix.fault):
        where = f"{placed(str(path), lines, ('fault', index, 'policy'))}: fault {one.name}"
        faults.append(structs.replace(one, policy=policy_path(one.policy, path, where)))
    matrix = structs.replace(matrix, fault=tuple(faults))
    return matrix, cells(matrix, scenes, _policies(matrix, scenes.values()))


def _policies(matrix: Matrix, scenes: Iterable[LabScene]) -> dict[str, bytes]:
    """Contents of the policy files that a matrix and its scenes name, by path."""
    named = {one.policy for one in matrix.fault}
    for scene in scenes:
        named |= {one.policy for one in scene.domain} | {one.policy for one in scene.fault}
    return {name: Path(name).read_bytes() for name in named if name}


def _scene(matrix: Path, name: str) -> LabScene:
    file = scene_path(name)
    return load_scene(file if file.is_absolute() else matrix.parent / file)


class ResultFile:
    """Results, one JSON object a line: what an interrupted run has found is there for the next one."""

    def __init__(self, path: Path) -> None:
        """Raises SettingsError if the file cannot be written, or holds something else."""
        self._path = path
        try:
            path.touch()
            *lines, rest = path.read_bytes().split(b"\n")
        except OSError as exc:
            raise SettingsError(f"{path}: {exc.strerror}") from exc
        try:
            results = [msgspec.json.decode(line, type=Result) for line in lines]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise SettingsError(f"{path}: {exc}; name a new file") from exc
        if not rest[: len(_BEGINNING)] == _BEGINNING[: len(rest)]:
            raise SettingsError(f"{path}: its last line is no result; name a new file")
        if rest:  # it was interrupted while it wrote
            os.truncate(path, sum(len(line) + 1 for line in lines))
        self._known = {(one.left, one.right, one.scene, one.fault, one.digest): one for one in results}

    def known(self, cell: Cell) -> Result | None:
        """The result of an earlier run for the same cell; one that could not run is tried again."""
        found = self._known.get((cell.left, cell.right, cell.scene, cell.fault, cell.digest))
        return None if found is None or found.verdict == "failed" else found

    def add(self, result: Result) -> None:
        """Keep one result."""
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")


async def play_matrix(
    matrix: Matrix,
    all_cells: Sequence[Cell],
    *,
    parallel: int,
    results: ResultFile | None = None,
    on_result: Callable[[Result], None] = lambda _: None,
) -> MatrixReport:
    """Play all cells, at most `parallel` at a time. A cell that cannot run fails, and the others go on."""
    began, reused = time.monotonic(), 0
    found: dict[int, Result] = {}
    limit = trio.CapacityLimiter(parallel)

    async def play(index: int, cell: Cell) -> None:
        async with limit:
            found[index] = result = await _play(cell)
        if results is not None:
            results.add(result)
        on_result(result)

    async with trio.open_nursery() as nursery:
        for index, cell in enumerate(all_cells):
            known = results.known(cell) if results is not None else None
            if cell.problem:
                known = _result(cell, verdict="impossible", why=cell.problem)
            elif known is not None:
                reused += 1
            if known is None:
                nursery.start_soon(play, index, cell)
            else:
                found[index] = known
                on_result(known)
    ordered = tuple(found[index] for index in range(len(all_cells)))
    return MatrixReport(matrix=matrix, results=ordered, reused=reused, seconds=time.monotonic() - began)


async def _play(cell: Cell) -> Result:
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="trapezoid-matrix-"))
    result = _result(cell, verdict="failed", why=f"not over after {CELL_SECONDS:.0f} s")
    try:
        with trio.move_on_after(CELL_SECONDS):
            report = await run_scene(cell.played, WorldPlan(folder=folder), source=cell.title)
            against = [f"{one.promise}: {case.what}" for one in report.judged for case in one.evidence[:1]]
            against += [f"{one.promise}: not tested" for one in report.judged if one.state is State.NOT_TESTED]
            result = _result(
                cell,
                verdict="kept" if report.is_good else "broken",
                why="; ".join(against),
                sent=len(report.seen.sent),
                arrived=len(report.seen.arrived),
                explained=sum(one.excused for one in report.judged),
                promises={one.promise: one.state.value for one in report.judged},
            )
    except BaseExceptionGroup as group:
        errors = list(leaves(group))
        if not all(isinstance(error, HostError | OSError) for error in errors):
            raise
        result = _result(cell, verdict="failed", why=str(errors[0]).partition("\n")[0])
    except (HostError, OSError) as exc:
        result = _result(cell, verdict="failed", why=str(exc).partition("\n")[0])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return msgspec.structs.replace(result, seconds=round(time.monotonic() - began, 1))


def _result(cell: Cell, *, verdict: str, why: str, **facts: object) -> Result:
    names = {"left": cell.left, "right": cell.right, "scene": cell.scene, "fault": cell.fault, "digest": cell.digest}
    return msgspec.convert({**names, "verdict": verdict, "why": why, **facts}, Result)


def as_json(report: MatrixReport) -> dict[str, object]:
    """The report for programs."""
    return {
        "title": report.matrix.title,
        "ok": report.is_good,
        "seconds": round(report.seconds, 1),
        "reused": report.reused,
        "counts": {verdict: report.count(verdict) for verdict in ("kept", "broken", "failed", "impossible")},
        "cells": json.loads(msgspec.json.encode(report.results)),
    }
