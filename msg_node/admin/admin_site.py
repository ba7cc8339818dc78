"""The admin site: the admin service over HTTPS and the console, on a listener of its own.

One request is one `POST /api` with what the socket takes as well; `GET /api` lists the operations, and
`GET /openapi.json` describes all of this for programs:

    {"operation": "peer block", "arguments": {"domain": "c.example"}, "dry_run": true}
    {"result": {"operation": "peer block", "before": null, "after": {}, "dry_run": true}}
    {"error": {"code": "bad-token", "status": 401, "detail": "…"}}

The token comes in a field that no browser adds by itself, so pages of others cannot use it. Nothing here is part of the
public site: a proxy in front of that one never reaches this.
"""

from __future__ import annotations

import logging
import ssl
from typing import Final

import msgspec
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from msg_node.admin.admin_access import AdminAccess
from msg_node.admin.admin_body import body_of
from msg_node.admin.admin_token import AdminToken
from msg_node.admin.administration import Administration
from msg_node.admin.console import Console
from msg_node.admin.core.openapi import openapi_document
from msg_node.admin.core.operations import OPERATIONS, REQUEST_BYTES, AdminRequest, Operation, error_facts
from msg_node.connectors.web_server import WebBounds, WebServer, listen
from msg_node.settings.admin import token_file
from msg_node.settings.model import Settings
from msg_node.settings.tables.admin import AdminSettings
from protofly.errors import Code, HostError, MisuseError, PeerError

logger = logging.getLogger("msg_node")

JSON: Final = "application/json"
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_decoder: Final = msgspec.json.Decoder(AdminRequest)


class AdminSite:
    """Serves the admin site.

    Args:
        settings: They have `[admin]`.
        administration: Performs the operations.

    Raises:
        SettingsError: Address, certificate or token cannot be used.
    """

    def __init__(self, settings: Settings, administration: Administration) -> None:
        if settings.admin is None:
            raise MisuseError("these settings have no admin site")
        self._settings = settings.admin
        self._administration = administration
        token = AdminToken(token_file(settings))
        token.prepare()
        self._access = AdminAccess(token, behind_proxy=settings.admin.behind_proxy)
        is_secure = settings.admin.certificate is not None
        self._console = Console(self._access, administration, is_secure=is_secure)
        self._listener = listen(
            self._settings.host,
            self._settings.port,
            certificate=self._settings.certificate,
            key=self._settings.key,
            named="admin",
        )
        self.url = self._listener.url
        """Where it is bound, without a final slash."""
        self.server = WebServer(
            self.make_app(), self._listener, WebBounds(requests_per_second=self._settings.requests_per_second)
        )

    def follow(self, settings: AdminSettings) -> None:
        """Let other bounds count from now on, and requests through a proxy or not; its address and its token stay."""
        before, self._settings = self._settings, settings
        self._access.behind_proxy = settings.behind_proxy
        if settings.requests_per_second != before.requests_per_second:
            self.server.bound(WebBounds(requests_per_second=settings.requests_per_second))

    def show(self, context: ssl.SSLContext | None) -> None:
        """Show another certificate from the next connection on."""
        self.server.context = context

    def make_app(self) -> Starlette:
        """The ASGI application."""
        routes = [
            Route("/api", self._operations, methods=["GET"]),
            Route("/api", self._perform, methods=["POST"]),
            Route("/openapi.json", self._description, methods=["GET"]),
        ]
        app = Starlette(routes=[*routes, *self._console.routes()], exception_handlers={HostError: _refuse})
        app.router.redirect_slashes = False  # it would send clients where their own request says
        return app

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        await self.server.run(task_status=task_status)

    async def _operations(self, request: Request) -> Response:
        self._access.actor_of(request)
        return _json({"operations": [_shown(one) for one in OPERATIONS.values()]})

    async def _description(self, request: Request) -> Response:
        self._access.actor_of(request)
        return _json(openapi_document())

    async def _perform(self, request: Request) -> Response:
        actor = self._access.actor_of(request)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise PeerError(Code.BAD_BODY, f"the body is to be {JSON}")
        try:
            asked = _decoder.decode(await body_of(request, REQUEST_BYTES))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise PeerError(Code.BAD_BODY, f"no request: {exc}") from exc
        return _json({"result": await self._administration.perform(asked, actor)})


def _shown(operation: Operation) -> dict[str, object]:
    return {
        "name": operation.name,
        "meaning": operation.meaning,
        "changes": operation.changes,
        "arguments": [
            {"name": one.name, "kind": one.kind.value, "meaning": one.meaning, "required": one.is_required}
            for one in operation.arguments
        ],
    }


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type=JSON, headers=HEADERS)


async def _refuse(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HostError)
    return _json({"error": error_facts(exc)}, exc.code.status)
