"""`trapezoid guid` against a registry of `trapezoid serve-global-registry`, both as people run them."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.support.guid_holder import GuidHolder
from trapezoid.commands import app

USER = "user://idp.example/ana=a.example"


def run(*arguments: object, stdin: str = "") -> Result:
    return CliRunner().invoke(app, ["guid", *(str(argument) for argument in arguments)], input=stdin)


def facts(*arguments: object) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "ana"
    assert run("new", made, "--user", USER).exit_code == 0
    return made


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = tmp_path_factory.mktemp("registry") / "guids.sqlite"
    command = [sys.executable, "-m", "trapezoid", "serve-global-registry", "--store", str(store), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        word, _, facts = child.stdout.readline().partition(" ")
        assert word == "ready"
        yield json.loads(facts)["url"]
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=30) == 0


def test_new_guid_has_a_key_for_its_owner_only_and_a_record_that_holds(folder: Path) -> None:
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if path.name != "record.jwt"} == {
        "key.pem": 0o600,
        "salt": 0o600,
    }
    shown = facts("show", folder)
    assert shown["address"] == f"user-guid://{shown['guid']}"
    assert shown["users"] == ["user://idp.example/ana at a.example"]
    checked = facts("verify", folder / "record.jwt", "--guid", shown["guid"])
    assert (checked["ok"], checked["guid"]) == (True, shown["guid"])


def test_new_overwrites_nothing(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = run("new", folder)
    assert done.exit_code == 2
    assert "nothing was overwritten" in done.stderr
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_key_that_others_may_read_is_refused(folder: Path) -> None:
    (folder / "key.pem").chmod(0o644)
    done = run("show", folder)
    assert done.exit_code == 2
    assert "chmod 600" in done.stderr


def test_the_same_key_and_salt_are_the_same_guid(folder: Path) -> None:
    other = facts("new", folder.with_name("other"), "--salt", (folder / "salt").read_text().strip())
    assert other["guid"] != facts("show", folder)["guid"]
    (folder.with_name("other") / "key.pem").write_bytes((folder / "key.pem").read_bytes())
    (folder.with_name("other") / "record.jwt").unlink()
    assert facts("show", folder.with_name("other"))["guid"] == facts("show", folder)["guid"]


@pytest.mark.parametrize("start", ["-Q", "--", "-j"])
def test_a_guid_that_begins_like_an_option_is_looked_up(start: str, registry: str) -> None:
    guid = f"{start}YnbesZeqEPRvAsHzwz-BdrVsZExdb_qlu7uHBCFd0"
    done = run("verify", guid, "--registry", registry, "--insecure-plaintext", "--json")
    assert (done.exit_code, json.loads(done.stdout)["error"]["code"]) == (2, "not-registered")


def test_a_mistyped_option_is_no_guid(registry: str) -> None:
    done = run("verify", "A" * 43, "--registri", registry)
    assert done.exit_code == 2
    assert "unexpected extra argument" in done.output


def test_published_record_is_read_from_the_registry_and_changes_with_its_holder(folder: Path, registry: str) -> None:
    guid = facts("show", folder)["guid"]
    plain = ("--registry", registry, "--insecure-plaintext")
    assert run("verify", guid, *plain).exit_code == 2  # not there yet
    facts("publish", folder, *plain, "--encoding", "der")
    assert facts("verify", guid, *plain)["users"] == ["user://idp.example/ana at a.example"]
    facts("publish", folder, *plain, "--user", "user://idp.example/ana-2=b.example")
    changed = ("--forget-user", "user://idp.example/ana", "--inactive")
    last = facts("publish", folder, *plain, *changed)
    assert last["users"] == ["user://idp.example/ana-2 at b.example"]
    assert last["active"] is False
    done = run("verify", guid, *plain, "--json")
    assert (done.exit_code, json.loads(done.stdout)["flaw"]) == (1, "inactive")


def test_revoked_guid_is_over_for_ever(folder: Path, registry: str) -> None:
    guid = facts("show", folder)["guid"]
    plain = ("--registry", registry, "--insecure-plaintext")
    refused = run("publish", folder, *plain, "--revoke", stdin="n\n")
    assert refused.exit_code == 1
    assert run("verify", guid, *plain).exit_code == 2
    assert facts("publish", folder, *plain, "--revoke", "--yes")["revoked"] is True
    done = run("verify", guid, *plain, "--json")
    assert (done.exit_code, json.loads(done.stdout)["flaw"]) == (1, "revoked")
    again = run("publish", folder, *plain)
    assert again.exit_code == 2
    assert "this GUID is revoked" in again.stderr


def test_record_that_does_not_hold_is_said_with_its_flaw(tmp_path: Path) -> None:
    ana, bo = GuidHolder("ana"), GuidHolder("bo")
    good = ana.record(updated=time.time())
    (tmp_path / "good.jwt").write_text(good)
    (tmp_path / "bad.jwt").write_text(good[:-8] + "AAAAAAAA")
    assert run("verify", tmp_path / "good.jwt").exit_code == 0
    assert run("verify", "-", stdin=good).exit_code == 0
    for arguments, flaw in (
        ((tmp_path / "bad.jwt",), "signature"),
        ((tmp_path / "good.jwt", "--guid", bo.guid), "guid"),
    ):
        done = run("verify", *arguments, "--json")
        assert (done.exit_code, json.loads(done.stdout)["flaw"]) == (1, flaw)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--registry", "http://127.0.0.1:9"), "does not use TLS"),
        (("--registry", "ftp://a.example"), "is not https://"),
        (("--registry", "http://127.0.0.1:9", "--insecure-plaintext"), "connect-failed"),
        (("--registry", "https://a.example", "--user", "ana"), "--user ana"),
        (("--registry", "https://a.example", "--user", "user://idp.example/ana=UPPER"), "not a domain name"),
        (("--registry", "https://a.example", "--forget-user", "user://idp.example/x"), "does not contain it"),
        (("--registry", "https://a.example", "--ca", "/nowhere"), "/nowhere"),
    ],
)
def test_what_cannot_be_done_is_one_plain_line(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run("publish", folder, *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
