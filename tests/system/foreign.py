"""A foreign domain inside the test: genuine keys and documents, and whatever behaviour the test wants behind them."""

from __future__ import annotations

import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import trio

from interop.authority import DevelopmentAuthority
from interop.domain_files import HOST
from interop.lab.link_peer import READ_BYTES, LinkPeer, Stream
from protofly.documents import Endpoint, Revoked
from stubkit.keys import KeyRing, make_keys
from stubkit.sign import RootTerms, StubRelease, sign_manifest, sign_root
from tests.support.guests import custom_section
from tests.support.live_documents import sign_live

LINK_STUB = Path(__file__).parents[2] / "examples" / "stubs" / "trapezoid_link" / "link.wasm"
WELL_KNOWN = "/.well-known/rethink-mn"
ROOT, MANIFEST, MODULE = f"{WELL_KNOWN}/root/1", f"{WELL_KNOWN}/manifest/foreignStub", "/module.wasm"
Behaviour = Callable[[Stream], Awaitable[None]]


class ForeignDomain:
    """One domain: a site that serves `files`, and a link endpoint that behaves as `behaviour` says."""

    def __init__(self, domain: str, authority: DevelopmentAuthority) -> None:
        self.domain = domain
        self.keys = make_keys()
        self.aliases: tuple[str, ...] = ()
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.connections = 0
        self.peer = LinkPeer(domain, self.keys.node[0])
        self.behaviour: Behaviour = self.peer.serve
        self.site_port = self.link_port = 0
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.load_cert_chain(*authority.certificate_for(domain))

    def claim(self, *aliases: str) -> None:
        """Name these aliases in the root, when it is published first, and in tokens."""
        self.aliases = aliases
        self.peer.domains = [self.domain, *aliases]

    @property
    def records(self) -> dict[str, list[str]]:
        """What the name server says of it."""
        return {
            self.domain: [f"A {HOST}"],
            f"mn.{self.domain}": [f"A {HOST}"],
            f"_rethink-mn.{self.domain}": [
                'TXT "v=rmn1; id=1; mode=enforce"',
                f"SVCB 1 {self.domain}. port={self.site_port}",
            ],
        }

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; whatever a client does to a connection is that connection's matter."""
        async with trio.open_nursery() as nursery:
            self.site_port = await nursery.start(self._listen, self._serve_site)
            self.link_port = await nursery.start(self._listen, self._serve_link)
            self.publish()
            task_status.started()

    async def _listen(self, serve: Behaviour, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        async def handle(stream: trio.SocketStream) -> None:
            encrypted = trio.SSLStream(stream, self.context, server_side=True, https_compatible=True)
            try:
                async with encrypted:
                    await serve(encrypted)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

        [listener] = await trio.open_tcp_listeners(0, host=HOST)
        task_status.started(listener.socket.getsockname()[1])
        await trio.serve_listeners(handle, [listener])

    async def _serve_site(self, stream: Stream) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            data = await stream.receive_some(READ_BYTES)
            if not data:
                return
            request += data
        path = request.split(b" ", 2)[1].decode()
        self.asked.append(path)
        status, body = self.page(path, request.decode("latin-1"))
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        await stream.send_all(f"{head}Connection: close\r\n\r\n".encode() + body)

    def page(self, path: str, head: str) -> tuple[str, bytes]:
        """What the site answers to a request with this head."""
        assert head.startswith("GET ")
        body = self.files.get(path)
        return ("200 OK", body) if body is not None else ("404 Not Found", b"none")

    async def _serve_link(self, stream: Stream) -> None:
        self.connections += 1
        await self.behaviour(stream)

    def publish(
        self,
        *,
        module: bytes | None = None,
        serial: int = 1,
        signed_by: KeyRing | None = None,
        now: float | None = None,
        live_seconds: float = 48 * 3600.0,
        connect: Sequence[str] = ("mn",),
        ranges: Sequence[str] = (),
        events: Sequence[str] = (),
        endpoints: Sequence[Endpoint] = (),
        revoked: Revoked | None = None,
    ) -> None:
        """Sign and serve root, manifest, module and live; `signed_by` signs what `live` and `pkg` keys should."""
        signers, moment = signed_by or self.keys, time.time() if now is None else now
        mark = custom_section("of", self.domain.encode())  # else the cache knows the module from another domain
        code = LINK_STUB.read_bytes() + mark if module is None else module
        root = self.files.get(ROOT) or sign_root(
            self.keys, domain=self.domain, now=time.time(), terms=RootTerms(aliases=self.aliases)
        )
        release = StubRelease(
            domain=self.domain,
            name="foreignStub",
            serial=serial,
            version=f"1.{serial}.0",
            urls=[f"https://{self.domain}{MODULE}"],
            connect=connect,
            needs_auth=not ranges,
            ranges=ranges,
            events=events,
        )
        manifest = sign_manifest(signers, code, release, now=time.time())
        live = sign_live(
            signers,
            root_envelope=root,
            serial=serial,
            endpoints=[Endpoint(name="mn", url=f"wss://mn.{self.domain}:{self.link_port}/link"), *endpoints],
            manifests={"default": manifest},
            now=moment,
            validity_seconds=live_seconds,
            revoked=revoked,
        )
        self.files = {WELL_KNOWN: live, ROOT: root, MANIFEST: manifest, MODULE: code}
