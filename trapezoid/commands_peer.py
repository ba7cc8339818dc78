"""`trapezoid peer`: what is remembered of partners, and the operator's two ways out: trust anew, grant more."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trapezoid.output import errors_reported, print_facts, print_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from catalogue_client.trust_store import TrustStore

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="Settings, for example node.toml.")]
Domain = Annotated[str, typer.Argument(help="The partner's domain.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(help="What is remembered of other domains.", no_args_is_help=True)


@app.command("list")
def list_peers(config: Config, json: Json = False) -> None:
    """List the domains whose documents were accepted once: level, root version, serials, held updates."""
    with errors_reported(as_json=json), _trust_store(config) as store:
        rows = []
        for domain in store.domains():
            state = store.load(domain)
            if state is not None:
                rows.append(
                    {
                        "domain": domain,
                        "level": state.level.value,
                        "root": state.root_version,
                        "serial": state.live_serial,
                        "fingerprint": state.fingerprints[-1] if state.fingerprints else "",
                        "held": ", ".join(state.held),
                    }
                )
        print_rows(rows, as_json=json)


@app.command()
def retrust(
    domain: Domain,
    config: Config,
    fingerprint: Annotated[str, typer.Option(help="Key-set fingerprint that the partner told you out of band.")],
    json: Json = False,
) -> None:
    """Forget a domain that lost its keys (broken-trust), and believe only this key set next."""
    with errors_reported(as_json=json), _trust_store(config) as store:
        import trio

        trio.run(store.retrust, domain, fingerprint)
        print_facts({"domain": domain, "fingerprint": fingerprint}, as_json=json)


@app.command()
def approve(
    domain: Domain,
    stub: Annotated[str, typer.Argument(help="Name of the stub whose update is held.")],
    config: Config,
    json: Json = False,
) -> None:
    """Grant what a held update of a stub wants (permissions-held)."""
    with errors_reported(as_json=json), _trust_store(config) as store:
        import trio

        trio.run(store.approve, domain, stub)
        print_facts({"domain": domain, "stub": stub, "approved": True}, as_json=json)


@app.command()
def catalogue(
    domain: Domain,
    config: Config,
    authority: Annotated[
        str, typer.Option("--at", metavar="HOST[:PORT]", help="Who serves it; absent: `catalogue.` and the domain.")
    ] = "",
    json: Json = False,
) -> None:
    """Show the default stub in an original catalogue. Nobody signed it, so nothing of it is kept or run."""
    with errors_reported(as_json=json), _trust_store(config) as store:
        import trio

        from msg_node.config_load import load_settings
        from trapezoid.unsigned_catalogue import describe

        print_facts(trio.run(describe, load_settings(config), store, domain, authority), as_json=json)


@contextmanager
def _trust_store(config: Path) -> Iterator[TrustStore]:
    from catalogue_client.trust_store import TrustStore
    from msg_node.config_load import load_settings
    from stubs_cache.store import load_secret

    data_dir = load_settings(config).node.data_dir
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TrustStore(data_dir / "trust.sqlite", secret=load_secret(data_dir / "secret")) as store:
        yield store
