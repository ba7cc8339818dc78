"""The steps of a check for a domain whose stub the operator chose: nothing that the domain publishes counts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from secrets import token_bytes
from typing import Final
from urllib.parse import urlsplit

from catalogue_client.http_fetcher import HttpFetcher
from federation.core.contact_trouble import Side
from federation.error_groups import first_error
from federation.stubs.catalogue_scripts import CatalogueScripts
from federation.stubs.chosen_stubs import ENDPOINT_NAME, ChosenStubs, StubChoice, read_choice
from federation.stubs.egress import LineOpener
from federation.stubs.shipped_files import interpreter_file
from msg_node.kernel.data_schemas import check_configuration
from msg_node.settings.model import Settings
from msg_node.settings.tables.peers import PeerSettings
from msg_node.wiring.peer_stubs import stub_choice
from protofly.documents import Endpoint
from protofly.errors import Code, HostError, PeerError
from protofly.stub import VerifiedStub
from sandbox.core.budget import Budget
from stubs_cache.cache import StubsCache
from stubs_cache.stub_pins import StubPins
from trapezoid.peer_check.document_steps import scratch_documents
from trapezoid.peer_check.network_steps import NetworkTools, reach
from trapezoid.peer_check.report import Report
from trapezoid.peer_check.stub_steps import reach_endpoints, start_once
from trapezoid.peer_stubs import pins_of
from trapezoid.stub_trial import connect_once

_CHOSEN: Final = "the [[peer]] entry chooses the stub"
_DEFAULT_PORTS: Final = {"ws": 80, "http": 80, "wss": 443, "https": 443}


def is_chosen(peer: PeerSettings | None) -> bool:
    """True when the entry chooses the stub of its domain."""
    return peer is not None and (peer.stub is not None or bool(peer.unsigned_stub))


async def check_chosen(
    report: Report, settings: Settings, tools: NetworkTools, peer: PeerSettings, *, connects: bool
) -> None:
    """The steps from `txt` on: the way to the endpoint, module and pin, configuration, and a line.

    Args:
        report: Gets the steps.
        settings: Loaded and checked.
        tools: As the node uses them.
        peer: The entry.
        connects: Run the stub until it is live; its far end sees one more session for a moment.
    """
    report.skip(_CHOSEN, "txt", "service")
    parts = urlsplit(peer.endpoint)
    host, port = parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme, 443)
    name = "" if parts.scheme in ("ws", "http") else host
    has_line = await reach(report, tools, peer.domain, host, name, port)
    report.skip(_CHOSEN, "well-known", "live", "root", "manifest")
    stub = await _read_module(report, settings, tools, peer)
    if stub is None:
        report.skip("there is no stub", "stub", "start", "endpoint", "authentication", "round-trip")
        return
    _judge_terms(report, settings, peer, stub)
    if report.has_passed("stub"):
        await start_once(report, settings, stub, stub_choice(settings, peer).configuration)
    else:
        report.skip("the stub cannot be run", "start")
    if not has_line:
        report.skip("there is no line to its endpoint", "endpoint", "authentication", "round-trip")
        return
    await reach_endpoints(report, LineOpener(tools.dialler, tools.tls_context), stub)
    if not connects or not report.has_passed("start"):
        why = "the stub cannot be run" if connects else "not asked for (`--connect`)"
        report.skip(why, "authentication", "round-trip")
        return
    with report.step("authentication", f"{stub.name} at {peer.endpoint}", side=Side.STUB) as result:
        try:
            seconds = await connect_once(settings, peer, stub)
        except* HostError as group:
            raise first_error(group) from None
        result.observed = f"live after {seconds * 1000:.0f} ms; nobody proves anything (class {peer.trust_class})"
    report.skip("nobody knows which messages the far end of a chosen stub answers", "round-trip")


async def _read_module(
    report: Report, settings: Settings, tools: NetworkTools, peer: PeerSettings
) -> VerifiedStub | None:
    """The step `module`: the file, or the script that the catalogue serves now, against its pin."""
    read: list[VerifiedStub] = []
    subject = peer.unsigned_stub or str(peer.stub)
    with report.step("module", subject, side=Side.DOCUMENTS) as result:
        choice = stub_choice(settings, peer)
        if choice.script is not None:
            read.append(await _script(settings, tools, choice))
            result.observed = f"the script has the pinned sha256 {peer.sha256}"
        else:
            stub = read_choice(choice)
            pinned = _pins(settings).read(peer.domain)
            if pinned and pinned != stub.module_sha256:
                detail = f"sha256 {stub.module_sha256}, and {pinned} is pinned; `trapezoid peer approve` accepts it"
                raise PeerError(Code.DIGEST_NOT_APPROVED, detail, domain=peer.domain)
            read.append(stub)
            pin = "as pinned" if pinned else "to be pinned at its first use"
            result.observed = f"{len(stub.module):,} bytes, sha256 {stub.module_sha256}, {pin}"
    return read[0] if read and report.has_passed("module") else None


def _pins(settings: Settings) -> StubPins:
    """The pins of the node; none, and no secret is made, where there has never been a node."""
    data_dir = settings.node.data_dir
    if (data_dir / "secret").exists():
        return pins_of(settings)
    return StubPins(data_dir / "pinned_stubs", secret=token_bytes(32))


async def _script(settings: Settings, tools: NetworkTools, choice: StubChoice) -> VerifiedStub:
    """The pinned script, from its catalogue and not from what the node keeps. Raises HostError."""
    assert choice.script is not None
    fetcher = HttpFetcher(tools.dialler, tools.tls_context)
    with tempfile.TemporaryDirectory(prefix="peer-check-") as folder:
        cache = StubsCache(Path(folder), secret=token_bytes(32))
        async with scratch_documents(settings, fetcher, choice.domain) as documents:
            scripts = CatalogueScripts(documents.client, cache, interpreter_file())
            endpoint = Endpoint(name=ENDPOINT_NAME, url=choice.endpoint)
            return await scripts.load(choice.domain, choice.script, endpoint)


def _judge_terms(report: Report, settings: Settings, peer: PeerSettings, stub: VerifiedStub) -> None:
    """The step `stub`: contract, configuration and needs, as the node judges them before a start."""
    with report.step("stub", f"{stub.name} {stub.version}", side=Side.STUB) as result:
        budget = Budget(memory_bytes=settings.sandbox.memory_bytes, batch_seconds=settings.sandbox.batch_seconds)
        choices = [stub_choice(settings, peer)]
        ChosenStubs(choices, _pins(settings), check=check_configuration, budget=budget).terms(stub)
        configured = f"{len(peer.configuration)} settings fit its schema" if peer.configuration else "no settings"
        result.observed = f"keeps the contract; {configured}"
        if peer.insecure_plaintext and peer.endpoint.startswith(("ws:", "http:")):
            result.warn("insecure", f"{result.observed}; NO TLS: everybody on the way can read and change all messages")
