"""What every page of the console works with: operations of the admin service, and templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from msg_node.admin.administration import HOLDER, Actor, Administration
from msg_node.admin.core.console_sessions import LogIn
from msg_node.admin.core.operations import AdminRequest
from msg_node.connectors.http_line import remote_of
from protofly.errors import HostError
from protofly.printable import escaped

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # without any, browsers send forms with the origin "null"
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
PAGES: Final = (
    ("/", "Overview"),
    ("/partners", "Partners"),
    ("/stubs", "Stubs"),
    ("/sessions", "Sessions"),
    ("/policies", "Policies"),
    ("/decisions", "Decisions"),
    ("/records", "Records"),
)
MOST_ROWS: Final = 1000

Form = Mapping[str, str]
Arguments = Mapping[str, object]
_NONE: Final[Arguments] = {}


class ConsoleContext:
    """Asks for operations in the name of a browser, and makes pages of what they return.

    Args:
        administration: Performs the operations.
    """

    def __init__(self, administration: Administration) -> None:
        self._administration = administration
        self._templates = Environment(
            loader=PackageLoader("msg_node.admin", "console_pages"),
            autoescape=True,
            finalize=_shown,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["as_is"] = _AsIs

    async def ask(
        self, request: Request, operation: str, arguments: Arguments = _NONE, *, is_dry_run: bool = False
    ) -> Any:
        """Perform an operation. Raises HostError."""
        actor = Actor(f"console at {remote_of(request.scope)}", "https", HOLDER)
        asked = AdminRequest(operation=operation, arguments=dict(arguments), dry_run=is_dry_run)
        return await self._administration.perform(asked, actor)

    def render(self, template: str, *, log_in: LogIn | None, status: int = 200, **facts: object) -> Response:
        """Make a page."""
        csrf = "" if log_in is None else log_in.csrf
        page = self._templates.get_template(template)
        text = page.render(csrf=csrf, pages=PAGES, is_known=log_in is not None, **facts)
        return HTMLResponse(text, status_code=status, headers=HEADERS)

    def refused(self, log_in: LogIn, error: HostError) -> Response:
        """Make the page of an operation that was refused."""
        return self.render("refused.html", status=error.code.status, log_in=log_in, error=error)


class _AsIs(str):
    """The value of a field, which a browser sends back as it got it."""

    __slots__ = ()


def _shown(value: object) -> object:
    """Strangers write text that looks like another one, or like several lines: people see what is in it."""
    if isinstance(value, _AsIs) or not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return escaped(value, keep="\n\t")


def redirect(path: str) -> RedirectResponse:
    """Send a browser on, with GET."""
    return RedirectResponse(path, status_code=303, headers=HEADERS)
