"""The console: pages of the admin site for operators with a browser.

Every page shows what one operation of the admin service returns, and every form asks for one, so the console can do
nothing that the other ways in cannot, and leaves the same audit records. Pages are finished HTML; the script only
refreshes them and sets the theme.

A browser logs in with the token and gets a cookie that only this host sees, that no script reads, and that no page of
another site sends. Forms also carry a word of the log-in, and have to come from a page of ours.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from msg_node.admin.admin_access import AdminAccess
from msg_node.admin.admin_body import body_of
from msg_node.admin.administration import Administration
from msg_node.admin.console_context import HEADERS, MOST_ROWS, Arguments, ConsoleContext, Form, redirect
from msg_node.admin.console_policies import PolicyPages
from msg_node.admin.core.console_sessions import LIFE_SECONDS, ConsoleSessions, LogIn
from protofly.errors import Code, HostError, PeerError

COOKIE: Final = "trapezoid-console"
SECURE_COOKIE: Final = f"__Host-{COOKIE}"
"""With this name browsers take a cookie over TLS only, and from no other host."""
_RANDOM_BYTES: Final = 32
_ROWS: Final = 100
_AFTER_DIGITS: Final = 18
_FILES: Final = {"console.css": "text/css", "console.js": "text/javascript", "console.svg": "image/svg+xml"}
_TERMS: Final = ("", "15m", "2h", "1d", "7d")
_TIMES: Final = ("since", "until")
_SEARCH: Final = ("domain", "gate", "rule", *_TIMES)
_RECORDS: Final = (*_TIMES, "domain", "from", "to", "id", "refused")
_GATES: Final = ("", "peer", "out", "in", "local")
_Page = Callable[[Request, LogIn], Awaitable[Response]]
_Posted = Callable[[Request, LogIn, Form], Awaitable[Response]]


class Console:
    """The pages.

    Args:
        access: Judges requests and tokens.
        administration: Performs what they ask for.
        is_secure: They are served over TLS.
    """

    def __init__(self, access: AdminAccess, administration: Administration, *, is_secure: bool) -> None:
        self._access = access
        self._context = ConsoleContext(administration)
        self._policies = PolicyPages(self._context)
        self._is_secure = is_secure
        self._cookie = SECURE_COOKIE if is_secure else COOKIE
        self._log_ins = ConsoleSessions()

    def routes(self) -> list[Route]:
        """All routes of the console."""
        shown, posted = self._shown, self._posted
        return [
            Route("/login", self._login_page, methods=["GET"]),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/logout", posted(self._log_out), methods=["POST"]),
            Route("/", shown(self._overview)),
            Route("/partners", shown(self._partners)),
            Route("/partners/{domain}", shown(self._partner)),
            Route("/partners/{domain}/{change:path}", posted(self._change_partner), methods=["POST"]),
            Route("/stubs", shown(self._stubs)),
            Route("/sessions", shown(self._sessions)),
            Route("/policies", shown(self._policies.show)),
            Route("/policies", posted(self._policies.evaluate), methods=["POST"]),
            Route("/policies/bundles/{bundle}", shown(self._policies.bundle)),
            Route("/policies/bundles", posted(self._policies.add), methods=["POST"]),
            Route("/policies/gates/{op}", posted(self._policies.gate), methods=["POST"]),
            Route("/policies/proposals/{op}", posted(self._policies.proposal), methods=["POST"]),
            Route("/policies/{change}", posted(self._policies.change), methods=["POST"]),
            Route("/decisions", shown(self._decisions)),
            Route("/records", shown(self._records)),
            *(Route(f"/{name}", _file(name, kind)) for name, kind in _FILES.items()),
        ]

    # Who asks.

    def _shown(self, page: _Page) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            self._access.check_way(request)
            log_in = self._log_in_of(request)
            if log_in is None:
                return redirect("/login")
            try:
                return await page(request, log_in)
            except HostError as error:
                return self._context.refused(log_in, error)

        return show

    def _posted(self, take: _Posted) -> Callable[[Request], Awaitable[Response]]:
        async def receive(request: Request) -> Response:
            self._access.check_way(request)
            _check_origin(request)
            log_in = self._log_in_of(request)
            if log_in is None:
                return redirect("/login")
            form = await _form_of(request)
            if not log_in.is_right(form.get("csrf", "")):
                raise PeerError(Code.POLICY, "this form is not of a page that this log-in was shown")
            try:
                return await take(request, log_in, form)
            except HostError as error:
                return self._context.refused(log_in, error)

        return receive

    def _log_in_of(self, request: Request) -> LogIn | None:
        cookie = request.cookies.get(self._cookie, "")
        return self._log_ins.find(cookie, self._access.token.digest, trio.current_time())

    async def _login_page(self, request: Request) -> Response:
        self._access.check_way(request)
        return self._context.render("login.html", log_in=None, error="")

    async def _log_in(self, request: Request) -> Response:
        self._access.check_way(request)
        _check_origin(request)
        form = await _form_of(request)
        try:
            self._access.actor_with(form.get("token", "").strip(), request)
        except PeerError as error:
            return self._context.render("login.html", status=error.code.status, log_in=None, error=error.detail)
        cookie, csrf = secrets.token_urlsafe(_RANDOM_BYTES), secrets.token_urlsafe(_RANDOM_BYTES)
        self._log_ins.open(cookie, csrf, self._access.token.digest, trio.current_time())
        response = redirect("/")
        response.set_cookie(
            self._cookie, cookie, max_age=int(LIFE_SECONDS), secure=self._is_secure, httponly=True, samesite="strict"
        )
        return response

    async def _log_out(self, request: Request, _log_in: LogIn, _form: Form) -> Response:
        self._log_ins.close(request.cookies.get(self._cookie, ""))
        response = redirect("/login")
        response.delete_cookie(self._cookie, secure=self._is_secure, httponly=True, samesite="strict")
        return response

    # Pages.

    async def _overview(self, request: Request, log_in: LogIn) -> Response:
        facts = await self._context.ask(request, "summary")
        restrictions = await self._context.ask(request, "restrictions")
        latencies = await self._context.ask(request, "latencies", {"limit": _ROWS})
        return self._context.render(
            "overview.html", log_in=log_in, facts=facts, restrictions=restrictions.rows, latencies=latencies.rows
        )

    async def _partners(self, request: Request, log_in: LogIn) -> Response:
        page = await self._context.ask(request, "peers", _paging(request))
        latencies = await self._context.ask(request, "latencies", {"limit": MOST_ROWS})
        of_domain = {row["domain"]: row for row in latencies.rows}
        return self._context.render(
            "partners.html", log_in=log_in, page=page, where=_where(request), latencies=of_domain, path="/partners"
        )

    async def _partner(self, request: Request, log_in: LogIn) -> Response:
        partner = await self._context.ask(request, "partner", request.path_params)
        return self._context.render("partner.html", log_in=log_in, partner=partner, terms=_TERMS)

    async def _stubs(self, request: Request, log_in: LogIn) -> Response:
        page = await self._context.ask(request, "stubs", _paging(request))
        return self._context.render("stubs.html", log_in=log_in, page=page, where=_where(request), path="/stubs")

    async def _sessions(self, request: Request, log_in: LogIn) -> Response:
        page = await self._context.ask(request, "sessions", _paging(request))
        return self._context.render("sessions.html", log_in=log_in, page=page, where=_where(request), path="/sessions")

    async def _decisions(self, request: Request, log_in: LogIn) -> Response:
        """The last denials; with a time, those of the audit records, which takes seconds."""
        search = {name: value for name in _SEARCH if (value := request.query_params.get(name))}
        page = await self._context.ask(request, "denials", {**_paging(request), **search})
        return self._context.render(
            "decisions.html",
            log_in=log_in,
            page=page,
            where=_where(request),
            path="/decisions",
            search=search,
            is_of_records=not search.keys().isdisjoint(_TIMES),
            gates=_GATES,
        )

    async def _records(self, request: Request, log_in: LogIn) -> Response:
        """The form of a search in the audit records, and once a time is given what was found, which takes seconds."""
        search = {name: value for name in _RECORDS if (value := request.query_params.get(name))}
        page = None
        if "since" in search:
            page = await self._context.ask(request, "records", {**_paging(request), **search, **_flags(search)})
        return self._context.render(
            "records.html", log_in=log_in, page=page, where=_where(request), path="/records", search=search
        )

    # Forms.

    async def _change_partner(self, request: Request, log_in: LogIn, form: Form) -> Response:
        """Show what a change of a partner would do, and make it once it is confirmed."""
        change = request.path_params["change"]
        if change not in _PARTNER_CHANGES:
            raise PeerError(Code.NO_SUCH_SERVICE, "there is no such change")
        operation, label = _PARTNER_CHANGES[change]
        domain = request.path_params["domain"]
        arguments = {"domain": domain}
        if operation == "peer block":
            arguments |= {name: form[name] for name in ("for", "reason") if form.get(name)}
        is_confirmed = form.get("confirmed") == "yes"
        result = await self._context.ask(request, operation, arguments, is_dry_run=not is_confirmed)
        if is_confirmed:
            return redirect("/" if domain.startswith("*") else f"/partners/{quote(domain, safe='')}")
        return self._context.render(
            "confirm.html",
            log_in=log_in,
            operation=operation,
            label=label,
            domain=domain,
            arguments=arguments,
            result=result,
        )


_PARTNER_CHANGES: Final = {
    "block": ("peer block", "Cut off"),
    "unblock": ("peer unblock", "Lift the block"),
    "connect": ("peer connect", "Connect"),
    "close": ("peer close", "Close the link"),
    "refresh": ("peer refresh", "Look up again"),
    "stub/drain": ("stub drain", "Drain the stub"),
    "stub/restart": ("stub restart", "Restart the stub"),
}
"""Operation of each button of a partner, and its name on the page that asks again, by the end of its path."""


def _file(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    """A file that comes with the program; it says nothing about this node."""
    content = resources.files("msg_node.admin").joinpath("console_pages", name).read_bytes()

    async def serve(_request: Request) -> Response:
        return Response(content, media_type=media_type, headers=HEADERS | {"Cache-Control": "max-age=3600"})

    return serve


def _check_origin(request: Request) -> None:
    """Refuse forms that pages of others have sent.

    Raises:
        PeerError: POLICY.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "same-origin")
    is_ours = origin is None or urlsplit(origin).netloc == request.headers.get("host", "")
    if not is_ours or site != "same-origin":
        raise PeerError(Code.POLICY, "this form comes from the page of another site")


async def _form_of(request: Request) -> Form:
    """Read a form. Raises PeerError BAD_BODY, TOO_LARGE or TIMEOUT."""
    try:
        return dict(parse_qsl((await body_of(request)).decode(), keep_blank_values=True, max_num_fields=32))
    except ValueError as exc:
        raise PeerError(Code.BAD_BODY, "this is no form") from exc


def _where(request: Request) -> str:
    return request.query_params.get("where", "")


def _paging(request: Request) -> Arguments:
    """Filter and page that an address names."""
    after = request.query_params.get("after", "0")
    is_number = after.isascii() and after.isdigit() and len(after) <= _AFTER_DIGITS
    found: dict[str, object] = {"limit": _ROWS, "after": int(after) if is_number else 0}
    return {**found, "where": _where(request)} if _where(request) else found


def _flags(search: Mapping[str, str]) -> dict[str, object]:
    """Ticked boxes of a form."""
    return {"refused": True} if "refused" in search else {}
