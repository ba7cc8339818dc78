from __future__ import annotations

from pathlib import Path

import pytest

from interop.scene import Scene, load_scene
from protofly.errors import SettingsError

SCENE_FILE = Path(__file__).parents[2] / "examples" / "two_domains" / "group_chat.toml"


def changed(tmp_path: Path, old: str, new: str) -> Path:
    text = SCENE_FILE.read_text()
    assert old in text
    path = tmp_path / "scene.toml"
    path.write_text(text.replace(old, new))
    return path


def test_the_scene_of_the_demo_is_what_the_issue_asks_for() -> None:
    scene = load_scene(SCENE_FILE)
    assert scene.domains == ("a.example", "b.example")
    assert scene.chat.messages_each == 1000
    speakers = {person.domain for person in scene.person if person.name in scene.chat.speakers}
    assert speakers == set(scene.domains)
    assert {domain: sum(person.domain == domain for person in scene.person) for domain in scene.domains} == {
        "a.example": 2,
        "b.example": 2,
    }


def test_observers_are_everybody_but_the_reporter(scene: Scene) -> None:
    assert scene.reporter.name == "alice"
    assert [person.name for person in scene.observers] == ["anna", "bob", "ben"]


def test_an_unknown_member_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="tile"):
        load_scene(changed(tmp_path, "title = ", "tile = "))


def test_a_speaker_who_takes_no_part_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="'eve' takes no part"):
        load_scene(changed(tmp_path, '["alice", "bob"]', '["alice", "eve"]'))


def test_a_scene_in_one_domain_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nothing would cross"):
        load_scene(changed(tmp_path, 'domain = "b.example"', 'domain = "a.example"'))


def test_two_persons_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="same name"):
        load_scene(changed(tmp_path, 'name = "ben"', 'name = "bob"'))


def test_a_missing_file_is_a_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        load_scene(tmp_path / "none.toml")
