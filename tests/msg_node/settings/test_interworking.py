"""Settings of interworking stubs: what is refused, and what a stub is granted."""

from __future__ import annotations

from pathlib import Path

import pytest

from msg_node.settings.interworking import build_interworking
from msg_node.settings.load import load_settings
from protofly.errors import SettingsError

SMALLEST = """
[node]
domain = "a.example"
data_dir = "data"
[listen]
insecure_plaintext = true
[[peer]]
domain = "sip.legacy.example"
[[peer]]
domain = "gw.other.example"
"""
SIP = '[[interworking]]\ndomain = "sip.legacy.example"\n'
GATEWAY = '[[interworking]]\ndomain = "gw.other.example"\n'


def settings_file(folder: Path, text: str) -> Path:
    path = folder / "node.toml"
    path.write_text(SMALLEST + text, encoding="utf-8")
    return path


def test_without_an_entry_no_stub_may_interwork(tmp_path: Path) -> None:
    made = build_interworking(load_settings(settings_file(tmp_path, "")))
    assert made.domains == ()
    assert made.admission("sip.legacy.example") is None


def test_domain_of_a_stub_names_its_range_where_none_is_written(tmp_path: Path) -> None:
    made = build_interworking(load_settings(settings_file(tmp_path, SIP)))
    assert made.domains == ("sip.legacy.example",)
    admission = made.admission("sip.legacy.example")
    assert admission is not None
    assert ([str(one) for one in admission.ranges], admission.allows_http) == (["sip://legacy.example"], False)


def test_granted_ranges_and_http_reach_the_stub(tmp_path: Path) -> None:
    text = GATEWAY + 'ranges = ["tel:+4930*", "sip://other.example"]\nhttp = true\n'
    made = build_interworking(load_settings(settings_file(tmp_path, SIP + text)))
    admission = made.admission("gw.other.example")
    assert admission is not None
    assert ([str(one) for one in admission.ranges], admission.allows_http) == (
        ["tel:+4930*", "sip://other.example"],
        True,
    )
    assert made.granted_to("tel:+49301") == "gw.other.example"
    assert made.granted_to("sip://bo@legacy.example") == "sip.legacy.example"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (SIP + SIP, "a second entry"),
        ('[[interworking]]\ndomain = "sip.nobody.example"\n', "needs a [[peer]] entry"),
        (SIP + 'ranges = ["sip://legacy.example/"]\n', "not a range"),
        (SIP + 'ranges = ["user://legacy.example"]\n', "no legacy's"),
        (SIP + 'ranges = ["sip://a.example"]\n', "of our own domain"),
        (SIP + 'ranges = ["tel:+49*"]\n' + GATEWAY + 'ranges = ["tel:+4930*"]\n', "overlaps tel:+49* of sip.legacy"),
        (SIP + GATEWAY + 'ranges = ["sip://legacy.example"]\n', "overlaps sip://legacy.example"),
        (
            SIP + '[[allocation.pool]]\nscheme = "sip"\naddresses = ["sip://7@legacy.example"]\n',
            "addresses of an allocation pool",
        ),
        (SIP + "range = []\n", "did you mean `ranges`"),
    ],
)
def test_entry_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(settings_file(tmp_path, text))
    assert complaint in caught.value.detail
