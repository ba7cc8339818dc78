"""A site of ours under test, and clients of it that do only what a test asks, from addresses of the loopback net."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
import trustme

from federation.discovery.reverse_check import ReverseChecks
from msg_node.connectors.web_server import WebServer
from msg_node.settings.tables.listeners import SiteSettings
from msg_node.site.site import Site
from tests.support.runtime_rig import PATIENCE_SECONDS, Wire

HONEST = "127.0.0.1"
EVE = "127.0.0.2"
ASK = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


class WebRig:
    """A running site."""

    def __init__(self, site: Site, authority: trustme.CA | None) -> None:
        self.site = site
        self._client_context: ssl.SSLContext | None = None
        if authority is not None:
            self._client_context = ssl.create_default_context()
            authority.configure_trust(self._client_context)
            self._client_context.set_alpn_protocols(["h2", "http/1.1"])

    @property
    def server(self) -> WebServer:
        assert self.site.server is not None
        return self.site.server

    async def connect(self, address: str = HONEST) -> Wire:
        """TCP, and nothing on it yet."""
        port = int(self.site.url.rpartition(":")[2])
        with trio.fail_after(PATIENCE_SECONDS):
            return Wire(await trio.open_tcp_stream(HONEST, port, local_address=address))

    async def wire(self, address: str = HONEST) -> Wire:
        """A connection on which requests can be written: with TLS if the site has it."""
        wire = await self.connect(address)
        if self._client_context is None:
            return wire
        assert isinstance(wire.stream, trio.SocketStream)
        encrypted = trio.SSLStream(
            wire.stream, self._client_context, server_hostname="localhost", https_compatible=True
        )
        try:
            with trio.fail_after(PATIENCE_SECONDS):
                await encrypted.do_handshake()
        except trio.BrokenResourceError:
            await wire.cut()
            raise
        return Wire(encrypted)

    async def ask(self, request: bytes = ASK, *, address: str = HONEST) -> bytes:
        """One request on a connection of its own; what comes until the head and a short body are there."""
        wire = await self.wire(address)
        try:
            await wire.write(request)
            return await wire.read()
        finally:
            await wire.cut()

    async def forgotten(self, *, connections: int = 0) -> None:
        """Wait until no more connections than these are served."""
        with trio.fail_after(PATIENCE_SECONDS):
            while self.server.open_connections > connections:
                await trio.lowlevel.checkpoint()


@asynccontextmanager
async def web_rig(
    folder: Path | None = None, *, reverse_checks: ReverseChecks | None = None, **settings: object
) -> AsyncIterator[WebRig]:
    """A site with health and status pages; with a folder for its certificate, over TLS."""
    authority = None
    if folder is None:
        settings["insecure_plaintext"] = True
    else:
        authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        chain = folder / "site.pem"
        authority.issue_cert("localhost", key_type=trustme.KeyType.ECDSA).private_key_and_cert_chain_pem.write_to_path(
            str(chain)
        )
        settings |= {"certificate": chain, "key": chain}
    site = Site(SiteSettings(port=0, **settings))  # type: ignore[arg-type]
    site.serve_status(lambda: {"links": []})
    if reverse_checks is not None:
        site.serve_reverse_checks(reverse_checks)
    async with trio.open_nursery() as nursery:
        await nursery.start(site.run)
        rig = WebRig(site, authority)
        yield rig
        await rig.forgotten()
        assert rig.server.counters["internal errors"] == 0
        nursery.cancel_scope.cancel()


def open_descriptors() -> int:
    """How many files and sockets this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the listing itself is not one of them twice
