"""What a node says about itself at `/status`, as types: unknown members are ignored, missing ones have defaults."""

from __future__ import annotations

import ssl
from typing import Final

import httpx
import msgspec
from msgspec import Struct

from protofly.errors import Code, TransportError

STATUS_SECONDS: Final = 30.0


class ContactStep(Struct, frozen=True, kw_only=True):
    """One step of the first contact with a foreign domain."""

    name: str
    ms: float


class StubIdentity(Struct, frozen=True, kw_only=True):
    """Identity of the module that runs for a foreign domain; "" in all members while there is none."""

    name: str = ""
    version: str = ""
    sha256: str = ""


class LinkStatus(Struct, frozen=True, kw_only=True):
    """One foreign domain as the node sees it. `cache` is `hit` or `miss`."""

    domain: str
    state: str = ""
    problem: str = ""
    worker_pid: int | None = None
    stub: StubIdentity | None = None
    cache: str = ""
    steps: tuple[ContactStep, ...] = ()
    sent: int = 0
    accepted: int = 0
    delivered: int = 0
    denied: int = 0
    lost: int = 0


class Hop(Struct, frozen=True, kw_only=True):
    """A traced message at one place inside a node."""

    name: str
    at_us: float


class TraceStatus(Struct, frozen=True, kw_only=True):
    """The hops of one traced message through this node."""

    id: str
    hops: tuple[Hop, ...] = ()


class ClusterStatus(Struct, frozen=True, kw_only=True):
    """The other nodes of the domain: `domains` says which node has the link to which other domain."""

    domains: dict[str, str] = {}


class NodeStatus(Struct, frozen=True, kw_only=True):
    """The whole answer."""

    domain: str
    node: str = ""
    pid: int = 0
    rss_kib: int = 0
    sessions: int = 0
    counters: dict[str, int] = {}
    links: tuple[LinkStatus, ...] = ()
    traces: tuple[TraceStatus, ...] = ()
    cluster: ClusterStatus | None = None

    def link_to(self, domain: str) -> LinkStatus | None:
        """The link to a foreign domain, None if there is none."""
        return next((link for link in self.links if link.domain == domain), None)

    def trace(self, id_: str) -> TraceStatus | None:
        """One trace, None if the message did not come by or was forgotten."""
        return next((trace for trace in self.traces if trace.id == id_), None)


_DECODE = msgspec.json.Decoder(NodeStatus).decode


async def fetch_status(url: str, context: ssl.SSLContext) -> NodeStatus:
    """Read one node's status.

    Raises:
        TransportError: NOT_CONNECTED when the site does not answer, BAD_REPLY when it answers something else.
    """
    try:
        async with httpx.AsyncClient(verify=context, trust_env=False, timeout=STATUS_SECONDS) as client:
            response = await client.get(url)
    except httpx.HTTPError as error:
        raise TransportError(
            Code.NOT_CONNECTED, f"{url}: {str(error) or 'no answer in time'}", phase="connect"
        ) from error
    if response.status_code != 200:
        raise TransportError(Code.BAD_REPLY, f"{url}: HTTP {response.status_code}")
    try:
        return _DECODE(response.content)
    except msgspec.DecodeError as error:
        raise TransportError(Code.BAD_REPLY, f"{url}: {error}") from error
