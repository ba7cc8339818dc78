"""What expires is said before it does, renewed by a timer or by the node itself, and read by partners afterwards."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from typer.testing import CliRunner, Result

from catalogue_client.core import trust
from catalogue_client.core.state import TrustAnchor
from msg_node.site.publication import SiteFolder
from protofly.documents import Manifest, decode_envelope, decode_manifest, document_sha256
from stubkit.keys import load_keys
from tests.support.status_token import AS_OPERATOR, STATUS_TOKEN, STATUS_TOKEN_SHA256
from trapezoid.commands import app
from trapezoid.publish_options import SigningSite, default_module
from trapezoid.publish_request import PublishRequest
from trapezoid.publishing import publish

DOMAIN = "a.example"
DAY = 86_400.0
ECHO = Path(__file__).parents[2] / "examples" / "stubs" / "echo" / "echo.wasm"


class Site:
    """A published site of some age."""

    def __init__(self, folder: Path) -> None:
        self.keys, self.path = folder / "keys", folder / "site"
        self.folder = SiteFolder(self.path)
        assert run("keys", "init", DOMAIN, "--keys", self.keys).exit_code == 0

    def publish(self, *, days_ago: float, module: Path | None = None, selector: str = "default") -> None:
        now = time.time() - days_ago * DAY
        site = SigningSite(domain=DOMAIN, keys=load_keys(self.keys), path=self.path, now=now)
        publish(site, PublishRequest(module=module or default_module(), selector=selector))

    def renew(self, *more: object) -> tuple[int, Any]:
        done = run("publish", DOMAIN, "--keys", self.keys, "--site", self.path, "--renew", "--json", *more)
        return done.exit_code, json.loads(done.stdout)

    def manifest(self, name: str = "trapezoid-link") -> Manifest:
        return decode_manifest(decode_envelope(self.folder.manifest(name).read_bytes()).payload, domain=DOMAIN)

    def content(self) -> dict[Path, tuple[bytes, int]]:
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in self.path.rglob("*") if path.is_file()}

    def assert_consistent(self) -> None:
        """What readers of `live` and of the original catalogue get fits together."""
        publication = self.folder.load()
        root_file = self.folder.root(publication.root_version)
        assert document_sha256(root_file.read_bytes()) == publication.root_sha256
        for stub in publication.stubs.values():
            raw = self.folder.manifest(stub.reference.name).read_bytes()
            assert document_sha256(raw) == stub.reference.manifest_sha256
            assert self.manifest(stub.reference.name).serial == stub.reference.serial
            for path in (self.folder.descriptor(stub.reference.name), self.folder.source_package(stub.class_name)):
                assert json.loads(path.read_bytes())["signature"] == raw.decode()


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_renewing_when_nothing_is_due_changes_nothing(site: Site) -> None:
    site.publish(days_ago=100)
    before = site.content()
    code, facts = site.renew()
    assert (code, facts["renewed"], facts["left_due"]) == (0, [], [])
    assert site.content() == before
    assert {one["code"] for one in facts["expiries"]} == {"root-valid", "manifest-valid"}


def test_manifests_that_are_due_get_new_dates_and_the_next_serial_and_nothing_else_changes(site: Site) -> None:
    site.publish(days_ago=155)
    site.publish(days_ago=155, module=ECHO, selector="echo")
    old, echo, root = site.manifest(), site.manifest("echo"), site.folder.root(1).read_bytes()
    code, facts = site.renew()
    assert (code, sorted(facts["renewed"])) == (0, ["manifest echo", "manifest trapezoid-link"])
    new = site.manifest()
    assert (new.serial, new.replaces, site.manifest("echo").serial) == (old.serial + 1, old.serial, echo.serial + 1)
    assert new.expires.timestamp() - time.time() > 179 * DAY
    same = msgspec.structs.replace(new, serial=old.serial, replaces=None, released=old.released, expires=old.expires)
    assert same == old
    assert site.folder.root(1).read_bytes() == root
    site.assert_consistent()
    before = site.content()
    assert site.renew()[1]["renewed"] == []
    assert site.content() == before


def test_a_manifest_that_has_expired_already_is_renewed_too(site: Site) -> None:
    site.publish(days_ago=300)
    assert site.renew()[1]["renewed"] == ["manifest trapezoid-link"]
    site.assert_consistent()


def test_a_new_root_follows_from_the_old_one_and_keeps_the_fingerprint(site: Site) -> None:
    site.publish(days_ago=340)
    fingerprint = run("keys", "fingerprint", "--site", site.path).stdout
    code, facts = site.renew()
    assert (code, facts["renewed"]) == (0, ["root 1", "manifest trapezoid-link"])
    state = trust.begin(site.folder.root(1).read_bytes(), domain=DOMAIN, version=1, anchor=TrustAnchor.web())
    state = trust.advance(state, site.folder.root(2).read_bytes())
    trust.check_root_current(trust.current_root(state), time.time())
    assert len(state.fingerprints) == 1
    assert run("keys", "fingerprint", "--site", site.path).stdout == fingerprint
    site.assert_consistent()


def test_what_needs_a_key_that_is_elsewhere_is_left_and_said(site: Site) -> None:
    site.publish(days_ago=340)
    next(site.keys.glob("root-*.pem")).unlink()
    code, facts = site.renew()
    assert (code, facts["renewed"]) == (1, ["manifest trapezoid-link"])
    assert "root 1: needs 1 of the root keys root-" in facts["left_due"][0]
    next(site.keys.glob("pkg-*.pem")).unlink()
    run("keys", "add", "pkg", "--keys", site.keys)  # one that the root does not name
    before = site.content()
    assert site.renew()[1]["renewed"] == []
    assert site.content() == before


def test_a_run_that_ended_between_manifest_and_index_is_finished_by_the_next(site: Site) -> None:
    site.publish(days_ago=155)
    index = site.path / "publication.json"
    old = index.read_bytes()
    site.renew()
    index.write_bytes(old)
    code, _ = site.renew()
    assert code == 0
    site.assert_consistent()


def test_renewing_takes_no_other_options_and_no_other_domain(site: Site, tmp_path: Path) -> None:
    site.publish(days_ago=155)
    before = site.content()
    for more in ((ECHO,), ("--url", "https://x.example"), ("--alias", "c.example"), ("--selector", "other")):
        code, facts = site.renew(*more)
        assert (code, "omit the module" in facts["error"]["detail"]) == (2, True)
    run("keys", "init", "b.example", "--keys", tmp_path / "b")
    done = run("publish", "b.example", "--keys", tmp_path / "b", "--site", site.path, "--renew")
    assert (done.exit_code, f"is the site of {DOMAIN}" in done.stderr) == (2, True)
    assert site.content() == before


def test_keys_expiry_says_days_and_files_and_its_exit_code_is_for_monitoring(site: Site) -> None:
    site.publish(days_ago=150.5)
    done = run("keys", "expiry", "--site", site.path)
    assert done.exit_code == 0
    assert "29" in done.stdout
    assert str(site.folder.manifest("trapezoid-link")) in done.stdout
    for days_ago, state in ((170, "expiring"), (181, "expired")):
        shutil.rmtree(site.path)
        site.publish(days_ago=days_ago)
        done = run("keys", "expiry", "--site", site.path, "--json")
        assert done.exit_code == 1
        assert f"manifest-{state}" in {one["code"] for one in json.loads(done.stdout)["expiries"]}
    assert run("keys", "expiry").exit_code == 2


SETTINGS = f"""
[node]
domain = "{DOMAIN}"
data_dir = "data"
[listen]
port = 0
insecure_plaintext = true
[site]
port = 0
insecure_plaintext = true
status_token_sha256 = "{STATUS_TOKEN_SHA256}"
[publish]
keys_dir = "keys"
site_dir = "site"
endpoint_url = "wss://mn.a.example/link"
"""


@contextmanager
def serving(folder: Path, more: str = "") -> Iterator[tuple[httpx.Client, list[str]]]:
    """A running node's site; its log is there when the block has ended."""
    config = folder / "node.toml"
    config.write_text(SETTINGS + more)
    command = [sys.executable, "-m", "trapezoid", "serve", "--config", str(config)]
    log: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        try:
            assert line.startswith("ready"), child.communicate(timeout=30)[1]
            with httpx.Client(base_url=json.loads(line.partition(" ")[2])["site"], trust_env=False) as client:
                yield client, log
        finally:
            child.send_signal(signal.SIGTERM)
            log += child.communicate(timeout=30)[1].splitlines()


