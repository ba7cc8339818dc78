"""The Zig toolchain: it compiles stubs in C and Zig, and the interpreter of stubs in JavaScript."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from protofly.errors import SettingsError

BUILD_SECONDS: Final = 120.0

FEATURES: Final = "mvp+bulk_memory+mutable_globals+sign_ext"
"""What of WebAssembly the contract allows and compilers make use of."""


def run_zig(arguments: list[str], folder: Path, cache: Path, *, seconds: float = BUILD_SECONDS) -> None:
    """Run one command of the toolchain in `folder`, with all that it keeps below `cache`.

    Raises:
        SettingsError: no toolchain, its complaint, or no end within `seconds`.
    """
    if find_spec("ziglang") is None:
        raise SettingsError("the toolchain is missing; install it with: pip install 'trapezoid[stubkit]'")
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(cache),
        "ZIG_GLOBAL_CACHE_DIR": str(cache / "global"),
        "ZIG_LOCAL_CACHE_DIR": str(cache / "local"),
    }
    command = [sys.executable, "-m", "ziglang", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 (our own interpreter and fixed arguments; file names are single arguments)
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise SettingsError(f"the compiler did not end within {seconds:.0f} s") from exc
    except OSError as exc:
        raise SettingsError(f"the compiler cannot be started: {exc.strerror}") from exc
    if done.returncode != 0:
        raise SettingsError(f"zig {arguments[0]} failed:\n{done.stderr.strip()}")
