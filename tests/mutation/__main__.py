"""`./run mutate [MODULE…]`: change the pure cores in small ways and see whether a test notices.

Exit status: 0 when every target holds, 1 when one does not, a guard survived or an entry of the list of equivalents is
stale, 2 for a module that there is not.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.mutation.callers import callers_of, files_that_may_notice, imports_one, is_beside
from tests.mutation.equivalents import stale
from tests.mutation.mutations import Mutation
from tests.mutation.report import GroupVerdict, show_shares, show_stale, show_survivor
from tests.mutation.targets import Group, chosen
from tests.mutation.trials import Bounds, Outcome, Trial, drawn, tried

_PRELOADED: Final = ("cryptography.x509", "hypothesis.stateful", "jsonschema_rs", "pytest_trio", "trio.testing")
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_NUM_THREADS")


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run mutate", description="Changes the pure cores; a test must notice.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="such as federation/core/auth.py; default: all")
    parser.add_argument("--sample", type=int, default=60, help="changes of each group (default: 60; 0: all)")
    parser.add_argument("--seed", default="1", help="draws another sample (default: 1)")
    parser.add_argument("--guards", action="store_true", help="change guards only")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time (default: cores)")
    parser.add_argument("--budget", type=float, default=30.0, help="CPU seconds of tests for each change (default: 30)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result as one object")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Draw, try, report."""
    arguments = _arguments(words)
    console = Console()
    try:
        groups = list(chosen(arguments.modules))
    except KeyError as exc:
        console.print(f"no such module or group: {exc.args[0]}")
        return 2
    for name in _THREADS:  # a fork takes no threads with it
        os.environ[name] = "1"
    for name in (*_PRELOADED, *(name for group, _ in groups for name in group.preloaded)):
        importlib.import_module(name)
    verdicts = [_judged(group, paths, arguments, console) for group, paths in groups]
    show_shares(verdicts, console)
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode([one.facts() for one in verdicts])))
    return 0 if all(one.is_good for one in verdicts) else 1


def _judged(group: Group, paths: list[Path], arguments: argparse.Namespace, console: Console) -> GroupVerdict:
    """Try the changes: with the tests of their package; what survives with those that import its module; with all."""
    only_guards, seed, sample = arguments.guards, arguments.seed, arguments.sample
    mutations = drawn(group, paths, number=sample, seed=seed, only_guards=only_guards)
    trials = {one: Trial(one, Outcome.SURVIVED) for one in mutations}
    rest = files_that_may_notice(group)
    for is_near in (is_beside, imports_one, lambda _path, _modules: True):
        left = [one for one in mutations if trials[one].outcome is Outcome.SURVIVED]
        modules = {one.module for one in left}
        files = [path for path in rest if is_near(path, modules)]
        rest = [path for path in rest if path not in files]

        def end(trial: Trial, is_last: bool = not rest) -> None:
            so_far = trials[trial.mutation]
            trial = trials[trial.mutation] = msgspec.structs.replace(trial, tests=so_far.tests + trial.tests)
            if is_last and trial.outcome is Outcome.SURVIVED:
                show_survivor(trial, console)

        if left and files:
            console.print(f"{group.name}: {len(left)} changes with {len(files)} test files")
            _try(group, left, files, arguments, console, end)
    verdict = GroupVerdict(group, [trials[one] for one in mutations], stale(group))
    show_stale(verdict, console)
    return verdict


def _try(
    group: Group,
    mutations: list[Mutation],
    files: list[Path],
    arguments: argparse.Namespace,
    console: Console,
    on_trial: Callable[[Trial], None],
) -> None:
    """Try changes with the tests of some files."""
    bounds = Bounds(max(arguments.workers, 1), arguments.budget)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        finding = progress.add_task(f"{group.name}: which test calls what", total=None)
        callers = callers_of(
            group, files, bounds.workers, lambda done, total: progress.update(finding, completed=done, total=total)
        )
        progress.remove_task(finding)
        trying = progress.add_task(group.name, total=len(mutations))

        def end(trial: Trial) -> None:
            progress.advance(trying)
            on_trial(trial)

        tried(group, mutations, callers, bounds, end)
    if callers.useless:
        console.print(f"{group.name}: {len(callers.useless)} tests are of no use here, such as {callers.useless[0]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
