"""Policy files that are missing, empty or half-written, also at reload (trust and hosts, section 7, attack 51)."""

from __future__ import annotations

from pathlib import Path

import pytest

from policy.core.gate import Gate, PeerRule
from policy.files import read_policies
from protofly.errors import Code, SettingsError
from protofly.limits import POLICY_FILE_BYTES
from tests.support.policies import some_facts

GOOD = 'id = "s"\n[[rules]]\nid = "r"\neffect = "deny"\n'


def broken_files(folder: Path) -> list[Path]:
    contents = {
        "empty.toml": b"",
        "comment.toml": b"# nothing here\n",
        "half.toml": GOOD.encode()[:-4],
        "cut-in-a-rule.toml": b'id = "s"\n[[rules]]\nid = "r"\n',
        "half.json": b'{"rules": [{"effect": "de',
        "binary.toml": b"\xff\xfe\x00",
        "huge.toml": b"#" * (POLICY_FILE_BYTES + 1),
        "name.txt": GOOD.encode(),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "folder.toml").mkdir()
    return sorted(folder.iterdir())


def test_broken_file_is_an_error_that_names_it_and_old_policies_stay(tmp_path: Path) -> None:
    good = tmp_path / "good.toml"
    good.write_text(GOOD, encoding="utf-8")
    gate = Gate(read_policies([good]), {"b.example": PeerRule()})
    revision = gate.policies.revision
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in [*broken_files(broken), broken / "missing.toml"]:
        with pytest.raises(SettingsError) as caught:
            gate.replace(read_policies([good, path]))
        assert path.name in caught.value.detail
        assert gate.policies.revision == revision
        assert gate.judge(some_facts()).code is Code.POLICY


def test_file_that_fails_its_own_tests_does_not_replace_anything(tmp_path: Path) -> None:
    gate = Gate(None, {"b.example": PeerRule()})
    path = tmp_path / "wrong.toml"
    path.write_text(GOOD + '[[tests]]\nfrom = "comm://a.example/x"\nto = "comm://b.example/x"\nexpect = "permit"\n')
    with pytest.raises(SettingsError, match=r"wrong\.toml:5:"):
        gate.replace(read_policies([path]))
    assert gate.judge(some_facts()).permitted


def test_empty_allow_list_lets_nobody_in() -> None:
    gate = Gate(None, {"b.example": PeerRule(), "*": PeerRule()}, allow=[])
    for hook in ("peer", "out", "in"):
        assert gate.judge(some_facts(hook=hook, link_domain="b.example")).code is Code.DOMAIN_BLOCKED
    assert gate.judge(some_facts(hook="local")).permitted
