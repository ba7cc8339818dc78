"""`trapezoid peer`: trust that the operator changes is validated, shown, confirmed, and can be undone."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from typer.testing import CliRunner, Result

from catalogue_client.core.state import HeldUpdate, TrustState
from catalogue_client.trust_store import TrustStore
from protofly.documents import TrustLevel
from stubs_cache.store import load_secret
from stubs_cache.stub_pins import StubPins
from tests.support.guests import custom_section
from trapezoid.commands import app
from trapezoid.output import NOT_RECORDED

THEIRS = "PkSdMrt1vNODIVuhyRkwei4Px83jRdR_xNpMuA7JvVo"
LOST = "dRYOaV4tt0zZKccUEcB943PZTlPZ826BiP0KeLfemYI"
KNOWN = TrustState(
    domain="b.example", level=TrustLevel.WEB, root=b"{}", root_version=3, fingerprints=[LOST], live_serial=77
)


class Node:
    """Settings of one node, and what it remembers."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.config = folder / "node.toml"
        self.config.write_text(
            '[node]\ndomain = "a.example"\naliases = ["lab.a.example"]\ndata_dir = "data"\n'
            f"[listen]\nport = 0\ninsecure_plaintext = true\n{more}"
        )
        self.data = folder / "data"

    def store(self) -> TrustStore:
        return TrustStore(self.data / "trust.sqlite", secret=load_secret(self.data / "secret"))

    def remember(self, state: TrustState = KNOWN) -> None:
        with self.store() as store:
            trio.run(store.save, state)

    def state(self) -> TrustState | None:
        with self.store() as store:
            return store.load("b.example")

    def run(self, *words: str, answer: str | None = None) -> Result:
        return CliRunner().invoke(app, ["peer", *words, "--config", str(self.config)], input=answer)

    def facts(self, *words: str) -> Any:
        done = self.run(*words, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.remember()
    return made


@pytest.mark.parametrize(
    "fingerprint",
    [
        "",
        "hello",
        THEIRS[:-1],
        THEIRS + "A",
        THEIRS + "=",
        f" {THEIRS}",
        f"{THEIRS}\n",
        THEIRS[:-1] + "p",  # bits behind the 256th: no SHA-256 is spelled so
        THEIRS.replace("_", "/"),
        THEIRS[:-1] + "\u0430",
        "0" * 64,
        "ab:" * 31 + "ab",
    ],
)
def test_a_text_that_is_no_fingerprint_changes_nothing(node: Node, fingerprint: str) -> None:
    done = node.run("retrust", "b.example", "--fingerprint", fingerprint, "--yes")
    assert (done.exit_code, "43 characters" in done.stderr) == (2, True)
    assert node.state() == KNOWN


@pytest.mark.parametrize(
    ("domain", "word"),
    [
        ("B.example", "name-invalid"),
        ("b.example.", "name-invalid"),
        ("*.b.example", "name-invalid"),
        ("b", "name-invalid"),
        ("", "name-invalid"),
        ("b.example/x", "name-invalid"),
        ("\u0432.example", "name-invalid"),
        ("10.0.0.1", "name-invalid"),
        ("a.example", "settings"),
        ("lab.a.example", "settings"),
    ],
)
def test_a_name_that_is_no_other_domain_changes_nothing(node: Node, domain: str, word: str) -> None:
    done = node.run("retrust", domain, "--fingerprint", THEIRS, "--yes", "--json")
    assert (done.exit_code, json.loads(done.stdout)["error"]["code"]) == (2, word)
    assert [row["domain"] for row in node.facts("list")] == ["b.example"]
    assert node.run("forget", domain, "--yes").exit_code == 2


def test_a_fingerprint_that_the_settings_contradict_is_refused(tmp_path: Path) -> None:
    node = Node(tmp_path, f'[[peer]]\ndomain = "b.example"\ntrust = "pinned"\nfingerprint = "{LOST}"\n')
    done = node.run("retrust", "b.example", "--fingerprint", THEIRS, "--yes")
    assert (done.exit_code, f"pins {LOST}; change that first" in done.stderr) == (2, True)
    assert node.facts("list") == []


def test_our_own_fingerprint_is_not_taken_for_a_partners(tmp_path: Path) -> None:
    keys, site = str(tmp_path / "keys"), str(tmp_path / "site")
    CliRunner().invoke(app, ["keys", "init", "a.example", "--keys", keys])
    done = CliRunner().invoke(app, ["publish", "a.example", "--keys", keys, "--site", site, "--json"])
    ours = json.loads(done.stdout)["fingerprint"]
    publish = '[publish]\nkeys_dir = "keys"\nsite_dir = "site"\nendpoint_url = "wss://mn.a.example/link"\n'
    node = Node(tmp_path, f"[site]\nport = 0\ninsecure_plaintext = true\n{publish}")
    done = node.run("retrust", "b.example", "--fingerprint", ours, "--yes")
    assert (done.exit_code, "our own keys" in done.stderr) == (2, True)


def test_before_and_after_are_shown_and_nothing_changes_without_a_yes(node: Node) -> None:
    for answer in ("n\n", "\n", None):
        done = node.run("retrust", "b.example", "--fingerprint", THEIRS, answer=answer)
        assert done.exit_code == 2
        assert LOST in done.stdout
        assert THEIRS in done.stdout
        assert "nothing was changed" in done.stderr
        assert node.state() == KNOWN
    assert node.run("retrust", "b.example", "--fingerprint", THEIRS, "--json").exit_code == 2
    assert node.run("forget", "b.example", "--json").exit_code == 2
    assert node.state() == KNOWN
    assert node.run("retrust", "b.example", "--fingerprint", THEIRS, answer="y\n").exit_code == 0
    assert node.facts("list")[0]["fingerprint"] == THEIRS


def test_forget_undoes_a_retrust_and_the_marks_are_back(node: Node) -> None:
    facts = node.facts("retrust", "b.example", "--fingerprint", THEIRS, "--yes")
    assert (facts["before"]["fingerprint"], facts["after"]["fingerprint"]) == (LOST, THEIRS)
    assert "trapezoid peer forget b.example" in facts["undo"]
    node.facts("retrust", "b.example", "--fingerprint", "A" * 43, "--yes")  # a second word does not hide the first
    undone = node.facts("forget", "b.example", "--yes")
    assert (undone["before"]["fingerprint"], undone["after"]["fingerprint"]) == ("A" * 43, LOST)
    assert node.state() == KNOWN


def test_forget_without_a_retrust_forgets_the_domain_and_only_it(node: Node) -> None:
    other = TrustState(domain="c.example", level=TrustLevel.WEB, root=b"{}", root_version=1, fingerprints=[LOST])
    node.remember(other)
    assert node.facts("forget", "b.example", "--yes")["after"]["level"] == "nothing stored"
    assert [row["domain"] for row in node.facts("list")] == ["c.example"]
    done = node.run("forget", "b.example", "--yes")
    assert (done.exit_code, "not-registered" in done.stderr) == (2, True)


def test_marks_that_cannot_be_read_hide_no_other_domain_and_can_be_forgotten(node: Node) -> None:
    node.remember(TrustState(domain="c.example", level=TrustLevel.WEB))
    with sqlite3.connect(node.data / "trust.sqlite") as database:
        database.execute("UPDATE trust SET mac = x'00' WHERE domain = 'b.example'")
    database.close()
    assert [row["level"] for row in node.facts("list")] == ["cache-tampered", "web"]
    assert node.facts("forget", "b.example", "--yes")["before"]["level"] == "cache-tampered"
    assert [row["domain"] for row in node.facts("list")] == ["c.example"]


CHOSEN = """
[[peer]]
domain = "p.example"
stub = "mine.wasm"
endpoint = "wss://p.example/ws"
class = "plain"
"""
MODULE = Path(__file__).parents[2] / "examples" / "stubs" / "vertx_peer" / "vertx_peer.wasm"


def chosen_node(folder: Path, more: str = "") -> tuple[Node, Path, StubPins]:
    """A node that uses a chosen stub already; its file, and the pins."""
    node = Node(folder, CHOSEN + more)
    file = folder / "mine.wasm"
    file.write_bytes(MODULE.read_bytes())
    pins = StubPins(node.data / "pinned_stubs", secret=load_secret(node.data / "secret"))
    pins.write("p.example", hashlib.sha256(file.read_bytes()).hexdigest())
    return node, file, pins


def check(node: Node) -> Any:
    done = CliRunner().invoke(app, ["check", "--config", str(node.config), "--json"])
    return next(one for one in json.loads(done.stdout)["checks"] if one["part"] == "peer p.example")


def test_pinned_stub_is_listed_and_another_module_waits_for_approval(tmp_path: Path) -> None:
    node, file, pins = chosen_node(tmp_path)
    [row] = node.facts("list")
    assert (row["domain"], row["level"], row["held"]) == ("p.example", "operator", "")
    assert check(node)["level"] == "ok"
    file.write_bytes(file.read_bytes() + custom_section("x", b"1"))
    assert node.facts("list")[0]["held"] == "vertx_peer"
    assert check(node)["code"] == "digest-not-approved"
    assert node.facts("approve", "p.example", "vertx_peer")["approved"]
    assert pins.read("p.example") == hashlib.sha256(file.read_bytes()).hexdigest()
    assert node.facts("list")[0]["held"] == ""


def test_pin_that_is_forgotten_is_gone(tmp_path: Path) -> None:
    node, _, pins = chosen_node(tmp_path)
    assert node.run("forget", "p.example", "--yes").exit_code == 0
    assert pins.read("p.example") == ""
    assert node.run("forget", "p.example", "--yes").exit_code == 2


def test_check_is_loud_about_a_chosen_stub_without_tls_and_refuses_wrong_settings(tmp_path: Path) -> None:
    node, file, _ = chosen_node(tmp_path, "insecure_plaintext = true\n")
    node.config.write_text(node.config.read_text().replace("wss://", "ws://"))
    found = check(node)
    assert (found["level"], "NO TLS" in found["text"]) == ("warning", True)
    node.config.write_text(node.config.read_text() + "configuration = {runtime = 7}\n")
    assert (check(node)["level"], check(node)["code"]) == ("problem", "stub-configuration")
    file.unlink()
    assert check(node)["level"] == "problem"


@pytest.fixture
def processes(node: Node) -> list[TrustStore]:
    """What a node of two processes remembers; the second one has met the domain as well."""
    folder = node.data / "processes" / "2"
    folder.mkdir(parents=True)
    shutil.copy(node.data / "secret", folder / "secret")
    stores = [TrustStore(one / "trust.sqlite", secret=load_secret(one / "secret")) for one in (node.data, folder)]
    trio.run(stores[1].save, KNOWN)
    return stores


def test_what_is_decided_about_trust_counts_at_all_processes(node: Node, processes: list[TrustStore]) -> None:
    node.facts("retrust", "b.example", "--fingerprint", THEIRS, "--yes")
    for store in processes:
        state = store.load("b.example")
        assert state is not None
        assert (state.fingerprints, state.is_pending, store.decided_at("b.example") > 0) == ([THEIRS], True, True)
    node.facts("forget", "b.example", "--yes")
    assert [store.load("b.example") for store in processes] == [KNOWN, KNOWN]
    node.facts("forget", "b.example", "--yes")
    assert [store.load("b.example") for store in processes] == [None, None]
    assert node.run("forget", "b.example", "--yes").exit_code == 2
    for store in processes:
        store.close()


def test_what_only_a_further_process_knows_is_forgotten_and_approved_too(
    node: Node, processes: list[TrustStore]
) -> None:
    first, second = processes
    trio.run(first.forget, "b.example")
    held = {"link": HeldUpdate(serial=2, manifest_sha256="a" * 64, excess=["more"])}
    trio.run(second.save, msgspec.structs.replace(KNOWN, held=held))
    assert node.facts("approve", "b.example", "link")["approved"]
    state = second.load("b.example")
    assert state is not None
    assert not state.held
    assert node.run("approve", "b.example", "link").exit_code == 2
    node.facts("forget", "b.example", "--yes")
    assert second.load("b.example") is None
    for store in processes:
        store.close()


def test_a_pin_is_not_forgotten_without_a_yes(tmp_path: Path) -> None:
    node, file, pins = chosen_node(tmp_path)
    for answer in ("n\n", None):
        done = node.run("forget", "p.example", answer=answer)
        assert (done.exit_code, "nothing was changed" in done.stderr) == (2, True)
    assert pins.read("p.example") == hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_change_that_no_node_makes_says_that_no_record_has_it(node: Node) -> None:
    changed = node.facts("retrust", "b.example", "--fingerprint", THEIRS, "--yes")
    assert changed["recorded"] == NOT_RECORDED
    assert node.facts("forget", "b.example", "--yes")["recorded"] == NOT_RECORDED
    held = {"link": HeldUpdate(serial=2, manifest_sha256="a" * 64, excess=["more"])}
    node.remember(msgspec.structs.replace(KNOWN, held=held))
    assert node.facts("approve", "b.example", "link")["recorded"] == NOT_RECORDED
