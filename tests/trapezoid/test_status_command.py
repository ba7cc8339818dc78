"""`trapezoid status` against a site: what it shows, and the exit codes to go by."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from typer.testing import CliRunner

from trapezoid.commands import app

CHOSEN = {"name": "vertx_peer", "version": "1.0.0", "sha256": "ab" * 32, "level": "operator", "class": "plain"}
STATUS: dict[str, Any] = {
    "node": "mn-1.a.example",
    "middleware": ["rate", "authorisation"],
    "links": [
        {"domain": "b.example", "state": "live", "stub": {}},
        {"domain": "tel.gw.example", "state": "live", "stub": {"interworking": "tel:+49*"}},
        {"domain": "sip.gw.example", "state": "live", "stub": {"interworking": ""}},
        {"domain": "p.example", "state": "live", "stub": CHOSEN},
    ],
    "block_lists": [
        {
            "author": "b.example",
            "mode": "enforce",
            "serial": 3,
            "expires": 1_780_000_000.0,
            "entries": 22,
            "domains": ["x.example", "y.example"],
            "problem": "",
        },
        {
            "author": "c.example",
            "mode": "report",
            "serial": 0,
            "expires": 0,
            "entries": 0,
            "domains": [],
            "problem": "rollback: its number is lower",
        },
    ],
}


REFUSED = 'b.example refuses our link: its word is "auth-policy"; they do not admit our domain'


class Site(ThreadingHTTPServer):
    """Says what a test wants."""

    problems: tuple[str, ...] = ()
    link_problem = ""


class Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        [first, *others] = STATUS["links"]
        shown = {**STATUS, "links": [{**first, "problem": self.server.link_problem}, *others]}
        body = json.dumps(shown if self.path == "/status" else {"problems": self.server.problems}).encode()
        status = 503 if self.path == "/readyz" and self.server.problems else 200
        if self.headers.get("Authorization") != "Bearer secret":
            status, body = 403, b"not for you\n"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def run(site: Site, folder: Path, *more: str, token: str = "secret") -> tuple[int, str]:
    (folder / "token").write_text(token)
    url = f"http://127.0.0.1:{site.server_port}"
    done = CliRunner().invoke(app, ["status", url, "--token-file", str(folder / "token"), *more])
    return done.exit_code, done.output


def test_a_node_that_is_well_is_shown_with_its_middleware_in_order(site: Site, tmp_path: Path) -> None:
    code, text = run(site, tmp_path)
    assert code == 0
    assert text.index("rate") < text.index("authorisation")
    assert "b.example: live" in text


def test_a_link_with_a_problem_is_shown_with_its_reason_and_ends_with_1(site: Site, tmp_path: Path) -> None:
    site.link_problem = REFUSED
    code, text = run(site, tmp_path)
    assert code == 1
    assert REFUSED in " ".join(text.split())
    code, text = run(site, tmp_path, "--json")
    assert (code, json.loads(text)["problems"]) == (1, [REFUSED])


def test_chosen_stub_is_shown_with_its_digest_and_class(site: Site, tmp_path: Path) -> None:
    _, text = run(site, tmp_path)
    words = " ".join(text.split())
    assert f"p.example: live, stub of yours vertx_peer 1.0.0, sha256 {'ab' * 32}, plain" in words
    assert "b.example: live, stub of yours" not in words


def test_an_interworking_stub_is_shown_with_those_for_whom_it_speaks(site: Site, tmp_path: Path) -> None:
    _, text = run(site, tmp_path)
    words = " ".join(text.split())
    assert "tel.gw.example: live, interworking for tel:+49*" in words
    assert "sip.gw.example: live, interworking for nobody" in words
    assert "b.example: live, interworking" not in words


def test_block_lists_are_shown_with_whom_they_name_or_why_none_is_in_use(site: Site, tmp_path: Path) -> None:
    _, text = run(site, tmp_path)
    words = " ".join(text.split())
    until = "2026-05-28 20:26:40 UTC"
    assert f"b.example: enforce, list 3 until {until}, 22 domains: x.example, y.example and 20 more" in words
    assert "c.example: report, no list in use; rollback: its number is lower" in words


def test_problems_are_shown_and_are_the_exit_code(site: Site, tmp_path: Path) -> None:
    site.problems = ("mqtt: no broker",)
    code, text = run(site, tmp_path, "--json")
    assert (code, json.loads(text)["problems"]) == (1, ["mqtt: no broker"])


def test_what_cannot_be_asked_is_exit_code_two(site: Site, tmp_path: Path) -> None:
    code, text = run(site, tmp_path, token="wrong")
    assert (code, "use --token-file" in text) == (2, True)
    for url in ("ftp://x", "nonsense", "http://127.0.0.1:1", "http://[::1"):
        assert CliRunner().invoke(app, ["status", url]).exit_code == 2


def test_a_certificate_of_an_unknown_authority_is_answered_with_the_option_that_names_one(
    site: Site, tmp_path: Path
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    site.socket = context.wrap_socket(site.socket, server_side=True)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "token").write_text("secret")
    asked = ["status", f"https://127.0.0.1:{site.server_port}", "--token-file", str(tmp_path / "token")]
    refused = CliRunner().invoke(app, asked)
    assert refused.exit_code == 2
    assert "use --ca" in refused.output
    assert CliRunner().invoke(app, [*asked, "--ca", str(tmp_path / "ca.pem")]).exit_code == 0


# By the settings of the node.


def write_settings(folder: Path, site: Site, *, certificate: str) -> Path:
    (folder / "node.toml").write_text(
        f"""
