"""Settings of bindings and twin: what is refused with which words, and what they come to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import pytest

from msg_node.connectors.reception import Reception
from msg_node.settings.addresses import kept_objects
from msg_node.settings.load import load_settings
from msg_node.settings.weakenings import insecure_switches
from msg_node.wiring.meaning import https_options
from msg_node.wiring.mqtt import load_mqtt
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
        ("[mqtt]\nport = 1\n", "host"),
        ('[mqtt]\nhost = "b"\nkey = "k"\n', "`certificate` and `key` come together"),
        ('[mqtt]\nhost = "b"\nca_file = "c"\ninsecure_plaintext = true\n', "contradicts `ca_file`"),
        ('[mqtt]\nhost = "b"\npassword_file = "p"\n', "goes with `username`"),
        ('[mqtt]\nhost = "b"\nprefix = "a/#"\n', "mqtt.prefix"),
        ('[mqtt]\nhost = "b"\nversion = "4"\n', "mqtt.version"),
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


@pytest.mark.parametrize(
    "text", ['ca_file = "none.pem"', 'username = "u"\npassword_file = "none"\ninsecure_plaintext = true']
)
async def test_files_for_the_broker_that_cannot_be_used_are_named(tmp_path: Path, text: str) -> None:
    settings = load_settings(written(tmp_path, f'[mqtt]\nhost = "b"\n{text}\n'))
    with pytest.raises(SettingsError, match="mqtt\\."):
        load_mqtt(settings, cast("Reception", None), "runtime://alpha.example/mn-1")


async def test_without_the_extra_the_settings_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "msg_node.connectors.mqtt", None)
    settings = load_settings(written(tmp_path, '[mqtt]\nhost = "b"\n'))
    with pytest.raises(SettingsError, match=r"pip install 'trapezoid\[mqtt\]'"):
        load_mqtt(settings, cast("Reception", None), "runtime://alpha.example/mn-1")


def test_a_broker_without_tls_is_named_among_the_weakenings(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, '[mqtt]\nhost = "b"\ninsecure_plaintext = true\n'))
    assert "mqtt.insecure_plaintext: no TLS to the broker" in insecure_switches(settings)
