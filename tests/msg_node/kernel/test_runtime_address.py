"""Runtime addresses: patterns, and which part of a key is the runtime."""

from __future__ import annotations

import pytest

from msg_node.kernel.runtime_address import agent_of, covers, covers_any, is_pattern, names_in_full, runtime_part

ANA = "runtime://alpha.example/rt-ana"


@pytest.mark.parametrize(
    ("pattern", "is_so", "is_covering", "is_in_full"),
    [
        ("*", True, True, False),
        (ANA, True, True, True),
        ("hyperty-runtime://ALPHA.example/rt-ana", True, True, True),
        ("runtime://alpha.example/*", True, True, False),
        ("runtime://ALPHA.example/rt-*", True, True, False),
        ("runtime://alpha.example/rt-ana*", True, True, False),
        ("runtime://alpha.example/rt-b*", True, False, False),
        (f"{ANA}/sm", False, False, False),
        ("runtime://alpha.example*", False, False, False),
        ("runtime:*", False, False, False),
        ("runtime:///*", False, False, False),
        ("hyperty://alpha.example/*", False, False, False),
        ("runtime://[::1/*", False, False, False),
        ("runtime://alpha.example/*/x*", False, False, False),
        ("**", False, False, False),
        ("hyperty://alpha.example/h", False, False, False),
        ("two words", False, False, False),
        ("", False, False, False),
    ],
)
def test_a_pattern_says_its_whole_authority(pattern: str, is_so: bool, is_covering: bool, is_in_full: bool) -> None:
    assert is_pattern(pattern) is is_so
    assert covers(pattern, ANA) is is_covering
    assert names_in_full(pattern, ANA) is is_in_full
    assert covers_any(["runtime://beta.example/*", pattern], ANA) is is_covering
    assert not covers_any([], ANA)


@pytest.mark.parametrize(
    ("key", "runtime"),
    [
        (ANA, ANA),
        (f"{ANA}/sm/x", ANA),
        ("runtime:/rt", "runtime:/rt"),
        ("runtime:/rt/sm", "runtime:/rt"),
        ("runtime:/#1", "runtime:/"),
        ("runtime://alpha.example", ""),
        ("runtime://alpha.example/", "runtime://alpha.example/"),
        ("hyperty://alpha.example/h/x", ""),
        ("runtimes:/rt", ""),
    ],
)
def test_the_runtime_is_the_first_level_of_a_key(key: str, runtime: str) -> None:
    assert runtime_part(key) == runtime


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("*", True),
        ("**", False),
        ("runtime://a.example/*", True),
        ("runtime://a.example/x*", True),
        ("runtime://a.example/x**", False),
        ("runtime://a.example/x*y", False),
        ("runtime://a.example/x*yz", False),
        ("runtime:///x*", False),
        ("runtime://a.example*", False),
        ("runtime:/x*", False),
        ("a.example/x*", False),
        ("runtime://a.example/x", True),
        ("runtime://a.example/x/sm", False),
        ("hyperty://a.example/x", False),
    ],
)
def test_a_pattern_is_all_one_runtime_or_the_beginning_of_some(text: str, is_one: bool) -> None:
    assert is_pattern(text) is is_one


def test_the_beginning_of_some_runtimes_names_none_in_full() -> None:
    assert names_in_full("runtime://A.example/x", "runtime://a.example/x")
    assert not names_in_full("runtime://a.example/x*", "runtime://a.example/x*")


@pytest.mark.parametrize(
    ("key", "agent"),
    [
        ("thing://a.example/agent/lamp/events/on", "thing://a.example/agent"),
        ("thing://a.example/agent", "thing://a.example/agent"),
        ("thing://a.example", "thing://a.example"),
        ("runtime://a.example/rt/sm", "runtime://a.example/rt"),
        ("comm://a.example/room/x", "comm://a.example/room/x"),
        ("comm://a.example/room/status", "comm://a.example/room"),
    ],
)
def test_the_agent_of_an_address_is_its_first_level_its_runtime_or_itself(key: str, agent: str) -> None:
    assert agent_of(key) == agent


def test_no_text_names_no_runtime() -> None:
    assert not is_pattern("")
