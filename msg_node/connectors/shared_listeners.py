"""Listeners at one address that several processes of one user share; the system gives each connection to one of them.

The option is SO_REUSEPORT, which Linux describes in the manual page socket(7).
"""

from __future__ import annotations

import socket
from typing import Final

import trio

_BACKLOG: Final = 4096


def reserve(host: str, port: int) -> list[socket.socket]:
    """Bind an address for processes that will share it. Nothing listens yet, and only processes of this user can join.

    Args:
        host: All its addresses are bound.
        port: 0 lets the system choose one.

    Raises:
        OSError: Somebody else is there, or it is no address of this machine.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in found:
            one = socket.socket(family, kind, protocol)
            bound.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((address[0], port or _port_of(bound[0])))
    except OSError:
        for one in bound:
            one.close()
        raise
    return bound


def listen_shared(host: str, port: int) -> list[trio.SocketListener]:
    """Listen beside other processes of this node. Raises OSError as `reserve`."""
    listeners = []
    for one in reserve(host, port):
        one.listen(_BACKLOG)
        listeners.append(trio.SocketListener(trio.socket.from_stdlib_socket(one)))
    return listeners


def _port_of(bound: socket.socket) -> int:
    """The port that the system chose; 0 as long as it has not."""
    return int(bound.getsockname()[1])
