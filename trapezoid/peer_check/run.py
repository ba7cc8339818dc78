"""All steps of a check, in their order: each is tried where the earlier ones allow it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import trio

from catalogue_client.core.location import Location
from catalogue_client.core.state import DomainTrust
from catalogue_client.http_fetcher import HttpFetcher
from federation.core.contact_trouble import Side
from federation.discovery.dialler import Dialler
from federation.discovery.identity import Identity
from federation.discovery.name_client import DnsClient
from federation.links.visitors import greeting
from federation.stubs.egress import LineOpener
from msg_node.settings.model import Settings
from msg_node.settings.peer_stubs import peer_terms
from msg_node.settings.tables.peers import PeerSettings
from msg_node.wiring import meaning
from policy.core.model import Facts
from protofly.address import valid_domain
from protofly.errors import Code, MisuseError, PeerError
from protofly.stub import VerifiedStub
from trapezoid.peer_check.chosen_steps import check_chosen, is_chosen
from trapezoid.peer_check.document_steps import read_documents, read_stub, scratch_documents
from trapezoid.peer_check.network_steps import NetworkTools, find_location, reach
from trapezoid.peer_check.report import STEPS, Outcome, Report
from trapezoid.peer_check.reverse_step import ask_back
from trapezoid.peer_check.running_node import hear_running_node
from trapezoid.peer_check.stub_steps import (
    authenticate,
    check_module,
    identity_of,
    our_key,
    reach_endpoints,
    start_once,
)
from trapezoid.peer_check.trip_step import ask_running_node, show_trip
from wire.core.network import parse_networks

CHECK_SECONDS: Final = 120.0
"""Far more than an honest domain takes: its largest document, the module, has to come within 30 s."""
_EVERYWHERE: Final = ("0.0.0.0/0", "::/0")
_ADMIT: Final = "add a [[peer]] entry, or a rule that permits; the steps below are tried all the same"
_OUR_ADVICE: Final = {
    "no-such-domain": "publish an address record (A or AAAA) for this name in DNS",
    "connect-failed": "is the node running, and does a firewall let others in?",
}
"""What differs from the advice about other domains."""


async def check_domain(settings: Settings, domain: str, *, connects: bool) -> Report:
    """Check whether a domain can be a partner of this node; changes and remembers nothing.

    Args:
        settings: Loaded and checked.
        domain: The foreign domain.
        connects: Run its stub until both sides have proved themselves, or, if the operator chose it, until it is live.
            A link that the running node has to the domain is disturbed by it for a moment, since the far side takes
            the newer one.
    """
    report = Report(domain)
    _judge_name(report, settings, domain)
    if not report.has_passed("name"):
        report.skip("the name cannot be used", *STEPS[1:])
        return report
    _judge_policy(report, settings, domain)
    await hear_running_node(report, settings, domain)
    await within_time(report, partial(_check_published, report, settings, domain, connects=connects))
    return report


async def check_ourselves(settings: Settings) -> Report:
    """Check what other domains find of ours: records, site, documents, module and endpoint."""
    report = Report(settings.node.domain)
    report.skip("it is our own domain", "name", "policy")
    await within_time(report, partial(_check_published, report, settings, settings.node.domain, connects=False))
    for result in report.results:
        result.hint = _OUR_ADVICE.get(result.code, result.hint.removeprefix("they: "))
    return report


async def within_time(report: Report, check: Callable[[], Awaitable[None]]) -> None:
    """Run the steps of a check, and end it after `CHECK_SECONDS` at the latest: a domain may answer ever so slowly."""
    with trio.move_on_after(CHECK_SECONDS) as scope:
        await check()
    if scope.cancelled_caught:
        report.skip_rest(f"the check ended after {CHECK_SECONDS:.0f} s")


def _judge_name(report: Report, settings: Settings, domain: str) -> None:
    with report.step("name", domain[:253]) as result:
        valid_domain(domain)
        if domain in settings.own_domains:
            raise PeerError(Code.OWN_DOMAIN, f"{domain} is one of our own domains; `check --online` checks it")
        entry = _entry(settings, domain)
        result.observed = "named by a [[peer]] entry" if entry else "no [[peer]] entry of its own"


def _judge_policy(report: Report, settings: Settings, domain: str) -> None:
    """The step `policy`: the gate that is asked before anything is looked up."""
    with report.step("policy", f"gate peer for {domain}", side=Side.DOCUMENTS) as result:
        node = f"runtime://{settings.node.domain}/{settings.node.name}"
        probe = greeting(node, node)
        facts = Facts("peer", probe, settings.node.domain, domain, domain, len(probe.raw), 0, time.time())
        explained = meaning.build_gate(settings).explain(facts)
        verdict = explained.verdict
        entry = f"the entry {explained.peer_entry}" if explained.peer_entry else "no [[peer]] entry names it"
        settings_say = entry if explained.is_listed else "the lists of [policy]"
        by = f"rule {verdict.rule_id}" if verdict.rule_id else settings_say
        if verdict.permitted:
            result.observed = f"permitted ({by})"
        else:
            result.warn((verdict.code or Code.POLICY).word, f"we do not talk to {domain} ({by})", _ADMIT)
            result.outcome = Outcome.FAILED


async def _check_published(report: Report, settings: Settings, domain: str, *, connects: bool) -> None:
    names = DnsClient(settings.discovery.nameservers, believes_ad=settings.discovery.trust_ad_bit)
    is_ours = domain in settings.own_domains
    allowed = {domain: parse_networks(_EVERYWHERE)} if is_ours else meaning.allowed_addresses(settings)
    dialler = Dialler(names, allow_addresses=allowed)
    tools = NetworkTools(names, dialler, meaning.client_context(settings), is_ours)
    peer = _entry(settings, domain)
    if peer is not None and is_chosen(peer):
        await check_chosen(report, settings, tools, peer, connects=connects)
        report.skip("the [[peer]] entry chooses the stub", "reverse")
        return
    location = await find_location(report, names, domain, meaning.peer_entries(settings).get(domain))
    if location is None:
        report.skip("the domain was not found", *STEPS[4:])
        return
    host, port, certificate_name = _where(location)
    if not await reach(report, tools, domain, host, certificate_name, port):
        report.skip("there is no line to its site", *STEPS[7:])
        return
    plaintext = peer_terms(settings).plaintext
    fetcher = HttpFetcher(dialler, tools.tls_context, insecure_plaintext=plaintext)
    async with scratch_documents(settings, fetcher, domain) as documents:
        trust = await read_documents(report, documents, location)
        stub = None if trust is None else await read_stub(report, documents, trust)
    if trust is None:
        report.skip("the documents were not believed", *STEPS[10:])
        return
    if stub is None:
        report.skip("there is no stub", "stub", "start", "endpoint", "authentication", "round-trip")
    else:
        await _check_stub(report, settings, tools, stub, trust, connects=connects)
    if is_ours:
        report.skip("it is our own domain", "reverse")
    else:
        await ask_back(report, tools, location, _prover(settings))


async def _check_stub(
    report: Report,
    settings: Settings,
    tools: NetworkTools,
    stub: VerifiedStub,
    trust: DomainTrust,
    *,
    connects: bool,
) -> None:
    """The steps that a stub is needed for."""
    peer = _entry(settings, stub.domain)
    check_module(report, stub)
    if report.has_passed("stub"):
        await start_once(report, settings, stub, {} if peer is None else peer.configuration)
    else:
        report.skip("the stub cannot be run", "start")
    await reach_endpoints(report, LineOpener(tools.dialler, tools.tls_context), stub)
    if stub.domain in settings.own_domains:
        report.skip("it is our own domain", "authentication", "round-trip")
        return
    trip = await ask_running_node(settings, stub.domain)
    if connects and report.has_failed("endpoint"):
        report.skip("no endpoint of it takes a line", "authentication")
    elif connects and report.has_passed("start"):
        trial = await authenticate(report, settings, stub, trust, makes_trip=trip.outcome is Outcome.SKIPPED)
        if trial is not None and trial.trip is not None:
            show_trip(report, trial)
            return
    else:
        report.skip("the stub cannot be run" if connects else "not asked for (`--connect`)", "authentication")
    report.results.append(trip)


def _prover(settings: Settings) -> Identity | None:
    """What signs our proof, None if we publish nothing. Raises SettingsError."""

    async def trust_of(domain: str, *, is_refresh: bool, asked_by: str = "") -> DomainTrust:  # noqa: ARG001
        raise MisuseError("this identity proves, and verifies nobody")

    key = our_key(settings)
    return None if key is None else identity_of(settings, key, trust_of)


def _where(location: Location) -> tuple[str, int, str]:
    """Host and port of the line, and the name on the certificate: "" for a line without TLS."""
    parts = urlsplit(location.well_known_url)
    default = 80 if parts.scheme == "http" else 443
    host, port = location.connect_to or (parts.hostname or location.domain, parts.port or default)
    return host, port, "" if parts.scheme == "http" else parts.hostname or location.domain


def _entry(settings: Settings, domain: str) -> PeerSettings | None:
    return next((peer for peer in settings.peer if peer.domain == domain), None)
