"""Build a stub written in C into one WebAssembly module, the same bytes on every machine.

The compiler is clang as `zig cc` of the `ziglang` wheel, pinned in pyproject.toml: nobody has to install a toolchain,
and everybody has the same one. Compiling and linking are two calls, so that nothing of an operating system or of a C
library comes along. Neither file names, folders nor times reach the module: the compiler runs beside the source and
is given its bare name, debug information and the name section are left out.

Source: docs/abi.md, "The module"; Wasmtime study, section 5.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from protofly import limits
from protofly.errors import SettingsError
from stubkit.files import replace_file

SDK_FOLDER: Final = Path(__file__).parent / "sdk" / "c"
"""Where `trapezoid_stub.h` lies."""

GUEST_STACK_BYTES: Final = 64 << 10
"""C stack inside the guest's memory; lies first, so that an overflow is a trap and not a quiet overwrite."""

BUILD_SECONDS: Final = 120.0

_FEATURES: Final = "mvp+bulk_memory+mutable_globals+sign_ext"
_COMPILE: Final = (
    "cc",
    "--target=wasm32-freestanding",
    f"-mcpu={_FEATURES}",
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
    "--strip-all",
)


def build(source: Path, output: Path) -> int:
    """Compile one C file, with the kit's header beside it, into the module `output`.

    Args:
        source: The stub's only C file; it includes `trapezoid_stub.h`.
        output: Where to write the module; replaced whole or not at all.

    Returns:
        Size of the module in bytes.

    Raises:
        SettingsError: no toolchain, no such source, or the compiler's complaint.
    """
    if find_spec("ziglang") is None:
        raise SettingsError("the C toolchain is missing; install it with: pip install 'trapezoid[stubkit]'")
    if not source.is_file():
        raise SettingsError(f"{source}: no such file")
    with tempfile.TemporaryDirectory(prefix="stub-build-") as folder:
        work = Path(folder)
        object_file, module = work / "stub.o", work / "stub.wasm"
        _run_zig([*_COMPILE, "-I", str(SDK_FOLDER), "-c", source.name, "-o", str(object_file)], source.parent, work)
        _run_zig([*_LINK, object_file.name, "-o", module.name], work, work)
        code = module.read_bytes()
    replace_file(output, code)
    return len(code)


def _run_zig(arguments: list[str], folder: Path, cache: Path) -> None:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(cache),
        "ZIG_GLOBAL_CACHE_DIR": str(cache / "global"),
        "ZIG_LOCAL_CACHE_DIR": str(cache / "local"),
    }
    command = [sys.executable, "-m", "ziglang", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 (our own interpreter and fixed arguments; file names are single arguments)
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise SettingsError(f"the compiler did not end within {BUILD_SECONDS:.0f} s") from exc
    except OSError as exc:
        raise SettingsError(f"the compiler cannot be started: {exc.strerror}") from exc
    if done.returncode != 0:
        raise SettingsError(f"zig {arguments[0]} failed:\n{done.stderr.strip()}")
