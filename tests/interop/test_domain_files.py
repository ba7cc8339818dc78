from __future__ import annotations

import ssl
import tomllib
from pathlib import Path

import pytest

from interop.authority import DevelopmentAuthority
from interop.domain_files import DomainFolder, Encryption, NodePlace, PeerEntry, Ports, node_settings, zone
from interop.name_server import NameServer
from policy.core.text import PolicyText, load_policies

POLICIES = Path(__file__).parents[2] / "examples" / "two_domains"


def settings(tmp_path: Path, *, plain: bool = False, fingerprint: str = "") -> dict[str, object]:
    encryption = Encryption(
        certificate=tmp_path / 'a "quoted" name.pem',
        key=tmp_path / "key.pem",
        ca_file=tmp_path / "ca.pem",
        listens_in_plaintext=plain,
    )
    text = node_settings(
        "a.example",
        place=NodePlace(folder=DomainFolder(path=tmp_path), ports=Ports(listen=4001, site=4002)),
        published=DomainFolder(path=tmp_path),
        name_server_port=5300,
        encryption=encryption,
        peers=[PeerEntry(domain="b.example", fingerprint=fingerprint)],
    )
    return tomllib.loads(text)


def peer_of(tables: dict[str, object]) -> dict[str, object]:
    peers = tables["peer"]
    assert isinstance(peers, list)
    [peer] = peers
    assert isinstance(peer, dict)
    return peer


def test_settings_are_toml_and_keep_odd_file_names(tmp_path: Path) -> None:
    tables = settings(tmp_path)
    listen = tables["listen"]
    assert isinstance(listen, dict)
    assert listen["certificate"] == str(tmp_path / 'a "quoted" name.pem')
    assert "insecure_plaintext" not in listen
    assert tables["discovery"] == {"nameservers": ["127.0.0.1:5300"], "ca_file": str(tmp_path / "ca.pem")}


def test_a_peer_is_denied_by_default_and_its_loopback_range_is_named(tmp_path: Path) -> None:
    peer = peer_of(settings(tmp_path))
    assert peer == {"domain": "b.example", "default": "deny", "allow_addresses": ["127.0.0.0/8"]}


def test_a_known_fingerprint_pins_the_peer(tmp_path: Path) -> None:
    peer = peer_of(settings(tmp_path, fingerprint="f00d"))
    assert (peer["trust"], peer["fingerprint"]) == ("pinned", "f00d")


def test_plaintext_concerns_runtimes_and_links_and_never_the_site(tmp_path: Path) -> None:
    tables = settings(tmp_path, plain=True)
    peer = peer_of(tables)
    assert tables["listen"] == {"host": "127.0.0.1", "port": 4001, "insecure_plaintext": True}
    assert peer["insecure_plaintext"] is True
    assert tables["publish"]["endpoint_url"].startswith("ws://")  # type: ignore[index]
    assert "certificate" in tables["site"]  # type: ignore[operator]


def test_the_name_server_takes_the_zone() -> None:
    server = NameServer(zone("b.example", Ports(listen=1, site=8444), "abc"))
    assert any("port=8444" in text for text in server.records["_rethink-mn.b.example"])  # type: ignore[union-attr]


@pytest.mark.parametrize("domain", ["a.example", "b.example"])
def test_the_example_policies_pass_their_own_tests(domain: str) -> None:
    file = POLICIES / f"{domain}.policy.toml"
    assert load_policies([PolicyText(file.name, file.read_text(), "toml")]).revision


def test_the_authority_persists_and_its_secrets_are_private(tmp_path: Path) -> None:
    first = DevelopmentAuthority(tmp_path)
    certificate, key = first.certificate_for("a.example")
    again = DevelopmentAuthority(tmp_path)
    assert again.certificate_for("a.example") == (certificate, key)
    assert again.certificate_for("b.example")[0].exists()
    assert {path.stat().st_mode & 0o077 for path in tmp_path.glob("*.key.pem")} == {0}
    again.client_context()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
