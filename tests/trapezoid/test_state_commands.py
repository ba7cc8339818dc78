"""`trapezoid state`: a clean start keeps what keeps somebody out, and a copy is restored whole or not at all."""

from __future__ import annotations

import io
import json
import sqlite3
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from catalogue_client.core.state import TrustState
from catalogue_client.trust_store import TrustStore
from msg_node.kernel.changes import Table
from msg_node.running import running_alone
from msg_node.storage.state_file import StateFile
from protofly.documents import TrustLevel
from stubs_cache.store import load_secret
from trapezoid.check_files import check_state_keys
from trapezoid.commands import app
from trapezoid.findings import Finding

SETTINGS = """
[node]
domain = "{domain}"
data_dir = "{data}"
[listen]
port = 0
insecure_plaintext = true
"""

Run = Callable[..., tuple[int, Any]]


def settings_in(folder: Path, *, domain: str = "a.example", data: str = "data") -> Path:
    config = folder / f"{data}.toml"
    config.write_text(SETTINGS.format(domain=domain, data=data))
    return config


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A node that has run: rows in some tables, a trusted domain, a pin."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    state = StateFile(data / "state.sqlite")
    tables = (Table.SESSIONS, Table.ADDRESSES, Table.RESTRICTIONS, Table.EXPULSIONS)
    state.commit({table: {"one": msgspec.Raw(b"{}"), "two": msgspec.Raw(b"{}")} for table in tables})
    state.close()
    with TrustStore(data / "trust.sqlite", secret=load_secret(data / "secret")) as store:
        store.replace_now(None, TrustState(domain="b.example", level=TrustLevel.WEB, fingerprints=["f"]))
    (data / "pinned_stubs").mkdir()
    (data / "pinned_stubs" / "c.example").write_text("a pin")
    return settings_in(tmp_path)


@pytest.fixture
def run() -> Run:
    def call(*arguments: object) -> tuple[int, Any]:
        result = CliRunner().invoke(app, ["state", *map(str, arguments), "--json"])
        return result.exit_code, json.loads(result.stdout) if result.exit_code == 0 else result.output

    return call


def test_a_clean_start_keeps_who_is_kept_out(config: Path, run: Run) -> None:
    assert run("reset", "--config", config)[0] == 2
    code, gone = run("reset", "--config", config, "--yes")
    assert (code, gone) == (0, {"sessions": 2, "addresses": 2})
    counts = run("show", "--config", config)[1]
    assert {name: count for name, count in counts.items() if count} == {"restrictions": 2, "expulsions": 2}
    data = config.parent / "data"
    with TrustStore(data / "trust.sqlite", secret=load_secret(data / "secret")) as store:
        assert store.load("b.example") is not None


def test_a_copy_is_private_and_restores_state_and_trust_elsewhere(config: Path, run: Run, tmp_path: Path) -> None:
    copy = tmp_path / "copy.tar.gz"
    assert run("export", copy, "--config", config)[0] == 0
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert run("export", copy, "--config", config)[0] == 2, "what is there is not overwritten"
    other = settings_in(tmp_path, data="other")
    assert run("import", copy, "--config", other)[0] == 0
    assert run("show", "--config", other)[1] == run("show", "--config", config)[1]
    data = tmp_path / "other"
    with TrustStore(data / "trust.sqlite", secret=load_secret(data / "secret")) as store:
        assert store.load("b.example") is not None
    assert (data / "pinned_stubs" / "c.example").read_text() == "a pin"
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in data.rglob("*"))
    code, text = run("import", copy, "--config", other)
    assert (code, "has a state already" in text) == (2, True)


def test_a_copy_of_another_domain_is_refused_and_leaves_nothing(config: Path, run: Run, tmp_path: Path) -> None:
    copy = tmp_path / "copy.tar.gz"
    run("export", copy, "--config", config)
    code, text = run("import", copy, "--config", settings_in(tmp_path, domain="z.example", data="z"))
    assert (code, "has the state of a.example" in text) == (2, True)
    assert not (tmp_path / "z" / "state.sqlite").exists()


@pytest.mark.parametrize(
    "name", ["../evil", "pinned_stubs/../../evil", "/etc/evil", "running.json", "policies//x", "pinned_stubs"]
)
def test_a_member_that_no_state_has_is_refused_before_anything_is_written(
    config: Path, run: Run, tmp_path: Path, name: str
) -> None:
    copy, spoilt = tmp_path / "copy.tar.gz", tmp_path / "spoilt.tar.gz"
    run("export", copy, "--config", config)
    with tarfile.open(copy) as old, tarfile.open(spoilt, "w:gz") as new:
        for one in old:
            new.addfile(one, old.extractfile(one))
        facts = tarfile.TarInfo(name)
        facts.size = 1
        new.addfile(facts, io.BytesIO(b"x"))
    code, text = run("import", spoilt, "--config", settings_in(tmp_path, data="other"))
    assert (code, "no state has" in text) == (2, True)
    assert not (tmp_path / "other" / "state.sqlite").exists()
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\0"])
def test_what_is_no_copy_is_refused(run: Run, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "copy").write_bytes(content)
    assert run("import", tmp_path / "copy", "--config", settings_in(tmp_path))[0] == 2


def test_what_a_crash_left_in_the_log_of_a_database_is_in_the_copy(config: Path, run: Run, tmp_path: Path) -> None:
    tokens = config.parent / "data" / "tokens.sqlite"
    writer = sqlite3.connect(tokens)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("CREATE TABLE marks (one TEXT)")
    writer.execute("INSERT INTO marks VALUES ('revoked')")
    writer.commit()  # and it is not closed: the rows are in the log only
    run("export", tmp_path / "copy", "--config", config)
    writer.close()
    run("import", tmp_path / "copy", "--config", settings_in(tmp_path, data="other"))
    restored = sqlite3.connect(tmp_path / "other" / "tokens.sqlite")
    assert restored.execute("SELECT one FROM marks").fetchall() == [("revoked",)]
    restored.close()


def test_a_running_node_is_left_alone(config: Path, tmp_path: Path) -> None:
    with running_alone(config.parent / "data", ()):
        for command in (["show"], ["reset", "--yes"], ["export", str(tmp_path / "x")]):
            done = subprocess.run(
                [sys.executable, "-m", "trapezoid", "state", *command, "--config", str(config)],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert (done.returncode, "running node" in done.stderr) == (2, True), done


def test_a_state_is_encrypted_by_a_key_file_and_goes_back(config: Path, run: Run, tmp_path: Path) -> None:
    keys, plain = tmp_path / "state.keys", config.read_text()
    made = CliRunner().invoke(app, ["keys", "state", str(keys), "--json"])
    [name] = json.loads(made.stdout)["keys"]
    config.write_text(f'{plain}[storage]\nkey_file = "{keys}"\n')
    before = run("show", "--config", config)[1]
    assert before["sessions"] == 2
    assert check_state_keys(keys, tmp_path / "data") == f"state encrypted with the key {name}, of 1"
    beside = check_state_keys(keys, tmp_path)
    assert isinstance(beside, Finding)
    assert beside.code == "state-key-beside"
    config.write_text(plain)
    code, text = run("show", "--config", config)
    assert (code, name in text, "storage.key_file" in text) == (2, True, True)
    config.write_text(f'{plain}[storage]\nkey_file = "{keys}"\n')
    assert run("unseal", "--config", config)[0] == 0
    config.write_text(plain)
    assert run("show", "--config", config)[1] == before
