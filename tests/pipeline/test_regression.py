from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.columns.regression import LEAST_HOURS, LEAST_MESSAGES, Comparison, HourOfStub, compare, interval_of
from protofly.log_linear import bucket_of
from tests.pipeline.histograms import histogram_of

OLD, NEW = "a" * 64, "b" * 64
TYPES = ("create", "read")


def hours(
    version: str,
    *,
    count: int = 12,
    messages: int = 400,
    trap_rate: float = 0.002,
    latency: float = 1.0,
    fuel: float = 1.0,
    mix: tuple[float, float] = (0.5, 0.5),
    seed: int = 1,
) -> Iterator[HourOfStub]:
    """Hours of one version; `read` takes ten times as long as `create`."""
    rng = np.random.default_rng(seed)
    for hour in range(count):
        for number, (msg_type, share) in enumerate(zip(TYPES, mix, strict=True)):
            size = int(messages * share)
            drawn = rng.lognormal(7 + 2.3 * number, 0.4, size) * latency
            yield HourOfStub(
                stub_ver=version,
                hour_us=hour * 3_600_000_000,
                stratum=(msg_type, 7),
                messages=size,
                failed=int(rng.binomial(size, 0.01)),
                traps=int(rng.binomial(size, trap_rate)),
                latency=histogram_of(int(value) for value in drawn),
                fuel=histogram_of(int(value) for value in rng.normal(50_000, 2_000, size) * fuel),
            )


def verdicts(*rows: Iterator[HourOfStub]) -> dict[str, Comparison]:
    found = compare([row for part in rows for row in part], OLD, NEW)
    return {one.measure: one for one in found}


@pytest.mark.parametrize(
    ("measure", "change"),
    [
        ("traps", {"trap_rate": 0.03}),
        ("latency_p50", {"latency": 1.4}),
        ("latency_p99", {"latency": 1.4}),
        ("fuel_p50", {"fuel": 1.25}),
    ],
)
def test_planted_regression_is_found_and_nothing_else(measure: str, change: dict[str, float]) -> None:
    found = verdicts(hours(OLD), hours(NEW, seed=2, **change))  # type: ignore[arg-type]
    assert found[measure].verdict == "worse"
    low, high = found[measure].low, found[measure].high
    assert low is not None
    assert high is not None
    assert 1.05 < low <= high
    related = {measure} | ({"latency_p50", "latency_p99"} if "latency" in change else set())
    assert {one.measure for one in found.values() if one.verdict == "worse"} <= related


def test_faster_version_is_better_and_its_ratio_is_below_one() -> None:
    found = verdicts(hours(OLD), hours(NEW, latency=0.6, seed=2))
    assert found["latency_p50"].verdict == "better"


def test_equal_versions_are_not_called_worse_or_better() -> None:
    found = verdicts(hours(OLD), hours(NEW, seed=2))
    assert {one.verdict for one in found.values()} <= {"same", "too-little"}
    assert found["fuel_p50"].verdict == "same"


def test_other_mix_of_messages_is_no_regression() -> None:
    """Nine of ten messages of the candidate are of the slow type: compared without strata it would be far worse."""
    found = verdicts(hours(OLD, mix=(0.9, 0.1)), hours(NEW, mix=(0.1, 0.9), seed=2))
    assert found["latency_p50"].verdict != "worse"
    ratio = found["latency_p50"].ratio
    assert ratio is not None
    assert 0.9 < ratio < 1.1


