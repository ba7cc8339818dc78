"""What the settings of `serve` say about partners, and the block list that it publishes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from pipeline.lake.tables import Lake
from pipeline.partners.folders import KEPT_BYTES, KEPT_MAX, PartnerFolders, day_and_step, keep
from pipeline.serving.exchanging import exchange_of, publish_list
from pipeline.serving.settings import periods, read_settings
from protofly.block_list import read_block_list
from protofly.errors import SettingsError
from protofly.signatures import SigningKey

KEY = SigningKey.from_seed("live", b"k" * 32)
PUB = KEY.record().pub
MINIMAL = 'lake = "lake"\nspools = ["records"]\n'
EXCHANGE = MINIMAL + '[exchange]\ndomain = "a.example"\nkey = "live.pem"\n'
PARTNER = EXCHANGE + f'[[partner]]\ndomain = "b.example"\nkeys = ["{PUB}"]\nurl = "https://mn.b.example"\n'


def written(folder: Path, text: str) -> Path:
    file = folder / "pipeline.toml"
    file.write_text(text)
    (folder / "live.pem").write_bytes(KEY.to_pem())
    (folder / "live.pem").chmod(0o600)
    return file


def test_partners_make_the_exchange_run_and_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    settings = read_settings(written(tmp_path, PARTNER + "usage = { hours = 1 }\ntolerate = { size = 3 }\n"))
    known = periods(settings)
    assert (known["exchange"], known["usage"], known["block-list"]) == (600.0, 600.0, None)
    what = exchange_of(settings)
    assert (what.settings.inbox, what.settings.folder) == (str(tmp_path / "exchange/in"), str(tmp_path / "exchange"))
    assert what.partners[0].tolerance.by_class == {"size": 3}
    with pytest.raises(SettingsError, match=r"no \[\[partner\]\] c\.example"):
        exchange_of(settings, "c.example")
    known = periods(read_settings(written(tmp_path, MINIMAL)))
    assert (known["exchange"], known["usage"], known["block-list"]) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (PARTNER.replace("[exchange]\ndomain", "[listen]\nhost").replace("key =", "port = 1 #"), "say who you are"),
        (PARTNER.replace("https://mn.b", "http://mn.b"), "the site of its node"),
        (PARTNER.replace("https://mn", "https://me@mn"), "the site of its node"),
        (PARTNER.replace(PUB, "A" * 43), "malformed or weak"),
        (PARTNER.replace('"b.example"', '"-b"'), "not a domain name"),
        (PARTNER.replace('"b.example"', '"a.example"'), "is there twice, or is yours"),
        (PARTNER + "tolerate = { pending = 3 }\n", "a class is one of"),
        (PARTNER + "tolerate = { size = -3 }\n", "tolerate"),
        (PARTNER + "usage = { hours = 0 }\n", "usage"),
        (PARTNER + '[block_list]\nout = "x"\nhours = 200\n', "block_list"),
    ],
)
def test_partners_that_cannot_be_meant_are_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        read_settings(written(tmp_path, text))


def test_a_key_that_others_may_read_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    settings = read_settings(written(tmp_path, PARTNER))
    (tmp_path / "live.pem").chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        exchange_of(settings)


def test_the_block_list_is_published_as_the_settings_say(tmp_path: Path) -> None:
    settings = read_settings(written(tmp_path, EXCHANGE + '[block_list]\nout = "list.json"\nhours = 1\n'))
    assert periods(settings)["block-list"] == 3600.0
    lake = Lake(tmp_path / "lake", cast("SparkSession", None))
    result = publish_list(lake, settings)
    raw = (tmp_path / "list.json").read_bytes()
    found = read_block_list(raw, author="a.example", keys=[KEY.record()], now=result.details["expires"] - 1800)
    assert found.expires - found.issued == 3600


def test_files_have_their_order_and_old_ones_go(tmp_path: Path) -> None:
    folders = PartnerFolders(tmp_path / "in", tmp_path / "out")
    folders.inbox.mkdir()
    names = ["2026-03-03.totals", "2026-03-02.return-1", "2026-03-02.details", "usage-1.report", ".incoming-3"]
    for name in names:
        (folders.inbox / name).write_bytes(b"x")
    came = [path.name for path in folders.came(10)]
    assert came == ["2026-03-03.totals", "2026-03-02.details", "2026-03-02.return-1", "usage-1.report"]
    assert [path.name for path in folders.came(1)] == came[:1]
    (folders.inbox / "taken").mkdir()
    for number in range(KEPT_MAX + 3):
        (folders.inbox / "taken" / f"{number:04}").write_bytes(b"")
    keep(folders.inbox / "usage-1.report", "taken")
    kept = sorted(path.name for path in (folders.inbox / "taken").iterdir())
    assert (len(kept), kept[0], kept[-1].endswith("-usage-1.report")) == (KEPT_MAX, "0004", True)


def test_large_files_that_were_looked_at_do_not_fill_the_disk(tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()

    def came_and_refused(number: int, size: int) -> None:
        path = inbox / f"nonsense-{number}"
        with path.open("wb") as file:
            file.truncate(size)
        os.utime(path, ns=(number, number))
        keep(path, "refused")

    for number in range(1, 9):
        came_and_refused(number, KEPT_BYTES // 4)
    kept = list((inbox / "refused").iterdir())
    assert sorted(path.name for path in kept) == [f"{number}-nonsense-{number}" for number in (5, 6, 7, 8)]
    came_and_refused(9, KEPT_BYTES + 1)
    assert [path.name for path in (inbox / "refused").iterdir()] == ["9-nonsense-9"]


@pytest.mark.parametrize("name", ["2026-03-02.totals-1", "2026-03-02.return", "x.totals", "2026-03-02.totals.x", ""])
def test_other_names_are_nothing_that_partners_hand_over(name: str) -> None:
    assert day_and_step(name) is None
