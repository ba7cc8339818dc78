"""Which of some changes do tests notice."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from tests.mutation.callers import Callers, chosen_within, files_of
from tests.mutation.equivalents import changes_of, equivalents_of, reasons, source_of
from tests.mutation.imports import imported_directly
from tests.mutation.inside import ChangedModule, Selection, run_tests
from tests.mutation.mutations import Mutation
from tests.mutation.processes import Task, run_all
from tests.mutation.targets import ROOT, Group, module_name

_START_SECONDS: Final = 20.0
"""CPU that imports may take, and whatever takes longer because of the change."""
_PATIENCE: Final = 5.0


class Outcome(StrEnum):
    """What became of one change."""

    NOTICED = "noticed"
    LATE = "late"  # the tests did not end in time, which is noticed as well
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"


class Trial(msgspec.Struct, frozen=True):
    """One change and what became of it: `by` is the test that noticed, or the reason of an equivalent."""

    mutation: Mutation
    outcome: Outcome
    by: str = ""
    tests: int = 0


class _Answer(msgspec.Struct):
    failed: str
    ran: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is spent: processes at a time, and seconds of tests for each change that none of them notices."""

    workers: int
    budget_seconds: float


def drawn(group: Group, paths: Sequence[Path], *, number: int, seed: str, only_guards: bool) -> list[Mutation]:
    """So many changes of some modules of a group, the same for the same seed and modules; all for 0."""
    sources = {module_name(path): source_of(path) for path in paths}
    everything = [one for path in paths for one in changes_of(path) if one.is_guard or not only_guards]
    random.Random(f"{seed} {group.name}").shuffle(everything)
    possible = (one for one in everything if one.is_possible_in(sources[one.module]))
    found = list(islice(possible, number or None))
    return sorted(found, key=lambda one: (one.module, one.start, one.replacement))


def tried(
    group: Group, mutations: Sequence[Mutation], callers: Callers, bounds: Bounds, on_trial: Callable[[Trial], None]
) -> list[Trial]:
    """Try changes: first with the tests that import the module themselves, then with all others that call it."""
    listed = reasons(equivalents_of(group))
    done: dict[int, Trial] = {}
    for number, one in enumerate(mutations):
        if one.key in listed:
            done[number] = Trial(one, Outcome.EQUIVALENT, listed[one.key])
            on_trial(done[number])
    survived: dict[int, Trial] = {number: Trial(one, Outcome.SURVIVED) for number, one in enumerate(mutations)}
    for is_near in (True, False):
        left = [number for number in survived if number not in done]
        wanted = {number: _tests_for(mutations[number], callers, is_near, bounds) for number in left}
        numbers = [number for number in left if wanted[number]]
        tasks = [_task(mutations[number], wanted[number]) for number in numbers]
        for place, ended in run_all(tasks, bounds.workers):
            number = numbers[place]
            trial = _trial(survived[number], ended.answer, ended.is_late)
            if trial.outcome is Outcome.SURVIVED:
                survived[number] = trial
            else:
                done[number] = trial
                on_trial(trial)
    for number, trial in survived.items():
        if number not in done:
            done[number] = trial
            on_trial(trial)
    return [done[number] for number in range(len(mutations))]


def _tests_for(mutation: Mutation, callers: Callers, is_near: bool, bounds: Bounds) -> dict[str, float]:
    tests = callers.of(mutation.module, mutation.function)
    near = {name for name in files_of(list(tests)) if mutation.module in imported_directly(ROOT / name)}
    some = {nodeid: took for nodeid, took in tests.items() if (nodeid.partition("::")[0] in near) is is_near}
    return chosen_within(some, bounds.budget_seconds)


def _task(mutation: Mutation, tests: dict[str, float]) -> Task:
    return Task(lambda folder: _attempt(mutation, tests, folder), _START_SECONDS + sum(tests.values()) * _PATIENCE)


def _attempt(mutation: Mutation, tests: dict[str, float], folder: Path) -> _Answer:
    """In a process of its own: run tests against the changed module."""
    path = ROOT.joinpath(*mutation.module.split(".")).with_suffix(".py")
    assert mutation.module not in sys.modules
    sys.meta_path.insert(0, ChangedModule(mutation.module, path, mutation.applied_to(source_of(path))))
    plugin = Selection(tests)
    code = run_tests(files_of(list(tests)), plugin, folder)
    return _Answer(plugin.failed or ("" if code == 0 else f"pytest ended with {code}"), plugin.ran)


def _trial(so_far: Trial, raw: bytes, is_late: bool) -> Trial:
    mutation = so_far.mutation
    if is_late:
        return Trial(mutation, Outcome.LATE)
    if not raw:
        return Trial(mutation, Outcome.NOTICED, "the process died")
    answer = msgspec.json.decode(raw, type=_Answer)
    outcome = Outcome.NOTICED if answer.failed else Outcome.SURVIVED
    return Trial(mutation, outcome, answer.failed, so_far.tests + answer.ran)
