"""Passwords are hashed in processes of their own, with a lower priority; none is left over."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from msg_node.identity.hashing import IDLE_SECONDS, Hashing
from msg_node.identity.password_hash import HashCost, is_right
from msg_node.process_tuning import BESIDE_NICE
from protofly.errors import Code, HostError
from tests.support.local_users import COST, PASSWORD

DEAR = HashCost(262_144, 40)
"""Takes so long that it is under way whenever one looks."""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hashing(clock: Clock) -> Iterator[Hashing]:
    hashing = Hashing(monotonic=clock)
    _BEFORE.clear()
    _BEFORE.update(hashers())
    yield hashing
    hashing.close()


_BEFORE: set[int] = set()
"""Processes of other tests of this process, whose nodes have not ended them."""


def hashers() -> set[int]:
    """Processes that hash for a test, dead ones that nobody has waited for too."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent, words = int(stat.read_text().rpartition(")")[2].split()[1]), stat.with_name("cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == os.getpid() and (not words or b"hash_worker" in words):
            found.add(int(stat.parent.name))
    return found - _BEFORE


def wait_for(condition: Callable[[], object]) -> None:
    while not condition():
        os.sched_yield()


def test_a_password_is_hashed_and_compared_with_a_lower_priority_than_that_of_the_node(hashing: Hashing) -> None:
    text = hashing.hash(COST, PASSWORD)
    assert is_right(PASSWORD, text)
    assert COST.is_of(text)
    compared = [hashing.is_right(typed, other) for typed, other in ((PASSWORD, text), ("x", text), ("x", ""))]
    assert compared == [True, False, False]
    [pid] = hashers()
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + BESIDE_NICE)


def test_a_process_without_work_ends_after_a_minute_and_another_one_follows(hashing: Hashing, clock: Clock) -> None:
    text = hashing.hash(COST, PASSWORD)
    first = hashers()
    clock.now = IDLE_SECONDS - 1
    hashing.end_idle()
    assert hashers() == first
    clock.now = IDLE_SECONDS
    hashing.end_idle()
    assert hashers() == set()
    assert hashing.is_right(PASSWORD, text)
    assert len(hashers()) == 1


def under_way(hashing: Hashing, threads: ThreadPoolExecutor) -> tuple[Future[str], int]:
    """A hash that is being made, and its process."""
    before = hashers()
    hashed = threads.submit(hashing.hash, DEAR, PASSWORD)
    wait_for(lambda: hashers() - before)
    [pid] = hashers() - before
    return hashed, pid


def test_a_process_that_is_killed_fails_its_hash_and_the_next_one_is_made(hashing: Hashing) -> None:
    with ThreadPoolExecutor(1) as threads:
        hashed, pid = under_way(hashing, threads)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(HostError) as failed:
            hashed.result(timeout=60)
    assert failed.value.code is Code.OVERLOAD
    assert hashers() == set()
    assert is_right(PASSWORD, hashing.hash(COST, PASSWORD))


def test_a_process_that_died_without_work_costs_no_hash(hashing: Hashing) -> None:
    text = hashing.hash(COST, PASSWORD)
    [pid] = hashers()
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert hashing.is_right(PASSWORD, text)
    assert len(hashers() - {pid}) == len(hashers()) == 1


def test_two_hashes_go_side_by_side_and_both_fail_when_the_node_stops(hashing: Hashing) -> None:
    with ThreadPoolExecutor(2) as threads:
        (one, first), (other, second) = under_way(hashing, threads), under_way(hashing, threads)
        assert first != second
        hashing.close()
        for hashed in (one, other):
            with pytest.raises(HostError):
                hashed.result(timeout=60)
    assert hashers() == set()
    with pytest.raises(HostError) as refused:
        hashing.hash(COST, PASSWORD)
    assert refused.value.code is Code.DRAINING
