"""The command line: one program, `trapezoid`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protofly.public_names import public_names

__all__ = [
    "main",
]

if TYPE_CHECKING:
    from trapezoid.cli import main
else:
    __getattr__ = public_names(
        __name__,
        {
            "main": "trapezoid.cli",
        },
    )
