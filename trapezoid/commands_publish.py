"""`trapezoid publish`: what a domain shows to others, made or renewed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trapezoid.output import FOUND_WANTING, errors_reported, print_facts

if TYPE_CHECKING:
    from trapezoid.publish_options import PublishOptions
    from trapezoid.renewal import RenewalReport


def publish(
    domain: Annotated[str, typer.Argument(help="The domain that publishes.")],
    module: Annotated[
        Path | None, typer.Argument(help="The stub's module; absent: as published, else our own.")
    ] = None,
    *,
    keys: Annotated[Path, typer.Option(metavar="DIR", help="Folder of `trapezoid keys init`.")],
    site: Annotated[Path, typer.Option(metavar="DIR", help="Folder to publish into.")],
    url: Annotated[str | None, typer.Option(help="How others reach the site; at first https://DOMAIN.")] = None,
    selector: Annotated[str, typer.Option(help="Name under which `live` lists the stub.")] = "default",
    description: Annotated[str | None, typer.Option(help="One line about the stub, for catalogues.")] = None,
    alias: Annotated[list[str] | None, typer.Option(help="Further domain that these keys speak for.")] = None,
    endpoint: Annotated[list[str] | None, typer.Option(help="Endpoint that the stub may open.")] = None,
    address_range: Annotated[
        list[str] | None,
        typer.Option(
            "--range", help="Legacy addresses that it speaks for, such as sip://legacy.example: it interworks."
        ),
    ] = None,
    auth: Annotated[
        bool | None,
        typer.Option("--auth/--no-auth", help="Whether the stub's protocol proves nodes, or TLS alone does."),
    ] = None,
    serial: Annotated[int, typer.Option(help="Serial of a new manifest; 0: the next.", min=0)] = 0,
    threshold: Annotated[int | None, typer.Option(help="Root keys that must sign a new root.", min=1)] = None,
    revoke: Annotated[list[str] | None, typer.Option(help="SHA-256 of a module to take back.")] = None,
    reset: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Option to take back to its default: url, alias, range, module, …; or all."),
    ] = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="Publish without `stub check`.")] = False,
    renew: Annotated[
        bool, typer.Option("--renew", help="Only renew what expires in less than 30 days; for timers.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Sign root and manifest, and write them into a site folder; options that are not repeated stay as published."""
    with errors_reported(as_json=json):
        import time

        import msgspec

        from protofly.address import valid_domain
        from protofly.errors import SettingsError
        from stubkit.keys import load_keys
        from trapezoid.publish_options import PublishRequest
        from trapezoid.publishing import publish as publish_stub

        ring = load_keys(keys, domain=valid_domain(domain))
        if renew:
            from trapezoid.renewal import renew as renew_documents

            others = (module, url, description, alias, endpoint, address_range, serial, revoke, reset, threshold)
            if any(others) or auth is not None or selector != "default":
                raise SettingsError("--renew changes dates only: leave out the module and all other options")
            _end_renewal(renew_documents(site, ring, domain=domain, now=time.time()), as_json=json)
        request = PublishRequest(
            domain=domain,
            keys=ring,
            site=site,
            module=module,
            now=time.time(),
            url=url,
            selector=selector,
            description=description,
            aliases=_given(alias),
            endpoints=_given(endpoint),
            ranges=_given(address_range),
            needs_auth=auth,
            serial=serial,
            threshold=threshold,
            revoke=tuple(revoke or ()),
            reset=frozenset(reset or ()),
        )
        report = publish_stub(request) if no_check else publish_stub(request, check=check_stub)
        facts = msgspec.to_builtins(report)
        if json:
            print_facts({**facts, "is_new_fingerprint": report.is_new_fingerprint}, as_json=True)
            return
        options = facts.pop("options")
        facts |= {"options": [f"{name}: {value}" for name, value in options.items()]}
        facts |= {"kept": ", ".join(report.kept) or "none"}
        if report.is_new_fingerprint:
            facts["note"] = "THE FINGERPRINT CHANGED: tell it to partners that pin it, and to DNS (k=)"
        print_facts(facts, as_json=False)


def check_stub(module: Path, options: PublishOptions) -> None:
    """`stub check` of what is about to be published. Raises SettingsError when it should not be."""
    from protofly.errors import SettingsError
    from stubkit.check import check

    report = check(module, endpoints=options.endpoints)
    complaints = [f"{one.name}: {one.complaint}" for one in report.steps if one.complaint]
    wrong = [report.refusal] if report.refusal else complaints
    if not wrong and options.needs_auth and report.is_live_unproved:
        wrong = ["it says `live` before its far end is verified, which no node lets it: say --no-auth, or --range"]
    if wrong:
        raise SettingsError(
            f"{module}: nothing is published, `trapezoid stub check` complains: {'; '.join(wrong)}"
            " (--no-check publishes it all the same)"
        )


def _given(values: list[str] | None) -> tuple[str, ...] | None:
    return tuple(values) if values else None


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
