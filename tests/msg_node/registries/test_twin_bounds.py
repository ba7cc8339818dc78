"""What the twin counts is what it holds, whatever happens to it; and its bounds hold to the byte."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.kernel.changes import Journal, Table
from msg_node.registries.core.twin import Slot, ThingRow, Twin
from protofly.errors import Code, PeerError
from protofly.limits import TWIN_VALUES_PER_THING

AGENTS = tuple(f"thing://alpha.example/agent-{number}" for number in range(2))
THINGS = tuple(f"{agent}/{name}" for agent in AGENTS for name in ("lamp", "fan"))
NAMES = ("properties/on", "events/motion")
MOST_BYTES = 60

_steps = st.lists(
    st.one_of(
        st.tuples(st.just("describe"), st.sampled_from(THINGS), st.integers(0, 30)),
        st.tuples(st.just("adopt"), st.sampled_from(THINGS), st.integers(0, 30)),
        st.tuples(st.just("remove"), st.sampled_from(THINGS), st.just(0)),
        st.tuples(st.just("keep"), st.sampled_from(THINGS), st.integers(1, 30)),
        st.tuples(st.just("forget"), st.sampled_from(THINGS), st.integers(0, 1)),
    ),
    max_size=25,
)


def a_description(size: int) -> bytes:
    return b'{"title":"%b"}' % (b"x" * size)


def take(twin: Twin, step: tuple[str, str, int], now: float) -> None:
    """One step; what there is no room for changes nothing."""
    kind, key, size = step
    if kind == "describe":
        with suppress(PeerError):
            twin.describe(key, key, a_description(size), now=now)
    elif kind == "adopt":
        twin.adopt(key, ThingRow(url=key, description=msgspec.Raw(a_description(size)), version=1, modified_at=now))
    elif kind == "remove":
        was_there = twin.find(key) is not None
        assert twin.remove(key) is was_there
    elif kind == "keep" and twin.keeps(key):
        twin.keep(Slot(key, NAMES[size % 2]), b'"%b"' % (b"x" * size), key, now=now)
    elif kind == "forget":
        twin.forget_value(key, NAMES[size])


def held_bytes(twin: Twin) -> int:
    """Bytes of all descriptions and values, counted anew."""
    return sum(twin.size_of(key, has_values=True) for key in THINGS)


@given(_steps)
def test_the_twin_counts_what_it_holds_and_no_more_than_it_may(steps: list[tuple[str, str, int]]) -> None:
    twin = Twin(Journal(), max_bytes=MOST_BYTES)
    for number, step in enumerate(steps):
        take(twin, step, float(number))
        counts = twin.statistics()
        assert counts["size_bytes"] == held_bytes(twin) <= MOST_BYTES
        assert counts["watched"] == sum(bool(twin.values(key)) for key in THINGS)
        assert counts["things"] == sum(twin.find(key) is not None for key in THINGS)
        assert twin.watches is (counts["things"] > 0)
    assert sorted(key for agent in AGENTS for key, _ in twin.things(agent)) == sorted(key for key, _ in twin.things())


@given(_steps)
def test_what_is_read_back_counts_as_before_and_leaves_out_values_of_nothing(steps: list[tuple[str, str, int]]) -> None:
    journal = Journal()
    twin = Twin(journal, max_bytes=MOST_BYTES)
    rows: dict[Table, dict[str, bytes]] = {Table.TWIN_THINGS: {}, Table.TWIN_VALUES: {}}
    for number, step in enumerate(steps):
        take(twin, step, float(number))
        if step[0] == "adopt" and (row := twin.find(step[1])) is not None:
            journal.put(Table.TWIN_THINGS, step[1], row)  # its new agent is stored by who adopts it
        twin.store_values()
        for change in journal.take():
            if change.row is None:
                rows[change.table].pop(change.key, None)
            else:
                rows[change.table][change.key] = msgspec.json.encode(change.row)
    stale = f"{AGENTS[0]}/gone {NAMES[0]}"
    value = {"value": 1, "source": "x", "received_at": 1.0}
    restored = Twin(journal, max_bytes=MOST_BYTES)
    restored.restore(rows[Table.TWIN_THINGS], rows[Table.TWIN_VALUES] | {stale: msgspec.json.encode(value)})
    assert restored.statistics() == twin.statistics() | {"values_refused": 0}
    assert held_bytes(restored) == held_bytes(twin)
    assert [(change.table, change.key, change.row) for change in journal.take()] == [(Table.TWIN_VALUES, stale, None)]


@pytest.mark.parametrize(("free", "is_taken"), [(1, True), (0, False)])
def test_another_value_of_a_full_thing_takes_the_place_of_the_one_before(free: int, is_taken: bool) -> None:
    twin = Twin(Journal(), max_bytes=100_000)
    twin.describe(THINGS[0], THINGS[0], b"{}", now=1.0)
    for number in range(TWIN_VALUES_PER_THING - free):
        assert twin.keep(Slot(THINGS[0], f"events/e-{number}"), b"1", "x", now=1.0)
    assert twin.keep(Slot(THINGS[0], "events/e-0"), b"22", "x", now=2.0)
    assert twin.keep(Slot(THINGS[0], "events/more"), b"1", "x", now=2.0) is is_taken
    assert twin.statistics()["values_refused"] == (not is_taken)


@pytest.mark.parametrize(("most_bytes", "is_taken"), [(2, True), (1, False)])
def test_the_first_description_of_a_thing_fits_to_the_byte(most_bytes: int, is_taken: bool) -> None:
    twin = Twin(Journal(), max_bytes=most_bytes)
    if is_taken:
        twin.describe(THINGS[0], THINGS[0], b"{}", now=1.0)
    else:
        with pytest.raises(PeerError, check=lambda error: error.code is Code.QUOTA):
            twin.describe(THINGS[0], THINGS[0], b"{}", now=1.0)
    adopting = Twin(Journal(), max_bytes=most_bytes)
    row = ThingRow(url=THINGS[0], description=msgspec.Raw(b"{}"), version=1, modified_at=1.0)
    assert adopting.adopt(THINGS[0], row) is is_taken
    assert twin.statistics()["size_bytes"] == adopting.statistics()["size_bytes"] == 2 * is_taken


def test_what_is_forgotten_value_by_value_and_thing_by_thing_leaves_nothing() -> None:
    twin = Twin(journal := Journal())
    twin.describe(THINGS[0], THINGS[0], b"{}", now=1.0)
    twin.keep(Slot(THINGS[0], NAMES[0]), b"123", "x", now=1.0)
    twin.keep(Slot(THINGS[0], NAMES[1]), b"4", "x", now=1.0)
    journal.take()
    sizes = []
    for name in (NAMES[0], NAMES[0], NAMES[1]):
        twin.forget_value(THINGS[0], name)
        sizes.append((twin.statistics()["size_bytes"], twin.statistics()["watched"]))
    assert sizes == [(3, 1), (3, 1), (2, 0)]
    assert [(change.key, change.row) for change in journal.take()] == [(f"{THINGS[0]} {name}", None) for name in NAMES]
    twin.remove(THINGS[0])
    assert {name: held for name, held in vars(twin).items() if isinstance(held, dict) and held} == {}
