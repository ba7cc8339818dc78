"""Build a stub written in C, Zig, AssemblyScript or Rust into one WebAssembly module, the same bytes on every machine.

The compiler is clang as `zig cc` of the `ziglang` wheel, pinned in pyproject.toml: nobody has to install a toolchain,
and everybody has the same one. Compiling and linking are two calls, so that nothing of an operating system or of a C
library comes along. Neither file names, folders nor times reach the module: the compiler runs beside the source and
is given its bare name, debug information and the name section are left out. Zig comes with the same wheel; the compiler
of AssemblyScript comes from npm (`stubkit/assemblyscript.py`), that of Rust from the system (`stubkit/rust.py`).

Source: docs/abi.md, "The module"; Wasmtime study, section 5.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from protofly import limits
from protofly.errors import SettingsError
from sandbox.core.script_package import Script
from stubkit.adapt import packaged, read_published
from stubkit.assemblyscript import compile_assemblyscript
from stubkit.files import replace_file
from stubkit.rust import compile_rust
from stubkit.zig import FEATURES, run_zig

SDK_FOLDER: Final = Path(__file__).parent / "sdk"
"""What stubs include or import, a folder for each language."""

GUEST_STACK_BYTES: Final = 64 << 10
"""C stack inside the guest's memory; lies first, so that an overflow is a trap and not a quiet overwrite."""

_COMPILE: Final = (
    "cc",
    "--target=wasm32-freestanding",
    f"-mcpu={FEATURES}",
    "-std=c11",
    "-O2",
    "-g0",
    "-ffreestanding",
    "-fno-builtin-printf",
    "-fno-stack-protector",
    "-fno-sanitize=all",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
)
_LINK: Final = (
    "wasm-ld",
    "--no-entry",
    "--gc-sections",
    "--stack-first",
    "-z",
    f"stack-size={GUEST_STACK_BYTES}",
    f"--max-memory={limits.MEMORY_BYTES}",
)


_ZIG_MODULE: Final = ("-target", "wasm32-freestanding", "-O", "ReleaseSmall")
_ZIG: Final = (
    "build-exe",
    "-fno-entry",
    "-rdynamic",
    f"--max-memory={limits.MEMORY_BYTES}",
)


def build(source: Path, output: Path, *, has_names: bool = False) -> int:
    """Compile one source file, with the kit for its language beside it, into the module `output`.

    Args:
        source: The stub's only file; its suffix names the language: `.c`, `.zig`, `.ts`, `.rs` or `.js`.
        output: Where to write the module; replaced whole or not at all.
        has_names: Keep the names of functions; the code does the same, and in C and AssemblyScript is the same.

    Returns:
        Size of the module in bytes.

    Raises:
        SettingsError: no toolchain, no such source, or the compiler's complaint.
    """
    compilers: dict[str, Callable[[Path, Path, bool], bytes]] = {
        ".c": _compile_c,
        ".zig": _compile_zig,
        ".ts": compile_assemblyscript,
        ".rs": compile_rust,
        ".js": _package_script,
    }
    compiler = compilers.get(source.suffix)
    if compiler is None:
        raise SettingsError(f"{source}: the source of a stub ends in {', '.join(compilers)}")
    if not source.is_file():
        raise SettingsError(f"{source}: no such file")
    with tempfile.TemporaryDirectory(prefix="stub-build-") as folder:
        code = compiler(source, Path(folder), has_names)
    replace_file(output, code)
    return len(code)


def _compile_c(source: Path, work: Path, has_names: bool) -> bytes:
    object_file, module = work / "stub.o", work / "stub.wasm"
    sdk = str(SDK_FOLDER / "c")
    run_zig([*_COMPILE, "-I", sdk, "-c", source.name, "-o", str(object_file)], source.parent, work)
    stripped = [] if has_names else ["--strip-all"]
    run_zig([*_LINK, *stripped, object_file.name, "-o", module.name], work, work)
    return module.read_bytes()


def _compile_zig(source: Path, work: Path, has_names: bool) -> bytes:
    shutil.copyfile(source, work / "stub.zig")
    shutil.copyfile(SDK_FOLDER / "zig" / "trapezoid_stub.zig", work / "trapezoid_stub.zig")
    target = [*_ZIG_MODULE, "-fno-strip" if has_names else "-fstrip"]
    modules = [
        "--dep",
        "trapezoid_stub",
        "-Mroot=stub.zig",
        *target,
        "-Mtrapezoid_stub=trapezoid_stub.zig",
        "--name",
        "stub",
    ]
    run_zig([*_ZIG, *target, *modules], work, work)
    return (work / "stub.wasm").read_bytes()


def _package_script(source: Path, _work: Path, _has_names: bool) -> bytes:
    published = read_published(source)
    return packaged(
        Script(text=published.text, file=source.name, name=source.stem, configuration=published.configuration)
    )
