"""Cases of authors: what fits a wanted answer, and how a script is played in a real sandbox."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from protofly.errors import SettingsError
from sandbox.core.exchange import Action, GuestAction
from stubkit.build import build
from stubkit.cases import StubCaseStep, difference, load_script
from stubkit.record_facts import action_facts, event_facts, event_of
from stubkit.scripted_run import CaseResult, StepResult, play_script
from stubkit.virtual_host import BEGINS_MS
from trapezoid.commands import app

STUBS = Path(__file__).parents[2] / "examples" / "stubs"
LINES = STUBS / "line_translator" / "line_translator.wasm"
SEND = GuestAction(Action.SEND, 1, b"PONG", 1)
LOG = GuestAction(Action.LOG, 1, b"note")


def written(folder: Path, *steps: Any, **members: Any) -> Path:
    path = folder / "cases.json"
    path.write_text(json.dumps({"cases": [{"name": "one", "steps": steps}], **members}))
    return path


@pytest.mark.parametrize(
    ("want", "more", "actions", "problem"),
    [
        ([{"action": "send", "text": "PONG"}], False, [SEND], ""),
        ([{"action": "send", "hex": "504f4e47"}], False, [LOG, SEND], ""),
        ([{"action": "send", "match": "P.*"}, {"action": "log", "level": "info"}], False, [SEND, LOG], ""),
        (
            [{"action": "send", "text": "PING"}],
            False,
            [SEND],
            "wanted send PING; got send channel 1 text PONG",
        ),
        ([{"action": "send", "channel": 2}], False, [SEND], "wanted send channel 2; got"),
        ([{"action": "send"}], False, [], "wanted send; the answer ends"),
        ([], False, [SEND], "nothing more was wanted; got send"),
        ([], True, [SEND], ""),
        ([{"action": "log"}], True, [SEND, LOG], ""),
        ([{"action": "log"}, {"action": "send"}], True, [SEND, LOG], "wanted send"),
        ([{"action": "send", "json": {}}], False, [SEND], "wanted send {}"),
        (None, False, [SEND], ""),
    ],
)
def test_answer_is_compared_with_what_is_wanted(
    want: list[dict[str, Any]] | None, more: bool, actions: list[GuestAction], problem: str
) -> None:
    found = difference(StubCaseStep(give={"event": "drain"}, want=want, more=more), actions)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


@pytest.mark.parametrize(
    "facts",
    [
        {"event": "message", "number": 7, "text": "{}"},
        {"event": "data", "channel": 3, "is_text": True, "text": "é"},
        {"event": "data", "channel": 3, "is_text": False, "hex": "ff00"},
        {"event": "auth_token", "channel": 1, "is_granted": True, "text": "t"},
        {"event": "peer_verified", "channel": 1, "is_verified": False, "text": "auth-nonce"},
        {"event": "timer", "timer": 4_294_967_295},
        {"event": "addresses", "is_snapshot": True, "text": "+hyperty://a.example/1\n"},
        {"event": "drain"},
    ],
)
def test_event_is_the_same_after_it_was_written_and_read(facts: dict[str, Any]) -> None:
    assert event_facts(event_of(facts)) == facts


def test_timer_and_open_are_shown_by_their_own_members() -> None:
    assert action_facts(GuestAction(Action.SET_TIMER, 2, (1500).to_bytes(4, "little"))) == {
        "action": "set_timer",
        "timer": 2,
        "ms": 1500,
    }
    assert action_facts(GuestAction(Action.OPEN, 1, b"{}", 2))["kind"] == "tcp-tls"
    assert action_facts(GuestAction(Action.OPEN, 1, b"{}", 99))["kind"] == 99


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ({}, "either `give` or `wait_ms`"),
        ({"give": {"event": "drain"}, "wait_ms": 1}, "either `give` or `wait_ms`"),
        ({"wait_ms": -1}, "either `give` or `wait_ms`"),
        ({"give": {"event": "dran"}}, "no such event: 'dran'"),
        ({"give": {"event": "data", "chanel": 1}}, "unknown member 'chanel'"),
        ({"give": {"event": "data", "channel": "x"}}, "channel must be a number"),
        ({"give": {"event": "data", "text": "a", "hex": "00"}}, "text and hex in one record"),
        ({"give": {"event": "data", "hex": "0g"}}, "non-hexadecimal"),
        ({"give": {"event": "drain"}, "want": [{"text": "x"}]}, "has no `action`"),
        ({"give": {"event": "drain"}, "want": [{"action": "sendd"}]}, "no such action: 'sendd'; known: open, send, "),
        ({"give": {"event": "drain"}, "want": "live"}, "Expected a list or nothing, got a text - at `$.cases[0]"),
        ({"give": {"event": "drain"}, "want": [{"action": "send", "match": "("}]}, "match:"),
        ({"give": {"event": "drain"}, "wants": []}, "unknown field `wants`"),
    ],
)
def test_step_that_says_nothing_sensible_is_refused_with_its_place(
    step: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=r"cases\.json") as caught:
        load_script(written(tmp_path, step))
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("cases", "more", "problem"),
    [
        (({"name": "a", "after": "b"},), {}, "there is no case 'b'; there are 'a'"),
        (({"name": "a", "after": "b"}, {"name": "b", "after": "a"}), {}, "case 'a' comes after itself"),
        (({"name": "a"}, {"name": "a"}), {}, "case 'a' is there twice"),
        (({"name": "a"},), {"live": {"case": "b"}}, "there is no case 'b'; there are 'a'"),
    ],
)
def test_cases_that_name_none_are_refused_with_those_that_there_are(
    cases: tuple[dict[str, Any], ...], more: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "cases.json"
    drained = [{"give": {"event": "drain"}}]
    file.write_text(json.dumps({"cases": [one | {"steps": drained} for one in cases], **more}))
    with pytest.raises(SettingsError, match=r"cases\.json") as caught:
        load_script(file)
    assert problem in caught.value.detail


def test_what_goes_wrong_in_the_case_before_has_no_number_of_a_step() -> None:
    step = StepResult(number=-5, calls=1, actions=0, fuel=1, cpu_us=1, memory_bytes=1, problem="wanted send")
    assert CaseResult(name="b", steps=(step,), seconds=0).problem == "before step 1: wanted send"


def test_cases_of_an_example_are_played_with_time_that_only_steps_pass() -> None:
    results = play_script(LINES, load_script(LINES.parent / "cases.json"))
    assert [result.problem for result in results] == ["", "", ""]
    assert all(step.fuel > 0 for result in results for step in result.steps if step.calls)


def test_case_runs_the_same_every_time_and_ends_at_its_first_problem(tmp_path: Path) -> None:
    source = tmp_path / "clock.c"
    source.write_text(
        """#define STUB_NAME "clock"
