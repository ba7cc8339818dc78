from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from msg_node.settings.tables.peers import PeerSettings
from msg_node.settings.tables.rates import TypeRateSettings
from msg_node.wiring.meaning import peer_rule
from pipeline.cli.gate_settings import from_node_settings, from_policy_files
from policy.core.engine import compile_canonical
from protofly.errors import SettingsError

EXAMPLES = Path(__file__).parents[2] / "examples"
POLICY = EXAMPLES / "policies" / "border.toml"

NODE = """
[node]
domain = "a.example"
data_dir = "data"

[policy]
files = ["border.toml"]

[[peer]]
domain = "b.example"
trust = "pinned"
fingerprint = "x"
messages_per_second = 20.0
p2p = false

[[peer]]
domain = "*.c.example"
default = "deny"
bytes_per_second = 1000.0
burst_seconds = 5.0

[[peer.rate]]
types = ["subscribe"]
messages_per_second = 2.0
"""


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / "border.toml").write_bytes(POLICY.read_bytes())
    file = tmp_path / "node.toml"
    file.write_text(NODE)
    return file


def test_settings_of_a_node_give_the_gate_that_the_node_builds(node: Path) -> None:
    settings = from_node_settings(node)
    theirs = {
        "b.example": PeerSettings(domain="b.example", messages_per_second=20.0, p2p=False),
        "*.c.example": PeerSettings(
            domain="*.c.example",
            default="deny",
            bytes_per_second=1000.0,
            burst_seconds=5.0,
            rate=(TypeRateSettings(types=("subscribe",), messages_per_second=2.0),),
        ),
    }
    assert settings.peers == {name: peer_rule(peer) for name, peer in theirs.items()}
    assert settings.has_rates
    assert compile_canonical(settings.canonical).revision == settings.gate().policies.revision


def test_a_rate_of_one_type_is_a_rate(node: Path) -> None:
    node.write_text('[[peer]]\ndomain = "b.example"\n[[peer.rate]]\ntypes = ["read"]\nbytes_per_second = 1.0\n')
    assert from_node_settings(node).has_rates


@pytest.mark.parametrize("kind", [PeerSettings, TypeRateSettings])
def test_default_burst_is_that_of_the_node(kind: type[msgspec.Struct]) -> None:
    from pipeline.cli.gate_settings import BURST_SECONDS

    defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
    assert defaults["burst_seconds"] == BURST_SECONDS


def test_proposed_policy_keeps_the_peers_of_the_deployed_one(node: Path) -> None:
    deployed = from_node_settings(node)
    proposed = from_policy_files([EXAMPLES / "policies" / "closed.toml"], like=deployed)
    assert proposed.peers == deployed.peers
    assert proposed.canonical != deployed.canonical


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[[peer]]\ndefault = 'permit'", "domain"),
        ("[policy]\nfiles = ['missing.toml']", "missing.toml"),
        ("[policy]\nmode = 'maybe'", "mode"),
        ("no toml", "node.toml"),
        ("a = " + "[" * 100_000, "nested too deep"),
    ],
)
def test_settings_that_are_wrong_are_refused_with_the_reason(tmp_path: Path, text: str, shown: str) -> None:
    file = tmp_path / "node.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=shown):
        from_node_settings(file)


def test_missing_settings_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml"):
        from_node_settings(tmp_path / "nowhere.toml")


def test_lists_of_a_node_are_those_of_the_gate(node: Path) -> None:
    assert (from_node_settings(node).allow, from_node_settings(node).deny) == (None, ())
    node.write_text(NODE.replace("[policy]", '[policy]\nallow = ["*.example"]\ndeny = ["c.example"]'))
    settings = from_node_settings(node)
    assert (settings.allow, settings.deny) == (("*.example",), ("c.example",))
    node.write_text(NODE.replace("[policy]", "[policy]\nallow = []"))
    assert from_node_settings(node).allow == ()
