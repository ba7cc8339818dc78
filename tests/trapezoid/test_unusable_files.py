"""Each command that is given a file which cannot be what it wants says which, why and no more, whatever the file is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.all_commands import Words, all_commands
from tests.trapezoid.test_exit_codes import _value, named
from trapezoid.commands import app
from trapezoid.output import CANNOT

PARAMETERS = {words: command.params for words, command in all_commands()}
STARTS_OTHERS = {"serve", "demo", "lab", "conformance", "serve-global-registry", "pipeline"}
"""Commands that start servers, laboratories or Spark before they look at every file."""
CONTENTS = {
    "bytes": bytes(range(256)),
    "a list": b"[1]",
    "an empty object": b"{}",
    "nothing": b"",
    "other types": b'{"node": 5, "domain": 7, "rules": 1, "cases": 5, "payload": 5, "keys": 5, "id": []}',
}
OF_PYTHON = re.compile(r"(xpected|got) `|<class|NoneType|'[a-z]+' object|has no attribute|Errno|codec|Traceback")


def of_files(words: Words) -> Iterator[Any]:
    """The parameters of a command that are files or folders."""
    for one in PARAMETERS[words]:
        described = one.type_descriptor
        if not callable(described) and "Path" in str(described.annotation):
            yield one


WITH_FILES = [
    words
    for words in PARAMETERS
    if words[0] not in STARTS_OTHERS and words != ("stub", "adapt") and any(of_files(words))  # that starts scripts
]


def call(words: Words, target: Any, unusable: Path, folder: Path) -> list[str]:
    """The command with one unusable file, and with something for everything else that it needs."""
    call = list(words)
    for one in PARAMETERS[words]:
        if one is target:
            value = str(unusable)
        elif one.required:
            value = _value(str(one.name), folder)
        else:
            continue
        call += [value] if one.param_type_name == "argument" else [one.opts[0], value]
    return [*call, "--yes"] if any(one.name == "yes" for one in PARAMETERS[words]) else call


@pytest.mark.parametrize("words", WITH_FILES, ids=named)
def test_an_unusable_file_is_named_without_a_traceback_or_types_of_python(
    words: Words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (target, (about, content)) in enumerate(
        (one, content) for one in of_files(words) for content in CONTENTS.items()
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        unusable = folder / "unusable.toml"
        unusable.write_bytes(content)
        done = CliRunner().invoke(app, call(words, target, unusable, folder), input="")
        place = f"{target.name}, {about}: {done.stderr}"
        assert done.exception is None or isinstance(done.exception, SystemExit), f"{place} {done.exception!r}"
        assert not OF_PYTHON.search(done.stderr), place
        if target.name == "config" and done.exit_code == CANNOT:
            assert "unusable.toml" in done.stderr, place
