"""A node that notes which functions of ours run lines, and which of them are handed a message.

SIGUSR2 begins a window and SIGURG ends it: then the node appends a line to `TRACE_FOLDER/<pid>` with the functions that
ran, each with True if it was given or gave back something that has `MARK` in it.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import msgspec

MARK: Final = b"mark of the message that is traced"
ROOT: Final = Path(__file__).parents[2]
OURS: Final = f"{ROOT}/"
_DEPTH: Final = 4


class FunctionTrace:
    """Notes functions that run a line in a window; awaiting something that runs is no line."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._ran: set[CodeType] = set()
        self._handed: set[CodeType] = set()

    def begin(self) -> None:
        self._ran, self._handed = set(), set()

    def end(self) -> None:
        ran, handed = self._ran, self._handed
        self.begin()
        noted = {_name(code): code in handed for code in ran}
        with self._file.open("a") as file:
            print(json.dumps(noted), file=file)

    def called(self, frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        file = code.co_filename
        if not file.startswith(OURS) or "site-packages" in file or file == __file__:
            return None
        if any(carries(value) for name, value in frame.f_locals.items() if name != "self"):
            self._handed.add(code)
        return self._in_function

    def _in_function(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "line":
            self._ran.add(frame.f_code)
        elif event == "return" and carries(argument):
            self._handed.add(frame.f_code)
        return self._in_function


def carries(value: object, depth: int = _DEPTH) -> bool:
    """True if a value is the marked message, its bytes, or plain data that has it."""
    if isinstance(value, bytes | bytearray):
        return MARK in value
    if isinstance(value, memoryview):
        return MARK in bytes(value)
    if not depth:
        return False
    if isinstance(value, list | tuple | set | frozenset):
        return any(carries(one, depth - 1) for one in value)
    if isinstance(value, msgspec.Struct):
        return any(carries(getattr(value, name, None), depth - 1) for name in value.__struct_fields__)
    if is_dataclass(value) and not isinstance(value, type) and value.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return any(carries(getattr(value, field.name, None), depth - 1) for field in fields(value))
    return False


def _name(code: CodeType) -> str:
    return f"{Path(code.co_filename).relative_to(ROOT)} {code.co_qualname} {code.co_firstlineno}"


if __name__ == "__main__":
    trace = FunctionTrace(Path(os.environ["TRACE_FOLDER"]) / str(os.getpid()))
    signal.signal(signal.SIGUSR2, lambda *_: trace.begin())
    signal.signal(signal.SIGURG, lambda *_: trace.end())
    sys.settrace(trace.called)
    runpy.run_module("trapezoid", run_name="__main__", alter_sys=True)
