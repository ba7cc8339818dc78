"""Settings of older versions: a file that still has one is refused with what became of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from msg_node.settings.load import load_settings
from msg_node.settings.reference import configuration_reference
from msg_node.settings.retired import RETIRED, retired_hint
from protofly.errors import SettingsError
from trapezoid.commands import app

NEEDED = '[node]\ndomain = "a.example"\ndata_dir = "data"\n[listen]\ninsecure_plaintext = true\n'


def table_of(section: str) -> str:
    """What the reference says about one table."""
    page = configuration_reference()
    found = re.search(rf"^## `\[+{re.escape(section)}\]+`$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return "" if found is None else found[1]


@pytest.mark.parametrize("name", RETIRED)
def test_a_retired_setting_is_refused_with_its_line_and_what_became_of_it(tmp_path: Path, name: str) -> None:
    section, _, key = name.rpartition(".")
    file = tmp_path / "node.toml"
    file.write_text(f"{NEEDED}[{section}]\n{key} = 1\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(file, environment={})
    assert caught.value.detail == f"{file}:7: {name}: {retired_hint((section, key))}"
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(("name", "hint"), RETIRED.items())
def test_a_retired_setting_is_none_of_today_and_its_new_name_is_one(name: str, hint: str) -> None:
    section, _, key = name.rpartition(".")
    table = table_of(section)
    assert table, f"no table [{section}] in the reference"
    assert f"| `{key}` |" not in table
    for newer in re.findall(r"write `([a-z_]+)`", hint):
        assert f"| `{newer}` |" in table


def test_entries_of_lists_count_without_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msg_node.settings.retired.RETIRED", {"peer.way": "renamed: write `via`"})
    assert retired_hint(("peer", 2, "way")) == "a setting of an older version, renamed: write `via`"
    assert retired_hint(("peer", 2, "ways")) == retired_hint(("peer",)) == ""


def test_check_names_the_retired_setting_and_exits_with_an_error(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(f'{NEEDED}[sandbox]\nmode = "worker"\n')
    answer = CliRunner().invoke(app, ["check", "--config", str(file)])
    assert answer.exit_code != 0
    assert "sandbox.mode: a setting of an older version, removed: stubs always run in the sandbox" in answer.output
