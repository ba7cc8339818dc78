"""Building: the same bytes everywhere, and clear words when it does not work."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from protofly.errors import SettingsError
from stubkit import build as building
from stubkit import zig
from stubkit.build import build

ECHO = Path(__file__).parents[2] / "examples" / "stubs" / "echo" / "echo.c"


def test_build_from_another_folder_and_file_name_gives_the_same_bytes(tmp_path: Path) -> None:
    elsewhere = tmp_path / "a folder with spaces" / "x.c"
    elsewhere.parent.mkdir()
    shutil.copy(ECHO, elsewhere)
    output = tmp_path / "x.wasm"
    assert build(elsewhere, output) == output.stat().st_size
    assert output.read_bytes() == ECHO.with_suffix(".wasm").read_bytes()
    assert [path.name for path in elsewhere.parent.iterdir()] == ["x.c"]


def test_place_of_the_kit_does_not_show_in_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = tmp_path / "another place" / "kit"
    shutil.copytree(building.SDK_FOLDER, moved)
    monkeypatch.setattr(building, "SDK_FOLDER", moved)
    build(ECHO, tmp_path / "x.wasm")
    assert (tmp_path / "x.wasm").read_bytes() == ECHO.with_suffix(".wasm").read_bytes()


def test_build_does_not_depend_on_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "CFLAGS": "-DX",
        "CPATH": str(tmp_path),
        "SOURCE_DATE_EPOCH": "1",
        "LANG": "de_DE.UTF-8",
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "stdint.h").write_text("#error wrong header")
    build(ECHO, tmp_path / "x.wasm")
    assert (tmp_path / "x.wasm").read_bytes() == ECHO.with_suffix(".wasm").read_bytes()


def test_mistake_in_the_source_is_the_compilers_complaint_and_the_old_module_stays(tmp_path: Path) -> None:
    source, output = tmp_path / "bad.c", tmp_path / "bad.wasm"
    source.write_text('#define STUB_NAME "bad"\n#define STUB_VERSION "1"\n#include "trapezoid_stub.h"\nint x = y;\n')
    output.write_bytes(b"old")
    with pytest.raises(SettingsError, match=r"bad\.c:4:.*undeclared identifier 'y'"):
        build(source, output)
    assert output.read_bytes() == b"old"


def test_source_without_name_is_asked_to_define_one(tmp_path: Path) -> None:
    source = tmp_path / "anonymous.c"
    source.write_text('#include "trapezoid_stub.h"\n')
    with pytest.raises(SettingsError, match="define STUB_NAME and STUB_VERSION"):
        build(source, tmp_path / "x.wasm")


def test_call_of_something_that_is_nowhere_is_refused_and_not_imported(tmp_path: Path) -> None:
    source = tmp_path / "imports.c"
    source.write_text(
        '#define STUB_NAME "x"\n#define STUB_VERSION "1"\n#include "trapezoid_stub.h"\nvoid elsewhere(void);\n'
        "static void stub_on_event(const stub_event *event) { (void)event; elsewhere(); }\n"
    )
    with pytest.raises(SettingsError, match="undefined symbol: elsewhere"):
        build(source, tmp_path / "x.wasm")


def test_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nothing\.c: no such file"):
        build(tmp_path / "nothing.c", tmp_path / "x.wasm")


def test_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be written"):
        build(ECHO, tmp_path / "no folder" / "x.wasm")


def test_missing_toolchain_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zig, "find_spec", lambda _name: None)
    with pytest.raises(SettingsError, match="pip install"):
        build(ECHO, tmp_path / "x.wasm")
