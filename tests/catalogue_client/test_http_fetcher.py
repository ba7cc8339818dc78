"""The fetcher against real TLS servers on loopback, honest and hostile ones."""

from __future__ import annotations

import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
import trio
import trustme

from catalogue_client.fetcher import Dialler, Fetched
from catalogue_client.http_fetcher import HttpFetcher
from protofly.errors import Code, HostError, PeerError, TransportError

URL = "https://b.example/.well-known/rethink-mn"
Handler = Callable[[trio.abc.Stream], Awaitable[None]]


class LoopbackDialler(Dialler):
    """Connects every name to one port of this machine, and remembers what was asked."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.asked: list[tuple[str, int, str]] = []

    async def connect(self, host: str, port: int, *, domain: str) -> trio.SocketStream:
        self.asked.append((host, port, domain))
        return await trio.open_tcp_stream("127.0.0.1", self.port)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@asynccontextmanager
async def serving(
    handler: Handler,
    authority: trustme.CA | None,
    *,
    certificate_for: str = "b.example",
    not_after: datetime | None = None,
) -> AsyncIterator[LoopbackDialler]:
    """Run `handler` for each connection, over TLS if there is an authority."""

    async def handle(stream: trio.SocketStream) -> None:
        try:
            await handler(await with_tls(stream))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            await trio.aclose_forcefully(stream)

    async def with_tls(stream: trio.SocketStream) -> trio.abc.Stream:
        if authority is None:
            return stream
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(certificate_for, not_after=not_after).configure_cert(context)
        return trio.SSLStream(stream, context, server_side=True, https_compatible=True)

    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, handle, 0, host="127.0.0.1", handler_nursery=nursery)
        listeners = await nursery.start(serve)
        yield LoopbackDialler(listeners[0].socket.getsockname()[1])
        nursery.cancel_scope.cancel()


def context_of(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def answering(*parts: bytes) -> Handler:
    """Read the request, send `parts`, close."""

    async def handler(stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        for part in parts:
            await stream.send_all(part)
        await stream.aclose()

    return handler


def response(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def fetch(fetcher: HttpFetcher, url: str = URL, *, max_bytes: int = 1000, deadline: float = 5) -> Fetched:
    return await fetcher.fetch(url, domain="b.example", max_bytes=max_bytes, deadline_seconds=deadline)


@contextmanager
def refused(code: Code, kind: type[HostError] = PeerError) -> Iterator[None]:
    """Expect one of our errors, alone: trio wraps what leaves the server's nursery."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.code is code


async def test_honest_server_is_read_with_its_caching_words(authority: trustme.CA) -> None:
    answer = response(b"{}", "Cache-Control: public, max-age=600", "Age: 100")
    async with serving(answering(answer), authority) as dialler:
        fetched = await fetch(HttpFetcher(dialler, context_of(authority)))
    assert fetched == Fetched(body=b"{}", max_age_seconds=500.0, content_type="application/json")
    assert dialler.asked == [("b.example", 443, "b.example")]


async def test_no_store_is_zero_and_silence_is_none(authority: trustme.CA) -> None:
    async with serving(answering(response(b"{}", "Cache-Control: no-store")), authority) as dialler:
        assert (await fetch(HttpFetcher(dialler, context_of(authority)))).max_age_seconds == 0
    async with serving(answering(response(b"{}")), authority) as dialler:
        assert (await fetch(HttpFetcher(dialler, context_of(authority)))).max_age_seconds is None


async def test_request_names_the_domain_wherever_the_line_goes(authority: trustme.CA) -> None:
    seen: list[bytes] = []

    async def handler(stream: trio.abc.Stream) -> None:
        seen.append(bytes(await stream.receive_some()))
        await stream.send_all(response(b"{}"))

    async with serving(handler, authority) as dialler:
        fetcher = HttpFetcher(dialler, context_of(authority))
        await fetcher.fetch(
            URL, domain="b.example", max_bytes=10, deadline_seconds=5, connect_to=("host.provider.example", 8443)
        )
    assert dialler.asked == [("host.provider.example", 8443, "b.example")]
    assert b"Host: b.example\r\n" in seen[0] or b"host: b.example\r\n" in seen[0]
    assert b"accept-encoding: identity" in seen[0].lower()


