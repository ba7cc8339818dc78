"""Ports for servers that are started later, and again after a kill.

A port is free while its server is down for a restart, and another process would choose it then. So ports are reserved
for the life of the process that chose them: byte N of one file, locked by that process, is port N.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from interop.domain_files import HOST
from protofly.errors import PeerError, SettingsError
from wire.core.network import judge_port

_HANDED_OUT: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 10_000
_USUAL_LOWEST_HANDED_OUT: Final = 32_768
_reserved: Final[set[int]] = set()


def free_ports(count: int) -> list[int]:
    """Different ports of loopback that nobody has now, reserved for this process until it ends.

    The kernel gives them to nobody who does not ask for them: a port that it chose is free until the next connection
    of any process gets it as its own end, too short for a server that has yet to start. Only ports that a foreign node
    would connect to.

    Raises:
        SettingsError: there are not so many, or the file of reservations cannot be written.
    """
    below = _lowest_handed_out()
    candidates = range(_LOWEST, below) if below > 2 * _LOWEST else range(_LOWEST, 1 << 16)
    found: list[int] = []
    if count <= len(candidates):
        for port in random.sample(candidates, len(candidates)):
            if len(found) == count:
                return found
            if port not in _reserved and _is_for_https(port) and reserve([port]):
                found.append(port)
    raise SettingsError(f"{count} free ports on {HOST} are needed: end programs that listen there")


def reserve(ports: Iterable[int]) -> bool:
    """Reserve these ports for this process until it ends; False when another process has one of them.

    Ports that this process has reserved before are reserved already: whose they are within it is its own matter.

    Raises:
        SettingsError: the file of reservations cannot be written.
    """
    for port in ports:
        if port not in _reserved:
            try:
                fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            except OSError:
                return False
            _reserved.add(port)
        if not is_free(port):
            return False
    return True


def is_free(port: int) -> bool:
    """True if a server of loopback could have this port now."""
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


@cache
def _reservations() -> int:
    """The open file: locks are of the process, and closing it would end them."""
    path = Path(tempfile.gettempdir()) / f"trapezoid-ports-{os.getuid()}"
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc


def _is_for_https(port: int) -> bool:
    try:
        judge_port(port)
    except PeerError:
        return False
    return True


def _lowest_handed_out() -> int:
    try:
        return int(_HANDED_OUT.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_LOWEST_HANDED_OUT