def test_too_few_messages_say_nothing() -> None:
    found = verdicts(hours(OLD), hours(NEW, count=1, messages=LEAST_MESSAGES // 4, trap_rate=0.5))
    assert {one.verdict for one in found.values()} == {"too-little"}
    assert all(one.ratio is None for one in found.values())


def test_strata_that_only_one_version_has_seen_are_left_out() -> None:
    found = verdicts(hours(OLD, mix=(1.0, 0.0)), hours(NEW, mix=(0.5, 0.5)))
    assert found["traps"].strata == 2  # empty hours still name the stratum
    only_create = [row for row in hours(OLD) if row.stratum[0] == "create"]
    assert {one.strata for one in compare([*only_create, *hours(NEW)], OLD, NEW)} == {1}


def test_versions_that_never_trapped_are_the_same_in_that() -> None:
    found = verdicts(hours(OLD, trap_rate=0.0), hours(NEW, trap_rate=0.0))
    assert (found["traps"].verdict, found["traps"].ratio) == ("same", 1.0)


def test_an_interval_that_only_touches_the_smallest_effect_is_the_same() -> None:
    rows = [*hours(OLD, trap_rate=0.0), *hours(NEW, trap_rate=0.0)]
    traps = compare(rows, OLD, NEW, smallest_effect=0.0)[0]
    assert (traps.measure, traps.low, traps.high, traps.verdict) == ("traps", 1.0, 1.0, "same")


@pytest.mark.parametrize(("old", "new"), [(30, 25), (25, 30)])
def test_an_interval_that_reaches_beyond_the_smallest_effect_on_one_side_says_too_little(old: int, new: int) -> None:
    rows = [
        row
        for version, traps in ((OLD, old), (NEW, new))
        for row in plain_hours((1_000, {4: 1_000}), version=version, traps=traps)
    ]
    traps = compare(rows, OLD, NEW, smallest_effect=0.3)[0]
    assert traps.low is not None
    assert traps.high is not None
    assert (traps.low < 1 / 1.3, traps.high > 1.3) == (old > new, old < new)
    assert traps.verdict == "too-little"


def test_an_interval_leaves_out_one_draw_of_two_hundred_at_either_end() -> None:
    draws = np.random.default_rng(1).permutation(np.arange(1.0, 202.0))
    assert interval_of(draws) == pytest.approx((2, 200))


def test_hours_of_a_third_version_change_nothing() -> None:
    rows = [*hours(OLD), *hours(NEW, seed=2)]
    other = hours("c" * 64, count=20, trap_rate=0.5, seed=3)
    assert compare([*other, *rows], OLD, NEW) == compare(rows, OLD, NEW)


def test_nothing_in_common_gives_no_verdict_and_no_crash() -> None:
    assert {one.verdict for one in compare([], OLD, NEW)} == {"too-little"}


@settings(max_examples=5, deadline=None)
@given(st.randoms(use_true_random=False))
def test_order_of_hours_does_not_matter(random: object) -> None:
    rows = [*hours(OLD, count=4), *hours(NEW, count=4, seed=3)]
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert compare(rows, OLD, NEW) == compare(shuffled, OLD, NEW)


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize(("count", "says_nothing"), [(LEAST_HOURS - 1, True), (LEAST_HOURS, False)])
def test_quantiles_need_three_hours_of_both_versions_and_rates_do_not(
    version: str, count: int, says_nothing: bool
) -> None:
    parts = [hours(one, count=count if one == version else 12, messages=1000) for one in (OLD, NEW)]
    found = verdicts(*parts)
    for measure in ("latency_p50", "latency_p99", "fuel_p50"):
        assert (found[measure].ratio is None) is says_nothing
    assert found["traps"].ratio is not None


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize(("messages", "says_nothing"), [(LEAST_MESSAGES - 4, True), (LEAST_MESSAGES, False)])
def test_each_version_needs_its_two_hundred_messages(version: str, messages: int, says_nothing: bool) -> None:
    parts = [hours(one, count=4, messages=messages // 4 if one == version else 400) for one in (OLD, NEW)]
    assert {one.ratio is None for one in verdicts(*parts).values()} == {says_nothing}


@pytest.mark.parametrize("alone", [OLD, NEW])
def test_what_only_one_version_has_seen_changes_no_value(alone: str) -> None:
    shared = [row for version in (OLD, NEW) for row in hours(version) if row.stratum[0] == "create"]
    more = [row for row in hours(alone) if row.stratum[0] == "read"]
    assert compare([*shared, *more], OLD, NEW) == compare(shared, OLD, NEW)


def test_versions_without_a_histogram_have_no_quantile() -> None:
    rows = [*hours(OLD), *hours(NEW)]
    for silent in (OLD, NEW):
        cut = [dataclasses.replace(row, fuel={}) if row.stub_ver == silent else row for row in rows]
        found = {one.measure: one for one in compare(cut, OLD, NEW)}
        assert (found["fuel_p50"].ratio, found["latency_p50"].ratio is None) == (None, False)


def plain_hours(*strata: tuple[int, dict[int, int]], version: str, **counts: int) -> Iterator[HourOfStub]:
    """Three equal hours; each stratum with its messages, and how many of them took how long and as much fuel."""
    for hour_us in range(3):
        for number, (messages, values) in enumerate(strata):
            histogram = {bucket_of(value): count for value, count in values.items()}
            yield HourOfStub(
                stub_ver=version,
                hour_us=hour_us,
                stratum=("create", number),
                messages=messages,
                failed=counts.get("failed", 0),
                traps=counts.get("traps", 0),
                latency=histogram,
                fuel=histogram,
            )


@pytest.mark.parametrize(
    ("measure", "values"),
    [
        ("latency_p50", {4: 490, 8: 10, 15: 500}),
        ("latency_p99", {4: 980, 8: 10, 15: 10}),
        ("fuel_p50", {4: 490, 8: 10, 15: 500}),
    ],
)
def test_a_quantile_is_a_value_where_its_share_of_the_messages_ends(measure: str, values: dict[int, int]) -> None:
    found = verdicts(*(plain_hours((1_000, values), version=version) for version in (OLD, NEW)))
    assert found[measure].baseline_value == pytest.approx(8)


def test_a_quantile_within_a_step_lies_between_two_values_in_proportion_of_their_logarithms() -> None:
    found = verdicts(*(plain_hours((1_000, {2: 400, 8: 200, 15: 400}), version=version) for version in (OLD, NEW)))
    assert found["latency_p50"].baseline_value == pytest.approx(4)
    assert (found["latency_p50"].low, found["latency_p50"].high) == (1, 1)


def test_a_quantile_in_a_later_step_begins_at_the_value_before_it() -> None:
    parts = (plain_hours((1_000, {2: 100, 4: 300, 8: 200, 15: 400}), version=version) for version in (OLD, NEW))
    assert verdicts(*parts)["latency_p50"].baseline_value == pytest.approx(4 * 2**0.5)


@pytest.mark.parametrize("value", [0, 1])
def test_what_took_no_time_counts_like_the_shortest_that_can_be_measured(value: int) -> None:
    old, new = plain_hours((1_000, {value: 1_000}), version=OLD), plain_hours((1_000, {4: 1_000}), version=NEW)
    found = verdicts(old, new)["latency_p50"]
    assert [found.baseline_value, found.candidate_value] == pytest.approx([1, 2])
    assert [found.ratio, found.low, found.high] == pytest.approx([2, 2, 2])
    assert found.verdict == "worse"


def test_a_stratum_of_one_message_counts_and_one_of_none_has_no_failures() -> None:
    old = plain_hours((300, {2: 300}), (0, {}), version=OLD, failed=0)
    new = plain_hours((299, {2: 299}), (1, {8: 1}), version=NEW, failed=1)
    found = verdicts(old, new)
    assert found["failures"].baseline_value == 0
    assert found["failures"].candidate_value == pytest.approx(599 / 600 / 299 + 1 / 600)
    assert found["latency_p99"].candidate_value == pytest.approx(2)
    only = {
        one.measure: one
        for one in compare(
            [
                *plain_hours((100, {}), (1, {8: 1}), version=OLD),
                *plain_hours((100, {2: 1}), (1, {8: 1}), version=NEW),
            ],
            OLD,
            NEW,
        )
    }
    assert only["latency_p50"].baseline_value == pytest.approx(4)


def test_strata_count_by_the_messages_of_both_versions() -> None:
    old = plain_hours((100, {2: 100}), (200, {8: 200}), version=OLD, failed=10)
    new = plain_hours((100, {2: 100}), (400, {8: 400}), version=NEW, failed=20)
    found = verdicts(old, new)
    assert found["failures"].baseline_value == pytest.approx(0.25 * 10 / 100 + 0.75 * 10 / 200)
    assert found["failures"].candidate_value == pytest.approx(0.25 * 20 / 100 + 0.75 * 20 / 400)
    assert found["latency_p50"].baseline_value == pytest.approx(2 * 4 ** ((0.5 - 0.25) / 0.75))
    assert (found["failures"].strata, found["failures"].messages) == (2, 2_400)


def test_a_stratum_in_which_a_version_measured_nothing_has_no_part_in_its_quantile() -> None:
    old = plain_hours((300, {2: 150, 4: 150}), (300, {}), version=OLD)
    new = plain_hours((300, {2: 150, 4: 150}), (300, {15: 300}), version=NEW)
    found = verdicts(old, new)
    assert found["latency_p50"].baseline_value == pytest.approx(2)
    assert found["latency_p50"].candidate_value == pytest.approx(4)


def test_hours_in_which_nothing_was_measured_are_not_among_those_that_are_drawn() -> None:
    rows = [*plain_hours((300, {4: 300}), version=OLD), *plain_hours((300, {4: 300}), version=NEW)]
    silent = [dataclasses.replace(row, hour_us=hour_us, latency={}) for row in rows for hour_us in range(3, 20)]
    found = {one.measure: one for one in compare([*rows, *silent], OLD, NEW)}
    assert (found["latency_p50"].low, found["latency_p50"].high, found["latency_p50"].verdict) == (1, 1, "same")
    few = {one.measure: one for one in compare([row for row in [*rows, *silent] if row.hour_us != 1], OLD, NEW)}
    assert (few["latency_p50"].verdict, few["traps"].ratio is None) == ("too-little", False)
