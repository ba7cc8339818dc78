"""Codes of replies, as many writers write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly import codec
from protofly.answer_codes import code_of, read_code
from protofly.errors import DESCRIPTIONS, Code
from protofly.message import Message


def reply(body: bytes) -> Message:
    return codec.decode(b'{"id":1,"type":"response","from":"comm://b.example/r","to":"plain","body":' + body + b"}")[0]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"code":200}', 200),
        (b'{"code":"200"}', 200),
        (b'{"code":"2XX"}', 200),
        (b'{"code":"1xx"}', 100),
        (b'{"code":"error"}', 500),
        (b'{"Code":404}', 404),
        (b'{"responseCode":"200"}', 200),
        (b'{"errorCode":500}', 500),
        (b'{"code":null,"Code":201}', 201),
        (b'{"code":7}', 0),
        (b'{"code":7,"Code":404}', 0),
        (b'{"code":1%b}' % (b"0" * 5000), 0),
        (b'{"code":6000}', 0),
        (b'{"code":true}', 0),
        (b'{"code":200.5}', 0),
        (b'{"code":[200]}', 0),
        (b'{"code":"9XX"}', 0),
        (b"{}", 0),
    ],
)
def test_every_form_of_a_code_is_read(body: bytes, code: int) -> None:
    assert code_of(reply(body)) == code


@given(st.one_of(st.none(), st.booleans(), st.floats(), st.text(), st.integers(), st.lists(st.integers())))
def test_any_value_gives_a_code_or_none(value: object) -> None:
    assert read_code(value) == 0 or 100 <= read_code(value) <= 599


@pytest.mark.parametrize("text", ["20xx", "xx", "2x", "2xxx", "", "axx"])
def test_a_class_of_codes_is_a_digit_and_two_signs(text: str) -> None:
    assert read_code(text) == 0


@pytest.mark.parametrize(
    ("value", "code"),
    [
        *((99, 0), (100, 100), (201, 201), (599, 599), (600, 0), (True, 0), (False, 0), (None, 0), (200.0, 0)),
        *(("99", 0), ("099", 0), ("100", 100), ("201", 201), ("599", 599), ("600", 0), ("0200", 0), ("200x", 0)),
        *((" 404 ", 404), ("4Xx", 400), ("Error", 500), ("٢٠٠", 0), ("20z", 0), ("2 0", 0), ("-99", 0)),
    ],
)
def test_a_code_has_three_digits_from_100_to_599(value: object, code: int) -> None:
    assert read_code(value) == code


def test_a_body_that_is_no_object_has_no_code() -> None:
    assert code_of(Message(b"1", "response", "a", "b", b"[200]", b"")) == 0


def test_every_code_is_described() -> None:
    assert set(DESCRIPTIONS) == {100, 183, 200, 202, 207} | {code.status for code in Code}
