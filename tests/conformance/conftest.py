"""One real node for the whole suite, and all selected runs against it at once: each test then looks at its own outcome.

That is how people run it (`trapezoid conformance`), and it costs seconds where one node for each test costs minutes.
"""

from __future__ import annotations

import hashlib
import json
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from interop.conformance.discover import discover
from interop.conformance.model import Case, Dialect, Profile
from interop.conformance.outcome import Outcome
from interop.conformance.run import run
from interop.conformance.stage import Node
from interop.conformance.wire import parse_target

DOMAIN = "a.example"
TOKEN = "a-token-of-the-suite"
PATIENCE_SECONDS = 5.0
LIMIT_SECONDS = 900.0
SETTINGS = f"""
[node]
domain = "{DOMAIN}"
data_dir = "data"
[listen]
port = 0
insecure_plaintext = true
[[sessions.credential]]
runtime = "runtime://{DOMAIN}/conformance-*"
token_sha256 = "{hashlib.sha256(TOKEN.encode()).hexdigest()}"
"""
Outcomes = dict[tuple[str, Dialect], Outcome]


LENIENT = """
[compat]
profile = "rethink"
"""


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Our node as a process of its own, as an operator starts it."""
    with _running(tmp_path_factory.mktemp("conformance"), SETTINGS) as made:
        yield made


@pytest.fixture(scope="session")
def lenient_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The same with the compatibility profile for existing runtimes."""
    with _running(tmp_path_factory.mktemp("lenient"), SETTINGS + LENIENT) as made:
        yield made


@contextmanager
def _running(folder: Path, settings: str) -> Iterator[Node]:
    (folder / "node.toml").write_text(settings)
    command = [sys.executable, "-m", "trapezoid", "serve", "--config", str(folder / "node.toml")]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as child,
    ):
        assert child.stdout is not None
        word, _, facts = child.stdout.readline().partition(" ")
        assert word == "ready", (folder / "log").read_text()
        target, _ = parse_target(json.loads(facts)["listen"].removesuffix("/ws"), ssl.create_default_context())
        yield Node(target=target, domain=DOMAIN, token=TOKEN, patience_seconds=PATIENCE_SECONDS)
        assert child.poll() is None, "the node ended during the suite"
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=30)
    assert "Traceback" not in Path(folder / "log").read_text()


@pytest.fixture(scope="session")
def outcomes(node: Node, request: pytest.FixtureRequest) -> Outcomes:
    """What came of the runs that the selected tests ask for."""
    return trio.run(_play, node, _wanted(request, "outcomes"), Profile.STRICT)


@pytest.fixture(scope="session")
def lenient_outcomes(lenient_node: Node, request: pytest.FixtureRequest) -> Outcomes:
    """The same for the node with the compatibility profile, by its own profile of the suite."""
    return trio.run(_play, lenient_node, _wanted(request, "lenient_outcomes"), Profile.RETHINK)


def _wanted(request: pytest.FixtureRequest, fixture: str) -> dict[Dialect, list[Case]]:
    """The runs that the selected tests with this fixture ask for."""
    wanted: dict[Dialect, list[Case]] = {}
    for item in request.session.items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        is_case = {"dialect", "case"} <= parameters.keys()  # other tests may have parameters of the fixture's name
        if is_case and fixture in getattr(item, "fixturenames", ()):
            wanted.setdefault(parameters["dialect"], []).append(parameters["case"])
    return wanted


async def _play(node: Node, wanted: dict[Dialect, list[Case]], profile: Profile) -> Outcomes:
    found: Outcomes = {}
    with trio.fail_after(LIMIT_SECONDS):
        for dialect, cases in wanted.items():
            discovery = await discover(node, [dialect], profile)
            report = await run(discovery, cases, profile)
            found |= {(outcome.case.id, outcome.dialect): outcome for outcome in report.outcomes}
    return found
