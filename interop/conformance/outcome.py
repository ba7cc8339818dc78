"""What came of one run of a case."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from interop.conformance.matching import Difference
from interop.conformance.model import Case, Dialect


class NodeFaultError(Exception):
    """The node did something else than the case foresees."""

    def __init__(self, problem: str, differences: tuple[Difference, ...] = ()) -> None:
        self.differences = differences
        super().__init__(problem)


class NoAnswerError(Exception):
    """Something had to come, and did not."""


class CaseVerdict(Enum):
    """Result of a run of a case."""

    PASSED = "passed"
    FAILED = "failed"
    NO_ANSWER = "no-answer"
    """Something had to come, and nothing came in time: wrong or slow, which only the operator can know."""
    NOT_APPLICABLE = "not-applicable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run of one case in one dialect. `step` counts from 1; 0 is the opening of the cast's sessions."""

    case: Case
    dialect: Dialect
    verdict: CaseVerdict
    problem: str = ""
    differences: tuple[Difference, ...] = ()
    step: int = 0
    transcript: tuple[str, ...] = field(default=(), repr=False)
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """Case and dialect: unique in a report."""
        return f"{self.case.id}[{self.dialect.value}]"

    @property
    def is_finding(self) -> bool:
        """True if the node has to be looked at."""
        return self.verdict in {CaseVerdict.FAILED, CaseVerdict.NO_ANSWER}

    def explain(self) -> str:
        """Everything about a finding, as text: rule, problem, differences, conversation."""
        lines = [
            f"{self.name}: {self.verdict.value} at step {self.step} of {len(self.case.steps)}",
            f"the specification (section {self.case.section}) says: {self.case.says}",
            self.problem,
            *(f"  {difference}" for difference in self.differences),
            "conversation:",
            *(f"  {line}" for line in self.transcript),
        ]
        return "\n".join(line for line in lines if line)
