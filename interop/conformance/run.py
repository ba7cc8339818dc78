"""The suite as one run: which cases, how many at a time, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from interop.conformance.discover import Discovery
from interop.conformance.filling import Manner
from interop.conformance.model import Case, Dialect, Profile
from interop.conformance.outcome import CaseVerdict, Outcome
from interop.conformance.play import play

PARALLEL: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All outcomes, in the order of the cases, and what was found out before them."""

    discovery: Discovery
    profile: Profile
    outcomes: tuple[Outcome, ...]
    seconds: float

    @property
    def findings(self) -> tuple[Outcome, ...]:
        """The findings for which somebody has to look at the node."""
        return tuple(outcome for outcome in self.outcomes if outcome.is_finding)

    def count(self, verdict: CaseVerdict) -> int:
        """Count the runs with this result."""
        return sum(outcome.verdict is verdict for outcome in self.outcomes)


def select(cases: Sequence[Case], wanted: Sequence[str]) -> list[Case]:
    """Cases by id; for a word that is no id, by its beginning, or by section. All of them without words."""
    names = {case.id for case in cases}
    return [case for case in cases if not wanted or any(_is_wanted(case, word, names) for word in wanted)]


def _is_wanted(case: Case, word: str, names: set[str]) -> bool:
    if word in names:
        return case.id == word
    return case.id.startswith(f"{word}-") or f"{case.section}.".startswith(f"{word}.")


async def run(
    discovery: Discovery,
    cases: Sequence[Case],
    profile: Profile,
    *,
    parallel: int = PARALLEL,
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> Report:
    """Play cases in every dialect that the node offers.

    Args:
        discovery: What was found out about the node.
        cases: Which cases.
        profile: Which rules are demanded.
        parallel: How many runs at the same time; each has runtimes of its own.
        on_outcome: Called with each run when it has ended.
    """
    wanted = [(case, dialect) for dialect in discovery.offered for case in cases]
    outcomes = dict[tuple[Case, Dialect], Outcome]()
    limit = trio.CapacityLimiter(parallel)
    began = trio.current_time()

    async def play_one(case: Case, dialect: Dialect) -> None:
        async with limit:
            outcome = await play(discovery.node, case, Manner(dialect, profile))
        outcomes[case, dialect] = outcome
        on_outcome(outcome)

    async with trio.open_nursery() as nursery:
        for case, dialect in wanted:
            nursery.start_soon(play_one, case, dialect)
    return Report(
        discovery=discovery,
        profile=profile,
        outcomes=tuple(outcomes[key] for key in wanted),
        seconds=trio.current_time() - began,
    )
