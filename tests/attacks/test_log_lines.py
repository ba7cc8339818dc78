"""What strangers say and do, and a full disk, neither drive a terminal by way of the log nor fill it."""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from federation.log_allowance import (
    LINES_PER_MINUTE,
    LINES_PER_MINUTE_AND_SUBJECT,
    LINES_PER_MINUTE_WITHOUT_STATE,
    LineAllowance,
)
from msg_node.bus.middleware import MESSAGE_LOG
from msg_node.settings.tables.node import LogSettings
from msg_node.storage.engine_errors import EngineError
from protofly.errors import Code, HostError, PeerError
from protofly.printable import escaped
from stubkit import certification
from tests.protofly.test_printable import DANGEROUS
from trapezoid import output
from trapezoid.commands import node_policies
from trapezoid.log_output import TEXT_CHARS, escape_without_set_up, set_up_log

EVIL = (
    "".join(char for char in DANGEROUS if char != "\ud800") + "\r\n2026-01-01 00:00:00,000 INFO msg_node: all is well"
)
logger = logging.getLogger("federation")


@pytest.fixture(autouse=True)
def _logging_is_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


@pytest.mark.parametrize("format_", ["text", "json"])
def test_text_of_strangers_is_escaped_in_every_part_of_a_line(
    format_: Literal["text", "json"], capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_log(LogSettings(format=format_))
    logger.warning("%s was refused: %s", EVIL, PeerError(Code.BAD_TOKEN, EVIL, domain=EVIL), extra={"stub": EVIL})
    text = logged(capsys)
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    if format_ == "json":
        line = json.loads(text)
        assert line["domain"] == line["stub"] == EVIL, "programs get what was said"


def test_no_line_of_a_traceback_looks_like_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_log(LogSettings())
    try:
        raise ValueError(EVIL)
    except ValueError:
        logger.exception("the link to %s failed", EVIL)
    first, *others = logged(capsys).splitlines()
    assert " ERROR federation: the link to " in first
    assert others
    assert all(line.startswith("    ") and line.isprintable() for line in others)


@pytest.mark.parametrize("text", ["\ud800 alone", "x" * 1_000_000, "%s %d %(a)s", ""])
@pytest.mark.parametrize("format_", ["text", "json"])
def test_any_text_gives_one_line_of_bounded_length(
    format_: Literal["text", "json"], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_log(LogSettings(format=format_))
    logger.warning("said: %s", text)
    line = logged(capsys)
    assert line.count("\n") == 1
    assert len(line) < TEXT_CHARS + 300


def test_lines_of_commands_that_set_up_no_log_are_escaped_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger().handlers[:] = []
    escape_without_set_up()
    logger.warning("%s was refused", EVIL)
    assert logged(capsys)[:-1].isprintable()


def test_line_in_json_has_fields_for_what_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_log(LogSettings(format="json"))
    logger.info("session opened", extra={"session": 7, "msg_id": "a1", "code": "rate"})
    logger.warning("refused: %s", PeerError(Code.TOO_LARGE, "no", domain="b.example"))
    logger.error("state cannot be stored: %s", HostError(Code.STORAGE, "disk full"), extra={"domain": ""})
    first, second, third = map(json.loads, logged(capsys).splitlines())
    assert (first["session"], first["msg_id"], first["code"]) == (7, "a1", "rate")
    assert (second["domain"], second["code"]) == ("b.example", "too-large")
    assert ("domain" in third, third["code"]) == (False, "storage")


def test_place_that_logs_without_end_has_so_many_lines_a_minute_and_says_how_many_are_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 60.0
    root = logging.getLogger()
    set_up_log(LogSettings())
    root.handlers[0].filters[:] = [LineAllowance(clock=lambda: now)]
    for number in range(1_000):
        logger.error("state cannot be stored: %s", number)
    assert logged(capsys).count("\n") == LINES_PER_MINUTE
    now = 121.0
    logger.info("something else")
    logged_text = logged(capsys)
    assert f"{1_000 - LINES_PER_MINUTE} lines of one kind (test_log_lines.py:" in logged_text
    assert logged_text.count("\n") == 2
    now = 181.0
    logger.info("nothing was left out before this")
    assert logged(capsys).count("\n") == 1


def test_noisy_domain_leaves_room_for_what_is_said_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_log(LogSettings())
    for domain in ["noisy.example"] * 1_000 + ["quiet.example"]:
        logger.warning("%s was refused", domain, extra={"domain": domain})
    text = logged(capsys)
    assert text.count("noisy.example") == LINES_PER_MINUTE_AND_SUBJECT
    assert text.count("quiet.example") == 1


def test_what_each_part_says_while_the_engine_is_away_is_written_a_few_times_a_minute() -> None:
    now, trouble = 60.0, EngineError("engine-lost", "postgresql://db.a.example/node", "it ended", "wait", is_lost=True)
    allowance = LineAllowance(clock=lambda: now)

    def written(line: int, times: int) -> int:
        record = logging.LogRecord("msg_node", logging.ERROR, __file__, line, "not read: %s", (trouble,), None)
        return sum(allowance.filter(record) for _ in range(times))

    assert [written(line, 60) for line in (1, 2)] == [LINES_PER_MINUTE_WITHOUT_STATE] * 2
    now = 121.0
    assert written(1, 60) == LINES_PER_MINUTE_WITHOUT_STATE


def test_names_that_are_made_up_fill_neither_log_nor_memory() -> None:
    allowance = LineAllowance(clock=lambda: 60.0)
    record = logging.LogRecord("federation", logging.WARNING, __file__, 1, "refused", (), None)
    written = 0
    for number in range(10_000):
        record.domain = f"d{number}.example"
        written += allowance.filter(record)
    assert written == LINES_PER_MINUTE
    assert len(allowance._of_subject) <= LINES_PER_MINUTE


def test_messages_that_the_operator_wants_to_see_are_all_written(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_log(LogSettings())
    for number in range(500):
        logging.getLogger(MESSAGE_LOG).info("session=1 type=read id=%d", number)
    assert logged(capsys).count("\n") == 500


def test_commands_escape_what_they_print_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    evil = EVIL + "[red]not markup[/red]"
    output.print_facts({"domain": evil}, as_json=False)
    output.print_rows([{"domain": evil}], as_json=False)
    output.print_json({"domain": evil})
    with pytest.raises(SystemExit), output.errors_reported():
        raise PeerError(Code.BAD_REPLY, evil)
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert text.replace("\n", "").isprintable()
        assert "[red]not markup[/red]" in text
    assert captured.err.count("\n") == 1


def test_policies_of_others_are_escaped_where_they_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {f"border{EVIL}.toml": f"[[rule]]\n\tid = 1 # {EVIL}"}
    monkeypatch.setattr(node_policies, "_ask", lambda *_, **__: {"bundle": "b", "note": EVIL, "files": files})
    node_policies.show("b", Path("node.toml"))
    assert capsys.readouterr().out.replace("\n", "").replace("\t", "").isprintable()


def test_the_page_of_a_certification_shows_what_its_author_hides() -> None:
    verdict = certification.RequirementVerdict(number="SR-01", title="t", result="failed", detail=EVIL)
    report = certification.Certification(
        spec=certification.SPEC,
        stub=f"stub{EVIL}",
        version="1",
        sha256="0" * 64,
        kit="1",
        engine="e",
        made="now",
        fuel_per_message=1.0,
        cpu_us_per_message=1.0,
        memory_bytes=1,
        verdicts=[verdict],
    )
    page = certification.as_html(report).decode()
    assert page.replace("\n", "").isprintable()
    assert f"stub{escaped(EVIL)[:4]}" in page


_WRITES = frozenset({"typer.echo", "sys.stdout.write", "sys.stderr.write"})
_ESCAPES = frozenset(
    {
        *(
            "bill_text",
            "escaped",
            "escaped_json",
            "harmless",
            "rows_text",
            "tables_text",
            "statements_text",
            "totals_text",
        ),
        *("json.dumps", "json_library.dumps"),  # which write ASCII
    }
)
_OWN_TEXT = {
    "trapezoid/commands/keys.py": {"text"},  # a fingerprint
    "trapezoid/commands/lab.py": {"preparation", "lab", "first", "scene_path", "name"},  # of this machine
    "trapezoid/commands/matrix_runs.py": {"more"},  # a count
    "trapezoid/commands/node.py": {"page"},  # counts
    "trapezoid/commands/node_policies.py": {"shown"},  # escaped a line above
    "trapezoid/commands/program.py": {"page", "text", "finding"},  # ours, the operator's settings, a level
    "trapezoid/commands/stub_run.py": {"result", "line"},  # names of the author's cases; lines of `stubkit.trace`
    "trapezoid/commands/stub_tests.py": {"verdict"},  # number, result and title are ours
    "trapezoid/demo_records.py": {"msgspec", "facts"},  # of the demo
    "trapezoid/output.py": {"detail", "exc"},  # escaped a line above; a code of ours
    "trapezoid/peer_check/output.py": {"report", "result", "line"},  # a verdict of ours; lines are escaped one by one
    "trapezoid/serving.py": {"msgspec", "facts"},  # names and addresses of this node
    "interop/demo.py": {"msgspec", "summary"},  # of the demo
    "interop/hostile/trial.py": {"wrong"},  # an argument
    "pipeline/cli/analysts.py": {"sql", "out", "found", "count", "where"},  # our tables, paths, counts
    "pipeline/cli/program.py": {"out", "files", "table"},  # an argument, a count, whether one was given
    "pipeline/cli/runs.py": {"code"},  # a word of ours
}
"""Names in what is written without being escaped, by file, with the reason why nobody else has written them."""


def _unescaped(call: ast.Call) -> Iterator[str]:
    """Names that go into the text of a call and into no escaping function."""
    waiting: list[ast.AST] = list(call.args[:1])
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            yield node.id
        elif not isinstance(node, ast.Call):
            waiting += ast.iter_child_nodes(node)
        elif ast.unparse(node.func) not in _ESCAPES:
            owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            waiting += [*owner, *node.args]


def test_whatever_a_command_writes_is_escaped_or_its_own() -> None:
    root, found = Path(__file__).parents[2], dict[str, set[str]]()
    for file in (
        one for part in ("trapezoid", "interop", "stubkit", "pipeline") for one in (root / part).rglob("*.py")
    ):
        calls = [one for one in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(one, ast.Call)]
        names = {name for one in calls if ast.unparse(one.func) in _WRITES for name in _unescaped(one)}
        own = _OWN_TEXT.get(str(file.relative_to(root)), set())
        if more := names - own:
            found[str(file.relative_to(root))] = more
    assert found == {}
