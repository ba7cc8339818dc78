"""How the results of rules, policies and sets become one decision.

All three algorithms are one walk in different orders: deny-overrides asks the deniers first, permit-overrides the
permitters, and first-applicable keeps the order; the first rule that applies decides. An indeterminate deny decides
like a deny. An indeterminate permit decides nothing, but remains as INDETERMINATE if nobody else decides.
Source: trust and hosts, section 5.3, rule 2; data formats, section 6.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final, NamedTuple

from policy.core.beginnings import Beginning
from policy.core.closures import Predicate, always, unknown
from policy.core.model import Algorithm, Decision, Effect, Facts, ShadowOutcome

Evaluate = Callable[[Facts], Decision]

NOT_APPLICABLE: Final = Decision(Effect.NOT_APPLICABLE)
INDETERMINATE: Final = Decision(Effect.INDETERMINATE)


class RuleStep(NamedTuple):
    """One rule: what it decides if its condition holds, which it cannot unless a text begins so."""

    predicate: Predicate
    decision: Decision
    is_permit: bool
    beginning: Beginning | None = None

    @property
    def is_final(self) -> bool:
        """True if nothing after this element is ever evaluated."""
        return self.predicate is always or (self.predicate is unknown and not self.is_permit)


class Branch(NamedTuple):
    """Rules that are combined before their result is combined with that of others."""

    target: Predicate
    algorithm: Algorithm
    steps: tuple[RuleStep, ...]


def constant(decision: Decision) -> Evaluate:
    """The evaluation that was settled beforehand."""
    return lambda _facts: decision


def combine_branches(branches: Sequence[Branch], algorithm: Algorithm) -> Evaluate:
    """Combine policies of one set."""
    if len(branches) == 1:
        only = branches[0]
        return under(only.target, combine_steps(only.steps, only.algorithm))
    if all(branch.algorithm is algorithm and branch.target is always for branch in branches):
        return combine_steps([step for branch in branches for step in branch.steps], algorithm)
    evaluations = [under(branch.target, combine_steps(branch.steps, branch.algorithm)) for branch in branches]
    return _first_or_overriding(evaluations, _OVERRIDING[algorithm])


def combine_steps(steps: Sequence[RuleStep], algorithm: Algorithm) -> Evaluate:
    """Combine rules of one policy; there is at least one."""
    ordered = sorted(steps, key=_ORDER[algorithm])
    if ordered[0].is_final:
        return constant(ordered[0].decision)

    runs = _runs(ordered)

    def decide(facts: Facts) -> Decision:
        answer = NOT_APPLICABLE
        for beginning, steps in runs:
            if beginning is not None:
                text = beginning.read(facts)
                if isinstance(text, str) and not text.startswith(beginning.texts):
                    continue
            for predicate, decision, is_permit in steps:
                outcome = predicate(facts)
                if outcome is False:
                    continue
                if outcome is None and is_permit:
                    answer = INDETERMINATE
                    continue
                return decision
        return answer

    return decide


_Run = tuple[Beginning | None, tuple[tuple[Predicate, Decision, bool], ...]]


def _runs(ordered: Sequence[RuleStep]) -> tuple[_Run, ...]:
    """Neighbours that are ruled out together, by the beginning of one text; all others are asked one by one."""
    runs: list[_Run] = []
    for name, group in groupby(ordered, key=lambda step: step.beginning and step.beginning.attribute):
        steps = list(group)
        beginnings = [step.beginning for step in steps if step.beginning is not None]
        shared = None
        if name is not None and len(steps) > 1:
            texts = tuple(dict.fromkeys(text for one in beginnings for text in one.texts))
            shared = Beginning(name, beginnings[0].read, texts)
        asked = tuple((step.predicate, step.decision, step.is_permit) for step in steps)
        if shared is None and runs and runs[-1][0] is None:
            runs[-1] = (None, runs[-1][1] + asked)
        else:
            runs.append((shared, asked))
    return tuple(runs)


_ORDER: Final[dict[Algorithm, Callable[[RuleStep], bool]]] = {
    Algorithm.DENY_OVERRIDES: lambda step: step.is_permit,
    Algorithm.PERMIT_OVERRIDES: lambda step: not step.is_permit,
    Algorithm.FIRST_APPLICABLE: lambda _step: False,
}
_OVERRIDING: Final = {
    Algorithm.DENY_OVERRIDES: (Effect.DENY,),
    Algorithm.PERMIT_OVERRIDES: (Effect.PERMIT,),
    Algorithm.FIRST_APPLICABLE: (Effect.DENY, Effect.PERMIT),
}


def _first_or_overriding(evaluations: Sequence[Evaluate], overriding: tuple[Effect, ...]) -> Evaluate:
    """The first result that overrides, else the first that decides, else whether something was indeterminate."""
    ordered = tuple(evaluations)

    def decide(facts: Facts) -> Decision:
        answer = NOT_APPLICABLE
        for evaluate in ordered:
            decision = evaluate(facts)
            effect = decision.effect
            if effect in overriding:
                return decision
            if effect is Effect.NOT_APPLICABLE:
                continue
            if answer.effect not in (Effect.DENY, Effect.PERMIT):
                answer = decision
        return answer

    return decide


def under(target: Predicate, evaluate: Evaluate) -> Evaluate:
    """An evaluation that counts only where a target matches; under an indeterminate one nothing is permitted."""
    if target is always:
        return evaluate

    def decide(facts: Facts) -> Decision:
        outcome = target(facts)
        if outcome is False:
            return NOT_APPLICABLE
        decision = evaluate(facts)
        return INDETERMINATE if outcome is None and decision.effect is Effect.PERMIT else decision

    return decide


def first_set(branches: Sequence[tuple[Predicate, Evaluate]]) -> Evaluate:
    """The first set whose target matches, or may match, decides; the later ones are not asked."""
    ordered = tuple(branches)
    if not ordered:
        return constant(NOT_APPLICABLE)
    if ordered[0][0] is always:
        return ordered[0][1]

    def decide(facts: Facts) -> Decision:
        for target, evaluate in ordered:
            outcome = target(facts)
            if outcome is not False:
                decision = evaluate(facts)
                return INDETERMINATE if outcome is None and decision.effect is Effect.PERMIT else decision
        return NOT_APPLICABLE

    return decide


def with_shadow(evaluate: Evaluate, shadows: Sequence[Evaluate], count_fault: Callable[[Exception], None]) -> Evaluate:
    """Add what rules in report mode would have decided; whatever happens in them changes nothing else."""
    ordered = tuple(shadows)

    def decide(facts: Facts) -> Decision:
        decision = evaluate(facts)
        outcomes: list[ShadowOutcome] = []
        for shadow in ordered:
            try:
                reported = shadow(facts)
            except Exception as exc:  # a rule that is only on trial must not decide by failing
                count_fault(exc)
                continue
            if reported.effect is not Effect.NOT_APPLICABLE:
                outcomes.append(ShadowOutcome(reported.rule_id, reported.effect))
        return replace(decision, shadow=(*decision.shadow, *outcomes)) if outcomes else decision

    return decide