async def test_certificate_for_another_name_is_refused(authority: trustme.CA) -> None:
    for name in ("b.example.evil.example", "*.b.example", "host.provider.example"):
        async with serving(answering(response(b"{}")), authority, certificate_for=name) as dialler:
            with refused(Code.TLS_FAILED):
                await fetch(HttpFetcher(dialler, context_of(authority)))


async def test_expired_certificate_is_refused(authority: trustme.CA) -> None:
    ended = datetime.now(UTC) - timedelta(days=1)
    async with serving(answering(response(b"{}")), authority, not_after=ended) as dialler:
        with refused(Code.TLS_FAILED):
            await fetch(HttpFetcher(dialler, context_of(authority)))


async def test_certificate_of_an_unknown_authority_is_refused(authority: trustme.CA) -> None:
    async with serving(answering(response(b"{}")), trustme.CA()) as dialler:
        with refused(Code.TLS_FAILED):
            await fetch(HttpFetcher(dialler, context_of(authority)))


async def test_server_that_speaks_no_tls_is_refused(authority: trustme.CA) -> None:
    async with serving(answering(response(b"{}")), None) as dialler:
        with refused(Code.TLS_FAILED):
            await fetch(HttpFetcher(dialler, context_of(authority)))


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
async def test_redirect_is_an_error_and_no_second_request_is_made(authority: trustme.CA, status: str) -> None:
    answer = response(b"", "Location: https://127.0.0.1/", status=status)
    async with serving(answering(answer), authority) as dialler:
        with refused(Code.REDIRECT_REFUSED):
            await fetch(HttpFetcher(dialler, context_of(authority)))
    assert len(dialler.asked) == 1


@pytest.mark.parametrize("status", ["204 No Content", "206 Partial Content", "404 Not Found", "500 Oops"])
async def test_only_200_counts(authority: trustme.CA, status: str) -> None:
    async with serving(answering(response(b"", status=status)), authority) as dialler:
        with refused(Code.HTTP_STATUS):
            await fetch(HttpFetcher(dialler, context_of(authority)))


async def test_announced_gigabyte_is_refused_before_it_is_read(authority: trustme.CA) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n"
    async with serving(answering(head), authority) as dialler:
        with refused(Code.DOCUMENT_TOO_LARGE):
            await fetch(HttpFetcher(dialler, context_of(authority)))


