"""The steps of a check that use the stub of a domain: its start, its endpoints, the proof of both sides, a message."""

from __future__ import annotations

from collections.abc import Mapping
from secrets import token_bytes
from urllib.parse import urlsplit

import trio

from catalogue_client.core.state import DomainTrust
from federation.core.contact_trouble import Side, cleaned
from federation.discovery.identity import Identity, TrustOf
from federation.error_groups import first_error
from federation.stubs.egress import LineOpener
from msg_node.settings.model import Settings
from msg_node.site.site import Site
from protofly.documents import SigningKey
from protofly.errors import Code, HostError, TransportError
from protofly.limits import HANDSHAKE_SECONDS
from protofly.stub import VerifiedStub
from sandbox.core.module_check import inspect_module
from trapezoid.peer_check.report import Outcome, Report
from trapezoid.stub_trial import Candidate, Trial, try_start, try_stub


def check_module(report: Report, stub: VerifiedStub) -> None:
    """The step `stub`: the module keeps the contract, and operators have not forbidden it."""
    with report.step("stub", f"{stub.name} {stub.version}", side=Side.STUB) as result:
        inspect_module(stub.module)
        result.observed = f"{len(stub.module):,} bytes, keeps the contract"
        if (terms := report.forbidden.get(stub.module_sha256)) is not None:
            result.outcome, result.code = Outcome.FAILED, Code.STUB_FORBIDDEN.word
            result.observed = f"an operator has forbidden this module {terms}"
            result.hint = f"`trapezoid node stub allow {stub.module_sha256}` lifts it"


async def start_once(
    report: Report, settings: Settings, stub: VerifiedStub, configuration: Mapping[str, object]
) -> None:
    """The step `start`: the stub runs in a sandbox of its own, and takes its first events; it reaches nothing."""
    with report.step("start", f"{stub.name} {stub.version}", side=Side.STUB) as result:
        facts = inspect_module(stub.module)
        try:
            cost = await try_start(settings, stub, configuration)
        except* HostError as group:
            raise first_error(group) from None
        result.observed = cleaned(
            f"calls itself {facts.name} {facts.version}, contract {facts.abi}; "
            f"compiled in {cost.compile_seconds * 1000:.0f} ms, started in {cost.start_seconds * 1000:.0f} ms, "
            f"{cost.memory_bytes:,} bytes of memory, fuel {cost.fuel:,}"
        )


async def reach_endpoints(report: Report, opener: LineOpener, stub: VerifiedStub) -> None:
    """The step `endpoint`: a line to each endpoint that the stub may name, with TLS; nothing is said on it."""
    for endpoint in stub.endpoints.values():
        with report.step("endpoint", endpoint.url) as result:
            await _open_once(opener, endpoint.url, stub.domain)
            result.observed = f"{urlsplit(endpoint.url).hostname} answers"
    if not stub.endpoints:
        report.skip("the stub names no endpoint", "endpoint")


async def _open_once(opener: LineOpener, url: str, domain: str) -> None:
    """Raises HostError; FETCH_TIMEOUT when they take no line within the time that a stub has for it."""
    try:
        with trio.fail_after(HANDSHAKE_SECONDS):
            async with trio.open_nursery() as nursery:
                line = await opener.open(url, domain=domain, drain_nursery=nursery)
                line.close()
    except* HostError as group:
        raise first_error(group) from None
    except* trio.TooSlowError:
        detail = f"no line within {HANDSHAKE_SECONDS:.0f} s"
        raise TransportError(Code.FETCH_TIMEOUT, detail, phase="connect") from None


def our_key(settings: Settings) -> SigningKey | None:
    """The key that proves our node, None if it publishes none. Raises SettingsError."""
    return None if settings.site is None else Site.from_settings(settings).node_key


def identity_of(settings: Settings, key: SigningKey, trust_of: TrustOf) -> Identity:
    """Our node, with this key."""
    node = f"runtime://{settings.node.domain}/{settings.node.name}"
    return Identity(node=node, domains=list(settings.own_domains), key=key, trust_of=trust_of)


async def authenticate(
    report: Report, settings: Settings, stub: VerifiedStub, trust: DomainTrust | None, *, makes_trip: bool
) -> Trial | None:
    """The step `authentication`: the stub runs until both sides have proved themselves.

    Returns:
        What came of it, with `makes_trip` also of a message through the stub and back; None if it did not become live.
    """
    peer = next((one for one in settings.peer if one.domain == stub.domain), None)
    done: list[Trial] = []
    with report.step("authentication", f"{stub.domain} and {settings.node.domain}", side=Side.REFUSAL) as result:
        published = our_key(settings)

        async def trust_of(domain: str, *, is_refresh: bool, asked_by: str = "") -> DomainTrust:  # noqa: ARG001
            if trust is None or domain != trust.domain:
                raise HostError(Code.BROKEN_TRUST, f"nothing of {domain} is believed")
            return trust

        key = published or SigningKey.from_seed("unpublished", token_bytes(32))
        identity = identity_of(settings, key, trust_of)
        candidate = Candidate(
            stub=stub,
            configuration={} if peer is None else dict(peer.configuration),
            identity=identity,
            allows_plaintext=peer is not None and peer.insecure_plaintext,
        )
        try:
            done.append(await try_stub(settings, candidate, makes_trip=makes_trip))
        except* HostError as group:
            raise first_error(group) from None
        result.milliseconds = done[0].live_seconds * 1000
        result.observed = f"live after {result.milliseconds:.0f} ms"
        if published is None:
            result.warn("unpublished", result.observed, "we publish nothing: `[publish]` and `trapezoid publish`")
    return done[0] if done else None
