"""The version of the library inside the engine's package, read without loading it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from protofly.errors import PeerError
from sandbox.engine import Engine
from sandbox.engine_version import EngineVersion, engine_version, library_version

TEXT = b"BUG: \xc0\nversion: %s\n\nThis is a bug in Wasmtime that"


def test_the_installed_engine_reports_both_versions() -> None:
    engine = engine_version()
    assert engine.package == version("wasmtime")
    assert engine == EngineVersion("50.0.0", "50.0.1"), "a new engine: read docs/dependencies.md, The engine's own risk"
    assert str(engine) == "wasmtime 50.0.0 (package 50.0.1)"


def test_code_that_the_engine_compiles_names_the_same_major_version() -> None:
    code = Engine().compile(b"\0asm\1\0\0\0")
    major = engine_version().library.partition(".")[0].encode()
    assert bytes([len(major)]) + major in code[:200]


def test_asking_does_not_load_the_engine() -> None:
    ask = "from sandbox.engine_version import engine_version; engine_version()"
    script = f"import sys; {ask}; print('wasmtime' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (TEXT % b"50.0.0", "50.0.0"),
        (TEXT % b"51.2.13-rc.1", "51.2.13-rc.1"),
        (b"This is a bug in Wasmtime, says a comment" + bytes(500) + TEXT % b"49.0.4", "49.0.4"),
    ],
)
def test_the_version_stands_in_front_of_the_text_about_defects(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "_libwasmtime.so"
    file.write_bytes(b"\x7fELF 1.2.3" + bytes(1000) + content + bytes(1000))
    assert library_version(file) == expected


@pytest.mark.parametrize("content", [b"\x7fELF", b"version: 1.2.3\n", b"This is a bug in Wasmtime", TEXT % b"x"])
def test_a_library_without_a_version_is_named_by_its_hash(tmp_path: Path, content: bytes) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(content)
    other.write_bytes(content + b"!")
    assert library_version(one).startswith("sha256-")
    assert library_version(one) != library_version(other)


BUILT_WITH = {
    "gc": (
        "wasm_gc wasm_function_references",
        "(module (type (struct (field i32))) (func (drop (struct.new_default 0))))",
    ),
    "threads": ("wasm_threads", "(module (memory 1 1 shared) (func (drop (i32.atomic.load (i32.const 0)))))"),
}


@pytest.mark.parametrize("feature", BUILT_WITH)
def test_the_library_is_built_with_features_that_our_profile_switches_off(feature: str) -> None:
    """Advisories about builds without a cargo feature do not concern it. Source: docs/dependencies.md."""
    settings, module = BUILT_WITH[feature]
    script = (
        "import sys, wasmtime; config = wasmtime.Config()\n"
        f"for name in {settings.split()!r}: setattr(config, name, True)\n"
        "wasmtime.Module(wasmtime.Engine(config), sys.argv[1]); print('compiled')"
    )
    done = subprocess.run([sys.executable, "-c", script, module], capture_output=True, text=True, check=False)
    assert done.stdout == "compiled\n", done.stderr
    with pytest.raises(PeerError):
        Engine().compile(_as_binary(module))


def _as_binary(module: str) -> bytes:
    script = "import sys, wasmtime; sys.stdout.buffer.write(wasmtime.wat2wasm(sys.argv[1]))"
    return subprocess.run([sys.executable, "-c", script, module], capture_output=True, check=True).stdout