#define STUB_VERSION "1"
#include "trapezoid_stub.h"
static void stub_on_event(const stub_event *event) {
    if (event->op == STUB_START) { stub_status(STUB_TEXT("live")); stub_set_timer(1, 250); return; }
    if (event->op == STUB_MESSAGE) __builtin_trap();
    if (!stub_begin(STUB_ACT_LOG, 0, 1)) return;
    stub_put_decimal((uint32_t)(stub_now_ms() % 1000000000u));
    stub_put(STUB_TEXT(" "));
    stub_put_decimal(stub_random_u32());
    stub_end();
    stub_set_timer(1, 250);
}
"""
    )
    module = tmp_path / "clock.wasm"
    build(source, module)
    now = BEGINS_MS % 1_000_000_000
    ticks = [{"action": "log", "match": rf"{now + ms} \d+"} for ms in (250, 500, 750)]
    script = load_script(
        written(
            tmp_path,
            {"wait_ms": 999, "want": ticks, "more": True, "fuel": 100_000},
            {"wait_ms": 1, "want": [{"action": "log", "match": f"{now + 1000} .*"}], "more": True},
            {"give": {"event": "message", "number": 1, "text": "{}"}},
            {"give": {"event": "drain"}},
        )
    )
    [first], [again] = play_script(module, script), play_script(module, script)
    assert first.problem.startswith("step 3: stub-trapped: unreachable")
    assert [step.number for step in first.steps] == [0, 1, 2, 3]
    assert [step.calls for step in first.steps] == [1, 3, 1, 1]
    assert [entry["actions"] for entry in first.trace] == [entry["actions"] for entry in again.trace]


def test_step_that_costs_more_than_it_may_is_a_problem(tmp_path: Path) -> None:
    script = load_script(written(tmp_path, {"give": {"event": "drain"}, "fuel": 1}, endpoints=["lines"]))
    [result] = play_script(LINES, script)
    assert result.problem.startswith("step 1: fuel ")


def test_command_prints_costs_writes_junit_and_exits_with_one_for_a_failed_case(tmp_path: Path) -> None:
    script = written(tmp_path, {"give": {"event": "drain"}, "want": [{"action": "send"}]}, endpoints=["lines"])
    junit = tmp_path / "report.xml"
    good = CliRunner().invoke(app, ["stub", "run", str(LINES), "--script", str(LINES.parent / "cases.json"), "--trace"])
    assert good.exit_code == 0, good.output
    assert "→ message       number 1" in good.output
    bad = CliRunner().invoke(app, ["stub", "run", str(LINES), "--script", str(script), "--junit", str(junit), "--json"])
    assert bad.exit_code == 1
    assert json.loads(bad.output)["cases"][0]["problem"].startswith("step 1: wanted send")
    assert '<failure message="step 1: wanted send' in junit.read_text()
