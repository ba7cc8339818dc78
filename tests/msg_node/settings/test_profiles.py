"""`[compat] profile`: one line that stands for several, each of which can be said otherwise."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from msg_node.settings.load import load_settings, settings_as_json
from msg_node.settings.model import Settings
from msg_node.settings.profiles import PROFILES, members_set_otherwise
from msg_node.settings.weakenings import insecure_switches
from protofly.errors import SettingsError
from protofly.limits import SESSION_GRACE_SECONDS

SMALLEST = """
[node]
domain = "a.example"
data_dir = "data"
[listen]
insecure_plaintext = true
"""
PROFILE = '[compat]\nprofile = "rethink"\n'


def load(folder: Path, text: str) -> Settings:
    path = folder / "node.toml"
    path.write_text(SMALLEST + textwrap.dedent(text), encoding="utf-8")
    return load_settings(path)


def members_of(settings: Settings) -> dict[tuple[str, str], object]:
    return {(table, key): getattr(getattr(settings, table), key) for table, key in PROFILES["rethink"]}


def test_one_line_switches_every_member_on_and_each_weakening_is_named(tmp_path: Path) -> None:
    settings = load(tmp_path, PROFILE)
    assert members_of(settings) == PROFILES["rethink"]
    assert members_set_otherwise(settings) == []
    assert '"take_over": true' in settings_as_json(settings)
    assert [line.partition(":")[0].partition(" ")[0] for line in insecure_switches(settings)] == [
        "compat.profile",
        "listen.insecure_plaintext",
        "allocation.strict_release",
        "compat.return_by_address",
        "compat.take_over",
        "compat.keep_registered",
    ]


def test_without_it_no_member_is_on(tmp_path: Path) -> None:
    found = members_of(load(tmp_path, ""))
    assert all(found[member] != value for member, value in PROFILES["rethink"].items())
    assert found["sessions", "grace_seconds"] == SESSION_GRACE_SECONDS


@pytest.mark.parametrize(
    ("member", "text", "value"),
    [
        (("compat", "echo"), "[compat]\necho = false\n", False),
        (("compat", "keep_registered"), "[compat]\nkeep_registered = false\n", False),
        (("compat", "return_by_address"), "[compat]\nreturn_by_address = false\n", False),
        (("compat", "sm_error"), "[compat]\nsm_error = 400\n", 400),
        (("compat", "take_over"), "[compat]\ntake_over = false\n", False),
        (("allocation", "strict_release"), "[allocation]\nstrict_release = true\n", True),
        (("sessions", "grace_seconds"), "[sessions]\ngrace_seconds = 60\n", 60.0),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)
def test_what_the_operator_wrote_wins_wherever_it_stands(
    tmp_path: Path, member: tuple[str, str], text: str, value: object
) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "mine.toml").write_text(text, encoding="utf-8")
    settings = load(tmp_path, PROFILE)
    expected: dict[tuple[str, str], object] = {**PROFILES["rethink"], member: value}
    assert members_of(settings) == expected
    assert members_set_otherwise(settings) == [".".join(member)]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[compat]\nprofile = "rethnik"\n', "compat.profile"),
        ("[compat]\nprofile = 1\n", "compat.profile"),
        ("compat = 7\n", "compat"),
        (f"{PROFILE}[[allocation]]\n", "allocation"),
    ],
)
def test_a_profile_that_is_none_and_a_table_that_is_none_are_problems(tmp_path: Path, text: str, place: str) -> None:
    path = tmp_path / "node.toml"
    path.write_text(text + SMALLEST if text.startswith("compat =") else SMALLEST + text, encoding="utf-8")
    with pytest.raises(SettingsError, check=lambda error: place in error.detail):
        load_settings(path)
