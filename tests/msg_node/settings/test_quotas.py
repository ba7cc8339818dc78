"""`[[peer.quota]]`: what the gate makes of it, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from msg_node.settings.load import load_settings
from msg_node.wiring.meaning import peer_rule
from policy.core.quotas import Quota
from protofly.errors import SettingsError

BASE = """
[node]
domain = "a.example"
data_dir = "data"
[listen]
insecure_plaintext = true
[[peer]]
domain = "b.example"
"""


def rule_of(folder: Path, quotas: str) -> tuple[Quota, ...]:
    (folder / "node.toml").write_text(BASE + quotas)
    return peer_rule(load_settings(folder / "node.toml", environment={}).peer[0]).quotas


def test_quotas_of_a_peer_come_to_its_gate(tmp_path: Path) -> None:
    text = '[[peer.quota]]\nper = "day"\nmessages = 5\n[[peer.quota]]\nper = "hour"\nbytes = 7\ntypes = ["read"]\n'
    assert rule_of(tmp_path, text) == (Quota(per="day", messages=5), Quota(per="hour", bytes=7, types=("read",)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[peer.quota]]\nper = "day"\n', "says what the quota is"),
        ('[[peer.quota]]\nper = "week"\nmessages = 5\n', "per"),
        ('[[peer.quota]]\nper = "day"\nmessages = 0\n', "messages"),
        ("[[peer.quota]]\nmessages = 5\n", "per"),
        ('[[peer.quota]]\nper = "day"\nmessages = 5\n[[peer.quota]]\nper = "day"\nbytes = 5\n', "two quotas per day"),
    ],
)
def test_quotas_without_a_meaning_are_refused_with_their_place(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=words):
        rule_of(tmp_path, text)
