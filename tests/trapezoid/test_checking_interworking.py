"""`trapezoid check` about interworking stubs: who is admitted, and whether their access tokens can be read."""

from __future__ import annotations

from pathlib import Path

from msg_node.settings.load import load_settings
from tests.msg_node.settings.test_interworking import SIP, settings_file
from trapezoid.checking import check_node
from trapezoid.findings import Finding

TOKEN = 'http = true\ntoken_file = "token"\ntoken_origins = ["https://api.legacy.example"]\n'


def finding(folder: Path, text: str) -> Finding | None:
    findings = check_node(load_settings(settings_file(folder, text)))
    return next((one for one in findings if one.part == "interworking"), None)


def test_admitted_stubs_are_listed_with_their_ranges(tmp_path: Path) -> None:
    found = finding(tmp_path, SIP + 'ranges = ["sip://legacy.example", "tel:*"]\n')
    assert found == Finding("interworking", is_good=True, text="sip.legacy.example for sip://legacy.example, tel:*")
    assert finding(tmp_path, "") is None


def test_token_that_cannot_be_read_is_reported_before_the_start(tmp_path: Path) -> None:
    missing = finding(tmp_path, SIP + TOKEN)
    token = tmp_path / "token"
    token.write_text("two words")
    token.chmod(0o600)
    malformed = finding(tmp_path, SIP + TOKEN)
    token.write_text("good\n")
    token.chmod(0o644)
    is_open = finding(tmp_path, SIP + TOKEN)
    token.chmod(0o600)
    good = finding(tmp_path, SIP + TOKEN)
    assert [one is not None and one.is_good for one in (missing, malformed, is_open, good)] == [
        False,
        False,
        False,
        True,
    ]
    assert is_open is not None
    assert "chmod 600" in is_open.text
