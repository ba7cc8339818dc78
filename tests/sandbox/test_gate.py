"""The structural gate: what passes, and every reason for which a module does not."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly import limits
from protofly.errors import Code, PeerError
from sandbox.core.module_check import ABI_SECTION_BYTES, MAGIC, _Reader, inspect_module
from tests.support.guests import assemble, custom_section, echo, guest, leb, stub_section

WINDOW = '(func (export "window") (param i32) (result i32) (i32.const 4096))'
HANDLE = '(func (export "handle") (param i32 i32) (result i64) (i64.const 0))'
MEMORY = '(memory (export "memory") 1 16)'
ECHO = echo()


def refusal(module: bytes) -> Code:
    with pytest.raises(PeerError) as caught:
        inspect_module(module)
    return caught.value.code


def section(number: int, payload: bytes) -> bytes:
    return bytes([number]) + leb(len(payload)) + payload


def module(*parts: str) -> bytes:
    return assemble(f"(module {' '.join(parts)})")


def test_facts_of_a_good_module() -> None:
    facts = inspect_module(
        assemble(f'(module {MEMORY} {WINDOW} {HANDLE} (func (export "_initialize")) (table 7 funcref))')
    )
    assert (facts.abi, facts.name, facts.version) == (1, "test", "1.0.0")
    assert (facts.functions, facts.table_elements, facts.has_initialize) == (3, 7, True)
    assert (facts.memory_minimum_bytes, facts.memory_maximum_bytes) == (65_536, 1 << 20)


def test_many_other_custom_sections_are_fine() -> None:
    inspect_module(MAGIC + custom_section("producers", b"\xff\xff") + ECHO[8:] + custom_section("name", b""))


@pytest.mark.parametrize(
    "raw",
    [b"", b"\0asm", b"(module)", b"\0asm\x0d\0\x01\0", b"\x7fELF" + bytes(100), ECHO[:-1], ECHO[:60], ECHO + b"\x0d\0"],
    ids=["empty", "magic only", "text", "component", "elf", "one byte short", "cut", "unknown section"],
)
def test_what_is_no_module_is_malformed(raw: bytes) -> None:
    assert refusal(raw) is Code.MODULE_MALFORMED


@given(position=st.integers(0, len(ECHO) - 1), value=st.integers(0, 255))
def test_one_changed_byte_gives_facts_or_a_peer_error(position: int, value: int) -> None:
    with contextlib.suppress(PeerError):
        inspect_module(ECHO[:position] + bytes([value]) + ECHO[position + 1 :])


@given(raw=st.binary(max_size=300))
def test_any_bytes_give_facts_or_a_peer_error(raw: bytes) -> None:
    with contextlib.suppress(PeerError):
        inspect_module(MAGIC + raw)


def test_imports_are_refused_and_named() -> None:
    with pytest.raises(PeerError) as caught:
        inspect_module(module('(import "wasi_snapshot_preview1" "fd_write" (func))', MEMORY, WINDOW, HANDLE))
    assert caught.value.code is Code.MODULE_IMPORTS
    assert "wasi_snapshot_preview1.fd_write" in caught.value.detail


def test_imported_names_cannot_steer_a_terminal() -> None:
    with pytest.raises(PeerError) as caught:
        inspect_module(module('(import "\\1b[2J" "\\0a" (func))', MEMORY, WINDOW, HANDLE))
    assert caught.value.detail.isprintable()


@pytest.mark.parametrize(
    "parts",
    [
        (WINDOW, HANDLE),
        ("(memory 1 16)", WINDOW, HANDLE),
        (MEMORY, HANDLE),
        (MEMORY, WINDOW),
        (MEMORY, WINDOW, '(func (export "handle") (param i32) (result i64) (i64.const 0))'),
        (MEMORY, WINDOW, '(func (export "handle") (param i32 i32) (result i32) (i32.const 0))'),
        (MEMORY, HANDLE, '(global (export "window") i32 (i32.const 1))'),
        (MEMORY, WINDOW, HANDLE, '(func (export "_initialize") (param i32))'),
        (MEMORY, WINDOW, HANDLE, "(func $main) (start $main)"),
    ],
    ids=["no memory", "not exported", "no window", "no handle", "arity", "result", "global", "initialize", "start"],
)
def test_other_exports_than_the_contract_wants_are_refused(parts: tuple[str, ...]) -> None:
    assert refusal(module(*parts)) is Code.MODULE_EXPORTS


@pytest.mark.parametrize(
    "parts",
    [
        ('(memory (export "memory") 1)', WINDOW, HANDLE),
        ('(memory (export "memory") 1 257)', WINDOW, HANDLE),
        ('(memory (export "memory") 300 65536)', WINDOW, HANDLE),
        (MEMORY, "(memory 1 1)", WINDOW, HANDLE),
        (MEMORY, WINDOW, HANDLE, "(table 10001 funcref)"),
        (MEMORY, WINDOW, HANDLE, "(table 1 funcref) (table 1 funcref)"),
        ('(memory (export "memory") 1 16 shared)', WINDOW, HANDLE),
        (MEMORY, WINDOW, HANDLE, "(func (local " + "i32 " * 501 + "))"),
        (MEMORY, WINDOW, HANDLE, "(func)" * 10_000),
    ],
    ids=["no maximum", "17 MiB", "4 GiB", "two memories", "table", "two tables", "shared", "locals", "functions"],
)
def test_what_is_too_large_is_refused(parts: tuple[str, ...]) -> None:
    assert refusal(module(*parts)) is Code.MODULE_LIMITS


def test_large_body_is_refused() -> None:
    assert refusal(module(MEMORY, WINDOW, HANDLE, "(func " + "nop " * 66_000 + ")")) is Code.MODULE_LIMITS


def test_large_module_is_refused_before_it_is_read() -> None:
    assert refusal(bytes(limits.MODULE_BYTES + 1)) is Code.MODULE_LIMITS


def test_million_functions_are_refused_by_their_number_before_one_is_read() -> None:
    types = MAGIC + section(1, b"\1\x60\0\0")
    assert refusal(types + section(3, leb(1_000_000) + bytes(1_000_000))) is Code.MODULE_LIMITS
    assert refusal(types + section(3, leb(1_000_000))) is Code.MODULE_LIMITS  # although none of them is there


def test_count_without_entries_is_malformed_not_a_loop() -> None:
    assert refusal(MAGIC + section(3, leb(9_000))) is Code.MODULE_MALFORMED


@pytest.mark.parametrize(
    "number",
    [b"\xff\xff\xff\xff\xff", b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x00"],
)
def test_number_of_more_than_32_bits_is_malformed(number: bytes) -> None:
    assert refusal(MAGIC + section(3, number)) is Code.MODULE_MALFORMED


def test_sections_out_of_order_or_twice_are_malformed() -> None:
    types, functions = section(1, b"\0"), section(3, b"\0")
    assert refusal(MAGIC + functions + types) is Code.MODULE_MALFORMED
    assert refusal(MAGIC + types + types) is Code.MODULE_MALFORMED


def test_fewer_bodies_than_functions_are_malformed() -> None:
    assert refusal(MAGIC + section(1, b"\1\x60\0\0") + section(3, b"\1\0") + stub_section()) is Code.MODULE_MALFORMED


def by_hand(*, type_index: int = 0, export_index: int = 0) -> bytes:
    """A module with the one type of `window` and one function, which is exported as `window`."""
    return b"".join(
        (
            MAGIC,
            section(1, b"\1\x60\1\x7f\1\x7f"),
            section(3, b"\1" + leb(type_index)),
            section(5, b"\1\1\1\x10"),
            section(7, b"\2\6memory\2\0\6window\0" + leb(export_index)),
            section(10, b"\1\4\0\x20\0\x0b"),
            stub_section(),
        )
    )


@pytest.mark.parametrize("index", [1, 2, 2**32 - 1])
def test_function_of_a_type_that_is_not_there_is_malformed(index: int) -> None:
    assert refusal(by_hand(type_index=index)) is Code.MODULE_MALFORMED


@pytest.mark.parametrize("index", [1, 2, 2**32 - 1])
def test_export_of_a_function_that_is_not_there_is_malformed(index: int) -> None:
    assert refusal(by_hand(export_index=index)) is Code.MODULE_MALFORMED
    assert refusal(by_hand()) is Code.MODULE_EXPORTS  # `window` is good, `handle` is missing


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        (b"", Code.ABI_UNSUPPORTED),
        (stub_section(abi=2), Code.ABI_UNSUPPORTED),
        (stub_section() + stub_section(), Code.MODULE_MALFORMED),
        (custom_section("trapezoid-stub", b"{"), Code.MODULE_MALFORMED),
        (custom_section("trapezoid-stub", b"\xff"), Code.MODULE_MALFORMED),
        (custom_section("trapezoid-stub", b"[" * 1000), Code.MODULE_MALFORMED),
        (custom_section("trapezoid-stub", json.dumps({"abi": "1"}).encode()), Code.MODULE_MALFORMED),
        (stub_section(name="x" * 2000), Code.MODULE_LIMITS),
    ],
    ids=["none", "newer", "two", "cut", "not text", "deep", "types", "large"],
)
def test_custom_section_decides_the_contract(extra: bytes, code: Code) -> None:
    bare = assemble(f"(module {MEMORY} {WINDOW} {HANDLE})", with_section=False)
    assert refusal(bare + extra) is code


def test_half_of_the_most_functions_with_locals_pass() -> None:
    functions = "(func (local i32) (local.set 0 (i32.const 1)))" * (limits.MODULE_FUNCTIONS // 2)
    inspect_module(guest("(i64.const 0)", extra=functions))


def test_numbers_up_to_32_bits_are_read() -> None:
    reader = _Reader(b"\xff\xff\xff\xff\x0f\x80\x80\x80\x80\x08\x00", 0, 11)
    assert [reader.number() for _ in range(3)] == [2**32 - 1, 2**31, 0]


@pytest.mark.parametrize("count", [500, 501])
def test_as_many_locals_as_the_limit_pass(count: int) -> None:
    parts = (MEMORY, WINDOW, HANDLE, f"(func (local {'i32 ' * count}))")
    assert limits.MODULE_LOCALS == 500
    if count > limits.MODULE_LOCALS:
        assert refusal(module(*parts)) is Code.MODULE_LIMITS
    else:
        assert inspect_module(module(*parts)).functions == 3


def test_a_module_without_a_table_has_no_elements_in_it() -> None:
    facts = inspect_module(module(MEMORY, WINDOW, HANDLE))
    assert (facts.table_elements, facts.has_initialize) == (0, False)
    assert inspect_module(module(MEMORY, WINDOW, HANDLE, "(table 10000 funcref)")).table_elements == 10_000
    assert inspect_module(module('(memory (export "memory") 256 256)', WINDOW, HANDLE)).memory_maximum_bytes == 1 << 24


@pytest.mark.parametrize("number", [6, 9, 11, 12])
def test_sections_that_only_the_engine_reads_are_counted(number: int) -> None:
    """Globals, element segments, data segments and their count."""
    assert refusal(MAGIC + section(number, leb(10_001))) is Code.MODULE_LIMITS
    assert refusal(MAGIC + section(number, leb(10_000)) + stub_section()) is Code.MODULE_EXPORTS


@pytest.mark.parametrize(("first", "second"), [(9, 12), (12, 10), (10, 11), (7, 9)])
def test_the_count_of_data_segments_stands_before_the_code(first: int, second: int) -> None:
    early, late = (section(number, b"\0") for number in (first, second))
    assert refusal(MAGIC + early + late + stub_section()) is Code.MODULE_EXPORTS
    assert refusal(MAGIC + late + early + stub_section()) is Code.MODULE_MALFORMED


def test_a_module_of_exactly_the_most_bytes_is_read() -> None:
    room = limits.MODULE_BYTES - len(ECHO) - len(custom_section("pad", bytes(1 << 20))) + (1 << 20)
    padded = ECHO + custom_section("pad", bytes(room))
    assert len(padded) == limits.MODULE_BYTES
    assert inspect_module(padded).name == inspect_module(ECHO).name
    assert refusal(padded + b"\0") is Code.MODULE_LIMITS


def test_locals_are_counted_over_their_groups() -> None:
    def with_groups(first: int, second: int) -> bytes:
        return module(MEMORY, WINDOW, HANDLE, f"(func (local {'i32 ' * first}) (local {'i64 ' * second}))")

    assert inspect_module(with_groups(250, 250)).functions == 3
    assert refusal(with_groups(251, 250)) is Code.MODULE_LIMITS


def test_bytes_behind_the_last_entry_of_a_section_are_malformed() -> None:
    assert refusal(MAGIC + section(1, b"\0") + stub_section()) is Code.MODULE_EXPORTS
    assert refusal(MAGIC + section(1, b"\0\0") + stub_section()) is Code.MODULE_MALFORMED


MEMORY_SECTION = section(5, b"\1\1\1\x10")


def test_a_memory_that_is_exported_and_not_there_is_refused() -> None:
    good = module(MEMORY, WINDOW, HANDLE)
    assert good.count(MEMORY_SECTION) == 1
    assert refusal(good.replace(MEMORY_SECTION, b"")) is Code.MODULE_EXPORTS
    assert refusal(good.replace(MEMORY_SECTION, section(5, b"\0"))) is Code.MODULE_EXPORTS


@pytest.mark.parametrize(("minimum", "is_refused"), [(0, False), (16, False), (17, True)])
def test_a_memory_begins_with_no_more_than_its_maximum(minimum: int, is_refused: bool) -> None:
    raw = module(MEMORY, WINDOW, HANDLE).replace(MEMORY_SECTION, section(5, b"\1\1" + leb(minimum) + b"\x10"))
    if is_refused:
        assert refusal(raw) is Code.MODULE_LIMITS
    else:
        assert inspect_module(raw).memory_minimum_bytes == minimum << 16


def test_a_function_of_the_right_type_that_is_not_exported_is_none_of_the_contract() -> None:
    hidden = WINDOW.replace('(export "window") ', "")
    assert refusal(module(MEMORY, hidden, HANDLE)) is Code.MODULE_EXPORTS
    exported_as_global = '(global (export "window") i32 (i32.const 1))'
    assert refusal(module(MEMORY, hidden, HANDLE, exported_as_global)) is Code.MODULE_EXPORTS


def test_two_exports_of_one_name_are_malformed() -> None:
    once, twice = b"\2\6memory\2\0\6window\0\0", b"\3\6memory\2\0\6window\0\0\6window\0\0"
    raw = by_hand()
    assert raw.count(section(7, once)) == 1
    assert refusal(raw.replace(section(7, once), section(7, twice))) is Code.MODULE_MALFORMED


def test_the_custom_section_may_have_its_most_bytes_and_no_more() -> None:
    bare = assemble(f"(module {MEMORY} {WINDOW} {HANDLE})", with_section=False)
    text = json.dumps({"abi": 1, "name": "test", "version": "1"}).encode().ljust(ABI_SECTION_BYTES)
    assert inspect_module(bare + custom_section("trapezoid-stub", text)).name == "test"
    assert refusal(bare + custom_section("trapezoid-stub", text + b" ")) is Code.MODULE_LIMITS


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({"abi": "1", "name": "test", "version": "1"}, "Expected a whole number, got a text - at `$.abi`"),
        ({"abi": 1, "version": "1"}, "Object missing required field `name`"),
        ({"abi": 1, "name": "test", "version": "1", "configuration": []}, "at `$.configuration`"),
        ({"abi": 1, "name": "two words", "version": "1"}, "the stub's name 'two words': expected at most 64 letters"),
        ({"abi": 1, "name": "default", "version": "1"}, "not `default`"),
        ({"abi": 1, "name": "test", "version": "1", "kind": "\x1b[2J" + "x" * 400}, "at `$.kind`"),
    ],
    ids=["text", "no name", "list", "words", "default", "kind"],
)
def test_the_author_learns_what_is_wrong_with_the_custom_section(section: dict[str, object], reason: str) -> None:
    raw = MAGIC + custom_section("trapezoid-stub", json.dumps(section).encode())
    with pytest.raises(PeerError) as caught:
        inspect_module(raw)
    assert caught.value.code is Code.MODULE_MALFORMED
    assert reason in caught.value.detail or "kind" in section
    assert caught.value.detail.isascii()
    assert caught.value.detail.isprintable()
    assert len(caught.value.detail) < 250


@pytest.mark.parametrize(
    ("memory", "reason"),
    [
        ('(memory (export "memory") 2)', "declares no maximum"),
        ('(memory (export "memory") 2 512)', "declares a maximum of 512 pages, of which 2 at first"),
        ('(memory (export "memory") 300 512)', "at most 256 (16 MiB)"),
    ],
    ids=["none", "large", "large at first"],
)
def test_the_author_learns_what_memory_the_module_declares(memory: str, reason: str) -> None:
    with pytest.raises(PeerError) as caught:
        inspect_module(module(memory, WINDOW, HANDLE))
    assert reason in caught.value.detail
