"""Run a stub against its author's own server, without any node: the host is the one of a node, and the lines are real.

What a node does and this does not: find a domain, verify documents, ask a policy. Tokens are signed with a key that is
made for the run. A token of the far end is taken as it is: nobody has published a key to check it with.
"""

from __future__ import annotations

import secrets
import signal
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import trio

from catalogue_client.core.operator_stub import ModuleStatement, make_operator_stub
from catalogue_client.core.state import DomainTrust
from catalogue_client.fetcher import Dialler
from federation.core.auth import Claims
from federation.core.stub_meters import StubMeters
from federation.core.stub_settings import StubSettings
from federation.discovery.identity import Identity, Proof
from federation.error_groups import first_error
from federation.stubs.egress import EgressRules, LineOpener
from federation.stubs.hosted_stub import StubInstance, host
from protofly.documents import Endpoint
from protofly.errors import Code, PeerError, SettingsError, StubFaultError, TransportError
from sandbox.core.budget import Budget
from stubkit.keys import make_key
from stubkit.sandboxed import CompiledStub, compiled_stub, read_module
from stubkit.trace import Trace
from stubkit.trial_link import LiveRequest, LiveResult, TrialLink

TOKEN_SECONDS: Final = 60


class TrialIdentity(Identity):
    """Signs with a key made for one run, and takes any token of the far end."""

    def __init__(self, request: LiveRequest, result: LiveResult) -> None:
        super().__init__(
            node=f"runtime://{request.our_domain}/mn-1",
            domains=[request.our_domain],
            key=make_key("node"),
            trust_of=_no_documents,
        )
        self._peer_domain = request.peer_domain
        self._result = result

    async def verify(
        self,
        token: bytes,  # noqa: ARG002 - nothing of it can be checked
        *,
        endpoints: frozenset[str],
        bindings: frozenset[str],
        nonce: str,
        peer_domain: str = "",
        asked_by: str = "",  # noqa: ARG002
    ) -> Claims:
        """See `Identity`; every token proves the peer's domain."""
        await trio.lowlevel.checkpoint()
        self._result.took_token = True
        now = int(time.time())
        return Claims(
            iss=peer_domain,
            node=f"runtime://{peer_domain}/mn",
            aud=self.domain,
            ep=next(iter(endpoints)),
            nonce=nonce,
            cnonce="",
            cb=next(iter(bindings)),
            iat=now,
            exp=now + TOKEN_SECONDS,
            jti=secrets.token_hex(8),
            doms=[peer_domain],
        )

    async def check_again(self, proof: Proof) -> frozenset[str]:  # noqa: ARG002 - holds as long as the run
        """See `Identity`."""
        await trio.lowlevel.checkpoint()
        return frozenset({self._peer_domain})


async def _no_documents(domain: str, *, is_refresh: bool, asked_by: str = "") -> DomainTrust:  # noqa: ARG001
    await trio.lowlevel.checkpoint()
    raise PeerError(Code.AUTH_KEY_UNKNOWN, "a run without a node has no documents", domain=domain)


class DirectDialler(Dialler):
    """Connects to whatever the author named; no address is refused."""

    async def connect(self, host: str, port: int, *, domain: str) -> trio.SocketStream:  # noqa: ARG002
        """See `Dialler`."""
        try:
            return await trio.open_tcp_stream(host, port)
        except OSError as exc:
            raise TransportError(Code.CONNECT_FAILED, f"{host} port {port}: {exc}", phase="connect") from exc


def run_live(path: Path, request: LiveRequest, trace: Trace, *, insecure_no_seccomp: bool = False) -> LiveResult:
    """Run the stub until its messages have their fate, the time is up, or SIGINT.

    Raises:
        SettingsError: Module, endpoint, message or authority cannot be used, or there is no sandbox here.
        PeerError: The module breaks the contract.
    """
    return trio.run(_run_live, path, request, trace, insecure_no_seccomp)


async def _run_live(path: Path, request: LiveRequest, trace: Trace, insecure_no_seccomp: bool) -> LiveResult:
    module = await trio.to_thread.run_sync(read_module, path)
    async with compiled_stub(module, path, insecure_no_seccomp=insecure_no_seccomp) as compiled:
        return await run_compiled(compiled, request, trace)


async def run_compiled(compiled: CompiledStub, request: LiveRequest, trace: Trace) -> LiveResult:
    """The same in a sandbox that runs.

    Raises:
        SettingsError: See `run_live`.
    """
    facts = compiled.facts
    result = LiveResult(stub=f"{facts.name} {facts.version}")
    link = TrialLink(request, result)
    for raw in request.messages:
        link.send(raw)
    said = ModuleStatement(
        name=facts.name, version=facts.version, configuration=facts.configuration, events=facts.events
    )
    stub = make_operator_stub(
        request.peer_domain, compiled.module, said, *_endpoints(request.endpoints), auth=request.needs_auth
    )
    process = await compiled.sandbox.start_worker(request.peer_domain, compiled.code, Budget())
    process.record(trace)
    instance = StubInstance(
        stub,
        process,
        StubSettings(
            request.our_domain,
            f"runtime://{request.our_domain}/mn-1",
            f"runtime://{request.our_domain}/mn-1/protostub/trial",
            request.peer_domain,
            link.queue.stream,
            "",
            0,
            configuration=request.configuration,
        ),
        EgressRules(request.peer_domain, stub.endpoints, allows_plaintext=True),
        LineOpener(DirectDialler(), _tls_context(request.authority)),
        TrialIdentity(request, result),
        StubMeters(),
    )
    try:
        with trio.move_on_after(float("inf") if request.seconds is None else request.seconds) as limit:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_end_on_interrupt, limit)
                await host(instance, link, link, link.wait_done)
                nursery.cancel_scope.cancel()
    except* StubFaultError as group:
        result.fault = str(first_error(group))
    finally:
        process.close()
    result.is_good = not result.fault and not result.refused and link.is_done
    return result


async def _end_on_interrupt(limit: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT) as signals:
        async for _ in signals:
            limit.cancel()


def _endpoints(urls: Mapping[str, str]) -> list[Endpoint]:
    found = []
    for name, url in urls.items():
        try:
            found.append(msgspec.convert({"name": name, "url": url}, Endpoint))
        except msgspec.ValidationError as exc:
            raise SettingsError(f"endpoint {name}={url}: {exc}") from exc
    return found


def _tls_context(authority: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if authority is not None:
        try:
            context.load_verify_locations(authority)
        except (OSError, ssl.SSLError) as exc:
            raise SettingsError(f"{authority}: {exc.strerror or exc}") from exc
    return context
