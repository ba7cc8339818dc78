"""`trapezoid keys tls`: certificates for the listeners of a node, and for runtimes that prove themselves by one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trapezoid.output import errors_reported, print_facts

Folder = Annotated[Path, typer.Option("--tls", metavar="DIR", help="Folder of certificates and their keys.")]
Further = Annotated[list[str] | None, typer.Option("--name", metavar="HOST", help="Further name or address.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(
    help="Create certificates with your own authority, for laboratories and devices, or requests for a real one.",
    no_args_is_help=True,
)


@app.command()
def init(
    domain: Annotated[str, typer.Argument(help="Domain of the node.")],
    tls: Folder = Path("tls"),
    name: Further = None,
    days: Annotated[int, typer.Option(help="Life of the server's certificate.", min=1, max=825)] = 90,
    json: Json = False,
) -> None:
    """Make an authority of your own and a server certificate for the domain, mn.DOMAIN and loopback."""
    with errors_reported(as_json=json):
        from trapezoid import tls_authority

        names, now = tls_authority.server_names(domain, name or []), tls_authority.now_utc()
        tls_authority.make_authority(tls, names, now=now)
        certificate = tls_authority.issue_server(tls, names, days=days, now=now)
        facts = {"certificate": certificate, "key": tls / "key.pem", "authority": tls / "ca.pem"}
        print_facts({key: str(path) for key, path in facts.items()} | {"names": names.texts}, as_json=json)


@app.command()
def renew(
    tls: Folder = Path("tls"),
    days: Annotated[int, typer.Option(help="Life of the new certificate.", min=1, max=825)] = 90,
    json: Json = False,
) -> None:
    """Issue the server certificate again, for the same names and key. A running node takes it when the file changes."""
    with errors_reported(as_json=json):
        from trapezoid import tls_authority

        names = tls_authority.issued_names(tls)
        certificate = tls_authority.issue_server(tls, names, days=days, now=tls_authority.now_utc())
        print_facts({"certificate": str(certificate), "names": names.texts, "days": days}, as_json=json)


@app.command()
def csr(
    domain: Annotated[str, typer.Argument(help="Domain of the node.")],
    tls: Folder = Path("tls"),
    name: Further = None,
    json: Json = False,
) -> None:
    """Write a request for a certificate authority: request.csr, for the key in key.pem, which is made if missing."""
    with errors_reported(as_json=json):
        from trapezoid import tls_authority

        names = tls_authority.Names.of([domain, f"mn.{domain}", *(name or [])])
        path = tls_authority.make_request(tls, names)
        print_facts({"request": str(path), "key": str(tls / "key.pem"), "names": names.texts}, as_json=json)


@app.command()
def client(
    runtime: Annotated[str, typer.Argument(metavar="RUNTIME", help="For example runtime://a.example/rt-ana.")],
    tls: Folder = Path("tls"),
    file: Annotated[str, typer.Option(metavar="NAME", help="Name of the files; by default the runtime's.")] = "",
    days: Annotated[int, typer.Option(help="Life of the certificate.", min=1, max=825)] = 30,
    json: Json = False,
) -> None:
    """Issue a certificate that authenticates a runtime; set `client_ca` in the settings to ca.pem."""
    with errors_reported(as_json=json):
        from trapezoid import tls_authority

        file_name = file or runtime.rpartition("/")[2]
        certificate, key = tls_authority.issue_client(
            tls, runtime, file_name=file_name, days=days, now=tls_authority.now_utc()
        )
        print_facts({"certificate": str(certificate), "key": str(key), "runtime": runtime}, as_json=json)
