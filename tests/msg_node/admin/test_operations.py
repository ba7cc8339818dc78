"""Requests of operators: what may be asked, and what is refused before anything is done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msg_node.admin.core.operations import (
    OPERATIONS,
    REQUEST_BYTES,
    Argument,
    ArgumentKind,
    Operation,
    error_facts,
    find_operation,
    read_arguments,
)
from msg_node.admin.core.operations_reference import operations_reference
from msg_node.admin.core.pages import MOST_ROWS, page_of
from protofly.errors import Code, PeerError
from protofly.limits import POLICY_BUNDLE_BYTES, POLICY_SIGNATURE_BYTES

EVERYTHING = Operation(
    "try",
    "Try every kind.",
    (
        Argument("peer", ArgumentKind.PATTERN, "A domain.", is_required=True),
        Argument("for", ArgumentKind.SECONDS, "How long."),
        Argument("times", ArgumentKind.NUMBER, "How often."),
        Argument("loudly", ArgumentKind.FLAG, "Whether."),
        Argument("mode", ArgumentKind.TEXT, "Which.", choices=("soft", "hard")),
        Argument("at", ArgumentKind.DOMAIN, "Where."),
        Argument("until", ArgumentKind.MOMENT, "When."),
        Argument("signed", ArgumentKind.SIGNATURE, "By whom."),
    ),
)
ROWS = [{"name": f"row-{number}", "size": number} for number in range(250)]


@pytest.mark.parametrize("detail", ["", "it waits for a peer"])
def test_an_error_says_what_it_knows_or_else_what_its_code_means(detail: str) -> None:
    assert error_facts(PeerError(Code.TIMEOUT, detail)) == {
        "code": Code.TIMEOUT.word,
        "status": Code.TIMEOUT.status,
        "detail": detail or Code.TIMEOUT.description,
    }


def test_a_request_may_hold_the_largest_bundle_with_every_character_escaped() -> None:
    asked = {"operation": "policy add", "arguments": {"files": {"policy.toml": "\n" * POLICY_BUNDLE_BYTES}}}
    assert len(json.dumps(asked)) <= REQUEST_BYTES


def test_values_are_read_by_their_kinds() -> None:
    given = {"peer": "*.b.example", "for": "2h", "times": 3, "loudly": True, "mode": "soft", "at": "b.example"}
    assert read_arguments(EVERYTHING, given) == {**given, "for": 7200.0}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("1.5m", 90), ("2h", 7200), ("1d", 86_400), ("90", 90), (0.5, 0.5), ("3660d", 316_224_000)],
)
def test_durations_have_a_unit_or_are_seconds(text: object, seconds: float) -> None:
    assert read_arguments(EVERYTHING, {"peer": "b.example", "for": text})["for"] == seconds


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        (0, 0.0),
        (1.5, 1.5),
        ("2026-03-01T18:00:00Z", 1_772_388_000.0),
        ("2026-03-01T18:00:00", 1_772_388_000.0),
        ("2026-03-01T19:00:00+01:00", 1_772_388_000.0),
    ],
)
def test_moments_are_seconds_or_a_time_of_day(moment: object, seconds: float) -> None:
    assert read_arguments(EVERYTHING, {"peer": "b.example", "until": moment})["until"] == seconds


@pytest.mark.parametrize(("length", "is_one"), [(POLICY_SIGNATURE_BYTES, True), (POLICY_SIGNATURE_BYTES + 1, False)])
def test_a_signature_has_a_bound(length: int, *, is_one: bool) -> None:
    given = {"peer": "b.example", "signed": "x" * length}
    if is_one:
        assert read_arguments(EVERYTHING, given) == given
    else:
        with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
            read_arguments(EVERYTHING, given)


def test_what_is_null_is_not_given() -> None:
    assert read_arguments(EVERYTHING, {"peer": "b.example", "for": None, "at": None}) == {"peer": "b.example"}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"peer": ""},
        {"peer": None},
        {"peer": 7},
        {"peer": "b.example", "forever": True},
        *({"peer": "b.example", "for": one} for one in ["", "2w", "-1s", 0, -3, True, "1e9d", [], float("nan")]),
        *({"peer": "b.example", "for": one} for one in ["3661d", float("inf"), 10**400, f"1{'0' * 400}", False]),
        *(
            {"peer": "b.example", "until": one}
            for one in [True, False, "noon", "", [], float("inf"), float("nan"), 10**400]
        ),
        *({"peer": "b.example", "times": one} for one in [-1, "3", 1.5, True]),
        *({"peer": "b.example", "loudly": one} for one in [1, "yes"]),
        *({"peer": "b.example", "mode": one} for one in ["loud", 3, "x" * 1000]),
    ],
)
def test_what_is_wrong_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        read_arguments(EVERYTHING, wrong)


@pytest.mark.parametrize(
    ("argument", "wrong", "said"),
    [
        ("for", "2w", "expected a time of at most ten years: seconds above 0, or a text such as 30s, 15m, 2h or 1d"),
        ("for", "2w", "got '2w'"),
        ("times", "x", "expected a whole number, 0 or more"),
        ("loudly", "yes", "expected true or false"),
        ("until", "noon", "a text such as 2026-03-01T18:00:00Z"),
        ("mode", 3, "expected one of soft, hard, got '3'"),
        ("mode", "x" * 2000, f"got '{'x' * 64}'… of 2000 characters"),
        ("mode", "loud", "expected one of soft, hard, got 'loud'"),
    ],
)
def test_who_gives_a_wrong_value_learns_what_it_may_be(argument: str, wrong: object, said: str) -> None:
    with pytest.raises(PeerError) as caught:
        read_arguments(EVERYTHING, {"peer": "b.example", argument: wrong})
    assert f"`{argument}`: " in caught.value.detail
    assert said in caught.value.detail


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_who_leaves_out_an_argument_or_gives_a_wrong_one_learns_its_choices(operation: Operation) -> None:
    for one in operation.arguments:
        wrong_ones: list[object] = [
            [],
            *(["none of them"] if one.choices else []),
            *([None] if one.is_required else []),
        ]
        for wrong in wrong_ones:
            with pytest.raises(PeerError) as caught:
                read_arguments(Operation("x y", "No.", (one,)), {one.name: wrong})
            expected = f"xpected one of {', '.join(one.choices)}" if one.choices else "xpected "
            assert expected in caught.value.detail


@pytest.mark.parametrize("wrong", [["of nobody else"], "of nobody else" * 100])
def test_a_secret_is_never_repeated(wrong: object) -> None:
    with pytest.raises(PeerError, check=lambda error: "nobody" not in error.detail):
        read_arguments(find_operation("user add"), {"name": "ana", "password": wrong})


@pytest.mark.parametrize(("operation", "known"), [(EVERYTHING, "peer, for, times"), (Operation("x", "No."), "none")])
def test_an_unknown_argument_is_refused_with_those_that_there_are(operation: Operation, known: str) -> None:
    with pytest.raises(PeerError) as caught:
        read_arguments(operation, {"colour": 1})
    assert f"'colour'; it knows: {known}" in caught.value.detail


@pytest.mark.parametrize("name", ["*", "*.", "b", "*.*.example", "b.example.", "B.EXAMPLE", "-x.example"])
def test_what_is_no_domain_is_refused(name: str) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.NAME_INVALID):
        read_arguments(EVERYTHING, {"peer": name})


def test_an_unknown_operation_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(PeerError, match="sessions") as caught:
        find_operation("drop tables")
    assert caught.value.code is Code.NO_SUCH_SERVICE


def test_every_operation_is_explained() -> None:
    for name, operation in OPERATIONS.items():
        assert name == operation.name
        assert operation.meaning.endswith(".")
        assert all(one.meaning.endswith(".") for one in operation.arguments)


def test_a_list_comes_in_pages() -> None:
    first = page_of(ROWS, {})
    assert (len(first.rows), first.total, first.next) == (100, 250, 100)
    last = page_of(ROWS, {"after": 200, "limit": 100})
    assert ([row["size"] for row in last.rows], last.next) == (list(range(200, 250)), None)
    assert page_of(ROWS, {"after": 999}).rows == []


def test_a_list_is_filtered_by_one_member() -> None:
    page = page_of(ROWS, {"where": "name=row-24"})
    assert (page.total, page.rows[0]) == (11, {"name": "row-24", "size": 24})
    assert page_of([], {"where": "name=x"}).total == 0


@pytest.mark.parametrize("wrong", [{"where": "name"}, {"where": "colour=red"}, {"limit": 0}, {"limit": 1001}])
def test_a_page_that_cannot_be_made_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        page_of(ROWS, wrong)


def test_a_page_behind_the_end_is_empty_however_far() -> None:
    for after in (250, 10**30):
        page = page_of(ROWS, {"after": after})
        assert (page.rows, page.total, page.next) == ([], 250, None)


def test_the_page_of_operations_is_the_one_that_is_generated() -> None:
    page = (Path(__file__).parents[3] / "docs" / "admin-operations.md").read_text(encoding="utf-8")
    assert page == operations_reference(), "run: trapezoid config reference --operations --output FILE"


def test_a_page_has_as_many_rows_as_may_be_asked_for() -> None:
    rows = [{"n": number} for number in range(MOST_ROWS + 1)]
    for limit in (1, MOST_ROWS):
        page = page_of(rows, {"limit": limit})
        assert (len(page.rows), page.total, page.next) == (limit, MOST_ROWS + 1, limit)
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        page_of(rows, {"limit": MOST_ROWS + 1})


def test_a_list_of_one_row_is_filtered_as_any_other() -> None:
    assert page_of([{"n": 7}], {"where": "n=7"}).total == 1
    assert page_of([{"n": 7}], {"where": "n=8"}).total == 0
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        page_of([{"n": 7}], {"where": "m=7"})
