"""Which of some changes do tests notice."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
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
from tests.mutation.swapping import Host, swap
from tests.mutation.targets import ROOT, Group, module_name

_START_SECONDS: Final = 20.0
"""CPU that imports may take, and whatever takes longer because of the change."""
_PATIENCE: Final = 5.0
_CHANGES_OF_A_HOST: Final = 150
_HOST_SECONDS: Final = 3600.0
"""CPU of a process that only collects tests and waits for others."""


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
    """`is_open`: no test has failed, and one may if the module is changed from its import on."""

    failed: str
    ran: int
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class _Work:
    """A change, and the tests that may notice it in their order."""

    mutation: Mutation
    tests: dict[str, float]

    @property
    def cpu_seconds(self) -> float:
        return _START_SECONDS + sum(self.tests.values()) * _PATIENCE


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
    """Try changes: with swapped functions first; what survives that, with its module changed from the import on.

    There the tests run that import the module themselves, then all others that call it.
    """
    listed = reasons(equivalents_of(group))
    done: dict[int, Trial] = {}

    def end(number: int, trial: Trial) -> None:
        done[number] = trial
        on_trial(trial)

    for number, one in enumerate(mutations):
        if one.key in listed:
            end(number, Trial(one, Outcome.EQUIVALENT, listed[one.key]))
    in_functions = [number for number, one in enumerate(mutations) if number not in done and one.function]
    for start in range(0, len(in_functions), _CHANGES_OF_A_HOST):
        some = in_functions[start : start + _CHANGES_OF_A_HOST]
        for number, trial in _swapped({number: mutations[number] for number in some}, callers, bounds):
            end(number, trial)
    survived: dict[int, Trial] = {number: Trial(one, Outcome.SURVIVED) for number, one in enumerate(mutations)}
    for is_near in (True, False):
        left = [number for number in survived if number not in done]
        wanted = {number: _tests_for(mutations[number], callers, is_near, bounds) for number in left}
        numbers = [number for number in left if wanted[number]]
        works = [_Work(mutations[number], wanted[number]) for number in numbers]
        tasks = [Task(partial(_attempt, work), work.cpu_seconds) for work in works]
        for place, ended in run_all(tasks, bounds.workers):
            number = numbers[place]
            trial = _trial(survived[number], ended.answer, ended.is_late)
            if trial.outcome is Outcome.SURVIVED:
                survived[number] = trial
            else:
                end(number, trial)
    for number, trial in survived.items():
        if number not in done:
            end(number, trial)
    return [done[number] for number in range(len(mutations))]


def _swapped(mutations: Mapping[int, Mutation], callers: Callers, bounds: Bounds) -> Iterator[tuple[int, Trial]]:
    """What becomes of those changes of which a swapped function says enough; see `swapping`."""
    tests = {
        number: _tests_for(one, callers, True, bounds) | _tests_for(one, callers, False, bounds)
        for number, one in mutations.items()
    }
    works = {number: _Work(one, tests[number]) for number, one in mutations.items() if one.function and tests[number]}
    if not works:
        return
    [(_, ended)] = run_all([Task(partial(_hosted, works, bounds.workers), _HOST_SECONDS)], 1)
    answers = msgspec.json.decode(ended.answer or b"[]", type=list[tuple[int, str, bool]])
    for number, raw, is_late in answers:
        trial = _trial(Trial(mutations[number], Outcome.SURVIVED), raw.encode(), is_late)
        is_open = raw and msgspec.json.decode(raw, type=_Answer).is_open
        if trial.outcome is not Outcome.SURVIVED or not is_open:
            yield number, trial


def _hosted(works: Mapping[int, _Work], workers: int, folder: Path) -> object:
    """In a process of its own: collect tests, then fork a process for each change."""
    seconds = {nodeid: took for work in works.values() for nodeid, took in work.tests.items()}

    def work_off(host: Host) -> list[tuple[int, str, bool]]:
        numbers = [] if host.failed else list(works)
        tasks = [Task(partial(_attempt_swapped, works[number], host), works[number].cpu_seconds) for number in numbers]
        return [(numbers[place], ended.answer.decode(), ended.is_late) for place, ended in run_all(tasks, workers)]

    plugin = Host(seconds, {_path_of(work.mutation) for work in works.values()}, work_off)
    run_tests(files_of(list(seconds)), plugin, folder)
    return plugin.result


def _attempt_swapped(work: _Work, host: Host, _folder: Path) -> _Answer:
    path = _path_of(work.mutation)
    is_swapped = swap(work.mutation, host.functions_of(path), source_of(path))
    if is_swapped:
        host.run(list(work.tests))
    return _Answer(host.failed, host.ran, not is_swapped or host.was_called(path, work.mutation.function))


def _path_of(mutation: Mutation) -> Path:
    return ROOT.joinpath(*mutation.module.split(".")).with_suffix(".py")


def _tests_for(mutation: Mutation, callers: Callers, is_near: bool, bounds: Bounds) -> dict[str, float]:
    tests = callers.of(mutation.module, mutation.function)
    near = {name for name in files_of(list(tests)) if mutation.module in imported_directly(ROOT / name)}
    some = {nodeid: took for nodeid, took in tests.items() if (nodeid.partition("::")[0] in near) is is_near}
    return chosen_within(some, bounds.budget_seconds)


def _attempt(work: _Work, folder: Path) -> _Answer:
    """In a process of its own: run tests against the changed module."""
    mutation, tests = work.mutation, work.tests
    path = _path_of(mutation)
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
