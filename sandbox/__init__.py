"""The sandbox: foreign stubs, compiled and run in confined processes of their own.

Importing this package loads nothing else of it, so that the zygote stays small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protofly.public_names import public_names

__all__ = [
    "Budget",
    "Sandbox",
    "StubProcess",
]

if TYPE_CHECKING:
    from sandbox.core.budget import Budget
    from sandbox.host import Sandbox
    from sandbox.stub_process import StubProcess
else:
    __getattr__ = public_names(
        __name__,
        {
            "Budget": "sandbox.core.budget",
            "Sandbox": "sandbox.host",
            "StubProcess": "sandbox.stub_process",
        },
    )
