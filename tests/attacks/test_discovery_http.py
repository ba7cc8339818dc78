"""Attack rows 7 and 12: web servers that send us elsewhere, hosts that answer for a domain without its certificate."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
import trustme

from catalogue_client.http_fetcher import HttpFetcher
from federation.discovery.dialler import Dialler
from federation.discovery.resolver import Resolver
from interop.name_server import Records
from protofly.errors import Code, HostError, PeerError
from tests.support.names import name_service, names_with_addresses
from wire.core.network import parse_networks

LOOPBACK = {"b.example": parse_networks(["127.0.0.0/8"])}
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{}"


@asynccontextmanager
async def web_server(answer: bytes, context: ssl.SSLContext | None = None) -> AsyncIterator[tuple[int, list[bytes]]]:
    """One answer to every request; its port and the requests that arrived."""
    requests: list[bytes] = []

    async def serve(stream: trio.abc.Stream) -> None:
        if context is not None:
            stream = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        try:
            request = bytes(await stream.receive_some(65_536))
            if request:
                requests.append(request)
                await stream.send_all(answer)
            await stream.aclose()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async with trio.open_nursery() as nursery:
        listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield listener.socket.getsockname()[1], requests
        nursery.cancel_scope.cancel()


async def fetch(fetcher: HttpFetcher, url: str, connect_to: tuple[str, int] | None = None) -> bytes:
    with trio.fail_after(5):
        fetched = await fetcher.fetch(
            url, domain="b.example", max_bytes=1000, deadline_seconds=4, connect_to=connect_to
        )
    return fetched.body


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "target", ["http://127.0.0.2:{port}/", "http://c.example:{port}/", "/elsewhere", "//b.example:{port}/"]
)
@pytest.mark.parametrize("path", ["/.well-known/rethink-mn", "/.well-known/protocolstub/default", "/module.wasm"])
async def test_redirect_is_an_error_and_nothing_else_is_asked(status: int, target: str, path: str) -> None:
    names = names_with_addresses(b_example=["127.0.0.1"])
    async with web_server(ANSWER) as (other_port, other_requests):
        head = f"HTTP/1.1 {status} Moved\r\nlocation: {target.format(port=other_port)}\r\ncontent-length: 0\r\n\r\n"
        async with web_server(head.encode()) as (port, requests):
            dialler = Dialler(names, allow_addresses=LOOPBACK)
            fetcher = HttpFetcher(dialler, ssl.create_default_context(), insecure_plaintext=["b.example"])
            with pytest.raises(PeerError, check=lambda error: error.code is Code.REDIRECT_REFUSED):
                await fetch(fetcher, f"http://b.example:{port}{path}")
            assert len(requests) == 1
            assert other_requests == []
            assert set(names.asked) == {"A b.example", "AAAA b.example"}


async def test_service_target_serves_with_the_domain_s_certificate_name_and_host() -> None:
    outcome, requests = await well_known_of("b.example")
    assert outcome == b"{}"
    assert b"\r\nhost: b.example\r\n" in requests[0].lower()


@pytest.mark.parametrize(
    "name", ["host.example", "mn.b.example", "*.b.example", "a.example", "evil.b.example.evil.example"]
)
async def test_certificate_for_any_other_name_is_refused_before_anything_is_asked(name: str) -> None:
    assert await well_known_of(name) == (Code.TLS_FAILED, [])


async def test_certificate_of_an_unknown_authority_is_refused_before_anything_is_asked() -> None:
    assert await well_known_of("b.example", believed=trustme.CA()) == (Code.TLS_FAILED, [])


async def well_known_of(name: str, *, believed: trustme.CA | None = None) -> tuple[bytes | Code, list[bytes]]:
    """Discover b.example, whose SVCB target host.example holds a certificate for `name`, and fetch its document."""
    authority = trustme.CA()
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(server_context)
    client_context = ssl.create_default_context()
    (believed or authority).configure_trust(client_context)
    async with web_server(ANSWER, server_context) as (port, requests):
        records: dict[str, Records] = {
            "_rethink-mn.b.example": [f"SVCB 1 host.example. port={port}"],
            "host.example": ["A 127.0.0.1"],
        }
        async with name_service(records) as (_, client):
            location = await Resolver(client, own_domains=["a.example"]).resolve("b.example")
            fetcher = HttpFetcher(Dialler(client, allow_addresses=LOOPBACK), client_context)
            try:
                return await fetch(fetcher, location.well_known_url, location.connect_to), requests
            except HostError as error:
                return error.code, requests
