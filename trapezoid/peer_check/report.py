"""The result of checking a domain: one entry per step, and a verdict.

Source: trust and hosts, section 6.3.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from federation.core.contact_trouble import Side, advice, cleaned, known_word
from protofly.errors import Code, HostError, TransportError

STEPS: Final = (
    "name",
    "policy",
    "txt",
    "service",
    "addresses",
    "tcp",
    "tls",
    "well-known",
    "live",
    "root",
    "manifest",
    "module",
    "stub",
    "start",
    "endpoint",
    "authentication",
    "round-trip",
    "reverse",
)
"""The steps in their order. A step that needs an earlier one is skipped when that failed."""
_ALTERNATIVES: Final = frozenset({"tcp", "tls", "endpoint"})
"""Steps whose parts are several ways to the same: one good part is enough."""


class Outcome(StrEnum):
    """The result of one step."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class PeerVerdict(StrEnum):
    """The result of all steps."""

    OK = "ok"
    DEGRADED = "degraded"
    """Messages pass, and something needs attention."""
    BROKEN = "broken"


@dataclass(slots=True)
class StepResult:
    """One step, or one part of it, for example one address.

    Attributes:
        step: Its name, one of `STEPS`.
        subject: The query, address or URL that was tried.
        outcome: How it ended.
        code: The word of the error, "ok" without one: the same word as in the log, in answers and in records.
        observed: Values that were found, or what was wrong with them.
        hint: What to do; "" when there is nothing to do.
        milliseconds: How long it took.
    """

    step: str
    subject: str = ""
    outcome: Outcome = Outcome.OK
    code: str = "ok"
    observed: str = ""
    hint: str = ""
    milliseconds: float = 0.0

    def warn(self, code: str, observed: str, hint: str = "") -> None:
        """It passed, and an operator should look at it."""
        self.outcome, self.code, self.observed, self.hint = Outcome.WARNING, code, observed, hint

    def fail(self, error: HostError, side: Side) -> None:
        """It did not pass. What a foreign side said is cleaned and cut; the code of a refusal is theirs, if known."""
        observed = cleaned(error.detail or error.code.description)
        self.outcome, self.observed = Outcome.FAILED, observed
        self.code = (known_word(side, observed) if side is Side.REFUSAL else "") or error.code.word
        self.hint = advice(side, f"{error.code.word} {observed}", time.time())


@dataclass(slots=True)
class Report:
    """All steps of one check, in the order in which they were tried."""

    domain: str
    forbidden: dict[str, str] = field(default_factory=dict)
    """Digests of modules that operators have forbidden at the running node, with their terms."""
    results: list[StepResult] = field(default_factory=list)

    @contextmanager
    def step(self, name: str, subject: str = "", *, side: Side = Side.LINE) -> Iterator[StepResult]:
        """Try one step, and time it unless it says itself how long it took.

        A HostError inside is its failure and goes no further; if cancelled, it failed.
        """
        assert name in STEPS
        result = StepResult(name, subject)
        began = time.perf_counter()
        try:
            yield result
        except HostError as exc:
            result.fail(exc, side)
        except BaseException:  # the time of the check is up, or this is a defect of ours: in no case has it passed
            result.fail(TransportError(Code.FETCH_TIMEOUT, "not done when the check ended", phase="read"), side)
            raise
        finally:
            result.milliseconds = result.milliseconds or (time.perf_counter() - began) * 1000
            self.results.append(result)

    def skip(self, why: str, *names: str) -> None:
        """These steps are not tried."""
        self.results += [StepResult(name, outcome=Outcome.SKIPPED, code="", observed=why) for name in names]

    def skip_rest(self, why: str) -> None:
        """No further step is tried."""
        last = max((STEPS.index(one.step) for one in self.results), default=-1)
        self.skip(why, *STEPS[last + 1 :])

    def has_passed(self, name: str) -> bool:
        """True when the step was tried and no part of it failed; of several addresses or endpoints, when one passed."""
        outcomes = {one.outcome for one in self.results if one.step == name} - {Outcome.SKIPPED}
        return bool(outcomes - {Outcome.FAILED}) and (name in _ALTERNATIVES or Outcome.FAILED not in outcomes)

    def has_failed(self, name: str) -> bool:
        """True when the step was tried and did not pass."""
        is_tried = any(one.step == name and one.outcome is not Outcome.SKIPPED for one in self.results)
        return is_tried and not self.has_passed(name)

    @property
    def verdict(self) -> PeerVerdict:
        """BROKEN when a step did not pass; DEGRADED when one way of several failed, or a step left a warning."""
        if any(map(self.has_failed, STEPS)):
            return PeerVerdict.BROKEN
        if any(one.outcome in (Outcome.WARNING, Outcome.FAILED) for one in self.results):
            return PeerVerdict.DEGRADED
        return PeerVerdict.OK
