"""Every command ends with a code of one table, and words what went wrong in one way."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pipeline.jobs.result import ExitCode
from tests.support.all_commands import Words, all_commands, all_groups
from trapezoid.commands import app
from trapezoid.output import CANNOT, EXIT_CODES, FOUND_WANTING, LOST_MESSAGES

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
COMMANDS = [words for words, _ in all_commands()]
PARAMETERS = {words: command.params for words, command in all_commands()}
WITH_CONFIG = [words for words in COMMANDS if any(one.name == "config" and one.required for one in PARAMETERS[words])]
ONLY_JSON = {("keys", "records"), ("config", "show")}  # and so they print errors like that too
SETS_UP_LATE = {("serve",)}  # reads its arguments by itself, see `tests/trapezoid/test_serving.py`


def named(words: Words) -> str:
    return " ".join(words) or "trapezoid"


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, arguments, input="")
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    return done.exit_code, done.stdout, done.stderr


def test_the_page_has_the_table_of_codes() -> None:
    rows = re.findall(r"^\| ([0-9]) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [row for row in rows if int(row[0]) in EXIT_CODES and row[1] in EXIT_CODES.values()] == [
        (str(code), meaning) for code, meaning in EXIT_CODES.items()
    ]


def test_jobs_of_the_pipeline_have_the_same_codes() -> None:
    assert {one.name: int(one) for one in ExitCode} == {
        "FINE": 0,
        "FINDINGS": FOUND_WANTING,
        "FAILURE": CANNOT,
        "INCOMPLETE": LOST_MESSAGES,
    }


@pytest.mark.parametrize("words", COMMANDS, ids=named)
def test_an_option_that_does_not_exist_is_a_wrong_call(words: Words) -> None:
    code, out, err = run(*words, "--no-such-option")
    assert (code, out) == (CANNOT, ""), err
    assert "--no-such-option" in err
    assert f"trapezoid {' '.join(words)} --help" in " ".join(err.split()) or "Usage" in err


@pytest.mark.parametrize("words", all_groups(), ids=named)
def test_a_command_that_does_not_exist_is_a_wrong_call(words: Words) -> None:
    wrong: dict[Words, Words] = {
        ("publish",): ("no-such-command", "--no-such-option"),
        ("lab",): ("statsu",),
    }  # `lab NEW-FOLDER` makes one
    code, out, err = run(*words, *wrong.get(words, ("no-such-command",)))
    assert (code, out) == (CANNOT, ""), err


@pytest.mark.parametrize("words", WITH_CONFIG, ids=named)
def test_settings_that_do_not_exist_are_an_error_of_one_line_that_names_them(words: Words, tmp_path: Path) -> None:
    if words in SETS_UP_LATE:
        return
    missing = tmp_path / "absent.toml"
    code, out, err = run(*words, *_arguments(words, tmp_path), "--config", str(missing))
    assert (code, out == "" or words in ONLY_JSON) == (CANNOT, True), (out, err)
    line = err.rstrip("\n").rpartition("\n")[2]
    assert line.startswith("error: "), err
    assert str(missing) in line
    assert re.search(r" \[[a-z0-9-]+\]$", line), err


@pytest.mark.parametrize("words", WITH_CONFIG, ids=named)
def test_with_json_the_same_error_is_an_object(words: Words, tmp_path: Path) -> None:
    if words in SETS_UP_LATE or not any(one.name == "json" for one in PARAMETERS[words]):
        return
    missing = tmp_path / "absent.toml"
    code, out, err = run(*words, *_arguments(words, tmp_path), "--config", str(missing), "--json")
    error = json.loads(out)["error"]
    assert (code, str(missing) in error["detail"]) == (CANNOT, True)
    assert f"[{error['code']}]" in err


def test_a_question_that_is_not_answered_with_yes_is_no_success() -> None:
    small = typer.Typer()

    @small.command()
    def ask() -> None:
        typer.confirm("Sure?", abort=True)

    assert CliRunner().invoke(small, [], input="n\n").exit_code == FOUND_WANTING


def _arguments(words: Words, folder: Path) -> list[str]:
    """Something for each argument and option that the command needs besides `--config`."""
    given: list[str] = []
    for one in PARAMETERS[words]:
        if not one.required or one.name == "config":
            continue
        value = _value(str(one.name), folder)
        given += [value] if one.param_type_name == "argument" else [one.opts[0], value]
    if any(one.name == "yes" for one in PARAMETERS[words]):
        given.append("--yes")
    return given


def _value(name: str, folder: Path) -> str:
    if name in {"file", "files", "stub", "module", "recording"}:
        file = folder / "given.toml"
        file.write_text("id = 'x'\n", encoding="utf-8")
        return str(file)
    return {
        "domain": "b.example",
        "runtime": "runtime://a.example/rt",
        "message": '{"id": 1, "type": "read", "from": "runtime://a.example/rt", "to": "domain://b.example"}',
        "level": "info",
        "kind": "agent",
        "endpoint": "wss://b.example/link",
        "fingerprint": "A" * 43,
        "person": "user://a.example/ana",
        "address": "user://a.example/ana",
    }.get(name, "x")
