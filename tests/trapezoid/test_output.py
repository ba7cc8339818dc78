"""What people see of facts: words, not values of a programming language."""

from __future__ import annotations

import json

import pytest

from trapezoid.output import print_facts, print_rows


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "yes"),
        (False, "no"),
        (None, "none"),
        ((), "none"),
        ({}, "none"),
        (0, "0"),
        ("", ""),
        (["a", True], "a\n       yes"),
        ({"alias": [], "endpoint": ["mn", "alt"]}, "alias: none\n       endpoint: mn, alt"),
        ([{"code": 1, "roles": ("x",)}], "code: 1, roles: x"),
        ("a\x1b[31m", r"a\x1b[31m"),
    ],
)
def test_values_are_shown_as_people_write_them(value: object, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_facts({"value": value}, as_json=False)
    assert capsys.readouterr().out == f"value  {shown}".rstrip() + "\n"


def test_json_keeps_the_values(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts({"yes": True, "nothing": None, "list": ()}, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"yes": True, "nothing": None, "list": []}


def test_a_table_without_rows_says_none_to_people_and_an_empty_list_to_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_rows([], as_json=False)
    print_rows([], as_json=True)
    assert capsys.readouterr().out == "none\n[]\n"


def test_cells_of_a_table_are_words(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"domain": "b.example", "is_held": False}, {"domain": "c.example", "is_held": None}], as_json=False)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["domain", "is", "held"],
        ["b.example", "no"],
        ["c.example", "none"],
    ]
