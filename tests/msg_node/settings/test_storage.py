"""`[storage]`: which engines may be named, and how each is reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from msg_node.settings.load import load_settings
from msg_node.settings.model import Settings
from msg_node.settings.storage import engine_options
from msg_node.settings.weakenings import insecure_switches
from protofly.errors import SettingsError

HEAD = '[node]\ndomain = "a.example"\ndata_dir = "data"\n[listen]\ninsecure_plaintext = true\n[storage]\n'


def loaded(folder: Path, storage: str) -> Settings:
    path = folder / "node.toml"
    path.write_text(HEAD + storage)
    return load_settings(path)


@pytest.mark.parametrize(
    ("engine", "hosts", "user", "database"),
    [
        ("postgresql://u@db.example/state", (("db.example", 5432),), "u", "state"),
        ("postgres://u%40x@[::1]:5433/s%20t", (("::1", 5433),), "u@x", "s t"),
        ("postgresql://u@one,two:5434/state", (("one", 5432), ("two", 5434)), "u", "state"),
        ("postgresql://u@/state?host=/run/postgresql", (("/run/postgresql", 5432),), "u", "state"),
    ],
)
def test_engine_is_reached_where_its_url_says(
    tmp_path: Path, engine: str, hosts: tuple[tuple[str, int], ...], user: str, database: str
) -> None:
    options = engine_options(loaded(tmp_path, f'engine = "{engine}"'))
    assert options is not None
    assert (options.hosts, options.user, options.database) == (hosts, user, database)
    assert (options.domain, options.tls) == ("a.example", "verify-full")


def test_without_an_engine_the_state_stays_in_files(tmp_path: Path) -> None:
    assert engine_options(loaded(tmp_path, "")) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('engine = "mysql://u@db/state"', "not `postgresql://"),
        ('engine = "postgresql://u@db:0x1/state"', "not `postgresql://"),
        ('engine = "postgresql://u@one,/state"', "not `postgresql://"),
        ('engine = "postgresql://u@db:70000/state"', "not `postgresql://"),
        ('engine = "postgresql://u:secret@db/state"', "password_file"),
        ('engine = "postgresql://db/state"', "needs a user and a database"),
        ('engine = "postgresql://u@db"', "needs a user and a database"),
        ('engine = "postgresql://u@db/x%00y"', "characters"),
        ('engine = "postgresql://u@/state"', "needs a host"),
        ('engine = "postgresql://u@db/state?sslmode=disable"', "nothing else"),
        ('engine = "postgresql://u@db/state?host=/run"', "nothing else"),
        ('password_file = "x"', "goes with `engine`"),
        ('tls = "off"', "goes with `engine`"),
        ('engine = "postgresql://u@db/state"\ntls = "verify-ca"', "needs `ca_file`"),
        ('engine = "postgresql://u@db/state"\ntls = "off"\nca_file = "x"', "contradicts"),
        ('engine = "postgresql://u@db/state"\ncertificate = "x"', "come together"),
    ],
)
def test_engine_that_cannot_be_meant_is_refused_with_its_line_and_no_password(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason) as caught:
        loaded(tmp_path, text)
    assert "node.toml" in caught.value.detail
    assert "secret" not in caught.value.detail


def test_password_is_read_from_its_file_and_shown_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("open sesame\n")
    secret.chmod(0o600)
    settings = loaded(tmp_path, 'engine = "postgresql://u@db/state"\npassword_file = "password"')
    options = engine_options(settings)
    assert options is not None
    assert options.password == "open sesame"
    assert "sesame" not in f"{options} {options.place} {settings}"
    secret.write_bytes(b"\xff")
    with pytest.raises(SettingsError, match="UTF-8"):
        engine_options(settings)
    secret.write_text("two\nlines")
    with pytest.raises(SettingsError, match="one line"):
        engine_options(settings)
    secret.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        engine_options(settings)


@pytest.mark.parametrize(
    ("host", "is_named"),
    [("127.0.0.1", False), ("localhost", False), ("[::1]", False), ("10.0.0.9", True), ("db", True)],
)
def test_engine_without_tls_is_named_as_a_weakening_unless_it_is_here(
    tmp_path: Path, host: str, is_named: bool
) -> None:
    settings = loaded(tmp_path, f'engine = "postgresql://u@{host}/state"\ntls = "off"')
    assert any("storage.tls" in switch for switch in insecure_switches(settings)) == is_named
