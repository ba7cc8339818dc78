"""Compile stubs in Rust, by a `rustc` that has the target wasm32-unknown-unknown, such as that of Debian.

The source is the root of a crate of one file, with the kit as its module beside it; there is no Cargo, and no other
crate. The same version of the compiler gives the same bytes in every folder. Source: docs/writing-a-stub.md,
"Languages".
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from protofly import limits
from protofly.errors import SettingsError

KIT: Final = Path(__file__).parent / "sdk" / "rust" / "trapezoid_stub.rs"
COMPILE_SECONDS: Final = 120.0
STACK_BYTES: Final = 64 << 10

_TARGET: Final = "wasm32-unknown-unknown"
_MISSING: Final = (
    f"Rust needs a `rustc` with the target {_TARGET} and a linker, such as Debian's: "
    "apt-get install --no-install-recommends rustc libstd-rust-dev-wasm32 lld-14"
)
_SHOWN_CHARS: Final = 4_000
_OPTIONS: Final = (
    "--edition=2021",
    "--crate-type=cdylib",
    f"--target={_TARGET}",
    "-Copt-level=2",
    "-Cpanic=abort",
    "-Clto=fat",
    "-Ccodegen-units=1",
    "-Ctarget-feature=+bulk-memory",
    "-Clink-arg=--stack-first",
    f"-Clink-arg=-zstack-size={STACK_BYTES}",
    f"-Clink-arg=--max-memory={limits.MEMORY_BYTES}",
)


def compile_rust(source: Path, work: Path, has_names: bool) -> bytes:
    """The module of one source file, compiled in the folder `work`.

    Raises:
        SettingsError: No compiler with the target, its complaint, or no end in time.
    """
    compiler = find_compiler()
    if not compiler:
        raise SettingsError(_MISSING)
    shutil.copyfile(source, work / "stub.rs")
    shutil.copyfile(KIT, work / KIT.name)
    strip = "-Cstrip=debuginfo" if has_names else "-Cstrip=symbols"
    done = _run([compiler, *_OPTIONS, strip, "stub.rs", "-o", "stub.wasm"], work)
    if done.returncode:
        raise SettingsError(f"rustc failed:\n{done.stderr.strip()[-_SHOWN_CHARS:]}")
    return (work / "stub.wasm").read_bytes()


def find_compiler() -> str:
    """The first `rustc` that has the target: that of RUSTC, of the path, of the system; "" when none has."""
    for compiler in _compilers():
        done = _run([compiler, "--print=target-libdir", f"--target={_TARGET}"], Path.cwd())
        if not done.returncode and any(Path(done.stdout.strip()).glob("libstd-*.rlib")):
            return compiler
    return ""


def _compilers() -> Iterator[str]:
    named = os.environ.get("RUSTC")
    found = [named] if named else ["rustc", "/usr/bin/rustc"]
    yield from (path for one in found if (path := shutil.which(one)))


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - fixed arguments
            command, cwd=folder, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise SettingsError(f"rustc did not end within {COMPILE_SECONDS:.0f} s") from exc
    except OSError as exc:
        raise SettingsError(f"{command[0]} cannot be started: {exc.strerror}") from exc
