"""Packages of scripts: one interpreter, one digest for both, and machine code that they share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly.errors import Code, PeerError
from sandbox.core.exchange import Event
from sandbox.core.module_check import MAGIC, SCRIPT_SECTION, inspect_module
from sandbox.core.script_package import START_BYTES, script_content
from sandbox.core.scripts import code_of, code_sha256, script_events, script_of, with_script
from tests.support.guests import custom_section, echo

INTERPRETER = echo()
STATEMENT = b'{"abi":1,"name":"mine","version":"2.0.0"}'


def package(script: bytes) -> bytes:
    return with_script(INTERPRETER, statement=STATEMENT, script=script)


def test_package_names_itself_and_has_its_script_byte_for_byte() -> None:
    script = bytes(range(256)) * 100
    module = package(script)
    facts = inspect_module(module)
    assert (facts.name, facts.version, facts.script_bytes) == ("mine", "2.0.0", 25_600)
    assert script_of(module) == script
    [event] = script_events(module)
    assert (event.op, event.payload) == (Event.SCRIPT, script)


@pytest.mark.parametrize("size", [1, 126, 127, 128, 129, 16_383, 16_384])
def test_script_of_a_size_at_the_edge_of_its_number_stays_what_it_is(size: int) -> None:
    for length in range(max(size - 40, 1), size + 40):  # the name of the section counts as well
        assert script_of(package(b"s" * length)) == b"s" * length
    assert code_of(package(b"s" * size)) == code_of(package(b"s"))


def test_packages_with_one_interpreter_share_their_code_and_no_digest_of_a_package() -> None:
    one, other = package(b"a"), package(b"b")
    assert one != other
    assert code_of(one) == code_of(other)
    assert code_sha256(one) == code_sha256(other)
    assert code_sha256(package(b"a" * 200)) != code_sha256(
        with_script(echo() + custom_section("x", b""), statement=STATEMENT, script=b"a")
    )


def test_module_without_a_script_is_compiled_as_it_is() -> None:
    assert code_of(INTERPRETER) is INTERPRETER
    assert script_events(INTERPRETER) == []


def test_package_is_an_interpreter_for_the_next_script() -> None:
    assert with_script(package(b"old"), statement=STATEMENT, script=b"new") == package(b"new")


@pytest.mark.parametrize(
    "module",
    [package(b"a") + custom_section(SCRIPT_SECTION, b"b"), INTERPRETER + custom_section(SCRIPT_SECTION, b"")],
    ids=["two", "empty"],
)
def test_two_scripts_or_an_empty_one_are_malformed(module: bytes) -> None:
    with pytest.raises(PeerError) as caught:
        inspect_module(module)
    assert caught.value.code is Code.MODULE_MALFORMED


@given(raw=st.binary(max_size=200))
def test_any_bytes_have_a_script_or_none(raw: bytes) -> None:
    for module in (raw, MAGIC + raw, package(b"a") + raw):
        assert isinstance(script_of(module), bytes)
        assert isinstance(code_of(module), bytes)


@pytest.mark.parametrize("length", [0, 1, START_BYTES - 20, START_BYTES, 2 * START_BYTES])
def test_a_short_script_is_filled_up_to_what_its_start_costs_and_a_long_one_is_not(length: int) -> None:
    content = script_content({"file": "a.js"}, b"x" * length)
    line, _, text = content.partition(b"\n")
    assert (line.rstrip(b" "), text) == (b'{"file":"a.js"}', b"x" * length)
    assert len(content) == max(START_BYTES, len(line.rstrip(b" ")) + length) + 1
