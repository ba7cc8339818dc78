"""The verifier in JavaScript, which shares nothing with ours, judges every document scenario as we do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from interop.partner.document_files import FOLDER

VERIFIER: Final = Path(__file__).parents[3] / "examples" / "document_verifier" / "verify.mjs"
INDEX: Final = json.loads((FOLDER / "index.json").read_text())
LIMIT_SECONDS: Final = 120.0
OLDEST_NODE: Final = 18


@pytest.fixture(scope="module")
def node() -> str:
    """The program, of a version that will do."""
    program = shutil.which("node")
    version = _output(program, "--version") if program else ""
    if program and int(version.lstrip("v").split(".")[0]) >= OLDEST_NODE:
        return program
    why = f"needs Node {OLDEST_NODE} or later, found {version.strip() or 'none'}: apt-get install -y nodejs"
    if os.environ.get("TRAPEZOID_REQUIRE_BROKER"):  # as CI sets it: there, no test is skipped for want of a program
        pytest.fail(why)
    pytest.skip(why)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS).stdout


def _write_changed(case: dict[str, str], number: int, change: dict[str, Any], folder: Path) -> None:
    """A folder with one case, of which one edition is changed."""
    editions = json.loads((FOLDER / case["file"]).read_text())["editions"]
    editions[number].update(change)
    (folder / "case.json").write_text(json.dumps({"editions": editions}))
    (folder / "index.json").write_text(json.dumps(INDEX | {"cases": [case | {"file": "case.json"}]}))


def test_every_scenario_is_judged_alike(node: str) -> None:
    rows = json.loads(_output(node, str(VERIFIER), str(FOLDER), "--json"))
    judged = {(row["id"], row["edition"]): row["verdict"] for row in rows}
    expected = {
        (case["id"], number): edition["verdict"]
        for case in INDEX["cases"]
        for number, edition in enumerate(json.loads((FOLDER / case["file"]).read_text())["editions"], 1)
    }
    assert judged == expected


def test_a_verdict_that_it_does_not_share_is_named(node: str, tmp_path: Path) -> None:
    [case] = [one for one in INDEX["cases"] if one["id"] == "live-rollback"]
    _write_changed(case, 2, {"verdict": "accepted"}, tmp_path)
    done = subprocess.run(
        [node, VERIFIER, tmp_path], capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
    )
    assert done.returncode == 1
    assert "live-rollback, edition 3: refused, expected accepted: an older live document" in done.stdout


def test_a_folder_without_documents_is_an_error_and_no_verdict(node: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [node, VERIFIER, tmp_path], capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
    )
    assert (done.returncode, done.stdout) == (2, "")
