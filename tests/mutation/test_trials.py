"""How changes are tried: each in a process of its own that is bounded, and that leaves the checkout as it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.mutation import callers, processes
from tests.mutation.callers import (
    Callers,
    KeptFile,
    TestCalls,
    callers_of,
    files_that_may_notice,
    imports_one,
    is_beside,
)
from tests.mutation.processes import Task, run_all
from tests.mutation.report import GroupVerdict
from tests.mutation.targets import ROOT, groups
from tests.mutation.trials import Outcome, Trial, drawn

[CACHE] = [group for group in groups() if group.name == "stubs_cache/core"]


def test_answers_come_back_by_number() -> None:
    tasks = [Task(lambda _, number=number: number * 10, 5.0) for number in range(5)]  # type: ignore[misc]
    assert {number: ended.answer for number, ended in run_all(tasks, 2)} == {n: str(n * 10).encode() for n in range(5)}


def test_the_body_of_a_class_is_tried_with_all_tests_of_its_module_though_one_of_them_imports_it() -> None:
    path, name = "stubs_cache/core/eviction.py", "tests/stubs_cache/test_core.py"
    imports = TestCalls(0.1, {path: ["<module>", "Eviction"]})
    calls = TestCalls(0.1, {path: ["choose_evictions"]})
    known = Callers(CACHE, {name: KeptFile("", {f"{name}::one": imports, f"{name}::other": calls})})
    assert known.of("stubs_cache.core.eviction", "Eviction").keys() == {f"{name}::one", f"{name}::other"}
    assert known.of("stubs_cache.core.eviction", "choose_evictions").keys() == {f"{name}::other"}


def test_what_takes_too_much_cpu_is_late() -> None:
    def spin(_: Path) -> object:
        while True:
            pass

    [(_, ended)] = run_all([Task(spin, 0.0)], 1)
    assert (ended.is_late, ended.answer) == (True, b"")


def test_what_takes_too_much_cpu_for_one_test_is_late() -> None:
    def spin(_: Path) -> object:
        signal.setitimer(signal.ITIMER_PROF, 0.05)
        while True:
            pass

    [(_, ended)] = run_all([Task(spin, 20.0)], 1)
    assert (ended.is_late, ended.answer) == (True, b"")


def test_what_waits_for_ever_is_late_and_ends_with_all_that_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_IDLE_SECONDS", 1.5)
    reader, writer = os.pipe()

    def wait(_: Path) -> object:
        os.set_inheritable(writer, True)
        subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"], close_fds=False, check=False)
        return None

    [(_, ended)] = run_all([Task(wait, 5.0)], 1)
    os.close(writer)
    assert ended.is_late
    assert os.read(reader, 1) == b""  # nobody has the other end any more
    os.close(reader)


def test_what_takes_too_much_memory_does_not_get_it() -> None:
    def take(_: Path) -> object:
        try:
            return len(bytearray(8 << 30))
        except MemoryError:
            return "refused"

    [(_, ended)] = run_all([Task(take, 5.0)], 1)
    assert ended.answer == b'"refused"'


def test_a_process_that_dies_hands_back_nothing() -> None:
    [(_, ended)] = run_all([Task(lambda _: os._exit(3), 5.0)], 1)
    assert (ended.is_late, ended.answer) == (False, b"")


def test_the_same_seed_draws_the_same_changes() -> None:
    paths = CACHE.paths()
    first = drawn(CACHE, paths, number=10, seed="1", only_guards=False)
    assert first == drawn(CACHE, paths, number=10, seed="1", only_guards=False)
    assert first != drawn(CACHE, paths, number=10, seed="2", only_guards=False)
    assert len(drawn(CACHE, paths, number=0, seed="1", only_guards=False)) > 20
    assert all(one.is_guard for one in drawn(CACHE, paths, number=0, seed="1", only_guards=True))


def verdict(
    *, noticed: int = 0, survived: int = 0, guards: int = 0, equivalent: int = 0, late: int = 0
) -> GroupVerdict:
    everything = drawn(CACHE, CACHE.paths(), number=0, seed="1", only_guards=False)
    plain = next(one for one in everything if not one.is_guard)
    guard = next(one for one in everything if one.is_guard)
    trials = [
        *[Trial(plain, Outcome.NOTICED)] * noticed,
        *[Trial(plain, Outcome.LATE)] * late,
        *[Trial(plain, Outcome.SURVIVED)] * survived,
        *[Trial(guard, Outcome.SURVIVED)] * guards,
        *[Trial(guard, Outcome.EQUIVALENT)] * equivalent,
    ]
    return GroupVerdict(CACHE, trials, [])


def test_a_target_holds_by_its_share_and_without_a_guard_among_the_survivors() -> None:
    assert CACHE.target == 0.97
    assert verdict(noticed=97, survived=3).is_good
    assert verdict(noticed=96, late=1, survived=3, equivalent=50).is_good
    assert not verdict(noticed=96, survived=4).is_good
    assert not verdict(noticed=96, survived=4, equivalent=1000).is_good
    assert not verdict(noticed=1000, guards=1).is_good
    assert verdict(equivalent=3).is_good
    assert not GroupVerdict(CACHE, [], ["an entry"]).is_good


@pytest.mark.long
def test_the_command_reports_what_no_test_notices_and_writes_no_file_of_the_checkout(tmp_path: Path) -> None:
    module, report_file = ROOT / "stubs_cache/core/eviction.py", tmp_path / "report.json"
    before, began = module.read_bytes(), time.time()
    command = [
        sys.executable,
        "-m",
        "tests.mutation",
        "stubs_cache/core/eviction.py",
        "--sample",
        "6",
        "--json",
        str(report_file),
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    [facts] = msgspec.json.decode(report_file.read_bytes())
    assert ended.returncode == (0 if facts["holds"] else 1), ended.stderr
    assert facts["noticed"] + facts["late"] + facts["survived"] + facts["equivalent"] == 6
    assert facts["noticed"] >= 4
    assert module.read_bytes() == before
    assert module.stat().st_mtime < began
    unknown = subprocess.run([*command[:3], "no/such.py"], cwd=ROOT, capture_output=True, check=False)
    assert unknown.returncode == 2


ROUTER, HISTOGRAMS = "msg_node.bus.core.router", "msg_node.kernel.histograms"


@pytest.mark.parametrize(
    ("module", "path", "is_near"),
    [
        (ROUTER, "tests/msg_node/bus/test_router.py", True),
        (ROUTER, "tests/msg_node/sessions/test_sessions.py", False),
        (HISTOGRAMS, "tests/msg_node/kernel/test_deadlines.py", True),
        (HISTOGRAMS, "tests/msg_node/admin/test_traffic.py", False),
        ("federation.core.transactions", "tests/federation/test_border.py", True),
        ("federation.core.transactions", "tests/msg_node/bus/test_router.py", False),
    ],
)
def test_tests_in_the_folder_of_a_package_are_beside_it(module: str, path: str, is_near: bool) -> None:
    assert is_beside(ROOT / path, {module}) is is_near


def test_tests_that_import_a_module_themselves_come_before_all_others() -> None:
    [group] = [one for one in groups() if one.name == "msg_node"]
    files = files_that_may_notice(group)
    importing = [path for path in files if imports_one(path, {HISTOGRAMS})]
    assert ROOT / "tests/msg_node/admin/test_traffic.py" in importing
    assert ROOT / "tests/msg_node/bus/test_router.py" in set(files) - set(importing)


def test_what_is_known_of_other_test_files_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(callers, "KEPT", tmp_path)
    watched: list[list[str]] = []

    def watch(_group: object, names: list[str], _workers: int) -> Iterator[dict[str, dict[str, TestCalls]]]:
        watched.append(names)
        yield {name: {f"{name}::one": TestCalls(0.1)} for name in names}

    monkeypatch.setattr(callers, "_watched_all", watch)
    one, other, *_ = files_that_may_notice(CACHE)
    for paths in ([one], [other], [one, other]):
        callers_of(CACHE, paths, 1, lambda _done, _total: None)
    assert watched == [[str(one.relative_to(ROOT))], [str(other.relative_to(ROOT))], []]
