"""Every border keeps its promise for any bytes: a value or one of our errors, within bounded work and memory."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.target import INPUT_BYTES, Cost, Target
from tests.fuzz.targets import TARGETS

_PIECES = [
    b"", b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", "é".encode(), "\u2028".encode(), b"\\", b'"',
    b"'", b"{", b"}", b"[", b"]", b":", b",", b"/", b"//", b".", b"@", b"%", b"%00", b"&", b"=", b"?", b"#", b"*",
    b"\r\n", b"\n", b" ", b"-", b"0", b"-0", b"1e999", b"9" * 30, b"NaN", b"null", b"true", b'"to"', b'"from":',
    b'"id":[1]', b'"\\ud800"', b"\\u0066rom", b"\x81\x80", b"\x89\xfe", b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"0:",
    b"999999999:", b"xn--", b"::1", b"[[", b"= {", b"Content-Length: 1\r\n", b"Transfer-Encoding: chunked\r\n",
]  # fmt: skip
"""What breaks readers of text, JSON, addresses, frames and HTTP."""

_REPEATED = [
    b"[", b"{", b'{"a":', b'[{"a":', b'"', b"\\", b'\\"', b"\xff", b"\xc3\xa9", b" ", b"\n", b"\r\n", b"a", b"a.",
    b"a:", b"/", b"-", b"%41", b"&", b"a=1&", b"1:2", b"0:", b"9", b"\x81\x80\x00\x00\x00\x00", b"AAAA", b".", b"(",
    b"\x01\x80\x00\x00\x00\x00", b"\x00\x80\x00\x00\x00\x00", b"\x89\x80\x00\x00\x00\x00", b"\x00\x00\xff",
    b"\x05\x00\x00\x00\x00\x00\x00\x00", b"\x00\x00\x00\x00", b"a = 1\n", b"[[a]]\n", b"[a.a]\n", b'"""', b"xn--a.",
    b"X: y\r\n",
]  # fmt: skip
"""What makes work grow faster than the input, where something does."""


@st.composite
def changed(draw: st.DrawFn, target: Target) -> bytes:
    """A seed with some of its parts cut out, replaced, doubled or filled."""
    data = draw(st.sampled_from(target.seeds))
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(data)))
        until = at + draw(st.integers(0, 12))
        piece = draw(st.sampled_from(_PIECES) | st.binary(max_size=6) | st.just(data[at:until] * 2))
        data = data[:at] + piece * draw(st.sampled_from([1, 1, 1, 2, 300])) + data[until:]
    return data


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_seeds_cost_what_they_may(target: Target) -> None:
    for seed in target.seeds:
        target.run_within_budget(seed)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_bytes_give_a_value_or_one_of_our_errors(target: Target, data: st.DataObject) -> None:
    target.run(data.draw(st.binary(max_size=400) | changed(target)))


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_work_and_memory_grow_with_the_input_and_not_faster(target: Target) -> None:
    for piece in _REPEATED:
        seed, many = target.seeds[0], piece * (INPUT_BYTES // len(piece))
        middle = len(seed) // 2
        target.run_within_budget(many)
        target.run_within_budget(seed[:middle] + many[: INPUT_BYTES - len(seed)] + seed[middle:])


def test_what_is_no_error_of_ours_is_noticed() -> None:
    def recurse(data: bytes) -> None:
        recurse(data)

    with pytest.raises(RecursionError):
        Target("x", recurse, ()).run(b"")
    with pytest.raises(AssertionError, match="calls"):
        Target("x", lambda data: [len(data) for _ in range(100_000)], ()).run_within_budget(b"")
    with pytest.raises(AssertionError, match="memory"):
        Target("x", lambda _data: bytes(10 << 20), ()).run_within_budget(b"")


def test_cost_is_counted_in_calls_and_bytes() -> None:
    cost = Target("x", lambda data: [len(data) for _ in range(1_000)], ()).cost(b"")
    assert isinstance(cost, Cost)
    assert cost.calls >= 1_000
