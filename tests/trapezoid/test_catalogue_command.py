"""`trapezoid peer catalogue` against an original catalogue over HTTPS: shown, and nothing kept."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trustme
from typer.testing import CliRunner, Result

from tests.support.rest_server import Asked, RestServer, Said, rest_server
from trapezoid.commands import app

DESCRIPTOR = {
    "objectName": "oldStub",
    "version": 1.4,
    "language": "javascript",
    "interworking": "true",
    "constraints": {"browser": "true", "node": False},
    "configuration": {"url": "wss://old.example/ws\u001b[2J"},
    "sourcePackageURL": "/sourcepackage/OldStub",
}
PACKAGE = {"sourceCodeClassname": "OldStub", "sourceCode": "class OldStub {}"}


def catalogue(asked: Asked) -> Said:
    pages = {"/.well-known/protocolstub/default": DESCRIPTOR, "/.well-known/sourcepackage/OldStub": PACKAGE}
    page = pages.get(asked.target)
    return Said(404, b"no") if page is None else Said(200, json.dumps(page).encode())


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def server(authority: trustme.CA) -> AsyncIterator[RestServer]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with rest_server(catalogue, context=context) as running:
        yield running


@pytest.fixture
def node(tmp_path: Path, authority: trustme.CA) -> Path:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    path = tmp_path / "node.toml"
    path.write_text(
        """
[node]
domain = "a.example"
data_dir = "data"
[listen]
port = 0
insecure_plaintext = true
[discovery]
ca_file = "ca.pem"
[[peer]]
domain = "old.example"
allow_addresses = ["127.0.0.0/8"]
"""
    )
    return path


async def look(node: Path, domain: str, server: RestServer, *more: str) -> Result:
    words = ["peer", "catalogue", domain, "--config", str(node), "--at", f"127.0.0.1:{server.port}", *more]
    return await trio.to_thread.run_sync(CliRunner().invoke, app, words)


async def test_what_an_original_catalogue_offers_is_shown_and_nothing_is_remembered(
    node: Path, server: RestServer
) -> None:
    done = await look(node, "old.example", server, "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["stub"], facts["version"], facts["language"]) == ("oldStub", "1.4", "javascript")
    assert (facts["signed"], facts["webassembly"], facts["interworking"]) == (False, False, True)
    assert (facts["constraints"], facts["code_bytes"]) == (["browser"], len(PACKAGE["sourceCode"]))
    known = await trio.to_thread.run_sync(CliRunner().invoke, app, ["peer", "list", "--config", str(node), "--json"])
    assert json.loads(known.stdout) == []


async def test_what_strangers_wrote_does_not_drive_the_terminal(node: Path, server: RestServer) -> None:
    done = await look(node, "old.example", server)
    assert done.exit_code == 0, done.output
    assert "oldStub" in done.stdout
    assert "\x1b[2J" not in done.stdout


async def test_a_domain_whose_addresses_the_operator_has_not_opened_is_not_asked(
    node: Path, server: RestServer
) -> None:
    done = await look(node, "other.example", server, "--json")
    assert done.exit_code == 2
    assert "address-refused" in done.output
    assert server.asked == []


async def test_what_strangers_wrote_into_an_error_does_not_drive_the_terminal_either(
    node: Path, server: RestServer
) -> None:
    server.handler = lambda _: Said(200, b'{"objectName":"x","\\u001b[2J":1,"\\u001b[2J":2}')
    done = await look(node, "old.example", server)
    assert (done.exit_code, "\x1b" in done.output) == (2, False)


async def test_a_name_that_is_no_domain_is_refused(node: Path, server: RestServer) -> None:
    done = await look(node, "old..example", server)
    assert done.exit_code == 2
    assert "name-invalid" in done.output
