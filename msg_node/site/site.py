"""The node's own HTTP site: `.well-known`, its catalogue (readable for original clients too), health and status.

Everything it publishes is finished bytes; the one thing it makes itself is the `live` document, signed with the online
key at half of its life and whenever the publication changes. Nothing in an answer comes from the request's headers.

Source: trust and hosts, sections 2.4 and 3.4; data formats, sections 2.2 to 2.7.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from federation.discovery.reverse_check import ReverseChecks
from msg_node.connectors.http_line import remote_of
from msg_node.connectors.proxies import Proxies
from msg_node.connectors.web_server import WebBounds, WebServer, listen
from msg_node.settings.model import Settings
from msg_node.settings.tables.listeners import SiteSettings
from msg_node.site.pages import JSON, published_routes
from msg_node.site.partner_inbox import PartnerInbox
from msg_node.site.process_metrics import of_processes
from msg_node.site.publisher import Publisher, make_publisher
from msg_node.site.reverse_check_page import ReverseCheckPage
from protofly.documents import SigningKey
from protofly.errors import MisuseError, PeerError, SettingsError

logger = logging.getLogger("msg_node.site.site")

_FORWARDING: Final = frozenset(
    {"cf-connecting-ip", "client-ip", "forwarded", "true-client-ip", "via", "x-client-ip", "x-cluster-client-ip"}
    | {"x-original-forwarded-for", "x-originating-ip", "x-proxyuser-ip", "x-real-ip", "x-remote-addr", "x-remote-ip"}
)
"""Header fields that proxies add, besides all that begin with `X-Forwarded`."""

_NOT_STORED: Final = {"Cache-Control": "no-store"}

Readiness = Callable[[], Sequence[str]]
"""What keeps the node from being ready, in words; nothing when it is."""
AskOthers = Callable[[str], Mapping[int, dict[str, Any]]]
"""Asks the other processes of this node for facts, by a name of the admin service; blocks. By their numbers."""
Status = Callable[[], object]
"""Anything msgspec can encode."""


class Site:
    """Serves the site.

    Args:
        publisher: What to publish; None serves health and status only.
        node_key: The key that proves this node, when it publishes one.
    """

    def __init__(
        self, settings: SiteSettings, *, publisher: Publisher | None = None, node_key: SigningKey | None = None
    ) -> None:
        self.node_key = node_key
        self.url = ""
        """Where it was bound, without a final slash; "" before that."""
        self.server: WebServer | None = None
        """What serves it, once it runs."""
        self._settings = settings
        self.is_shared = False
        """True if other processes of this node listen there, too."""
        self._publisher = publisher
        self.inbox: PartnerInbox | None = None
        """Takes files of partners, if the settings name some."""
        self._reverse_checks: ReverseChecks | None = None
        self._readiness: Readiness = tuple
        self._warnings: Readiness = tuple
        self._status: Status | None = None
        self._metrics: Callable[[], bytes] | None = None
        self._metrics_type = ""
        self._number = 0
        self._others: AskOthers = _no_others

    @classmethod
    def from_settings(cls, settings: Settings) -> Site:
        """The site that the settings ask for. Raises SettingsError when keys or publication cannot be used."""
        if settings.site is None:
            raise MisuseError("these settings have no site")
        publisher, node_key = (None, None) if settings.publish is None else make_publisher(settings)
        site = cls(settings.site, publisher=publisher, node_key=node_key)
        if settings.exchange is not None:
            site.inbox = PartnerInbox(settings.node.domain, settings.exchange, settings.exchange_dir)
        return site

    def serve_status(self, status: Status) -> None:
        """Show what `status` returns at `/status`."""
        self._status = status

    def serve_metrics(self, metrics: Callable[[], bytes], media_type: str) -> None:
        """Show what `metrics` returns at `/metrics`, to those who may see `/status`."""
        self._metrics, self._metrics_type = metrics, media_type

    def serve_processes(self, number: int, others: AskOthers) -> None:
        """Show at `/status` and `/metrics` what the other processes say, too; `number` is ours."""
        self._number, self._others = number, others

    def serve_readiness(self, readiness: Readiness, warnings: Readiness = tuple) -> None:
        """Let `readiness` decide at `/readyz`; what `warnings` returns is shown beside it and decides nothing."""
        self._readiness, self._warnings = readiness, warnings

    def serve_reverse_checks(self, checks: ReverseChecks) -> None:
        """Answer domains that prove themselves whether a link of theirs would be admitted, if the settings allow it."""
        self._reverse_checks = checks

    def show(self, context: ssl.SSLContext | None) -> None:
        """Show another certificate from the next connection on."""
        if self.server is not None:
            self.server.context = context

    def follow(self, settings: SiteSettings) -> None:
        """Let other bounds and another token of `/status` count from now on; its address and its URL stay."""
        before, self._settings = self._settings, settings
        if self.server is None:
            return
        self.server.proxies = Proxies.of(settings)
        if _bounds_of(settings) != _bounds_of(before):
            self.server.bound(_bounds_of(settings))

    @property
    def publisher(self) -> Publisher | None:
        """The publisher of the site, None if it publishes nothing."""
        return self._publisher

    def make_app(self) -> Starlette:
        """The ASGI application."""
        routes = [
            Route("/livez", self._livez),
            Route("/readyz", self._readyz),
            Route("/status", self._status_page),
            Route("/metrics", self._metrics_page),
        ]
        if self.inbox is not None:
            routes += self.inbox.routes()
        if self._reverse_checks is not None:
            routes += ReverseCheckPage(self._reverse_checks, lambda: self._settings.reverse_check).routes()
        if self._publisher is not None:
            routes += published_routes(self._publisher)
        app = Starlette(routes=routes, exception_handlers={PeerError: _refuse, SettingsError: _fail})
        app.router.redirect_slashes = False  # it would send clients, and caches, where a request says
        return app

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises SettingsError when address, certificate or publication cannot be used."""
        # What the operator can get wrong comes before the nursery, so that one plain error leaves this call.
        if self._publisher is not None:
            await self._publisher.prepare()
        settings = self._settings
        listener = listen(
            settings.host,
            settings.port,
            certificate=settings.certificate,
            key=settings.key,
            named="site",
            is_shared=self.is_shared,
        )
        self.url = listener.url
        self.server = WebServer(self.make_app(), listener, _bounds_of(settings))
        self.server.proxies = Proxies.of(settings)
        async with trio.open_nursery() as nursery:
            if self._publisher is not None:
                nursery.start_soon(self._publisher.run)
            await nursery.start(self.server.run)
            task_status.started()

    def _why_not_local(self, request: Request) -> str | None:
        """Return why it is not certain that a request comes from this machine; None if it is.

        Without TLS there may be a proxy on this machine that adds nothing to what it passes on.
        """
        if self._settings.certificate is None:
            return "without TLS, anybody may be behind a local address"
        if is_forwarded(request):
            return "this request was passed on by a proxy"
        if not _is_loopback(remote_of(request.scope)):
            return "this is not for other machines"
        return None

    async def _livez(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, _request: Request) -> Response:
        problems = list(self._readiness())
        facts = {"ready": not problems, "problems": problems, "warnings": list(self._warnings())}
        body = msgspec.json.encode(facts)
        return Response(body, status_code=503 if problems else 200, media_type=JSON)

    async def _status_page(self, request: Request) -> Response:
        if self._status is None:
            return PlainTextResponse("no status here\n", status_code=404)
        if (refusal := self._refusal_of(request)) is not None:
            return refusal
        facts = self._status()
        if self._number and isinstance(facts, dict):
            others = await trio.to_thread.run_sync(self._others, "status")
            each = {**others, self._number: facts}
            facts = {**facts, "processes": {str(number): each[number] for number in sorted(each)}}
        return Response(msgspec.json.encode(facts), media_type=JSON, headers=_NOT_STORED)

    async def _metrics_page(self, request: Request) -> Response:
        if self._metrics is None:
            return PlainTextResponse("no metrics here\n", status_code=404)
        if (refusal := self._refusal_of(request)) is not None:
            return refusal
        text = self._metrics()
        if self._number:
            others = await trio.to_thread.run_sync(self._others, "metrics")
            texts = {number: str(facts["text"]).encode() for number, facts in others.items()}
            text = of_processes({**texts, self._number: text})
        return Response(text, media_type=self._metrics_type, headers=_NOT_STORED)

    def _refusal_of(self, request: Request) -> Response | None:
        """Refuse those who may not see the state of the node; None for those who may."""
        if self._settings.status_token_sha256:
            if not _has_token(request, self._settings.status_token_sha256):
                return PlainTextResponse("the token of `site.status_token_sha256` is wanted\n", status_code=403)
        elif (reason := self._why_not_local(request)) is not None:
            return PlainTextResponse(f"{reason}: set `site.status_token_sha256`\n", status_code=403)
        return None


