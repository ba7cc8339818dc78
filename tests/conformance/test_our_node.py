"""Our node against the message specification: every case in every dialect that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from interop.conformance.cases import CASES
from interop.conformance.model import Case, Dialect
from interop.conformance.outcome import Verdict

from .conftest import Outcomes


def runs() -> Iterator[Any]:
    """Dialect A belongs to the quick tests; the others take more than a few seconds each."""
    for dialect in Dialect:
        marks = () if dialect is Dialect.A else (pytest.mark.long,)
        for case in CASES:
            if dialect in case.dialects:
                yield pytest.param(case, dialect, id=f"{case.id}[{dialect.value}]", marks=marks)


@pytest.mark.parametrize(("case", "dialect"), list(runs()))
def test_our_node_conforms(case: Case, dialect: Dialect, outcomes: Outcomes) -> None:
    outcome = outcomes[case.id, dialect]
    assert outcome.verdict is Verdict.PASSED, outcome.explain()
