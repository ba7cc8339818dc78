"""Scripts straight from an original catalogue over real HTTPS: one that is pinned runs, others harm nobody."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
import trio
import trustme

from interop.foreign.vertx import VertxNode
from msg_node.settings.load import load_settings
from msg_node.settings.model import Settings
from tests.support.rest_server import Asked, RestServer, Said, rest_server
from tests.support.status_token import AS_OPERATOR
from trapezoid.peer_check import Outcome, PeerVerdict, check_domain

from .dialects import bruno_of
from .frontier import LinkFacts
from .one_node import SETTINGS, Process, serving
from .peer_stubs import THEIRS, talker_of
from .systems import wait_until

SCRIPT = (Path(__file__).parents[1] / "peers" / "protostubs" / "sessions.js").read_bytes()
SERVED = {
    "default": SCRIPT,
    "loops": b"for (;;);",
    "changed": b"// other code\n" + SCRIPT,
    "inside": b"// inside\n" + SCRIPT,
}
PINNED = SERVED | {"changed": b"// code\n" + SCRIPT}
PEER = """
[[peer]]
domain = "{domain}"
unsigned_stub = "https://127.0.0.1:{catalogue}/.well-known/protocolstub/{name}"
sha256 = "{sha256}"
endpoint = "ws://127.0.0.1:{node}/ws"
class = "plain"
{more}insecure_plaintext = true
stay_connected = true
"""
LOOPBACK = 'allow_addresses = ["127.0.0.0/8"]\n'
MORE = '[limits]\nwaiting_seconds = 2.0\n[discovery]\nca_file = "ca.pem"\n'


class _Status(msgspec.Struct, frozen=True):
    links: list[LinkFacts]
    insecure: list[str]


def catalogue(asked: Asked) -> Said:
    """As original brokers: descriptor and source package, 500 for what is not there."""
    kind, name = asked.parts[1:3]
    if name not in SERVED:
        return Said(500, b"no such object", "application/json")
    if kind == "protocolstub":
        return Said(200, json.dumps({"objectName": "Theirs", "sourcePackageURL": f"/sourcepackage/{name}"}).encode())
    package = {"sourceCodeClassname": name, "encoding": "base64", "sourceCode": base64.b64encode(SERVED[name]).decode()}
    return Said(200, json.dumps(package).encode())


def entry(domain: str, name: str, port: int, node: VertxNode, *, more: str = LOOPBACK) -> str:
    sha256 = hashlib.sha256(PINNED[name]).hexdigest()
    return PEER.format(domain=domain, name=name, sha256=sha256, catalogue=port, node=node.port, more=more)


async def status(process: Process) -> _Status:
    async with httpx.AsyncClient(trust_env=False, headers=AS_OPERATOR) as client:
        return msgspec.json.decode((await client.get(f"{process.ready['site']}/status")).content, type=_Status)


async def link(process: Process, domain: str, *states: str) -> LinkFacts:
    async def found() -> LinkFacts:
        links = [one for one in (await status(process)).links if one.domain == domain]
        return links[0] if links else LinkFacts(domain=domain, state="")

    return await wait_until(found, lambda one: one.state in states)


@asynccontextmanager
async def partner(folder: Path) -> AsyncIterator[tuple[VertxNode, trio.Nursery, RestServer]]:
    """The partner's node and catalogue; `ca.pem` has the authority of the catalogue's certificate."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    node = VertxNode(THEIRS)
    async with trio.open_nursery() as nursery, rest_server(catalogue, context=context) as server:
        await nursery.start(node.run)
        yield node, nursery, server
        nursery.cancel_scope.cancel()


@pytest.mark.long
async def test_pinned_script_of_a_catalogue_carries_and_others_are_refused_without_harm(tmp_path: Path) -> None:
    async with partner(tmp_path) as (node, nursery, server):
        entries = [
            entry(THEIRS, "default", server.port, node),
            entry("loops.example", "loops", server.port, node),
            entry("changed.example", "changed", server.port, node),
            entry("inside.example", "inside", server.port, node, more=""),
        ]
        async with serving(tmp_path, SETTINGS.format(grace=30) + "".join(entries) + MORE) as process:
            await link(process, THEIRS, "live")
            reasons = {
                "loops.example": ("stub-out-of-fuel", "stub-timeout"),
                "changed.example": ("digest-not-approved", "the settings pin"),
                "inside.example": ("address-refused", "127.0.0.1"),
            }
            for domain, words in reasons.items():
                failed = await link(process, domain, "failed", "verify-failed", "quarantined")
                assert any(word in failed.detail for word in words), failed
            await _talks(process, node, nursery)
            assert sum("unsigned_stub" in text for text in (await status(process)).insecure) == len(entries)
        await _runs_on_without_its_catalogue(tmp_path, server, entries[0], node)


@pytest.mark.long
async def test_a_check_of_the_partner_runs_the_pinned_script_and_says_what_is_wrong_with_others(tmp_path: Path) -> None:
    async with partner(tmp_path) as (node, _, server):
        entries = [
            entry(THEIRS, "default", server.port, node),
            entry("changed.example", "changed", server.port, node),
            entry("inside.example", "inside", server.port, node, more=""),
            entry("loops.example", "loops", server.port, node),
        ]
        file = trio.Path(tmp_path / "node.toml")
        await file.write_text(SETTINGS.format(grace=30) + "".join(entries) + MORE)
        settings = load_settings(Path(file))
        good = await check_domain(settings, THEIRS, connects=True)
        steps = {one.step: one for one in good.results}
        assert {one.outcome for one in good.results} <= {Outcome.OK, Outcome.WARNING, Outcome.SKIPPED}
        assert [steps[name].outcome for name in ("module", "endpoint", "authentication")] == [Outcome.OK] * 3
        assert hashlib.sha256(SCRIPT).hexdigest() in steps["module"].observed
        assert steps["live"].outcome is Outcome.SKIPPED, "nothing that the domain publishes counts"
        assert (await _failures(settings, "changed.example"))[0] == ("module", "digest-not-approved")
        assert (await _failures(settings, "inside.example"))[0][1] == "address-refused"
        assert (await _failures(settings, "loops.example"))[-1][0] == "start"
        assert not await (file.parent / "data").exists(), "nothing is remembered"


async def _failures(settings: Settings, domain: str) -> list[tuple[str, str]]:
    report = await check_domain(settings, domain, connects=True)
    assert report.verdict is PeerVerdict.BROKEN
    return [(one.step, one.code) for one in report.results if one.outcome is Outcome.FAILED]


async def _talks(process: Process, node: VertxNode, nursery: trio.Nursery) -> None:
    anna = await talker_of(process, "anna", nursery)
    await node.wait_received(type="subscribe", resource=anna.hyperty)
    bruno, hyperty = await bruno_of(node)
    assert (await bruno.ask("create", hyperty, anna.hyperty, {"value": 5}))["code"] == 200
    assert (await anna.ask(hyperty, 6)).code == 200


async def _runs_on_without_its_catalogue(folder: Path, server: RestServer, entry: str, node: VertxNode) -> None:
    """After a restart the script comes from the cache: what the catalogue serves now is not even asked."""
    asked = len(server.asked)
    node.received.clear()
    async with serving(folder, SETTINGS.format(grace=30) + entry + MORE) as process:
        await link(process, THEIRS, "live")
        assert len(server.asked) == asked