def _no_others(_: str) -> Mapping[int, dict[str, Any]]:
    """This process is the only one."""
    return {}


def _bounds_of(settings: SiteSettings) -> WebBounds:
    return WebBounds(
        connections=settings.connections,
        connections_per_address=settings.connections_per_address,
        requests_per_second=settings.requests_per_second,
    )


def _has_token(request: Request, token_sha256: str) -> bool:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    given = hashlib.sha256(token.strip().encode()).hexdigest()
    return scheme.lower() == "bearer" and hmac.compare_digest(given, token_sha256.lower())


def _is_loopback(remote: str) -> bool:
    try:
        address = ipaddress.ip_address(remote)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def is_forwarded(request: Request) -> bool:
    """True if a proxy has passed a request on: then its client is not the one of the connection.

    Proxies are known by what they add, and by HTTP/1.0, in which the most used one asks unless configured otherwise.
    """
    return request.scope["http_version"] == "1.0" or any(
        name in _FORWARDING or name.startswith("x-forwarded") for name in request.headers
    )


async def _refuse(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, PeerError)
    return PlainTextResponse(f"{exc.code.word}: {exc.detail}\n", status_code=exc.code.status)


async def _fail(_request: Request, exc: Exception) -> Response:
    logger.error("site: %s", exc)
    return PlainTextResponse("the publication of this domain is damaged\n", status_code=500)
