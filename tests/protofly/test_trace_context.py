"""`traceparent` in `body.trace`: what counts as one."""

from __future__ import annotations

import pytest

from protofly.trace_context import TraceContext, parse_trace_context, traceparent_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("text", "is_sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"00-{TRACE}-{SPAN}-02", False),
        (f"00-{TRACE}-{SPAN}-ff", True),
        (f"00-{TRACE}-{SPAN}-fe", False),
        (f"cc-{TRACE}-{SPAN}-01", True),
        (f"01-{TRACE}-{SPAN}-01-".ljust(126, "x"), True),
        (f"01-{TRACE}-{SPAN}-01-what-the-next-version-has", True),
    ],
)
def test_traceparent_says_which_trace_and_whether_it_is_sampled(text: str, is_sampled: bool) -> None:
    assert parse_trace_context(text) == TraceContext(int(TRACE, 16), int(SPAN, 16), is_sampled)
    assert traceparent_of(f'"{text}"'.encode()) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "my own trace",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"01-{TRACE}-{SPAN}-01-{'x' * 128}",
        f"01-{TRACE}-{SPAN}-01-\u00e9",
    ],
)
def test_other_texts_are_no_traceparent(text: str) -> None:
    assert parse_trace_context(text) is None
    assert traceparent_of(f'"{text}"'.encode()) is None


@pytest.mark.parametrize("raw", [b"", b"7", b"null", b'"', b'{"a":1}', b'"\\u0030"', b"\xff" * 60])
def test_other_values_are_no_traceparent(raw: bytes) -> None:
    assert traceparent_of(raw) is None


@pytest.mark.parametrize("form", ['"%s7', '7%s"', "7%s7", '"%s', '%s"'])
def test_what_is_no_text_from_its_first_to_its_last_byte_is_no_traceparent(form: str) -> None:
    assert traceparent_of((form % f"00-{TRACE}-{SPAN}-01").encode()) is None


def test_a_traceparent_has_a_bounded_length() -> None:
    longest = f"01-{TRACE}-{SPAN}-01-".ljust(128, "x")
    assert parse_trace_context(longest) is not None
    assert parse_trace_context(longest + "x") is None
    assert traceparent_of(f'"{longest[:126]}"'.encode()) == longest[:126]
    assert traceparent_of(f'"{longest[:127]}"'.encode()) is None
