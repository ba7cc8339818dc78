"""What came of it: shares, survivors, and whether the targets hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.mutation.targets import Group
from tests.mutation.trials import Outcome, Trial


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """One group: its trials, and entries of its list that are stale."""

    group: Group
    trials: list[Trial]
    stale: list[str]

    def count(self, outcome: Outcome) -> int:
        """How many changes ended so."""
        return sum(one.outcome is outcome for one in self.trials)

    @property
    def share(self) -> float:
        """Share of noticed changes among those that can be noticed; 1 when there are none."""
        can_be = len(self.trials) - self.count(Outcome.EQUIVALENT)
        return 1.0 - self.count(Outcome.SURVIVED) / can_be if can_be else 1.0

    @property
    def survivors(self) -> list[Trial]:
        """Guards first."""
        found = [one for one in self.trials if one.outcome is Outcome.SURVIVED]
        return sorted(found, key=lambda one: not one.mutation.is_guard)

    @property
    def is_good(self) -> bool:
        """Whether the target holds, no guard survived and nothing in the list is stale."""
        has_lost_guard = any(one.mutation.is_guard for one in self.survivors)
        return self.share >= self.group.target and not has_lost_guard and not self.stale

    def facts(self) -> dict[str, object]:
        """The same for a machine."""
        return {
            "group": self.group.name,
            "target": self.group.target,
            "share": round(self.share, 4),
            "holds": self.is_good,
            **{outcome.value: self.count(outcome) for outcome in Outcome},
            "stale": self.stale,
            "survivors": [
                {
                    "module": one.mutation.module,
                    "function": one.mutation.function,
                    "line": one.mutation.line,
                    "kind": one.mutation.kind,
                    "is_guard": one.mutation.is_guard,
                    "before": one.mutation.before,
                    "after": one.mutation.after,
                    "tests": one.tests,
                }
                for one in self.survivors
            ],
        }


def show_stale(verdict: GroupVerdict, console: Console) -> None:
    """Print entries of the list of equivalents that name no change."""
    for entry in verdict.stale:
        console.print(f"[yellow]stale[/] {escape(entry)}", soft_wrap=True)


def show_shares(verdicts: Sequence[GroupVerdict], console: Console) -> None:
    """Print one line for each group."""
    table = Table("group", box=None, pad_edge=False)
    for name in ("changes", "noticed", "late", "equivalent", "survived", "guards", "share", "target"):
        table.add_column(name, justify="right")
    for one in verdicts:
        guards = sum(trial.mutation.is_guard for trial in one.survivors)
        counts = (one.count(which) for which in (Outcome.NOTICED, Outcome.LATE, Outcome.EQUIVALENT, Outcome.SURVIVED))
        table.add_row(
            one.group.name,
            *map(str, (len(one.trials), *counts, guards)),
            f"{one.share:.1%}",
            f"{one.group.target:.0%} {'holds' if one.is_good else 'MISSED'}",
        )
    console.print(table)
    slow = Counter(trial.mutation.module for one in verdicts for trial in one.trials if trial.outcome is Outcome.LATE)
    if slow:
        console.print("late: " + ", ".join(f"{module} {count}" for module, count in slow.most_common()))


def show_survivor(trial: Trial, console: Console) -> None:
    """Print one survivor with its two lines."""
    one = trial.mutation
    kind = f"[red]guard[/], {one.kind}" if one.is_guard else one.kind
    tests = f"{trial.tests} tests" if trial.tests else "no test calls it"
    place = f"{one.module}:{one.line} {one.function}"
    console.print(f"[bold]{escape(place)}[/] ({kind}; {tests})", soft_wrap=True)
    console.print(f"  - {escape(one.before)}", soft_wrap=True, highlight=False)
    console.print(f"  + {escape(one.after)}\n", soft_wrap=True, highlight=False)