def shown_status(client: httpx.Client, folder: Path) -> Result:
    token = folder / "status-token"
    token.write_text(STATUS_TOKEN)
    return run("status", client.base_url, "--token-file", token)


def test_a_node_that_has_the_pkg_key_renews_its_manifest_and_serves_the_new_one(site: Site, tmp_path: Path) -> None:
    site.publish(days_ago=175)
    with serving(tmp_path) as (client, log):
        ready = client.get("/readyz").json()
        live = json.loads(decode_envelope(client.get("/.well-known/rethink-mn").content).payload)
        status = client.get("/status", headers=AS_OPERATOR).json()
        on_disk = json.loads(run("keys", "expiry", "--config", tmp_path / "node.toml", "--json").stdout)
    assert ready == {"ready": True, "problems": [], "warnings": []}
    assert site.manifest().serial == 2
    site.assert_consistent()
    assert live["stubs"]["default"]["serial"] == 2
    assert {one["kind"] for one in status["expiries"]} == {"root", "manifest", "live"}
    assert {one["kind"] for one in on_disk["expiries"]} == {"root", "manifest", "live"}
    assert any("renewed manifest trapezoid-link" in line for line in log)


@pytest.mark.parametrize("more", ["", "renew = false\n"], ids=["no key", "not wanted"])
def test_a_node_that_cannot_renew_says_how_many_days_are_left(site: Site, tmp_path: Path, more: str) -> None:
    site.publish(days_ago=175.5)
    if not more:
        next(site.keys.glob("pkg-*.pem")).unlink()
    with serving(tmp_path, more) as (client, log):
        answer = client.get("/readyz")
        shown = shown_status(client, tmp_path)
    assert (answer.status_code, answer.json()["problems"]) == (200, [])
    [warning] = answer.json()["warnings"]
    assert warning.startswith("manifest trapezoid-link expires in 4 days")
    assert shown.exit_code == 0
    assert "manifest trapezoid-link expires in 4 days" in shown.stdout
    assert any("WARNING msg_node.expiry: manifest-expiring" in line for line in log)
    assert site.manifest().serial == 1


def test_a_node_whose_manifest_has_expired_is_not_ready(site: Site, tmp_path: Path) -> None:
    site.publish(days_ago=181)
    next(site.keys.glob("pkg-*.pem")).unlink()
    with serving(tmp_path) as (client, log):
        answer = client.get("/readyz")
        shown = shown_status(client, tmp_path)
    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    assert "manifest trapezoid-link expired" in answer.json()["problems"][0]
    assert str(tmp_path) not in answer.text
    assert shown.exit_code == 1
    assert any("ERROR msg_node.expiry: manifest-expired" in line for line in log)
