"""The proxies in front of a listener: whom their connections and requests count for.

Only the proxies that the settings list are believed. All connections of these have to say whose they are, in the one
way that the settings name; a connection that does not is refused (`proxy-header`). Connections of others are those of
their own clients, whatever header fields they carry.

Bounds per address are for the client. So a connection of a proxy is one of nobody else until it is known whose it is:
it counts for all only, and for its deadline. What a proxy says of itself (health checks) is not from this machine,
wherever the proxy is.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from msg_node.settings.tables.proxies import ClientAddressFrom, ProxiedSettings
from protofly.errors import Code, PeerError
from wire.core.network import Network, parse_networks
from wire.core.proxied import (
    FIRST_BYTES,
    FIXED_BYTES,
    V1_BYTES,
    client_in_header,
    client_of_forwarded,
    client_of_list,
    header_bytes,
    is_in,
)

Fields = Iterable[tuple[bytes, bytes]]
"""Names in lower case and values of the header of a request."""
_READERS: Final = {"x-forwarded-for": client_of_list, "forwarded": client_of_forwarded}


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxies of one listener.

    Attributes:
        networks: Their addresses.
        client_address_from: How they say who their clients are.
    """

    networks: Sequence[Network] = ()
    client_address_from: ClientAddressFrom = "x-forwarded-for"

    @classmethod
    def of(cls, settings: ProxiedSettings) -> Proxies:
        """Those of a section of the settings."""
        return cls(parse_networks(settings.trusted_proxies), settings.client_address_from)

    def include(self, remote: str) -> bool:
        """True if a connection from this address is one of a proxy."""
        return bool(self.networks) and is_in(ipaddress.ip_address(remote.partition("%")[0]), self.networks)

    @property
    def begin_with_header(self) -> bool:
        """True if connections begin with a header of the PROXY protocol."""
        return self.client_address_from == "proxy-protocol"

    def client_of(self, remote: str, fields: Fields) -> str:
        """The client of a request on a connection from an address.

        Raises:
            PeerError: PROXY_HEADER.
        """
        if self.begin_with_header or not self.include(remote):
            return remote
        name = self.client_address_from
        values = [value.decode("latin-1") for field, value in fields if field == name.encode()]
        if not values:
            raise PeerError(Code.PROXY_HEADER, f"the proxy at {remote} sets no `{name}`")
        return str(_READERS[name](values, self.networks))


NO_PROXIES: Final = Proxies()


def fields_of(head: bytes) -> list[tuple[bytes, bytes]]:
    """The fields of the head of a request; what is none is left out, for those who read the head to refuse."""
    lines = head.split(b"\r\n\r\n", 1)[0].split(b"\r\n")[1:]
    pairs = [line.partition(b":") for line in lines]
    return [(name.lower(), value.strip()) for name, mark, value in pairs if mark]


async def read_client(sock: trio.socket.SocketType, remote: str) -> str:
    """Read the PROXY header at the beginning of a connection of a proxy; returns whose connection it is.

    Nothing behind the header is read. The caller sets the time limit.

    Raises:
        PeerError: PROXY_HEADER.
        OSError: The connection failed.
    """
    header = await _exactly(sock, FIRST_BYTES)
    if header_bytes(header) is None:
        while not header.endswith(b"\r\n"):
            header += await _up_to_line_end(sock)
            if len(header) > V1_BYTES:
                raise PeerError(Code.PROXY_HEADER, "the line is too long")
    else:
        header += await _exactly(sock, FIXED_BYTES - FIRST_BYTES)
        header += await _exactly(sock, (header_bytes(header) or FIXED_BYTES) - FIXED_BYTES)
    client = client_in_header(header)
    return f"the proxy {remote} itself" if client is None else str(client)


async def _exactly(sock: trio.socket.SocketType, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = await sock.recv(count - len(data))
        if not part:
            raise PeerError(Code.PROXY_HEADER, "the connection ends before its PROXY header does")
        data += part
    return data


async def _up_to_line_end(sock: trio.socket.SocketType) -> bytes:
    """What is there, up to the end of the line: what comes behind it is for TLS or HTTP."""
    seen = await sock.recv(V1_BYTES, socket.MSG_PEEK)
    return await _exactly(sock, max(seen.find(b"\n") + 1, 0) or len(seen) or 1)
