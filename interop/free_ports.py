"""Ports for servers that are started later, and again after a kill."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

from interop.domain_files import HOST
from protofly.errors import PeerError, SettingsError
from wire.core.network import judge_port

_HANDED_OUT: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 10_000
_USUAL_LOWEST_HANDED_OUT: Final = 32_768


def free_ports(count: int) -> list[int]:
    """Different ports of loopback that nobody has now, and that the kernel gives to nobody who does not ask for them.

    A port that the kernel chose is free until the next connection of any process gets it as its own end: too short
    for a server that has yet to start. Only ports that a foreign node would connect to.

    Raises:
        SettingsError: there are not so many.
    """
    found: list[int] = []
    below = _lowest_handed_out()
    candidates = range(_LOWEST, below) if below > 2 * _LOWEST else range(_LOWEST, 1 << 16)
    for port in random.sample(candidates, len(candidates)):
        if len(found) == count:
            return found
        if _is_for_https(port) and is_free(port):
            found.append(port)
    raise SettingsError(f"{count} free ports on {HOST} are needed")


def is_free(port: int) -> bool:
    """Whether a server of loopback could have this port now."""
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


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
