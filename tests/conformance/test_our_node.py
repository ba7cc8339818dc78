"""Our node against the message specification: every case in every dialect that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import trio

from interop.conformance.cases import CASES
from interop.conformance.discover import discover
from interop.conformance.model import Case, Dialect, Profile
from interop.conformance.outcome import CaseVerdict
from interop.conformance.run import Report, run, select
from interop.conformance.stage import Node

from .conftest import Outcomes


def runs(profile: Profile, *, without: Profile | None = None) -> Iterator[Any]:
    """Dialect A belongs to the quick tests; the others take more than a few seconds each."""
    for dialect in Dialect:
        marks = () if dialect is Dialect.A else (pytest.mark.long,)
        for case in CASES:
            if dialect in case.dialects and profile in case.profiles and without not in case.profiles:
                yield pytest.param(case, dialect, id=f"{case.id}[{dialect.value}]", marks=marks)


@pytest.mark.parametrize(("case", "dialect"), list(runs(Profile.STRICT)))
def test_our_node_conforms(case: Case, dialect: Dialect, outcomes: Outcomes) -> None:
    outcome = outcomes[case.id, dialect]
    assert outcome.verdict is CaseVerdict.PASSED, outcome.explain()


@pytest.mark.parametrize(("case", "dialect"), list(runs(Profile.RETHINK, without=Profile.STRICT)))
def test_our_node_serves_existing_runtimes_with_its_compatibility_profile(
    case: Case, dialect: Dialect, lenient_outcomes: Outcomes
) -> None:
    outcome = lenient_outcomes[case.id, dialect]
    assert outcome.verdict is CaseVerdict.PASSED, outcome.explain()


@pytest.mark.long
def test_our_node_conforms_with_its_compatibility_profile_in_all_else(lenient_node: Node) -> None:
    async def play() -> Report:
        cases = [case for case in select(CASES, ["session", "open", "release", "sub"]) if Dialect.A in case.dialects]
        return await run(await discover(lenient_node, [Dialect.A], Profile.RETHINK), cases, Profile.RETHINK)

    report = trio.run(play)
    assert [outcome.explain() for outcome in report.findings] == []
    assert report.count(CaseVerdict.PASSED) >= 80


@pytest.mark.parametrize("dialect", Dialect, ids=lambda dialect: dialect.value)
def test_our_node_satisfies_the_reference_profile(dialect: Dialect, node: Node) -> None:
    async def play() -> Report:
        return await run(await discover(node, [dialect], Profile.REFERENCE), list(CASES), Profile.REFERENCE)

    report = trio.run(play)
    assert [outcome.explain() for outcome in report.findings] == []
    assert report.count(CaseVerdict.PASSED) >= 10
