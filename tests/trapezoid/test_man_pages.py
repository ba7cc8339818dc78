"""The manual pages: made from the commands, whole, and without a warning of what renders them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.all_commands import all_commands
from trapezoid.commands import app
from trapezoid.man_pages import manual_pages

FOLDER = Path(__file__).parents[2] / "deploy" / "man"
PAGES = sorted(page.name for page in FOLDER.iterdir())
MAN = shutil.which("man") or ""


def test_pages_are_the_ones_that_are_made_from_the_commands() -> None:
    kept = {page.name: page.read_text(encoding="ascii") for page in FOLDER.iterdir()}
    assert kept == manual_pages(app), "run: trapezoid config man deploy/man"


def test_every_command_and_option_is_on_a_page() -> None:
    pages = manual_pages(app)
    missing = []
    for words, command in all_commands():
        page = pages[f"trapezoid-{words[0]}.1"].replace("\\-", "-").replace("\\&", "")
        names = [option for parameter in command.params for option in parameter.opts if option.startswith("-")]
        missing += [name for name in (" ".join(("trapezoid", *words)), *names) if name not in page]
    assert missing == []


@pytest.mark.skipif(not MAN, reason="man is not installed")
@pytest.mark.parametrize("name", PAGES)
def test_page_is_rendered_without_a_warning(name: str) -> None:
    done = subprocess.run(
        [MAN, "--warnings=all", "--local-file", "-Tutf8", FOLDER / name],
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "MANWIDTH": "100"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "EXIT STATUS" in re.sub(".\b", "", done.stdout)


def test_text_of_a_help_is_no_command_of_the_page() -> None:
    from trapezoid.man_pages import _marked

    assert _marked(".so /etc/passwd") == "\\&.so /etc/passwd"
    assert _marked("'quoted'") == "\\&'quoted'"
    assert _marked("a \\fBback\\fP, `--json`, ≥") == "a \\efBback\\efP, \\fB\\-\\-json\\fR, \\[u2265]"
