"""Real lines for tests: connected sockets, with and without TLS, and the far end as a bare socket where that helps."""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from struct import pack

import trio
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from catalogue_client.fetcher import Dialler
from federation.core.auth import channel_binding
from protofly.errors import Code, TransportError
from wire.byte_channel import ByteChannel

RESET_ON_CLOSE = pack("ii", 1, 0)


@cache
def authority(name: str = "tests") -> trustme.CA:
    """A certificate authority that lives as long as the tests; another name, another authority."""
    return trustme.CA(organization_name=name)


@cache
def certificate_of(host: str, authority_name: str = "tests", number: int = 0) -> trustme.LeafCert:
    """A certificate for a host; another `number`, another key."""
    return authority(authority_name).issue_cert(host, organization_name=str(number))


def certificate_sha256(certificate: trustme.LeafCert) -> bytes:
    pem = certificate.cert_chain_pems[0].bytes()
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.decode())).digest()


def certificate_der(certificate: trustme.LeafCert) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode())


def public_key_sha256(certificate: trustme.LeafCert) -> bytes:
    """What an `spki` pin is made of."""
    key = x509.load_der_x509_certificate(certificate_der(certificate)).public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


def binding_of(certificate: trustme.LeafCert) -> str:
    """The channel binding of connections that end at this certificate."""
    return channel_binding(certificate_sha256(certificate))


@cache
def server_context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


@cache
def client_context(authority_name: str = "tests") -> ssl.SSLContext:
    """Trusts one authority and nobody else; names are checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority(authority_name).configure_trust(context)
    return context


def stream_pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    ours, theirs = trio.socket.socketpair()
    return trio.SocketStream(ours), trio.SocketStream(theirs)


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of one TCP connection on loopback; only such a line can be reset."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    return ours, theirs


def as_stream(sock: socket.socket) -> trio.SocketStream:
    return trio.SocketStream(trio.socket.from_stdlib_socket(sock))


def reset(sock: socket.socket) -> None:
    """Close so that the far end gets a reset instead of an end of stream."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    sock.close()


@asynccontextmanager
async def channel_pair(*, is_tls: bool = False) -> AsyncIterator[tuple[ByteChannel, ByteChannel]]:
    """Client and server end of one line."""
    ours, theirs = stream_pair()
    made: list[ByteChannel] = []
    async with trio.open_nursery() as drains:

        async def serve() -> None:
            context = server_context(certificate_of("mn.b.example")) if is_tls else None
            made.append(await ByteChannel.over(theirs, drain_nursery=drains, context=context, server_side=True))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            client = await ByteChannel.over(
                ours,
                drain_nursery=drains,
                context=client_context() if is_tls else None,
                server_hostname="mn.b.example" if is_tls else None,
            )
        [server] = made
        async with client, server:
            yield client, server
        drains.cancel_scope.cancel()


async def receive_exactly(channel: ByteChannel, size: int) -> bytes:
    """So many bytes; fewer when the stream ends before."""
    parts, have = [], 0
    while have < size and (part := await channel.receive()):
        parts.append(part)
        have += len(part)
    return b"".join(parts)


async def receive_to_end(channel: ByteChannel) -> bytes:
    parts = []
    while part := await channel.receive():
        parts.append(part)
    return b"".join(parts)


class LoopbackDialler(Dialler):
    """Leads every host to where a test listens, and remembers what was asked."""

    def __init__(self, **places: int) -> None:
        self.places = dict(places)
        """Port on loopback by host name, `_` for each dot."""
        self.asked: list[tuple[str, int, str]] = []

    async def connect(self, host: str, port: int, *, domain: str) -> trio.SocketStream:
        self.asked.append((host, port, domain))
        place = self.places.get(host.replace(".", "_"))
        if place is None:
            await trio.lowlevel.checkpoint()
            raise TransportError(Code.CONNECT_FAILED, f"nobody listens for {host}", phase="connect")
        return await trio.open_tcp_stream("127.0.0.1", place)
