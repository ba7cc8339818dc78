"""Settings of bindings and twin: what is refused with which words, and what they come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from msg_node.config_addresses import kept_objects
from msg_node.config_load import load_settings
from msg_node.config_meaning import https_options
from protofly.errors import SettingsError

HEAD = '[node]\ndomain = "alpha.example"\ndata_dir = "data"\n[listen]\ninsecure_plaintext = true\n'


def written(folder: Path, text: str) -> Path:
    (folder / "node.toml").write_text(HEAD + text)
    return folder / "node.toml"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[https]\npoll_seconds = 0.5\n", "https.poll_seconds"),
        ("[https]\npoll_seconds = 61\n", "https.poll_seconds"),
        ("[https]\nqueue_messages = 0\n", "https.queue_messages"),
        ("[https]\nport = 1\n", "unknown setting"),
        ('[twin]\nobjects = ["comm://beta.example/x"]\n', "'comm://beta.example/x' is no address of our own domain"),
        ('[twin]\nobjects = ["x y"]\n', "twin.objects[1]: 'x y' is no address of our own domain"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_words(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(written(tmp_path, text))
    assert problem in refused.value.detail


def test_https_is_served_unless_it_is_switched_off(tmp_path: Path) -> None:
    options = https_options(load_settings(written(tmp_path, "[https]\npoll_seconds = 20\n")))
    assert options == (20.0, 200)
    assert https_options(load_settings(written(tmp_path, "[https]\nserve = false\n"))) is None


def test_objects_of_the_twin_are_compared_by_their_keys(tmp_path: Path) -> None:
    settings = load_settings(
        written(tmp_path, '[twin]\nobjects = ["comm://ALPHA.example/a/*", "comm://alpha.example/b"]\n')
    )
    assert kept_objects(settings) == ["comm://alpha.example/a/*", "comm://alpha.example/b"]
