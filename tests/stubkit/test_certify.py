"""Certification: good stubs pass, each kind of bad one fails its requirement, reports name their module."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from protofly.errors import Code, PeerError
from stubkit.build import build
from stubkit.cases import load_script
from stubkit.certification import (
    NUMBERS,
    REPORT_BYTES,
    Certification,
    RequirementVerdict,
    as_html,
    as_junit,
    decoded,
    encoded,
    report_path,
)
from stubkit.certify import bench, certify, fuzz_module
from stubkit.keys import make_keys
from stubkit.live_stub import StubUnderTest
from stubkit.requirements import REQUIREMENTS, judge
from stubkit.sandboxed import compiled_stub, read_module
from stubkit.scripted_run import play_script
from trapezoid.commands import app

STUBS = Path(__file__).parents[2] / "examples" / "stubs"
LINES = STUBS / "line_translator" / "line_translator.wasm"
CASES = LINES.with_name("cases.json")
REPORT = Certification(
    spec="rmn-stub-certification/1",
    stub="x<script>",
    version="1",
    sha256="ab" * 32,
    kit="1",
    engine="e",
    made="2026-11-23T00:00:00+00:00",
    verdicts=[RequirementVerdict(number="SR-01", title="Is", result="failed", detail="a \x1b[0m <b>")],
)
CASE = """{"live": {"case": "live", "accept": {"event": "data", "channel": 1, "text": "{number}"},
 "deliver": {"event": "data", "channel": 2, "text": "{message}"}}, "cases": [{"name": "live", "steps": [
 {"give": {"event": "auth_token", "channel": 1, "is_granted": true, "text": "secret-token"}},
 {"give": {"event": "opened", "channel": 1}, "want": [{"action": "status", "text": "live"}], "more": true}]}]}"""
GOOD = """#define STUB_NAME "tried"
#define STUB_VERSION "1"
#include "trapezoid_stub.h"
static uint32_t sent;
static stub_bytes first __attribute__((unused));
static void open_line(void) { stub_act(STUB_ACT_OPEN, STUB_TCP_TLS, 1, STUB_TEXT("{\\"endpoint\\":\\"mn\\"}")); }
static void stub_on_event(const stub_event *event) {
    uint32_t number;
    switch (event->op) {
    case STUB_START: stub_status(STUB_TEXT("created")); open_line(); break;
    case STUB_OPENED: stub_status(STUB_TEXT("live")); break;
    case STUB_MESSAGE: stub_send(1, false, event->bytes); sent = event->arg; break;
    case STUB_DATA:
        if (event->arg == 2 && stub_json_member(event->bytes, STUB_TEXT("id")).size) stub_deliver(0, event->bytes);
        else if (stub_read_decimal(event->bytes, &number) && number <= sent) stub_accepted(number);
        break;
    case STUB_CLOSED: stub_status(STUB_TEXT("disconnected")); stub_set_timer(1, 5000); break;
    case STUB_TIMER: open_line(); break;
    case STUB_DRAIN: stub_close(1); break;
    }
}
"""


def built(folder: Path, old: str = "", new: str = "") -> Path:
    assert old in GOOD
    source = folder / "tried.c"
    source.write_text(GOOD.replace(old, new) if old else GOOD)
    build(source, source.with_suffix(".wasm"))
    (folder / "cases.json").write_text(CASE)
    return source.with_suffix(".wasm")


def failures(module: Path) -> dict[str, str]:
    report = certify(
        module, load_script(module.with_name("cases.json")), kit="t", made="now", progress=lambda _verdict: None
    )
    return {one.number: one.detail for one in report.verdicts if one.result != "passed"}


def test_example_is_certified_by_the_command_with_a_signed_report_beside_it(tmp_path: Path) -> None:
    module = tmp_path / "line.wasm"
    module.write_bytes(LINES.read_bytes())
    runner = CliRunner()
    assert runner.invoke(app, ["keys", "init", "b.example", "--keys", str(tmp_path / "keys")]).exit_code == 0
    done = runner.invoke(
        app,
        f"stub certify {module} --script {CASES} --keys {tmp_path}/keys --junit {tmp_path}/r.xml"
        f" --html {tmp_path}/r.html --json",
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["good"]
    assert b'failures="0"' in (tmp_path / "r.xml").read_bytes()
    assert b"certified: 18 passed" in (tmp_path / "r.html").read_bytes()
    envelope = report_path(module).read_bytes()
    assert b'"keyid":"pkg-' in envelope
    published = runner.invoke(
        app,
        f"publish b.example {module} --endpoint lines --json --keys {tmp_path}/keys --site {tmp_path}/site",
    )
    assert json.loads(published.output)["certification"] == "certified: 18 passed"
    assert (tmp_path / "site" / "certification" / "line-translator.json").read_bytes() == envelope


@pytest.mark.long
def test_our_own_link_stub_meets_every_requirement() -> None:
    link = STUBS / "trapezoid_link"
    report = certify(
        link / "link.wasm", load_script(link / "cases.json"), kit="t", made="now", progress=lambda _verdict: None
    )
    assert report.summary == "certified: 18 passed"


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "number", "said"),
    [
        ('stub_status(STUB_TEXT("live"));', 'stub_status(STUB_TEXT("in-progress"));', "SR-02", "wanted status"),
        ("stub_close(1)", 'stub_status(STUB_TEXT("asleep"))', "SR-03", "unknown state"),
        ("stub_set_timer(1, 5000)", "open_line()", "SR-08", "in the same moment"),
        ("stub_set_timer(1, 5000)", "stub_set_timer(1, 10)", "SR-08", "3,601 attempts within 360 s"),
        ("case STUB_MESSAGE:", "case STUB_MESSAGE: if (event->arg == 99) break;", "SR-10", "message 99 does not leave"),
        (
            "case STUB_MESSAGE:",
            "case STUB_MESSAGE: if (event->arg == 1) { first = event->bytes; break; }"
            "if (event->arg == 3) stub_send(1, false, first);",
            "SR-10",
            "another order",
        ),
        ("case STUB_TIMER: open_line(); break;", "", "SR-07", "has not opened another one"),
        ("stub_close(1)", "(void)0", "SR-16", "channels [1] are open"),
        ("case STUB_DATA:", "case STUB_ADDRESSES: __builtin_trap(); case STUB_DATA:", "SR-06", "stub-trapped"),
        ("sent = event->arg;", "sent = event->arg; stub_accepted(sent);", "SR-11", "before the far end has them"),
        ("sent = event->arg;", "sent = event->arg; stub_accepted(sent + 100);", "SR-11", "which never came"),
        ("sent = event->arg;", "sent = event->arg; __builtin_wasm_memory_grow(0, sent % 2000 == 0);", "SR-13", "grew"),
        ("sent = event->arg;", "if (sent++ > 5000) __builtin_trap();", "SR-12", "stub-trapped"),
        ("sent = event->arg;", "if (event->bytes.size > 90000) __builtin_trap();", "SR-14", "stub-trapped"),
        ("case STUB_DATA:", "case STUB_DATA: if (event->bytes.size == 300) __builtin_trap();", "SR-15", "stub-trapped"),
        (
            "case STUB_START:",
            "case STUB_AUTH_TOKEN: stub_log(1, event->bytes); break; case STUB_START:",
            "SR-17",
            "a token stands",
        ),
        (
            "case STUB_START:",
            "case STUB_AUTH_TOKEN: if (event->bytes.size > 20) stub_log(1, event->bytes); break; case STUB_START:",
            "SR-17",
            "did not ask for",
        ),
        ('stub_status(STUB_TEXT("live"));', 'stub_status(STUB_TEXT("in-progress"));', "SR-09", "wanted status"),
        ("stub_deliver(0, event->bytes);", "(void)0;", "SR-18", "0 of 16 messages"),
        (
            "case STUB_CLOSED:",
            "case STUB_CLOSED: for (uint32_t i = 0; i < 200000; i++) sent ^= i * sent;",
            "SR-04",
            "%",
        ),
    ],
)
async def test_stub_that_breaks_a_requirement_fails_it(
    old: str, new: str, number: str, said: str, tmp_path: Path
) -> None:
    module = built(tmp_path, old, new)
    [requirement] = [one for one in REQUIREMENTS if one.number == number]
    async with compiled_stub(read_module(module)) as compiled:
        verdict = await judge(requirement, StubUnderTest(compiled, load_script(module.with_name("cases.json"))))
    assert verdict.result == "failed"
    assert said in verdict.detail


def test_module_that_no_host_accepts_is_certified_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.wasm").write_bytes(b"\0asm\x01\0\0\0")
    (tmp_path / "cases.json").write_text(CASE)
    assert list(failures(tmp_path / "x.wasm")) == ["SR-01"]


def test_finding_of_the_fuzzer_is_repeated_by_its_seed_and_by_its_script(tmp_path: Path) -> None:
    module = built(tmp_path, "case STUB_DATA:", "case STUB_DATA: if (event->bytes.size == 0) __builtin_trap();")
    script = load_script(tmp_path / "cases.json")
    first, again = (fuzz_module(module, script, calls=2000, seed=5) for _ in range(2))
    assert first == again
    assert first.problem.startswith("stub-trapped")
    saved = tmp_path / "finding.json"
    arguments = ["stub", "fuzz", str(module), "--script", str(tmp_path / "cases.json"), "--seed", "5"]
    done = CliRunner().invoke(app, [*arguments, "--calls", "2000", "--save", str(saved)])
    assert done.exit_code == 1
    results = play_script(module, load_script(saved))
    assert "stub-trapped" in results[-1].problem


def test_bench_counts_every_message_and_memory_stays_flat() -> None:
    rate = bench(LINES, load_script(CASES), messages=2000, batch=16)
    assert rate.messages == 2000
    assert 0 < rate.fuel < 20_000
    assert rate.memory_bytes == rate.first_memory_bytes


def test_report_that_leaves_a_requirement_out_certifies_nothing() -> None:
    verdicts = [RequirementVerdict(number=number, title="t", result="passed", detail="") for number in sorted(NUMBERS)]
    assert {"SR-01", *(one.number for one in REQUIREMENTS)} == NUMBERS
    assert msgspec.structs.replace(REPORT, verdicts=verdicts).summary == "certified: 18 passed"
    for some in ([], verdicts[1:], [verdicts[0]] * 18):
        report, _ = decoded(encoded(msgspec.structs.replace(REPORT, verdicts=some)))
        assert not report.is_good
        assert report.summary.startswith("NOT certified")
        assert "missing" in report.summary


def test_signature_holds_for_its_own_keys_and_for_no_others() -> None:
    keys, others = make_keys(), make_keys()
    raw = encoded(REPORT, keys.pkg)
    assert decoded(raw, {key.key_id: key.record() for key in keys.pkg}) == (REPORT, True)
    assert decoded(raw, {key.key_id: key.record() for key in others.pkg}) == (REPORT, False)
    assert decoded(raw) == (REPORT, False)
    assert decoded(encoded(REPORT), {key.key_id: key.record() for key in keys.pkg}) == (REPORT, False)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"[" * 40_000,
        b'{"payloadType":1}',
        b'{"spec":"x"}',
        b"\xff",
        encoded(REPORT).replace(b"failed", b"superb"),
        encoded(REPORT).replace(b"+00:00", b"0" * 101),
        b"x" * (REPORT_BYTES + 1),
    ],
)
def test_any_other_text_is_no_report(raw: bytes) -> None:
    with pytest.raises(PeerError) as caught:
        decoded(raw)
    assert caught.value.code in {Code.DOCUMENT_MALFORMED, Code.ENVELOPE_MALFORMED, Code.DOCUMENT_TOO_LARGE}


def test_pages_and_junit_hold_foreign_text_without_obeying_it() -> None:
    page, junit = as_html(REPORT).decode(), as_junit(REPORT).decode()
    assert "<script>" not in page
    assert "NOT certified: 1 failed, 17 missing" in page
    assert "\x1b" not in junit
    assert 'failures="1"' in junit


def test_the_page_permits_its_own_style_and_nothing_else_and_says_what_was_not_measured() -> None:
    page = as_html(REPORT).decode()
    style = page.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in page
    assert "prefers-color-scheme: dark" in style
    unmeasured = msgspec.structs.replace(REPORT, fuel_per_message=0.0, memory_bytes=0)
    assert as_html(unmeasured).decode().count("not measured") == 2
