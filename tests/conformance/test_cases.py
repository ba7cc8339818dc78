"""The table of cases itself: nothing twice, nothing unnamed, every service form in every dialect."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from interop.conformance.cases import CASES, GROUPS
from interop.conformance.model import ALL, FRAMES, SESSION_MESSAGES, Case, CaseStep, Dialect, Profile
from interop.conformance.run import select

EVERYWHERE = ("header", "address", "alloc", "release", "sub", "unsub", "sync", "route")
CHECKING = frozenset(
    {
        "Hears",
        "HearsAll",
        "Answered",
        "Arrives",
        "Silent",
        "Survives",
        "Closed",
        "RefusedOrClosed",
        "CannotOpen",
        "Leaves",
        "Pings",
        "Opens",
    }
)


def test_every_case_has_a_name_of_its_own_that_says_its_chapter() -> None:
    assert [name for name, count in Counter(case.id for case in CASES).items() if count > 1] == []
    assert {case.group for case in CASES} == set(GROUPS)
    assert [case.id for case in CASES if not re.fullmatch(r"[a-z0-9_-]+", case.id)] == []


@pytest.mark.parametrize("group", EVERYWHERE)
def test_requests_to_services_and_runtimes_are_played_in_every_dialect(group: str) -> None:
    assert [case.id for case in CASES if case.group == group and case.dialects != ALL] == []


def test_session_messages_command_frames_and_query_belong_to_their_dialects() -> None:
    allowed = {"open": SESSION_MESSAGES, "command": {Dialect.B}, "query": {Dialect.C}, "broken": ALL, "session": ALL}
    for case in CASES:
        assert case.dialects <= allowed.get(case.group, ALL), case.id
        assert case.dialects
    assert {dialect for case in CASES if case.group == "broken" for dialect in case.dialects} == ALL
    assert FRAMES < ALL


def checks(case: Case) -> list[CaseStep]:
    return [step for step in case.steps if type(step).__name__ in CHECKING]


def test_every_case_ends_with_a_check() -> None:
    assert [case.id for case in CASES if case.steps[-1] not in checks(case)] == []


def test_every_case_names_a_section_and_quotes_its_rule() -> None:
    assert [case.id for case in CASES if not re.fullmatch(r"\d+(\.\d+)?", case.section) or len(case.says) < 10] == []


def test_enough_is_agreed_on_by_the_reference_nodes_to_be_worth_a_profile() -> None:
    agreed = [case for case in CASES if Profile.REFERENCE in case.profiles]
    assert len(agreed) >= 15
    assert {"session", "alloc", "sub", "route", "header"} <= {case.group for case in agreed}


def test_cases_are_selected_by_name_beginning_and_section() -> None:
    assert [case.id for case in select(CASES, ["sub-resources"])] == ["sub-resources"]
    assert {case.group for case in select(CASES, ["sub"])} == {"sub"}
    assert {case.section for case in select(CASES, ["7.3"])} == {"7.3"}
    assert {case.section.partition(".")[0] for case in select(CASES, ["7"])} == {"7"}
    assert select(CASES, ["no-such-case"]) == []
    assert select(CASES, []) == list(CASES)
