"""Settings of stubs that the operator chose: what is refused, what they mean, and where the modules are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.core.stub_grant import StubGrant
from msg_node.settings.load import load_settings
from msg_node.settings.peer_stubs import peer_terms
from msg_node.wiring.peer_stubs import stub_choices
from protofly.errors import SettingsError
from stubkit.keys import load_keys, make_keys, save_keys
from tests.examples_stubs.guest import STUBS
from trapezoid.publish_options import SigningSite
from trapezoid.publish_request import PublishRequest
from trapezoid.publishing import publish

SMALLEST = """
[node]
domain = "a.example"
data_dir = "data"
[listen]
insecure_plaintext = true
"""
GOOD = """
[[peer]]
domain = "b.example"
stub = "vertx_peer"
endpoint = "wss://b.example:9090/ws"
class = "plain"
"""


def settings_file(folder: Path, text: str) -> Path:
    path = folder / "node.toml"
    path.write_text(SMALLEST + text, encoding="utf-8")
    return path


def test_stub_that_comes_with_the_program_is_found_by_its_name(tmp_path: Path) -> None:
    settings = load_settings(
        settings_file(tmp_path, GOOD + 'stay_connected = true\nsend_via = false\nconfiguration = {runtime = "r"}\n')
    )
    [choice] = stub_choices(settings)
    assert choice.file == STUBS / "vertx_peer" / "vertx_peer.wasm"
    assert (choice.domain, choice.endpoint) == ("b.example", "wss://b.example:9090/ws")
    assert choice.configuration == {"runtime": "r"}
    terms = peer_terms(settings)
    assert terms.chosen == terms.connected == terms.plain == terms.bare == {"b.example"}


def test_grant_of_an_entry_reaches_chosen_and_published_stubs(tmp_path: Path) -> None:
    text = '[[peer]]\ndomain = "c.example"\n'
    text += 'grant = {endpoints = ["mn"], http = false, auth = false, memory_bytes = 1048576}\n'
    settings = load_settings(settings_file(tmp_path, GOOD + "grant = {call_ms = 7}\n" + text))
    chosen, published = stub_choices(settings)
    assert (chosen.domain, chosen.grant) == ("b.example", StubGrant(call_ms=7))
    assert (published.file, published.grant) == (
        None,
        StubGrant(endpoints=frozenset({"mn"}), http=False, auth=False, memory_bytes=1 << 20),
    )


def test_file_is_relative_to_the_settings(tmp_path: Path) -> None:
    settings = load_settings(settings_file(tmp_path, GOOD.replace("vertx_peer", "mine.wasm")))
    assert stub_choices(settings)[0].file == tmp_path / "mine.wasm"


def test_stub_of_our_own_catalogue_is_found_by_name_and_by_selector(tmp_path: Path) -> None:
    save_keys(make_keys(), tmp_path / "keys")
    site = SigningSite(domain="a.example", keys=load_keys(tmp_path / "keys"), path=tmp_path / "site", now=1e9)
    module = STUBS / "echo" / "echo.wasm"
    publish(site, PublishRequest(module=module, selector="for-b"))
    more = '[site]\ninsecure_plaintext = true\n[publish]\nkeys_dir = "keys"\nsite_dir = "site"\n'
    more += 'endpoint_url = "wss://a.example/link"\n'
    for name in ("for-b", "echo"):
        settings = load_settings(settings_file(tmp_path, more + GOOD.replace("vertx_peer", name)))
        file = stub_choices(settings)[0].file
        assert file is not None
        assert file.read_bytes() == module.read_bytes()


def test_name_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    settings = load_settings(settings_file(tmp_path, GOOD.replace("vertx_peer", "vertex_peer")))
    with pytest.raises(SettingsError, match="vertex_peer"):
        stub_choices(settings)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('class = "plain"', "", "peer\\[1\\].class: a stub that you choose proves nothing"),
        ("b.example", "a.example", "our own domain"),
        ('"b.example"', '"*.b.example"', "stub: only for a domain that is named in full"),
        ("wss://", "ws://", "without TLS only with `insecure_plaintext = true`"),
        ("wss://", "http://", "without TLS only with `insecure_plaintext = true`"),
        ("wss://", "ftp://", "endpoint: not a wss://"),
        ("wss://b.example:9090/ws", "", "endpoint: not a wss://"),
        ('stub = "vertx_peer"', "", "endpoint: goes with `stub`"),
        ('class = "plain"', 'class = "plain"\nwell_known_url = "https://b.example/x"', "wins over what the domain"),
        ('class = "plain"', f'class = "plain"\nconfiguration = {{x = "{"y" * 20_000}"}}', "more than 16,384 bytes"),
        ('class = "plain"', 'class = "plain"\nconfiguration = "runtime"', "configuration"),
        ('class = "plain"', 'class = "best"', "class"),
        ('class = "plain"', 'class = "plain"\ngrant = {memory_bytes = 1}', "memory_bytes"),
        ('class = "plain"', 'class = "plain"\ngrant = {htttp = false}', "did you mean `http`"),
        (GOOD, '[[peer]]\ndomain = "*.b.example"\ngrant = {http = false}\n', "grant: only for a domain that is named"),
        ('class = "plain"', 'class = "plain"\n[[interworking]]\ndomain = "b.example"', "interworking"),
    ],
)
def test_entry_that_contradicts_itself_is_refused(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    with pytest.raises(SettingsError, match=complaint):
        load_settings(settings_file(tmp_path, GOOD.replace(old, new)))
