"""The shell of a laboratory: nothing that a node answers ends it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from interop.lab.kept import make_lab
from interop.lab.shell import run_shell


@pytest.mark.long
async def test_a_runtime_whose_session_is_gone_is_an_error_of_its_line_and_can_be_opened_anew(tmp_path: Path) -> None:
    lab = await make_lab(tmp_path / "lab", 2)
    shown: list[str] = []

    def kicked() -> str:
        [runtime] = {found[0] for line in shown if (found := re.search(r"runtime://a.example/ana-\w+", line))}
        said.pop(0)
        return f"node a.example kick {runtime}\n"

    said = [
        "open ana a.example",
        "open bo b.example",
        "open bo",
        "who",
        "",
        "open ana",
        "open ana",
        "ask ana bo good morning",
    ]

    def line() -> str:
        return "" if not said else f"{said.pop(0)}\n" if said[0] else kicked()

    try:
        await lab.up()
        failed = await run_shell(lab, line, shown.append)
    finally:
        lab.down()
    assert failed == 2, shown
    is_open, error = [line for line in shown if line.startswith("error")]
    assert is_open == "error: bo is open; take another name, or `drop bo` first"
    assert "re-open runtime://a.example/ana-" in error
    assert any(line.startswith("200 after") for line in shown)
