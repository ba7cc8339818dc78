"""The node under test as a partner sees it: its documents, and lines to its link endpoint."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import httpx
import trio
from trio_websocket import HandshakeError, wrap_client_stream

from interop.conformance.outcome import NodeFaultError
from interop.domain_files import HOST
from interop.partner.core.frames import SUBPROTOCOL
from interop.partner.core.publication import WELL_KNOWN, payload_of
from interop.partner.line import FRAME_BYTES, QUEUED_FRAMES, Note, PartnerLine
from interop.partner.terms import NodeTerms
from interop.patience import Patience
from protofly.errors import Code, TransportError

_FETCH_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """One answer of the node's site."""

    status: int
    content_type: str
    body: bytes


class NodeUnderTest:
    """The node under test."""

    def __init__(self, terms: NodeTerms, context: ssl.SSLContext) -> None:
        self.terms = terms
        self.context = context

    @property
    def domain(self) -> str:
        """Its domain."""
        return self.terms.domain

    async def fetch(self, path: str) -> Fetched:
        """Ask its site, as another domain does.

        Raises:
            TransportError: It does not answer.
        """
        url = f"https://{HOST}:{self.terms.site_port}{path}"
        host = f"{self.domain}:{self.terms.site_port}"
        try:
            async with httpx.AsyncClient(verify=self.context, timeout=_FETCH_SECONDS, trust_env=False) as client:
                request = client.build_request(
                    "GET", url, headers={"Host": host}, extensions={"sni_hostname": self.domain}
                )
                answer = await client.send(request)
        except (httpx.HTTPError, OSError) as exc:
            raise TransportError(Code.CONNECT_FAILED, f"site of {host}: {exc!r}", phase="connect") from exc
        return Fetched(
            status=answer.status_code,
            content_type=answer.headers.get("content-type", "").partition(";")[0],
            body=answer.content,
        )

    async def live(self) -> dict[str, object]:
        """Its live document, unverified.

        Raises:
            NodeFaultError: It publishes none.
            TransportError: It does not answer.
        """
        answer = await self.fetch(WELL_KNOWN)
        try:
            return dict(json.loads(payload_of(answer.body)))
        except (ValueError, KeyError, TypeError) as exc:
            raise NodeFaultError(f"{WELL_KNOWN}: {answer.status}, no live document") from exc

    async def node_keys(self) -> Mapping[str, Mapping[str, object]]:
        """The node keys that it publishes now. Errors as of `live`."""
        keys = (await self.live()).get("node_keys")
        return keys if isinstance(keys, dict) else {}

    async def connect(self, nursery: trio.Nursery, note: Note) -> PartnerLine:
        """Connect to its link endpoint.

        Raises:
            NodeFaultError: It takes no connection, or offers no LINK/1.
        """
        parts = urlsplit(self.terms.link)
        host, port = parts.hostname or "", parts.port or 443
        note(f"→ connection to {self.terms.link}")
        try:
            with trio.fail_after(CONNECT_SECONDS):
                inner = await trio.open_tcp_stream(HOST, port)
                stream = trio.SSLStream(inner, self.context, server_hostname=host, https_compatible=True)
                try:
                    await stream.do_handshake()
                    websocket = await wrap_client_stream(
                        nursery,
                        stream,
                        parts.netloc,
                        parts.path or "/",
                        subprotocols=[SUBPROTOCOL],
                        message_queue_size=QUEUED_FRAMES,
                        max_message_size=FRAME_BYTES,
                    )
                except BaseException:
                    await trio.aclose_forcefully(stream)
                    raise
        except (OSError, HandshakeError, trio.TooSlowError, trio.BrokenResourceError) as exc:
            raise NodeFaultError(f"{self.terms.link} takes no connection: {exc!r}") from exc
        return PartnerLine(stream, websocket, note)

    async def wait_reachable(self, seconds: float) -> None:
        """Wait until its listener and its site take connections.

        Raises:
            TransportError: It did not in time.
        """
        patience = Patience(seconds)
        while not (await self.is_reachable() and await _answers(self.terms.site_port)):
            if patience.is_over():
                break
            await trio.sleep(0.1)
        else:
            return
        raise TransportError(Code.CONNECT_FAILED, f"{self.terms.runtimes}: nobody listens", phase="connect")

    async def is_reachable(self) -> bool:
        """True if something listens where its runtimes connect."""
        return await _answers(urlsplit(self.terms.runtimes).port or 443)


async def _answers(port: int) -> bool:
    try:
        stream = await trio.open_tcp_stream(HOST, port)
    except OSError:
        return False
    await stream.aclose()
    return True
