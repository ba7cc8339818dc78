"""Settings of addresses, subscriptions and routing: what is refused, and what reaches the cores."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from msg_node.kernel.rules import Rules
from msg_node.settings.addresses import build_pools, build_rules
from msg_node.settings.load import load_settings
from msg_node.settings.model import Settings
from msg_node.settings.weakenings import insecure_switches
from protofly.errors import SettingsError

SMALLEST = """
[node]
domain = "a.example"
data_dir = "data"
[listen]
insecure_plaintext = true
"""


def load(folder: Path, text: str) -> Settings:
    path = folder / "node.toml"
    path.write_text(SMALLEST + textwrap.dedent(text), encoding="utf-8")
    return load_settings(path)


def test_without_a_word_the_rules_are_those_of_the_specification(tmp_path: Path) -> None:
    settings = load(tmp_path, "")
    assert build_rules(settings) == Rules()
    assert build_pools(settings) == {}


def test_every_switch_reaches_the_rules(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        """
        [allocation]
        strict_release = false
        [subscriptions]
        require_consent = true
        [routing]
        learn = false
        users = true
        reporter_only = false
        [compat]
        sm_error = 500
        echo = true
        return_by_address = true
        """,
    )
    assert build_rules(settings) == Rules(
        learns=False,
        resolves_users=True,
        echoes=True,
        reporter_only=False,
        strict_release=False,
        require_consent=True,
        sm_error=500,
    )
    assert [line.partition(":")[0] for line in insecure_switches(settings)[1:]] == [
        "allocation.strict_release",
        "routing.reporter_only",
        "compat.return_by_address",
    ]


def test_pools_are_given_by_scheme(tmp_path: Path) -> None:
    settings = load(tmp_path, '[[allocation.pool]]\nscheme = "sip"\naddresses = ["sip://100@pbx.a.example"]\n')
    assert build_pools(settings) == {"sip": ("sip://100@pbx.a.example",)}


@pytest.mark.parametrize(
    ("pools", "complaint"),
    [
        ([("hyperty", ["hyperty://a.example/x"])], "scheme: addresses of the scheme hyperty are not lent"),
        ([("runtime", ["runtime://a.example/x"])], "scheme: addresses of the scheme runtime are not lent"),
        ([("sip", []), ("sip", [])], "scheme: a second pool for sip"),
        ([("sip", ["tel://1@a.example"])], "is not of the scheme sip"),
        ([("sip", ["sip://1@a.example", "sip://1@A.example."])], "is there twice"),
        ([("sip", ["a b"])], "is not an address"),
    ],
)
def test_a_pool_that_cannot_be_lent_from_is_an_error(
    tmp_path: Path, pools: list[tuple[str, list[str]]], complaint: str
) -> None:
    text = "".join(f'[[allocation.pool]]\nscheme = "{scheme}"\naddresses = {urls}\n' for scheme, urls in pools)
    with pytest.raises(SettingsError, check=lambda error: complaint in error.detail):
        load(tmp_path, text)


def test_another_answer_than_400_or_500_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        load(tmp_path, "[compat]\nsm_error = 404\n")