[node]
domain = "a.example"
data_dir = "data"
[listen]
insecure_plaintext = true
[site]
port = {site.server_port}
certificate = "{certificate}"
key = "{certificate}"
"""
    )
    return folder / "node.toml"


def certify(site: Site, authority: trustme.CA) -> bytes:
    """Have the site show a new certificate for another host name; returns it with the authority's and its key."""
    issued = authority.issue_cert("a.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issued.configure_cert(context)
    site.socket = context.wrap_socket(site.socket, server_side=True)
    return issued.private_key_and_cert_chain_pem.bytes() + authority.cert_pem.bytes()


def ask(config: Path) -> tuple[int, str]:
    (config.parent / "token").write_text("secret")
    arguments = ["status", "--config", str(config), "--token-file", str(config.parent / "token")]
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, " ".join(done.output.split())


def test_the_settings_of_a_node_are_enough_to_find_and_recognise_it(site: Site, tmp_path: Path) -> None:
    (tmp_path / "site.pem").write_bytes(certify(site, trustme.CA()))
    code, text = ask(write_settings(tmp_path, site, certificate="site.pem"))
    assert (code, "b.example: live" in text) == (0, True)


def test_a_server_with_another_certificate_on_the_port_is_not_the_node(site: Site, tmp_path: Path) -> None:
    authority = trustme.CA()
    certify(site, authority)
    chain = authority.issue_cert("a.example").private_key_and_cert_chain_pem.bytes() + authority.cert_pem.bytes()
    (tmp_path / "site.pem").write_bytes(chain)
    code, text = ask(write_settings(tmp_path, site, certificate="site.pem"))
    assert (code, "[tls-failed]" in text) == (2, True)


def test_settings_without_a_site_and_two_ways_to_name_one_are_refused(site: Site, tmp_path: Path) -> None:
    config = write_settings(tmp_path, site, certificate="site.pem")
    config.write_text(config.read_text().partition("[site]")[0])
    assert "has no [site]" in ask(config)[1]
    for arguments in ([], ["https://a.example", "--config", str(config)]):
        done = CliRunner().invoke(app, ["status", *arguments])
        assert (done.exit_code, "give either URL or --config" in done.output) == (2, True)
