"""The sandbox: foreign stubs, compiled and run in confined processes of their own.

Importing this package loads nothing else of it, so that the zygote stays small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protofly.public_names import public_names

__all__ = [
    "Budget",
    "Lifecycle",
    "Sandbox",
    "StubProcess",
    "StubState",
]

if TYPE_CHECKING:
    from sandbox.core.budget import Budget
    from sandbox.core.lifecycle import Lifecycle, StubState
    from sandbox.host import Sandbox
    from sandbox.stub_process import StubProcess
else:
    __getattr__ = public_names(
        __name__,
        {
            "Budget": "sandbox.core.budget",
            "Lifecycle": "sandbox.core.lifecycle",
            "Sandbox": "sandbox.host",
            "StubProcess": "sandbox.stub_process",
            "StubState": "sandbox.core.lifecycle",
        },
    )
