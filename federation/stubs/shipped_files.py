"""Where the files are that come with the program: in `examples/` of a checkout, else where the wheel puts them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

_PACKAGES: Final = Path(__file__).resolve().parents[2]
_CHECKOUT: Final = _PACKAGES / "examples"
_KIT: Final = _PACKAGES / "stubkit"
_INSTALLED: Final = Path(sys.prefix) / "share" / "trapezoid"


def shipped_file(*parts: str) -> Path:
    """A file or folder that comes with the program, by its path below `examples/`. It need not exist."""
    return (_CHECKOUT if (_CHECKOUT / "two_domains").is_dir() else _INSTALLED).joinpath(*parts)


def interpreter_file() -> Path:
    """The module that runs scripts, which comes with the kit. It need not exist."""
    return _KIT / "sdk" / "js" / "quickjs.wasm"
