"""The trial of a stub, in a real sandbox, and the rules it applies."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from protofly.errors import SettingsError
from sandbox.core.exchange import Action, GuestAction
from sandbox.host import Sandbox
from stubkit.build import build
from stubkit.check import CheckReport, check, check_stub
from stubkit.complaints import complaints_about

STUBS = Path(__file__).parents[2] / "examples" / "stubs"
GRANTED = frozenset({"mn"})

BAD_STUB = """
#define STUB_NAME "bad"
#define STUB_VERSION "0.1"
#include "trapezoid_stub.h"
volatile uint32_t zero;
static void stub_on_event(const stub_event *event) {{ {body} }}
"""


@pytest.mark.parametrize(
    ("name", "endpoint"),
    [("trapezoid_link/link", "mn"), ("echo/echo", "mn"), ("line_translator/line_translator", "lines")],
)
async def test_example_stub_keeps_the_contract(name: str, endpoint: str) -> None:
    report = await check_stub(STUBS / f"{name}.wasm", endpoints=[endpoint])
    assert report.is_good, report
    assert report.facts is not None
    assert report.module_bytes > 0
    assert report.compiled_bytes > 0
    assert {"start", "burst of messages", "message of 1 MiB", "drain"} <= {step.name for step in report.steps}
    assert max(step.fuel_share for step in report.steps) < 0.05
    assert max(step.memory_bytes for step in report.steps) < 16 << 20


def test_check_without_an_event_loop_gives_the_same_report() -> None:
    assert check(STUBS / "echo" / "echo.wasm").is_good


async def trial_of(body: str, folder: Path) -> CheckReport:
    source = folder / "bad.c"
    source.write_text(BAD_STUB.format(body=body))
    build(source, folder / "bad.wasm")
    return await check_stub(folder / "bad.wasm")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("if (event->op == STUB_MESSAGE) for (;;) zero++;", "stub-out-of-fuel"),
        ("if (event->op == STUB_MESSAGE) __builtin_trap();", "stub-trapped"),
        ("for (int i = 0; i < 100; i++) stub_log(1, event->bytes);", "stub-output"),
        ("(void)event;", "`start` was not answered with a status"),
        ('stub_status(STUB_TEXT("lively"));(void)event;', "unknown state"),
        ('stub_status(STUB_TEXT("live"));stub_deliver(0, event->bytes);', "delivers something that is no message"),
    ],
)
async def test_stub_that_breaks_the_contract_is_reported_with_the_place(
    body: str, complaint: str, tmp_path: Path
) -> None:
    report = await trial_of(body, tmp_path)
    assert not report.is_good
    assert complaint in "; ".join(step.complaint for step in report.steps)


OPENS = r'stub_act(STUB_ACT_OPEN, STUB_WEBSOCKET, 1, STUB_TEXT("{\"endpoint\":\"mn\"}"));'


@pytest.mark.parametrize(
    ("body", "step", "complaint"),
    [
        (f'if (event->op == STUB_START) {{ {OPENS} stub_status(STUB_TEXT("live")); }}', "start", "says `live`"),
        (
            f'if (event->op == STUB_START) {{ {OPENS} stub_status(STUB_TEXT("created")); }}'
            f'if (event->op == STUB_CLOSED) {{ {OPENS} stub_status(STUB_TEXT("live")); }}',
            "refusal of every channel",
            "says `live`",
        ),
        (
            f'if (event->op == STUB_START) {{ {OPENS} stub_status(STUB_TEXT("created")); }}'
            'if (event->op == STUB_OPENED) stub_status(STUB_TEXT("live"));'
            f"if (event->op == STUB_CLOSED) {{ {OPENS} }}",
            "loss of every channel",
            "says `live`",
        ),
        (
            f'if (event->op == STUB_START) {{ {OPENS} stub_status(STUB_TEXT("created")); }}'
            'if (event->op == STUB_CLOSED) stub_status(STUB_TEXT("disconnected"));',
            "refusal of every channel",
            "would never be live again",
        ),
    ],
)
async def test_state_that_does_not_follow_the_channels_is_reported(
    body: str, step: str, complaint: str, tmp_path: Path
) -> None:
    report = await trial_of(body, tmp_path)
    found = [one for one in report.steps if one.complaint]
    assert (found[0].name, complaint in found[0].complaint) == (step, True)


async def test_states_that_follow_the_channels_are_shown_with_each_step(tmp_path: Path) -> None:
    report = await trial_of(
        f'if (event->op == STUB_START) {{ {OPENS} stub_status(STUB_TEXT("created")); }}'
        'if (event->op == STUB_OPENED) stub_status(STUB_TEXT("live"));'
        f'if (event->op == STUB_CLOSED) {{ {OPENS} stub_status(STUB_TEXT("disconnected")); }}',
        tmp_path,
    )
    assert report.is_good, report
    states = {step.name: step.state for step in report.steps}
    assert states["start"] == "created"
    assert states["refusal of every channel"] == states["loss of every channel"] == "disconnected"
    assert states["opened, empty subprotocol"] == states["opened, unexpected subprotocol"] == "live"


async def test_script_ends_with_the_fault(tmp_path: Path) -> None:
    report = await trial_of("if (event->op == STUB_MESSAGE) __builtin_trap();", tmp_path)
    assert [step.name for step in report.steps][-1] == "message before live"


async def test_module_that_the_gate_refuses_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "x.wasm"
    path.write_bytes(b"\0asm\x01\0\0\0")
    report = await check_stub(path)
    assert (report.is_good, report.facts, report.steps) == (False, None, ())
    assert "abi-unsupported" in report.refusal


async def test_machine_without_sandbox_gives_one_plain_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, task_status: object) -> None:
        await trio.lowlevel.checkpoint()
        raise SettingsError("the sandbox does not start: no seccomp")

    monkeypatch.setattr(Sandbox, "run", fail)
    with pytest.raises(SettingsError, match="no seccomp"):
        await check_stub(STUBS / "echo" / "echo.wasm")


async def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nothing\.wasm"):
        await check_stub(tmp_path / "nothing.wasm")


@pytest.mark.parametrize(
    ("action", "complaint"),
    [
        (GuestAction(Action.OPEN, 0, b"{}", 1), "channel 0"),
        (GuestAction(Action.SEND, 65_536, b""), "channel 65536"),
        (GuestAction(Action.OPEN, 1, b"{}", 1), "cannot be read: Object missing"),
        (GuestAction(Action.OPEN, 1, b"[" * 50_000, 1), "cannot be read"),
        (GuestAction(Action.OPEN, 1, b'{"endpoint":"mn"}', 9), "kind of channel 9"),
        (GuestAction(Action.OPEN, 1, b'{"endpoint":"db"}', 1), "not granted"),
        (GuestAction(Action.OPEN, 1, b'{"endpoint":"mn","headers":{"Host":"x"}}', 1), "header 'Host'"),
        (GuestAction(Action.OPEN, 1, b'{"endpoint":"mn","path":"//x y"}', 1), "path"),
        (GuestAction(Action.OPEN, 1, b'{"endpoint":"mn","method":"GET"}', 1), "belong to http"),
        (GuestAction(Action.OPEN, 1, b'{"endpoint":"mn","method":"TRACE"}', 3), "cannot be read"),
        (GuestAction(Action.SET_TIMER, 1, b"abc"), "delay"),
        (GuestAction(Action.REQUEST_AUTH_TOKEN, 1, b"short"), "challenge of 5 bytes"),
        (GuestAction(Action.VERIFY_PEER, 1, b""), "token of 0 bytes"),
        (GuestAction(Action.STATUS, 0, b"alive"), "unknown state"),
        (GuestAction(Action.REFUSED, 1, b"no"), "a refusal is"),
        (GuestAction(Action.REFUSED, 1, b"abc word"), "a refusal is"),
        (GuestAction(Action.LOG, 4, b"x"), "log line"),
        (GuestAction(Action.DELIVER, 0, b"[]"), "no message"),
        (GuestAction(Action.DELIVER, 0, b'{"a":"\xff"}'), "no message"),
    ],
)
def test_action_that_no_host_could_carry_out_is_named(action: GuestAction, complaint: str) -> None:
    (said,) = complaints_about([action, action], GRANTED)
    assert complaint in said


def test_ordinary_actions_are_not_complained_about() -> None:
    actions = [
        GuestAction(Action.OPEN, 1, b'{"endpoint":"mn","path":"/x","headers":{"a":"b"},"subprotocol":""}', 2),
        GuestAction(Action.SEND, 65_535, b"", 1),
        GuestAction(Action.CLOSE, 1, b"bye"),
        GuestAction(Action.DELIVER, 7, b'{"type":"ping"}'),
        GuestAction(Action.SET_TIMER, 1, bytes(4)),
        GuestAction(Action.REQUEST_AUTH_TOKEN, 1, bytes(32)),
        GuestAction(Action.VERIFY_PEER, 1, b"a.b.c"),
        GuestAction(Action.ACCEPTED, 1, b""),
        GuestAction(Action.REFUSED, 1, b"404 no-route nobody"),
        GuestAction(Action.STATUS, 0, b"disconnected link-lost"),
        GuestAction(Action.LOG, 3, b"x"),
        GuestAction(Action.PEER_STREAM, 0, b"ab"),
    ]
    assert complaints_about(actions, GRANTED, is_first=True) == []
