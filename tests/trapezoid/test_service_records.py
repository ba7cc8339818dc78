"""`config dns-sd`: what lets runtimes in a network find the node, read by those who are to read it."""

from __future__ import annotations

import configparser
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import dns.rdatatype
import dns.zone
import pytest
from typer.testing import CliRunner

from trapezoid.commands.program import app

TYPE = "_trapezoid._tcp.a.example."
NODE = '[node]\ndomain = "a.example"\ndata_dir = "data"\n'
PUBLIC = '[listen]\nhost = "0.0.0.0"\ncertificate = "tls/cert.pem"\nkey = "tls/key.pem"\n'
PUBLISH = """
[publish]
keys_dir = "keys"
site_dir = "site"
endpoint_url = "wss://mn.a.example:9443/link"
[site]
insecure_plaintext = true
"""
TEXTS = ["txtvers=1", "domain=a.example", "path=/ws", "tls=1", "messages=/messages"]


def run(folder: Path, settings: str, *words: str, code: int = 0) -> tuple[str, str]:
    file = folder / "node.toml"
    file.write_text(settings, encoding="utf-8")
    done = CliRunner().invoke(app, ["config", "dns-sd", "--config", str(file), *words])
    assert done.exit_code == code, done.output
    return done.stdout, done.stderr


def lookup(zone: dns.zone.Zone, name: str, kind: str) -> list[str]:
    found = zone.find_rdataset(name, dns.rdatatype.from_text(kind))
    return [record.to_text() for record in found]


@pytest.mark.parametrize(
    ("name", "label"),
    [("a.example", r"a\.example"), ("Ward 7", r"Ward\0327"), ("mn_1", "mn_1"), ("x-7.b c", r"x-7\.b\032c")],
)
def test_a_search_of_the_zone_ends_at_the_node(tmp_path: Path, name: str, label: str) -> None:
    records, note = run(tmp_path, NODE + PUBLIC + PUBLISH, "--name", name)
    assert note == ""
    text = "@ 60 IN SOA a.example. a.example. 1 1 1 1 1\n@ 60 IN NS a.example.\n"
    zone = dns.zone.from_text(text + records, origin="a.example.", relativize=False)
    for browse in ("b", "lb"):
        assert lookup(zone, f"{browse}._dns-sd._udp.a.example.", "PTR") == ["a.example."]
    assert lookup(zone, "_services._dns-sd._udp.a.example.", "PTR") == [TYPE]
    (instance,) = lookup(zone, TYPE, "PTR")
    assert instance == f"{label}.{TYPE}"
    assert lookup(zone, instance, "SRV") == ["0 0 9443 mn.a.example."]
    assert lookup(zone, instance, "TXT") == [" ".join(f'"{one}"' for one in TEXTS)]


def test_a_responder_reads_the_same(tmp_path: Path) -> None:
    avahi, _ = run(tmp_path, NODE + PUBLIC + PUBLISH, "--form", "avahi", "--name", "Ward 7")
    service = ET.fromstring(avahi)
    assert service.findtext("name") == "Ward 7"
    assert (service.findtext("service/type"), service.findtext("service/port")) == ("_trapezoid._tcp", "9443")
    assert [one.text for one in service.findall("service/txt-record")] == TEXTS
    systemd, _ = run(tmp_path, NODE + PUBLIC + PUBLISH, "--form", "systemd")
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(systemd)
    assert dict(parser["Service"]) == {
        "Name": "a.example",
        "Type": "_trapezoid._tcp",
        "Port": "9443",
        "TxtText": " ".join(TEXTS),
    }


def test_without_a_published_endpoint_the_listener_says_where_it_is(tmp_path: Path) -> None:
    plain = "[listen]\ninsecure_plaintext = true\n[https]\nserve = false\n"
    shown, note = run(tmp_path, NODE + plain, "--json")
    assert json.loads(shown) == {
        "type": "_trapezoid._tcp",
        "domain": "a.example",
        "instance": "a.example",
        "host": "a.example",
        "port": 8443,
        "texts": {"txtvers": "1", "domain": "a.example", "path": "/ws", "tls": "0"},
    }
    assert "only this machine" in note
    shown, _ = run(tmp_path, NODE + PUBLIC + PUBLISH, "--host", "mn2.a.example", "--port", "443", "--json")
    assert (json.loads(shown)["host"], json.loads(shown)["port"]) == ("mn2.a.example", 443)


@pytest.mark.parametrize(
    ("settings", "words", "complaint"),
    [
        (PUBLIC, ("--name", "a\nb"), "--name has"),
        (PUBLIC, ("--name", "x" * 64), "--name has"),
        (PUBLIC, ("--name", "<a>"), "--name has"),
        (PUBLIC, ("--host", "not a host"), "--host"),
        (PUBLIC, ("--port", "70000"), "--port"),
        (PUBLIC + "port = 0\n", (), "--port"),
    ],
)
def test_what_cannot_be_announced_is_refused(
    tmp_path: Path, settings: str, words: tuple[str, ...], complaint: str
) -> None:
    shown, said = run(tmp_path, NODE + settings, *words, code=2)
    assert shown == ""
    assert complaint in " ".join(said.split())
