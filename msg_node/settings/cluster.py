"""Settings of a node that is one of several of its domain: `[cluster]`.

Source: design, section 6.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from msg_node.cluster.node_line import Address
from msg_node.settings.model import Settings

_NAME_CHARS: Final = 59
_SOCKET_PATH_BYTES: Final = 104
"""Linux takes 107, and each further process adds a point and two digits."""


def cluster_problems(settings: Settings) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Check `[cluster]` against `[storage]`."""
    if settings.cluster.standby and not settings.storage.engine:
        yield ("cluster", "standby"), "goes with `storage.engine`: without it there is no state to take over"
    if settings.node.processes != 1:
        yield from _process_problems(settings)
    yield from _bus_problems(settings)


def _process_problems(settings: Settings) -> Iterator[tuple[tuple[str | int, ...], str]]:
    place = ("node", "processes")
    if not settings.storage.engine:
        yield place, "more than one process needs `storage.engine`, the PostgreSQL that they share (docs/cluster.md)"
    if settings.cluster.standby:
        yield place, "goes without `cluster.standby`: a process that dies is started again here"
    if settings.allocation.pool:
        yield place, "goes without `[[allocation.pool]]`: each process would give out the same addresses"
    if len(settings.node.name) > _NAME_CHARS:
        yield place, f"needs a `node.name` of at most {_NAME_CHARS} characters: a number is added to it"


def _bus_problems(settings: Settings) -> Iterator[tuple[tuple[str | int, ...], str]]:
    chosen = settings.cluster
    if not chosen.listen:
        given = [name for name in ("advertise", "key_file") if getattr(chosen, name)]
        if given:
            yield ("cluster", given[0]), "goes with `listen`"
        return
    if not settings.storage.engine:
        yield ("cluster", "listen"), "goes with `storage.engine`: the nodes of a domain find each other there"
    if chosen.key_file is None:
        yield ("cluster", "listen"), "needs `key_file`: head -c 32 /dev/urandom > cluster.key; chmod 600 cluster.key"
    for name in ("listen", "advertise"):
        text = getattr(chosen, name)
        problem = _address_problem(text, is_reached=name == "advertise" or not chosen.advertise) if text else ""
        if problem:
            yield ("cluster", name), problem


def _address_problem(text: str, *, is_reached: bool) -> str:
    try:
        address = Address.parse(text)
    except ValueError as exc:
        return str(exc)
    if is_reached and address.host in ("0.0.0.0", "::"):  # noqa: S104  refused, not bound
        return "nobody can connect to that address: set `advertise`"
    if len(os.fsencode(address.path)) > _SOCKET_PATH_BYTES:
        return f"is too long for a Unix socket: {_SOCKET_PATH_BYTES} bytes at most"
    return "needs a port that the others know" if is_reached and not address.path and not address.port else ""
