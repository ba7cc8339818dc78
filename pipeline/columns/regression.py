"""Whether one stub version is worse than another: ratios within strata, with intervals.

Two versions rarely carry the same mix of messages, so nothing is compared across strata (message type and size class).
Each version's rate or distribution is standardised: every stratum that both versions have seen counts with the number
of messages that both together carried in it. Strata that only one version has seen are left out and counted.

* Rates (traps, failures): each stratum's rate has a Beta posterior with a flat prior; the ratio's interval is that of
  draws from them.
* Quantiles (latency, fuel): hours are resampled with replacement, whole, because the messages of one hour are alike;
  the interval is that of the resampled ratios.

All draws come from a generator with a fixed seed: equal records give equal verdicts. A version is `worse` only when the
whole interval lies beyond the smallest effect that matters.
Source: pipeline study, section 8.3; Gelman and others, Bayesian Data Analysis, section 3; block bootstrap of Künsch
(1989).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.columns.histogram import middle_of

RegressionVerdict = Literal["worse", "better", "same", "too-little"]
Stratum = tuple[str, int]
"""Message type and size class."""

SMALLEST_EFFECT: Final = 0.05
CONFIDENCE: Final = 0.99
DRAWS: Final = 4_000
RESAMPLES: Final = 600
LEAST_MESSAGES: Final = 200
"""Of each version, in shared strata; with fewer nothing is said."""
LEAST_HOURS: Final = 3
_SEED: Final = 0x7472617065


@dataclass(frozen=True, slots=True, kw_only=True)
class HourOfStub:
    """One row of `stub_hourly`: what one version met in one hour and stratum."""

    stub_ver: str
    hour_us: int
    stratum: Stratum
    messages: int
    failed: int
    traps: int
    latency: Mapping[int, int]
    fuel: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One measure of candidate against baseline. A ratio above 1 is to the candidate's disadvantage."""

    measure: str
    baseline_value: float | None
    candidate_value: float | None
    ratio: float | None
    low: float | None
    high: float | None
    strata: int
    messages: int
    verdict: RegressionVerdict


def compare(
    hours: Iterable[HourOfStub], baseline: str, candidate: str, *, smallest_effect: float = SMALLEST_EFFECT
) -> list[Comparison]:
    """All measures of `candidate` against `baseline`.

    Args:
        hours: Of one peer.
        baseline: Version to compare with.
        candidate: Version to judge.
        smallest_effect: Relative difference that matters, 0.05 being 5 %.
    """
    rows = list(hours)
    strata = sorted(
        {row.stratum for row in rows if row.stub_ver == baseline}
        & {row.stratum for row in rows if row.stub_ver == candidate}
    )
    old = [row for row in rows if row.stub_ver == baseline and row.stratum in strata]
    new = [row for row in rows if row.stub_ver == candidate and row.stratum in strata]
    judge = _Judge(old, new, strata, smallest_effect)
    return [
        judge.rates("traps"),
        judge.rates("failed"),
        judge.quantiles("latency", 500),
        judge.quantiles("latency", 990),
        judge.quantiles("fuel", 500),
    ]