async def test_endless_chunked_body_is_cut_at_the_limit(authority: trustme.CA) -> None:
    async def handler(stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await stream.send_all(b"400\r\n" + b"x" * 1024 + b"\r\n")

    async with serving(handler, authority) as dialler:
        with refused(Code.DOCUMENT_TOO_LARGE):
            await fetch(HttpFetcher(dialler, context_of(authority)), max_bytes=10_000)


@pytest.mark.parametrize("line", [b"X-Filler: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n", b"z" * 1000])
async def test_headers_that_never_end_are_cut(authority: trustme.CA, line: bytes) -> None:
    async def handler(stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 200 OK\r\n")
        while True:
            await stream.send_all(line * 10)

    async with serving(handler, authority) as dialler:
        with pytest.raises(PeerError) as caught:
            await fetch(HttpFetcher(dialler, context_of(authority)))
    assert caught.value.code in {Code.DOCUMENT_TOO_LARGE, Code.BAD_REPLY}


async def test_flood_of_100_continue_is_cut(authority: trustme.CA) -> None:
    async def handler(stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        while True:
            await stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n" * 40)

    async with serving(handler, authority) as dialler:
        with refused(Code.BAD_REPLY):
            await fetch(HttpFetcher(dialler, context_of(authority)))


async def test_gzip_bomb_is_refused_without_unpacking(authority: trustme.CA) -> None:
    bomb = gzip.compress(bytes(1 << 20))
    async with serving(answering(response(bomb, "Content-Encoding: gzip")), authority) as dialler:
        with refused(Code.BAD_REPLY):
            await fetch(HttpFetcher(dialler, context_of(authority)), max_bytes=1 << 20)


@pytest.mark.parametrize("came", [0, 10, 80, 120])
async def test_a_line_that_ends_before_the_whole_answer_has_failed_and_not_the_server(
    authority: trustme.CA, came: int
) -> None:
    async with serving(answering(response(b"x" * 100)[:came]), authority) as dialler:
        with refused(Code.CONNECT_FAILED, TransportError):
            await fetch(HttpFetcher(dialler, context_of(authority)))


async def test_a_line_that_ends_in_the_tls_handshake_has_failed_and_not_the_server(authority: trustme.CA) -> None:
    async with serving(answering(), None) as dialler:
        with refused(Code.CONNECT_FAILED, TransportError):
            await fetch(HttpFetcher(dialler, context_of(authority)))


async def test_answer_that_is_not_http_is_refused(authority: trustme.CA) -> None:
    async with serving(answering(b"SSH-2.0-OpenSSH_9.9\r\n\r\n"), authority) as dialler:
        with refused(Code.BAD_REPLY):
            await fetch(HttpFetcher(dialler, context_of(authority)))


@pytest.mark.parametrize("speaks", ["never", "after the request"])
async def test_silence_ends_at_the_deadline(authority: trustme.CA, speaks: str) -> None:
    async def handler(stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx")
        await trio.sleep_forever()

    async def mute(_stream: trio.abc.Stream) -> None:
        await trio.sleep_forever()

    async with serving(mute if speaks == "never" else handler, authority) as dialler:
        with refused(Code.FETCH_TIMEOUT, TransportError):
            await fetch(HttpFetcher(dialler, context_of(authority)), deadline=0.1)


async def test_drip_below_the_minimum_rate_is_cut_long_before_the_deadline(authority: trustme.CA) -> None:
    async def handler(stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            await stream.send_all(b"x")
            await trio.sleep(0.005)

    async with serving(handler, authority) as dialler:
        fetcher = HttpFetcher(dialler, context_of(authority), minimum_window_seconds=0.05)
        with refused(Code.FETCH_TIMEOUT, TransportError):
            await fetch(fetcher, max_bytes=100_000, deadline=60)


async def test_refused_line_is_a_transport_error(authority: trustme.CA) -> None:
    async with serving(answering(), authority) as dialler:
        pass
    with pytest.raises((TransportError, OSError)):
        await fetch(HttpFetcher(dialler, context_of(authority)))


async def test_line_that_breaks_during_the_answer_is_one_of_our_errors(authority: trustme.CA) -> None:
    async def handler(stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx")
        await trio.aclose_forcefully(stream)

    async with serving(handler, authority) as dialler:
        with pytest.raises((PeerError, TransportError)):
            await fetch(HttpFetcher(dialler, context_of(authority)))


@pytest.mark.parametrize(
    "url",
    [
        "http://b.example/",
        "file:///etc/passwd",
        "ftp://b.example/",
        "https://user@b.example/",
        "https://b.example:99999/",
        "https://[::1/",
        "https:///path",
        "https://b.example/a b",
        "https://b.example/\r\nX: y",
        "https://bücher.example/",
    ],
)
async def test_url_that_is_not_plain_https_is_refused_before_any_connection(authority: trustme.CA, url: str) -> None:
    dialler = LoopbackDialler(1)
    with refused(Code.ADDRESS_REFUSED):
        await fetch(HttpFetcher(dialler, context_of(authority)), url)
    assert dialler.asked == []


async def test_plaintext_works_for_named_domains_only(authority: trustme.CA) -> None:
    async with serving(answering(response(b"{}")), None) as dialler:
        fetcher = HttpFetcher(dialler, context_of(authority), insecure_plaintext=["b.example"])
        assert (await fetch(fetcher, "http://b.example/x")).body == b"{}"
        with refused(Code.ADDRESS_REFUSED):
            await fetcher.fetch("http://b.example/x", domain="c.example", max_bytes=10, deadline_seconds=5)


def test_context_that_does_not_verify_is_refused() -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    with pytest.raises(ValueError, match="verify"):
        HttpFetcher(LoopbackDialler(1), context)
