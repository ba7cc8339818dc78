"""What `[cluster]` may say, and in which words the rest is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from msg_node.settings.load import load_settings
from protofly.errors import SettingsError

NODE = '[node]\ndomain = "a.example"\ndata_dir = "data"\n[listen]\ninsecure_plaintext = true\n'
ENGINE = '[storage]\nengine = "postgresql://node@db.a.example/node"\n'
KEY = 'key_file = "key"\n'
LONGEST = "/" + "x" * 103


def load(folder: Path, text: str) -> None:
    (folder / "node.toml").write_text(NODE + text)
    load_settings(folder / "node.toml", environment={})


@pytest.mark.parametrize(
    "listen",
    [
        'listen = "10.0.0.1:8450"',
        'listen = "0.0.0.0:8450"\nadvertise = "mn-1.lan:8450"',
        'listen = "127.0.0.1:0"\nadvertise = "mn-1.lan:8450"',
        f'listen = "unix:{LONGEST}"',
    ],
)
def test_a_node_among_others_says_where_they_reach_it(tmp_path: Path, listen: str) -> None:
    load(tmp_path, f"{ENGINE}[cluster]\n{listen}\n{KEY}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[cluster]\nstandby = true\n", "cluster.standby: goes with `storage.engine`"),
        (f'[cluster]\nlisten = "10.0.0.1:8450"\n{KEY}', "cluster.listen: goes with `storage.engine`"),
        (f'{ENGINE}[cluster]\nlisten = "10.0.0.1:8450"\n', "cluster.listen: needs `key_file`"),
        (f"{ENGINE}[cluster]\n{KEY}", "cluster.key_file: goes with `listen`"),
        (f'{ENGINE}[cluster]\nadvertise = "10.0.0.1:8450"\n', "cluster.advertise: goes with `listen`"),
        (f'{ENGINE}[cluster]\nlisten = "10.0.0.1"\n{KEY}', "cluster.listen: "),
        (f'{ENGINE}[cluster]\nlisten = "10.0.0.1:0"\n{KEY}', "cluster.listen: needs a port"),
        (f'{ENGINE}[cluster]\nlisten = "0.0.0.0:8450"\n{KEY}', "cluster.listen: nobody can connect to that address"),
        (
            f'{ENGINE}[cluster]\nlisten = "10.0.0.1:8450"\nadvertise = "[::]:8450"\n{KEY}',
            "cluster.advertise: nobody can connect to that address",
        ),
        (f'{ENGINE}[cluster]\nlisten = "unix:{LONGEST}x"\n{KEY}', "cluster.listen: is too long for a Unix socket"),
    ],
)
def test_what_a_node_among_others_cannot_do_is_refused_by_the_name_of_the_setting(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, text)
    assert words in caught.value.detail
