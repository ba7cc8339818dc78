"""One target under the coverage-guided fuzzer: `python -m tests.fuzz.guided TARGET <libFuzzer's arguments>`.

Needs the extra `fuzz`. libFuzzer ends the process itself.
"""

from __future__ import annotations

import importlib
import sys
from typing import Final

import atheris

INSTRUMENTED: Final = ("protofly", "msg_node", "federation", "websockets", "h11", "joserfc", "tomllib")
"""Whose branches the fuzzer wants to reach."""


def main(name: str, arguments: list[str]) -> None:
    """Fuzz one target until libFuzzer has had enough."""
    with atheris.instrument_imports(include=list(INSTRUMENTED), enable_loader_override=False):
        target = importlib.import_module("tests.fuzz.targets").TARGETS[name]
    atheris.Setup([sys.argv[0], *arguments], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
