"""Every example stub keeps the contract of docs/abi.md, whatever the host hands over."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import wasmtime
from hypothesis import given, settings
from hypothesis import strategies as st

from protofly import limits
from sandbox.core.exchange import Event, GuestEvent, encode_events
from stubkit.build import build
from tests.examples_stubs.guest import RANDOM, STUBS, Guest
from tests.examples_stubs.link_peer import start_event

MODULES = sorted(STUBS.glob("*/*.wasm"))


@pytest.fixture(params=MODULES, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    assert isinstance(request.param, Path)
    return request.param


def test_there_is_a_source_beside_every_module_and_the_other_way_round() -> None:
    assert (
        {path.stem for path in MODULES}
        == {path.stem for path in STUBS.glob("*/*.c")}
        == {"link", "echo", "line_translator", "legacy_chat", "people_search"}
        | {"vertx_peer", "nodejs_peer", "nomatrix_peer"}
    )


def test_committed_module_is_rebuilt_bit_for_bit(path: Path, tmp_path: Path) -> None:
    output = tmp_path / "rebuilt.wasm"
    build(path.with_suffix(".c"), output)
    assert output.read_bytes() == path.read_bytes()


def test_module_has_the_exports_of_the_contract_and_no_imports(path: Path) -> None:
    module = wasmtime.Module(wasmtime.Engine(), path.read_bytes())
    assert list(module.imports) == []
    exports = {export.name: export.type for export in module.exports}
    assert set(exports) == {"memory", "window", "handle"}
    memory = exports["memory"]
    assert isinstance(memory, wasmtime.MemoryType)
    assert memory.limits.max == limits.MEMORY_BYTES >> 16
    signatures = {
        name: ([str(p) for p in kind.params], [str(r) for r in kind.results])
        for name, kind in exports.items()
        if isinstance(kind, wasmtime.FuncType)
    }
    assert signatures == {"window": (["i32"], ["i32"]), "handle": (["i32", "i32"], ["i64"])}


def test_module_names_itself_in_its_only_custom_section(path: Path) -> None:
    code = path.read_bytes()
    (start,) = [index for index in range(len(code)) if code.startswith(b"\x0etrapezoid-stub", index)]
    facts = json.loads(code[start + 15 :])
    assert set(facts.pop("events", [])) <= {"addresses"}
    assert facts.pop("configuration", {}).get("type", "object") == "object"  # a JSON Schema
    assert facts.pop("kind", "protostub") == ("connector" if path.stem == "people_search" else "protostub")
    assert facts["name"].replace("-", "_") == path.parent.name
    assert (facts["abi"], facts["version"], len(facts)) == (1, "1.0.0", 3)
    assert b"/" not in code[start:].replace(b"://", b"")  # no path of the machine that built it
    assert code.count(b"zig") == code.count(b"clang") == 0


def test_window_grows_in_place_and_refuses_what_memory_cannot_hold(path: Path) -> None:
    guest = Guest(path)
    first = guest.window(100)
    assert first
    assert guest.window(64 << 10) == guest.window(2 << 20) == guest.window(10) == first
    for size in (17 << 20, 1 << 31, 0xFFFF_FFFF):
        assert guest.window(size) == 0
    assert guest.call(start_event())


def test_window_without_memory_left_says_so(path: Path) -> None:
    guest = Guest(path, memory_bytes=5 << 20)
    assert guest.window(6 << 20) == 0
    assert guest.call(start_event())


def test_handle_refuses_a_buffer_outside_of_the_window(path: Path) -> None:
    guest = Guest(path)
    assert guest.handle(0, 24) == 0
    window = guest.window(4096)
    ends = [
        (window - 1, 24),
        (window, 4097),
        (window + 4090, 24),
        (0xFFFF_FFFF, 24),
        (window, 0xFFFF_FFFF),
        (window + 4096, 0xFFFF_FFF0),
    ]
    for pointer, length in ends:
        assert guest.handle(pointer, length) == 0


def test_handle_refuses_buffers_that_are_not_whole_records(path: Path) -> None:
    guest = Guest(path)
    good = encode_events([GuestEvent(Event.TIMER, 9, b"x" * 5)], guest.now_ms, RANDOM)
    for size in range(len(good)):
        if size != 24:
            assert guest.call_raw(good[:size]) is None
    assert guest.call_raw(good + b"\0") is None
    assert guest.call_raw(good[:32] + struct.pack("<I", 0xFFFF_FFFF) + good[36:]) is None
    assert guest.call_raw(good) is not None


def test_call_without_events_answers_nothing(path: Path) -> None:
    assert Guest(path).call() == []


@given(data=st.data(), buffers=st.lists(st.binary(max_size=200), max_size=5))
@settings(max_examples=40, deadline=None)
def test_any_buffer_is_answered_or_refused(data: st.DataObject, buffers: list[bytes]) -> None:
    guest = Guest(data.draw(st.sampled_from(MODULES)))
    for buffer in buffers:
        guest.call_raw(buffer)


def test_same_inputs_give_the_same_outputs(path: Path) -> None:
    runs = []
    for _ in range(2):
        guest = Guest(path)
        runs.append([guest.call(start_event()), guest.call(GuestEvent(Event.CLOSED, 1, b"link-lost"))])
    assert runs[0] == runs[1]
