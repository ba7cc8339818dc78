"""`trapezoid conformance` as people and programs call it: what it prints, what it writes, how it ends."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import trio
import trustme
from typer.testing import CliRunner, Result

from interop.conformance.cases import CASES
from interop.conformance.matching import Difference
from interop.conformance.model import Dialect
from interop.conformance.outcome import CaseVerdict, Outcome
from interop.conformance.report import group_findings
from interop.conformance.run import select
from trapezoid.commands import app

from .replicas import DOMAIN, Message, Replica, VertxReplica, as_it_is

GOOD = ("--domain", DOMAIN, "--profile", "reference", "--dialect", "a")


def conformance(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["conformance", *map(str, arguments)])


@contextmanager
def served(replica: Replica) -> Iterator[str]:
    """The replica in a thread of its own; gives its URL."""
    ports: list[int] = []
    is_ready = threading.Event()
    stops: list[tuple[trio.lowlevel.TrioToken, trio.CancelScope]] = []

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            ports.append(await nursery.start(replica.run))
            stops.append((trio.lowlevel.current_trio_token(), nursery.cancel_scope))
            is_ready.set()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    try:
        assert is_ready.wait(10)
        yield f"ws://127.0.0.1:{ports[0]}"
    finally:
        for token, scope in stops:
            token.run_sync_soon(scope.cancel)
        thread.join(10)


def spoiled(message: Message) -> list[str | bytes | None]:
    """Allocation answers with a text for a code, and characters that XML cannot hold."""
    if "allocated" in str(message):
        return [json.dumps({**message, "body": {**message["body"], "code": "\u0000\ud83d\u001b[2J200"}})]
    return as_it_is(message)


def test_a_node_without_findings_ends_with_0() -> None:
    with served(VertxReplica()) as url:
        done = conformance("--url", url, *GOOD)
    assert done.exit_code == 0, done.output
    assert f"{DOMAIN} at {url}, profile reference" in done.stdout
    assert "failed" not in done.stdout


def test_findings_end_with_1_and_say_rule_and_difference() -> None:
    with served(VertxReplica(spoiled)) as url:
        done = conformance("--url", url, *GOOD, "--only", "alloc-object", "--verbose")
    assert done.exit_code == 1, done.output
    assert "failed alloc-object[a]" in done.stdout
    assert "section 7.1 says: body.scheme names the scheme" in done.stdout
    assert "body.code: expected 200, got " in done.stdout
    assert "ana → " in done.stdout
    assert all(line.startswith(("failed ", "  ")) for line in done.stdout.split("\n\n")[0].strip().splitlines())
    assert "\u001b" not in done.stdout


def test_one_fault_in_several_dialects_is_shown_once() -> None:
    [case] = select(CASES, ["alloc-object"])
    difference = Difference("body.code", "200", "500")
    runs = [
        Outcome(case=case, dialect=dialect, verdict=CaseVerdict.FAILED, differences=(difference,), step=2)
        for dialect in (Dialect.A, Dialect.B)
    ]
    other = Outcome(case=case, dialect=Dialect.C, verdict=CaseVerdict.NO_ANSWER, problem="ana heard nothing", step=2)
    assert group_findings([*runs, other]) == [runs, [other]]


def test_json_has_every_run_and_the_conversation_of_findings() -> None:
    with served(VertxReplica(spoiled)) as url:
        done = conformance("--url", url, *GOOD, "--only", "alloc", "--json")
    facts: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == 1
    assert facts["counts"]["failed"] == sum(run["verdict"] == "failed" for run in facts["runs"]) > 0
    [run] = [run for run in facts["runs"] if run["case"] == "alloc-object"]
    assert [(entry["path"], entry["expected"]) for entry in run["differences"]] == [("body.code", "200")]
    assert run["conversation"]


def test_junit_is_xml_whatever_the_node_wrote(tmp_path: Path) -> None:
    with served(VertxReplica(spoiled)) as url:
        done = conformance("--url", url, *GOOD, "--junit", tmp_path / "report.xml")
    suite = ET.parse(tmp_path / "report.xml").getroot().find("testsuite")
    assert done.exit_code == 1
    assert suite is not None
    assert suite.get("name") == "dialect a"
    assert int(suite.get("failures", "0")) == len(suite.findall("testcase/failure")) > 0
    assert int(suite.get("tests", "0")) == len(suite.findall("testcase"))
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "the specification (section" in (failure.text or "")


def test_certificates_are_checked_unless_switched_off(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with served(VertxReplica(context=context)) as url:
        wanted = ("--url", url.replace("ws:", "wss:"), *GOOD, "--only", "session-opens")
        assert conformance(*wanted, "--ca", tmp_path / "ca.pem").exit_code == 0
        assert conformance(*wanted, "--insecure-dev").exit_code == 0
        refused = conformance(*wanted)
    assert refused.exit_code == 2
    assert "tls-failed" in refused.stderr


UNUSABLE: dict[str, tuple[tuple[str, ...], str]] = {
    "nobody-listens": (("--url", "ws://127.0.0.1:1", "--domain", DOMAIN), "connect-failed"),
    "no-url": ((), "--url wss://"),
    "no-such-scheme": (("--url", "ftp://127.0.0.1"), "not the URL of a node"),
    "no-such-port": (("--url", "ws://127.0.0.1:99999"), "connect-failed"),
    "no-such-case": (("--url", "ws://127.0.0.1:1", "--only", "no-such-thing"), "--list"),
    "no-such-authority": (("--url", "wss://127.0.0.1:1", "--ca", "/nowhere/ca.pem"), "/nowhere/ca.pem"),
    "no-domain": (("--url", "ws://127.0.0.1:1"), "--domain"),
    "no-place-for-the-report": (("--url", "ws://127.0.0.1:1", "--junit", "/nowhere/report.xml"), "/nowhere/report.xml"),
}


@pytest.mark.parametrize(("arguments", "words"), UNUSABLE.values(), ids=UNUSABLE)
def test_what_cannot_be_played_ends_with_2_and_says_what_to_do(arguments: tuple[str, ...], words: str) -> None:
    done = conformance(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_path_of_a_dialect_at_the_end_of_the_url_means_that_dialect() -> None:
    with served(VertxReplica()) as url:
        done = conformance(
            "--url", f"{url}/ws", "--domain", DOMAIN, "--profile", "reference", "--only", "sub", "--json"
        )
    facts = json.loads(done.stdout)
    assert facts["dialects"] == ["a"]
    assert facts["not_offered"] == {}


def test_cases_are_listed_without_a_node() -> None:
    listed = conformance("--list", "--only", "release")
    assert listed.exit_code == 0
    [line] = [line for line in listed.stdout.splitlines() if line.startswith("release-by-nested-list")]
    assert line.endswith(select(CASES, ["release-by-nested-list"])[0].says)
    cases = json.loads(conformance("--list", "--json").stdout)
    assert len(cases) > 400
    assert {"case", "section", "says", "dialects", "profiles"} == set(cases[0])
