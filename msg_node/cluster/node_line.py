"""Where nodes of one domain listen for each other, and how they connect: over TCP with TLS, or a Unix socket.

An address is `host:port`, or `unix:/path` for nodes on one machine. Over TCP each process makes a certificate of its
own when it starts. Nobody verifies it against an authority: it encrypts, and the handshake binds the proof of the
cluster's key to it, so that a node in the middle is found out. See `core.handshake`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import socket
import ssl
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from protofly.errors import Code, SettingsError, TransportError
from wire.byte_channel import ByteChannel

_UNIX = "unix:"
_LIFE = dt.timedelta(days=3650)  # of the process, in truth: nobody reads the dates


@dataclass(frozen=True, slots=True)
class Address:
    """Address at which a node listens for others: a TCP endpoint, or a Unix socket by its `path`."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `host:port`, `[v6]:port` or `unix:/path`. Raises ValueError."""
        if text.startswith(_UNIX):
            path = text.removeprefix(_UNIX)
            if not path.startswith("/"):
                raise ValueError("the path of a Unix socket begins with /")
            return cls(path=path)
        host, separator, port = text.rpartition(":")
        if not separator or not host or not port.isdecimal() or int(port) > 65_535:
            raise ValueError("an address of a node is host:port or unix:/path")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        if self.path:
            return _UNIX + self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class LineSecurity:
    """The certificate of this process, and the TLS contexts of both ends.

    Attributes:
        binding: Hash of the certificate, as the other end sees it.
    """

    def __init__(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "trapezoid node")])
        begins = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(begins + _LIFE * 3)
            .sign(key, hashes.SHA256())
        )
        self.binding = hashlib.sha256(certificate.public_bytes(Encoding.DER)).digest()
        self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client.check_hostname = False
        self._client.verify_mode = ssl.CERT_NONE  # see the module
        for context in (self._server, self._client):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with (
            tempfile.TemporaryDirectory() as folder
        ):  # the library reads keys from files only; the folder has mode 0700
            path = Path(folder) / "line.pem"
            path.write_bytes(secret + certificate.public_bytes(Encoding.PEM))
            self._server.load_cert_chain(path)

    async def accepted(self, stream: trio.SocketStream, nursery: trio.Nursery) -> tuple[ByteChannel, bytes]:
        """Encrypt a connection that another node made. Gives it with the binding. Raises TransportError."""
        if stream.socket.family == socket.AF_UNIX:
            return await ByteChannel.over(stream, drain_nursery=nursery), b""
        channel = await ByteChannel.over(stream, drain_nursery=nursery, context=self._server, server_side=True)
        return channel, self.binding

    async def connect(self, address: Address, nursery: trio.Nursery) -> tuple[ByteChannel, bytes]:
        """Connect to another node. Gives the connection with the binding. Raises TransportError."""
        try:
            if address.path:
                stream = await trio.open_unix_socket(address.path)
                return await ByteChannel.over(stream, drain_nursery=nursery), b""
            stream = await trio.open_tcp_stream(address.host, address.port)
        except OSError as exc:
            raise TransportError(Code.CONNECT_FAILED, f"{address}: {exc}", phase="connect") from exc
        channel = await ByteChannel.over(stream, drain_nursery=nursery, context=self._client)
        return channel, channel.peer_certificate_sha256


async def listen(address: Address) -> list[trio.SocketListener]:
    """Listen for other nodes.

    Raises:
        SettingsError: The address cannot be used.
    """
    try:
        if not address.path:
            return list(await trio.open_tcp_listeners(address.port, host=address.host))
        _remove_abandoned(Path(address.path))
        plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            plain.bind(address.path)
        finally:
            os.umask(mask)
        plain.listen(64)
        return [trio.SocketListener(trio.socket.from_stdlib_socket(plain))]
    except OSError as exc:
        raise SettingsError(f"cluster: cannot listen on {address}: {exc}") from exc


def _remove_abandoned(path: Path) -> None:
    """Remove the socket of a process that has ended. One that answers is left alone, so that `bind` fails."""
    if not path.exists() or not stat.S_ISSOCK(path.lstat().st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
