"""Budgets: the smaller of need and limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly import limits
from protofly.errors import MisuseError
from sandbox.core.budget import Budget


def test_no_needs_means_the_default_limits() -> None:
    assert Budget().lowered_to() == Budget()
    assert Budget().memory_bytes == limits.MEMORY_BYTES
    assert Budget().cpu_milliseconds == 50


@given(memory=st.integers(-5, 1 << 40), milliseconds=st.integers(0, 10**6))
def test_needs_never_raise_a_limit(memory: int, milliseconds: int) -> None:
    budget = Budget().lowered_to(memory_bytes=memory, call_ms=milliseconds)
    assert 0 < budget.memory_bytes <= limits.MEMORY_BYTES
    assert budget.memory_bytes % 65_536 == 0
    assert 0 < budget.cpu_milliseconds <= 50


def test_memory_is_rounded_up_to_pages() -> None:
    assert Budget().lowered_to(memory_bytes=65_537).memory_bytes == 131_072


def test_fuel_grows_with_events_and_bytes() -> None:
    assert Budget().fuel_of_call(3, 100) == 3 * 2_000_000 + 100 * 2000


def test_budget_survives_the_wire() -> None:
    budget = Budget().lowered_to(memory_bytes=1 << 20, call_ms=7)
    assert Budget.from_bytes(budget.to_bytes()) == budget
    with pytest.raises(MisuseError):
        Budget.from_bytes(b"short")


def test_a_stub_that_needs_one_millisecond_gets_one_and_none_gets_less() -> None:
    given = [Budget().lowered_to(call_ms=wanted).cpu_milliseconds for wanted in (1, -1, 0, None)]
    assert given == [1, 1, Budget().cpu_milliseconds, Budget().cpu_milliseconds]
