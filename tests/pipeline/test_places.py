"""Where partial sums meet: equal keys at one place, days apart, and everything else spread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.columns import (
    clock_tables,
    hours,
    message_classes,
    senders,
    set_digests,
    side_totals,
    stub_hours,
    stub_versions,
    usual,
)
from pipeline.columns.groups import Numbers
from pipeline.columns.packed import RECORDS_IN_PLACE, places_for
from tests.pipeline.rows import DAY_US, HOUR_US, MONDAY_US, day_of

PlacesOf = Callable[[pa.Table, int], Numbers]

PAIR = ("src_domain", "dst_domain")
OF_THE_DAY: dict[PlacesOf, tuple[tuple[str, ...], str]] = {
    side_totals.places_of_totals: ((*PAIR, "bucket_us"), "bucket_us"),
    clock_tables.places_of_delays: (("low_domain", "high_domain"), "sent_us"),
    hours.places_of_hours: (hours.KEY, "hour_us"),
    senders.places_of_claims: (("our_domain", "domain", "hour_us"), "hour_us"),
    senders.places_of_contacts: (("our_domain", "peer_domain", "src_key"), "window_us"),
    set_digests.places_of_days: (set_digests.STATEMENT_KEY, "dt"),
    set_digests.places_of_members: ((*set_digests.STATEMENT_KEY, "bucket_us"), "bucket_us"),
    stub_hours.places_of_stub_hours: (stub_hours.WORDS, "hour_us"),
}
"""Key, and the column that says the day."""
OF_ALL_DAYS: dict[PlacesOf, tuple[str, ...]] = {
    clock_tables.places_of_times: (*PAIR, "msg_id"),
    message_classes.places_of_messages: (*PAIR, "msg_id"),
    message_classes.places_of_pairs: (*PAIR, "dt"),
    stub_versions.places_of_peers: ("peer_domain",),
    usual.places_of_peers: ("our_domain", "src_domain"),
}
PLACES = 8


def key_value(name: str, number: int) -> Any:
    """Values of a key column; those of times are all of one day."""
    if name.endswith("_us"):
        return MONDAY_US + number % 23 * HOUR_US
    if name == "day":
        return MONDAY_US // DAY_US
    if name == "dt":
        return day_of(MONDAY_US)
    return bytes([number]) if name == "msg_id" else f"{name} {number}"


def rows_of(names: tuple[str, ...], numbers: range) -> pa.Table:
    return pa.table({name: [key_value(name, number) for number in numbers] for name in names})


def on(table: pa.Table, name: str, days_later: int) -> pa.Table:
    """The same rows on a later day."""
    if name == "dt":
        values = pa.array([day_of(MONDAY_US + days_later * DAY_US)] * table.num_rows)
    else:
        values = pa.array(np.asarray(table.column(name)) + days_later * (1 if name == "day" else DAY_US))
    return table.set_column(table.column_names.index(name), name, values)


@pytest.mark.parametrize("places_of", OF_THE_DAY, ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_places_of_different_days_are_different_and_follow_their_day(places_of: PlacesOf) -> None:
    key, day = OF_THE_DAY[places_of]
    names = key if day in key else (*key, day)
    table = rows_of(names, range(200))
    today, tomorrow = (places_of(on(table, day, days), PLACES) for days in (0, 1))
    assert len(set(today.tolist())) == PLACES
    assert not set(today.tolist()) & set(tomorrow.tolist())
    assert max(today) - min(today) < PLACES
    of_days = [places_of(on(table, day, days), 1) for days in range(3)]
    assert len({int(one) for places in of_days for one in places}) == 3
    for name in set(key) - {day, "dt"}:
        table = rows_of(names, range(50))
        same = table.set_column(names.index(name), name, pa.array([table.column(name)[0].as_py()] * 50))
        assert (places_of(same, 1 << 16) != places_of(table, 1 << 16)).sum() > 40, name


@pytest.mark.parametrize("places_of", OF_ALL_DAYS, ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_places_of_no_day_are_of_the_key_alone(places_of: PlacesOf) -> None:
    key = OF_ALL_DAYS[places_of]
    table = rows_of(key, range(200))
    places = places_of(table, PLACES)
    assert set(places.tolist()) == set(range(PLACES))
    for more in ("hour_us", "sent_us"):
        other = table.append_column(more, pa.array(np.arange(200) * DAY_US))
        assert places_of(other, PLACES).tolist() == places.tolist()


def test_times_within_an_hour_share_a_place_of_their_sender() -> None:
    sender = rows_of(("our_domain", "peer_domain", "src_key"), range(1))
    windows = [sender.append_column("window_us", pa.array([MONDAY_US + minute * 60_000_000])) for minute in (0, 59, 60)]
    first, last, next_hour = (int(senders.places_of_contacts(one, 1 << 19)[0]) for one in windows)
    assert first == last != next_hour


@pytest.mark.parametrize(
    ("records", "places"),
    [
        (0, 2),
        (2 * RECORDS_IN_PLACE, 2),
        (2 * RECORDS_IN_PLACE + 1, 3),
        (9 * RECORDS_IN_PLACE, 9),
        (RECORDS_IN_PLACE << 20, 1 << 20),
        (RECORDS_IN_PLACE << 24, 1 << 20),
    ],
)
def test_there_are_places_for_all_records_two_at_least_and_a_million_at_most(records: int, places: int) -> None:
    assert places_for(records) == places
