"""`trapezoid publish`: what a domain shows to others, made or renewed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trapezoid.output import FOUND_WANTING, errors_reported, print_facts

if TYPE_CHECKING:
    from trapezoid.renewal import RenewalReport


def publish(
    domain: Annotated[str, typer.Argument(help="The domain that publishes.")],
    module: Annotated[Path | None, typer.Argument(help="The stub's module; absent: our own link stub.")] = None,
    *,
    keys: Annotated[Path, typer.Option(metavar="DIR", help="Folder of `trapezoid keys init`.")],
    site: Annotated[Path, typer.Option(metavar="DIR", help="Folder to publish into.")],
    url: Annotated[str, typer.Option(help="How others reach the site; absent: https:// and the domain.")] = "",
    selector: Annotated[str, typer.Option(help="Name under which `live` lists the stub.")] = "default",
    description: Annotated[str, typer.Option(help="One line about the stub, for catalogues.")] = "",
    alias: Annotated[list[str] | None, typer.Option(help="Further domain that these keys speak for.")] = None,
    endpoint: Annotated[list[str] | None, typer.Option(help="Endpoint that the stub may open.")] = None,
    address_range: Annotated[
        list[str] | None,
        typer.Option(
            "--range", help="Legacy addresses that it speaks for, such as sip://legacy.example: it interworks."
        ),
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="The stub's protocol proves no node: TLS alone says who is there.")
    ] = False,
    serial: Annotated[int, typer.Option(help="Serial of a new manifest; 0: the next.", min=0)] = 0,
    threshold: Annotated[int, typer.Option(help="Root keys that must sign a new root.", min=1)] = 1,
    revoke: Annotated[list[str] | None, typer.Option(help="SHA-256 of a module to take back.")] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Only renew what expires in less than 30 days; for timers.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Sign root and manifest, and write them with module and catalogue entry into a site folder."""
    with errors_reported(as_json=json):
        import time

        import msgspec

        from protofly.address import valid_domain
        from protofly.errors import SettingsError
        from stubkit.keys import load_keys
        from trapezoid.publishing import PublishRequest, default_module
        from trapezoid.publishing import publish as publish_stub

        ring = load_keys(keys, domain=valid_domain(domain))
        if renew:
            from trapezoid.renewal import renew as renew_documents

            others = (module, url, description, alias, endpoint, address_range, no_auth, serial, revoke)
            if any(others) or selector != "default" or threshold != 1:
                raise SettingsError("--renew changes dates only: leave out the module and all other options")
            _end_renewal(renew_documents(site, ring, domain=domain, now=time.time()), as_json=json)
        report = publish_stub(
            PublishRequest(
                domain=domain,
                keys=ring,
                site=site,
                module=module or default_module(),
                now=time.time(),
                url=url,
                selector=selector,
                description=description,
                aliases=tuple(alias or ()),
                endpoints=tuple(endpoint or ("mn",)),
                ranges=tuple(address_range or ()),
                needs_auth=not no_auth,
                serial=serial,
                threshold=threshold,
                revoke=tuple(revoke or ()),
            )
        )
        print_facts(msgspec.to_builtins(report), as_json=json)


def _end_renewal(report: RenewalReport, *, as_json: bool) -> None:
    """Exit code 1 when something that is due was left."""
    facts = report.facts()
    if not as_json:
        facts |= {
            "renewed": facts["renewed"] or "nothing",
            "left_due": facts["left_due"] or "none",
            "expiries": [one.text for one in report.expiries],
        }
    print_facts(facts, as_json=as_json)
    raise typer.Exit(FOUND_WANTING if report.left_due else 0)
