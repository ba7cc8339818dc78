"""Complaints about types, for people who never heard of Python."""

from __future__ import annotations

import msgspec
import pytest

from protofly.plain_words import without_types


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Expected `str`, got `int`", "Expected a text, got a whole number"),
        ("Expected `int | null`, got `array`", "Expected a whole number or nothing, got a list"),
        ("Expected `bool`, got `object`", "Expected true or false, got a table"),
        ("Object contains unknown field `str_ange`", "Object contains unknown field `str_ange`"),
        ("Invalid value `str | mine`", "Invalid value `str | mine`"),
        ("Object contains unknown field `object`", "Object contains unknown field `object`"),
        ("x: Expected `array` of length 2, got 1", "x: Expected a list of length 2, got 1"),
        (str(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")), "not UTF-8 text"),
        (f"x: {UnicodeDecodeError('utf-8', b'aab', 1, 3, 'unexpected end of data')}; do", "x: not UTF-8 text; do"),
        (str(UnicodeDecodeError("ascii", b"\xff", 0, 1, "ordinal not in range(128)")), "not ASCII text"),
    ],
)
def test_names_of_types_are_put_into_words(text: str, plain: str) -> None:
    assert without_types(text) == plain


@pytest.mark.parametrize("kind", [str, int, bool, list, dict, int | None])
def test_nothing_that_msgspec_says_of_types_stays(kind: type) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(1.5, kind)
    assert "`" in str(caught.value)
    assert "`" not in without_types(str(caught.value))
