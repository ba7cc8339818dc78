"""`trapezoid status`: fetch and show the state of a running node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trapezoid.output import FOUND_WANTING, errors_reported, print_facts

if TYPE_CHECKING:
    import ssl

Url = Annotated[str, typer.Argument(metavar="URL", help="Site of the node, for example https://mn.example.org:8444.")]
Ca = Annotated[
    Path | None, typer.Option("--ca", metavar="FILE", help="PEM file with the certificate authorities to trust.")
]
Token = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="File with the bearer token of `site.status_token_sha256`."),
]
Json = Annotated[bool, typer.Option("--json", help="Print all facts as JSON.")]

_SECONDS = 5.0
_BYTES = 8 << 20


def status(url: Url, ca: Ca = None, token_file: Token = None, *, json: Json = False) -> None:
    """Show the state of a running node. Exits with 1 if it has problems."""
    with errors_reported(as_json=json):
        token = "" if token_file is None else _text_of(token_file)
        node = _fetch(url, "/status", ca, token)
        readiness = _fetch(url, "/readyz", ca, token)
    problems, warnings = readiness.get("problems", []), readiness.get("warnings", [])
    problems = [*problems, *(one["problem"] for one in node.get("links", []) if one.get("problem"))]
    if json:
        print_facts({**node, "problems": problems, "warnings": warnings}, as_json=True)
    else:
        names = (
            "node",
            "version",
            "uptime_seconds",
            "sessions",
            "middleware",
            "policy_revision",
            "profile",
            "insecure",
        )
        links = [f"{link['domain']}: {link['state']}{_chosen(link)}{_legacy(link)}" for link in node.get("links", [])]
        facts = {name: node.get(name, "") for name in names}
        expiries = [one["text"] for one in node.get("expiries", [])]
        lists = {"links": links, "expiries": expiries, "warnings": warnings or "none", "problems": problems or "none"}
        print_facts({**facts, **lists}, as_json=False)
    raise typer.Exit(FOUND_WANTING if problems else 0)


def _chosen(link: dict[str, Any]) -> str:
    """The stub that the operator chose for a domain, by name and digest."""
    stub = link.get("stub") or {}
    if stub.get("level") != "operator":
        return ""
    return f", stub of yours {stub.get('name')} {stub.get('version')}, sha256 {stub.get('sha256')}, {stub.get('class')}"


def _legacy(link: dict[str, Any]) -> str:
    """The address ranges of an interworking stub."""
    ranges = (link.get("stub") or {}).get("interworking")
    return "" if ranges is None else f", interworking for {ranges or 'nobody'}"


def _text_of(path: Path) -> str:
    from protofly.errors import SettingsError

    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(f"{path}: {exc}") from exc


def _context(ca: Path | None) -> ssl.SSLContext:
    """TLS towards the node; `ca` replaces the certificate authorities of the system. Raises SettingsError."""
    import ssl

    from msg_node.storage.tls_files import believe

    if ca is None:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    believe(context, ca, "--ca")
    return context


def _fetch(url: str, page: str, ca: Path | None, token: str) -> dict[str, Any]:
    """Fetch one page of the site. Raises SettingsError, TransportError."""
    import http.client
    import ssl
    from urllib.parse import urlsplit

    import msgspec

    from protofly.errors import Code, SettingsError, TransportError

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise SettingsError(f"{url}: {exc}") from exc
    if parts.scheme not in {"http", "https"} or not host:
        raise SettingsError(f"{url}: not an http:// or https:// URL")
    try:
        connection = (
            http.client.HTTPConnection(host, port, timeout=_SECONDS)
            if parts.scheme == "http"
            else http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=_context(ca))
        )
        try:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            connection.request("GET", parts.path.rstrip("/") + page, headers=headers)
            answer = connection.getresponse()
            body = answer.read(_BYTES)
        finally:
            connection.close()
        if answer.status == 403:
            detail = f"{url}{page} is served only to the node's own machine over TLS, or with a token: use --token-file"
            raise TransportError(Code.HTTP_STATUS, detail)
        if answer.status not in {200, 503}:
            raise TransportError(Code.HTTP_STATUS, f"{url}{page}: {answer.status} {answer.reason}")
        return msgspec.json.decode(body, type=dict[str, Any])
    except ssl.SSLCertVerificationError as exc:
        detail = f"{url}: {exc.verify_message}; use --ca to trust another certificate authority"
        raise TransportError(Code.TLS_FAILED, detail, phase="connect") from exc
    except (OSError, http.client.HTTPException, msgspec.MsgspecError) as exc:
        raise TransportError(Code.CONNECT_FAILED, f"{url}: {exc}", phase="connect") from exc
