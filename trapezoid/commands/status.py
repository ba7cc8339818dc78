"""`trapezoid status`: fetch and show the state of a running node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trapezoid.output import FOUND_WANTING, errors_reported, print_facts

if TYPE_CHECKING:
    import ssl

Url = Annotated[str, typer.Argument(metavar="URL", help="Site of the node, for example https://mn.example.org:8444.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Configuration file of a node on this machine, instead of URL."),
]
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


def status(
    url: Url = "", ca: Ca = None, token_file: Token = None, config: Config = None, *, json: Json = False
) -> None:
    """Show the state of a running node. Exits with 1 if it has problems."""
    with errors_reported(as_json=json):
        token = "" if token_file is None else _text_of(token_file)
        site = _site(url, ca, config)
        node = _fetch(site, "/status", token)
        readiness = _fetch(site, "/readyz", token)
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
        facts["policies"] = _policies(node.get("policies") or {})
        block_lists = [_block_list(one) for one in node.get("block_lists", [])]
        if block_lists:
            facts["block_lists"] = block_lists
        lists = {"links": links, "expiries": expiries, "warnings": warnings or "none", "problems": problems or "none"}
        print_facts({**facts, **lists}, as_json=False)
    raise typer.Exit(FOUND_WANTING if problems else 0)


def _chosen(link: dict[str, Any]) -> str:
    """The stub that the operator chose for a domain, by name and digest."""
    stub = link.get("stub") or {}
    if stub.get("level") != "operator":
        return ""
    return f", stub of yours {stub.get('name')} {stub.get('version')}, sha256 {stub.get('sha256')}, {stub.get('class')}"


def _policies(policies: dict[str, Any]) -> str:
    """The source of the policies in force: a bundle, or the files of the settings."""
    if policies.get("source") != "bundle":
        return "the files of the settings"
    return f"bundle {policies['bundle']}, activated by {policies['by']}; not the files of the settings"


def _block_list(one: dict[str, Any]) -> str:
    """Whose list, what is done by it, whom it names and until when; or why there is none in use."""
    from datetime import UTC, datetime

    problem = f"; {one['problem']}" if one.get("problem") else ""
    if not one.get("serial"):
        return f"{one['author']}: {one['mode']}, no list in use{problem}"
    until = datetime.fromtimestamp(one["expires"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    shown, entries = one["domains"], one["entries"]
    named = f"{entries} domains" + (f": {', '.join(shown)}" if shown else "")
    more = f" and {entries - len(shown)} more" if shown and entries > len(shown) else ""
    return f"{one['author']}: {one['mode']}, list {one['serial']} until {until}, {named}{more}{problem}"


def _legacy(link: dict[str, Any]) -> str:
    """The address ranges of an interworking stub."""
    ranges = (link.get("stub") or {}).get("interworking")
    return "" if ranges is None else f", interworking for {ranges or 'nobody'}"


def _text_of(path: Path) -> str:
    from protofly.errors import SettingsError

    try:
        return path.read_text(encoding="ascii").strip()
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise SettingsError(f"{path}: no token: it has other characters than ASCII") from exc


@dataclass(frozen=True)
class _Site:
    """Where a node serves its site. `context` is None without TLS."""

    url: str
    host: str
    port: int | None
    path: str
    context: ssl.SSLContext | None


def _site(url: str, ca: Path | None, config: Path | None) -> _Site:
    """The site at a URL, or the one that settings name. Raises SettingsError."""
    from urllib.parse import urlsplit

    from protofly.errors import SettingsError

    if bool(url) == (config is not None):
        raise SettingsError("give either URL or --config")
    if config is not None:
        return _own_site(config)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise SettingsError(f"{url}: {exc}") from exc
    if parts.scheme not in {"http", "https"} or not host:
        raise SettingsError(f"{url}: not an http:// or https:// URL")
    context = _context(ca) if parts.scheme == "https" else None
    return _Site(url, host, port, parts.path.rstrip("/"), context)


def _own_site(config: Path) -> _Site:
    """The site of a node on this machine, which shows the certificate of its settings and no other."""
    import ssl

    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    from msg_node.settings.load import load_settings
    from msg_node.storage.file_checks import read_file
    from protofly.errors import SettingsError

    site = load_settings(config).site
    if site is None or not site.port:
        lacks = "no [site]" if site is None else "no fixed port for [site]"
        raise SettingsError(f"{config}: has {lacks}; `trapezoid node` needs none")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(site.host, site.host)  # noqa: S104  # asked, not bound
    context = None
    if site.certificate is not None:
        try:
            own = x509.load_pem_x509_certificates(read_file(site.certificate))[0]
        except ValueError as exc:
            raise SettingsError(f"site.certificate: {site.certificate}: holds no certificate in PEM form") from exc
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # a node with the key of this very certificate is the node
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=own.public_bytes(Encoding.DER))
    scheme = "http" if context is None else "https"
    return _Site(f"{scheme}://{host}:{site.port}", host, site.port, "", context)


def _context(ca: Path | None) -> ssl.SSLContext:
    """TLS towards the node; `ca` replaces the certificate authorities of the system. Raises SettingsError."""
    import ssl

    from msg_node.storage.tls_files import believe

    if ca is None:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    believe(context, ca, "--ca")
    return context


def _fetch(site: _Site, page: str, token: str) -> dict[str, Any]:
    """Fetch one page of the site. Raises TransportError."""
    import http.client
    import ssl

    import msgspec

    from protofly.errors import Code, TransportError

    try:
        connection = (
            http.client.HTTPConnection(site.host, site.port, timeout=_SECONDS)
            if site.context is None
            else http.client.HTTPSConnection(site.host, site.port, timeout=_SECONDS, context=site.context)
        )
        try:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            connection.request("GET", site.path + page, headers=headers)
            answer = connection.getresponse()
            body = answer.read(_BYTES)
        finally:
            connection.close()
        if answer.status == 403:
            detail = (
                f"{site.url}{page} is served only to the node's own machine over TLS, or with a token: use --token-file"
            )
            raise TransportError(Code.HTTP_STATUS, detail)
        if answer.status not in {200, 503}:
            raise TransportError(Code.HTTP_STATUS, f"{site.url}{page}: {answer.status} {answer.reason}")
        return msgspec.json.decode(body, type=dict[str, Any])
    except ssl.SSLCertVerificationError as exc:
        detail = f"{site.url}: {exc.verify_message}; use --ca to trust another certificate authority"
        raise TransportError(Code.TLS_FAILED, detail, phase="connect") from exc
    except (OSError, http.client.HTTPException, msgspec.MsgspecError) as exc:
        raise TransportError(Code.CONNECT_FAILED, f"{site.url}: {exc}", phase="connect") from exc