def interval_of(draws: NDArray[np.float64]) -> tuple[float, float]:
    """The middle of so many draws as `CONFIDENCE` says: equally many are below it and above it."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


class _Judge:
    """Two versions, the strata they share, and the weight of each."""

    def __init__(
        self, old: list[HourOfStub], new: list[HourOfStub], strata: list[Stratum], smallest_effect: float
    ) -> None:
        self._old, self._new = old, new
        self._strata = strata
        self._effect = smallest_effect
        self._old_messages = self._by_stratum(old, "messages")
        self._new_messages = self._by_stratum(new, "messages")
        both = self._old_messages + self._new_messages
        self._weights = both / max(both.sum(), 1.0)
        self._messages = int(both.sum())
        self._is_enough = min(self._old_messages.sum(), self._new_messages.sum()) >= LEAST_MESSAGES

    def rates(self, measure: Literal["traps", "failed"]) -> Comparison:
        """Ratio of the shares of messages that met `measure`."""
        name = "failures" if measure == "failed" else measure
        if not self._is_enough:
            return self._too_little(name)
        rng = np.random.default_rng(_SEED)
        old, old_draws = self._rate(self._by_stratum(self._old, measure), self._old_messages, rng)
        new, new_draws = self._rate(self._by_stratum(self._new, measure), self._new_messages, rng)
        if old == new == 0:
            return self._comparison(name, old, new, np.ones(1), middle=1.0)
        ratios = new_draws / old_draws
        return self._comparison(name, old, new, ratios, middle=float(np.median(ratios)))

    def quantiles(self, measure: Literal["latency", "fuel"], per_mille: int) -> Comparison:
        """Ratio of a quantile of `measure`."""
        name = f"{measure}_p{per_mille // 10}"
        old, new = self._hours_of(self._old, measure), self._hours_of(self._new, measure)
        if not self._is_enough or min(len(old), len(new)) < LEAST_HOURS:
            return self._too_little(name)
        old_value, new_value = self._quantile(old.sum(0), per_mille), self._quantile(new.sum(0), per_mille)
        rng = np.random.default_rng(_SEED)
        ratios = np.array(
            [
                self._quantile(new[rng.integers(0, len(new), len(new))].sum(0), per_mille)
                / self._quantile(old[rng.integers(0, len(old), len(old))].sum(0), per_mille)
                for _ in range(RESAMPLES)
            ]
        )
        return self._comparison(name, old_value, new_value, ratios, middle=new_value / old_value)

    def _rate(
        self, hits: NDArray[np.float64], messages: NDArray[np.float64], rng: np.random.Generator
    ) -> tuple[float, NDArray[np.float64]]:
        """Standardised rate, and draws from its posterior."""
        draws = rng.beta(1 + hits, 1 + messages - hits, size=(DRAWS, len(hits)))
        return float((self._weights * hits / np.maximum(messages, 1)).sum()), draws @ self._weights

    def _hours_of(self, rows: list[HourOfStub], measure: str) -> NDArray[np.float64]:
        """Counts by hour, stratum and bucket, of hours in which there are any."""
        measured = [row for row in rows if getattr(row, measure)]
        buckets = self._buckets(measure)
        hours = {hour: index for index, hour in enumerate(sorted({row.hour_us for row in measured}))}
        place = {bucket: index for index, bucket in enumerate(buckets)}
        counts = np.zeros((len(hours), len(self._strata), len(buckets)))
        for row in measured:
            cell = counts[hours[row.hour_us], self._strata.index(row.stratum)]
            for bucket, count in getattr(row, measure).items():
                cell[place[bucket]] += count
        self._values = np.array([max(middle_of(bucket), 1) for bucket in buckets], dtype=float)
        return counts

    def _buckets(self, measure: str) -> list[int]:
        return sorted({bucket for row in (*self._old, *self._new) for bucket in getattr(row, measure)})

    def _quantile(self, counts: NDArray[np.float64], per_mille: int) -> float:
        """Quantile of the standardised distribution, between buckets: counts by stratum and bucket go in."""
        totals = counts.sum(1)
        weights = np.where(totals > 0, self._weights, 0.0)
        shares = counts / np.maximum(totals, 1)[:, None]
        cumulative = np.cumsum((weights / weights.sum()) @ shares)
        wanted = per_mille / 1000
        index = int(np.searchsorted(cumulative, wanted))
        below = cumulative[index - 1] if index else 0.0
        inside = (wanted - below) / (cumulative[index] - below)
        low = self._values[max(index - 1, 0)]
        return float(low * (self._values[index] / low) ** inside)

    def _by_stratum(self, rows: list[HourOfStub], member: str) -> NDArray[np.float64]:
        sums = dict.fromkeys(self._strata, 0.0)
        for row in rows:
            sums[row.stratum] += getattr(row, member)
        return np.array(list(sums.values()), dtype=float)

    def _comparison(
        self, name: str, old: float, new: float, ratios: NDArray[np.float64], *, middle: float
    ) -> Comparison:
        low, high = interval_of(ratios)
        return Comparison(
            measure=name,
            baseline_value=old,
            candidate_value=new,
            ratio=middle,
            low=low,
            high=high,
            strata=len(self._strata),
            messages=self._messages,
            verdict=self._verdict(low, high),
        )

    def _verdict(self, low: float, high: float) -> RegressionVerdict:
        worst, best = 1 + self._effect, 1 / (1 + self._effect)
        if low > worst:
            return "worse"
        if high < best:
            return "better"
        return "same" if best <= low and high <= worst else "too-little"

    def _too_little(self, name: str) -> Comparison:
        return Comparison(
            measure=name,
            baseline_value=None,
            candidate_value=None,
            ratio=None,
            low=None,
            high=None,
            strata=len(self._strata),
            messages=self._messages,
            verdict="too-little",
        )
