"""The servers of a partner: name server, site and link endpoint, for all of its domains on one port each."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import trio
import trustme
from trio_websocket import HandshakeError, wrap_server_stream

from interop.domain_files import HOST, Ports
from interop.name_server import NameServer
from interop.partner.core.frames import SUBPROTOCOL
from interop.partner.domain import PartnerDomain, SiteFault
from interop.partner.line import FRAME_BYTES, LOST, QUEUED_FRAMES, PartnerLine

_HEAD_BYTES: Final = 16 << 10
_CHUNK: Final = 16 << 10
_CONNECTION_SECONDS: Final = 120.0
_LINK: Final = "link"
_SITE: Final = "site"
Encrypted = trio.SSLStream[trio.SocketStream]


class PartnerServers:
    """Serves `domains`, by their names; a domain that is added or changed counts at once."""

    def __init__(self, domains: Mapping[str, PartnerDomain], authority: trustme.CA, ports: Ports) -> None:
        self.ports = ports
        self._domains = domains
        self._authority = authority
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {}
        self._certificates: dict[tuple[str, ...], bytes] = {}
        self.names = NameServer({}, ttl_seconds=60, negative_seconds=60)

    def publish_names(self) -> None:
        """Answer with the records that the domains have now."""
        self.names.replace({name: texts for domain in self._domains.values() for name, texts in domain.records.items()})

    def asked(self, domain: str) -> list[str]:
        """Names of a domain, and below it, that were asked for."""
        return [query.name for query in self.names.queries if query.name.endswith(domain)]

    async def run(self, name_port: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled.

        Raises:
            OSError: A port is taken.
        """
        self.publish_names()
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(self.names.run, port=name_port))
            for port, kind in ((self.ports.site, _SITE), (self.ports.listen, _LINK)):
                listeners = await trio.open_tcp_listeners(port, host=HOST)
                nursery.start_soon(trio.serve_listeners, partial(self._serve, kind), listeners)
            task_status.started()

    async def _serve(self, kind: str, stream: trio.SocketStream) -> None:
        asked: list[PartnerDomain] = []
        encrypted = trio.SSLStream(stream, self._context(kind, asked), server_side=True, https_compatible=True)
        with suppress(*LOST, HandshakeError), trio.move_on_after(_CONNECTION_SECONDS):
            try:
                if kind == _SITE:
                    await self._serve_site(encrypted)
                else:
                    await self._serve_link(encrypted, asked)
            finally:
                await trio.aclose_forcefully(encrypted)

    def _context(self, kind: str, asked: list[PartnerDomain]) -> ssl.SSLContext:
        """A context that takes the certificate by the name that the client asks for; `asked` gets its domain."""

        def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
            domain = self._domains.get((name or "").removeprefix("mn."))
            if domain is None:
                return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
            asked.append(domain)
            names = domain.certificate_for if kind == _SITE else (domain.name, f"mn.{domain.name}")
            connection.context = self._context_for(names)
            return None

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.sni_callback = choose  # type: ignore[assignment, unused-ignore]
        return context

    def _context_for(self, names: tuple[str, ...]) -> ssl.SSLContext:
        if names not in self._contexts:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            leaf = self._authority.issue_cert(*names)
            leaf.configure_cert(context)
            self._certificates[names] = ssl.PEM_cert_to_DER_cert(leaf.cert_chain_pems[0].bytes().decode())
            self._contexts[names] = context
        return self._contexts[names]

    async def _serve_site(self, stream: Encrypted) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            data = await stream.receive_some(_CHUNK)
            head += data
            if not data or len(head) > _HEAD_BYTES:
                return
        lines = head.decode("latin-1").split("\r\n")
        path = lines[0].split(" ")[1] if lines[0].count(" ") == 2 else ""
        host = next((line.partition(":")[2].strip() for line in lines if line.lower().startswith("host:")), "")
        domain = self._domains.get(host.partition(":")[0])
        if domain is not None:
            domain.asked(path)
            await _answer(stream, domain, path)

    async def _serve_link(self, stream: Encrypted, asked: list[PartnerDomain]) -> None:
        await stream.do_handshake()
        async with trio.open_nursery() as nursery:
            request = await wrap_server_stream(
                nursery, stream, message_queue_size=QUEUED_FRAMES, max_message_size=FRAME_BYTES
            )
            if not asked or SUBPROTOCOL not in request.proposed_subprotocols:
                await request.reject(404)
                return
            domain = asked[0]
            websocket = await request.accept(subprotocol=SUBPROTOCOL)
            certificate = self._certificates[domain.name, f"mn.{domain.name}"]
            domain.arrived(PartnerLine(stream, websocket, domain.note, own_certificate=certificate))


async def _answer(stream: Encrypted, domain: PartnerDomain, path: str) -> None:
    served = domain.publication.files.get(path)
    fault = domain.fault or SiteFault(status=200 if served is not None else 404)
    body = fault.body if fault.body is not None else served or b""
    length = max(len(body), fault.body_bytes)
    kind = "application/wasm" if path.endswith(".wasm") else "application/json"
    headers = {
        "Content-Type": kind,
        "Content-Length": str(length),
        "Cache-Control": "max-age=3600",
        "Connection": "close",
        **fault.headers,
    }
    lines = [f"HTTP/1.1 {fault.status} {path[-1:]}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    await stream.send_all("\r\n".join(lines).encode())
    step = 1 if fault.pause_seconds else _CHUNK
    for begin in range(0, length, step):
        chunk = body[begin : begin + step]
        await stream.send_all(chunk + b"\0" * (min(step, length - begin) - len(chunk)))
        domain.sent_bytes += step
        await trio.sleep(fault.pause_seconds)
    await stream.aclose()
