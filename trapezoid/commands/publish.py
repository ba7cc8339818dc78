"""`trapezoid publish`: sign or renew the documents that a domain publishes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.option_groups import grouped
from trapezoid.output import FOUND_WANTING, errors_reported, print_facts
from trapezoid.publish_request import PublishRequest

if TYPE_CHECKING:
    from trapezoid.publish_options import PublishOptions
    from trapezoid.renewal import RenewalReport


@dataclass(frozen=True, kw_only=True)
class Place:
    """Whose documents are published, with which keys, and where."""

    domain: Annotated[str, typer.Argument(help="Domain that publishes.")]
    keys: Annotated[Path, typer.Option(metavar="DIR", help="Folder of private keys, from `trapezoid keys init`.")]
    site: Annotated[Path, typer.Option(metavar="DIR", help="Site folder to publish into.")]


@grouped
def publish(
    place: Place,
    request: PublishRequest,
    *,
    no_check: Annotated[bool, typer.Option("--no-check", help="Skip `trapezoid stub check`.")] = False,
    renew: Annotated[
        bool, typer.Option("--renew", help="Only renew documents that expire within 30 days, for use by timers.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Sign root and manifest, and write them into a site folder. Options not given keep their published values."""
    with errors_reported(as_json=json):
        import time

        import msgspec

        from protofly.address import valid_domain
        from protofly.errors import SettingsError
        from stubkit.keys import load_keys
        from trapezoid.publish_options import SigningSite
        from trapezoid.publishing import publish as publish_stub

        target = SigningSite(
            domain=valid_domain(place.domain),
            keys=load_keys(place.keys, domain=place.domain),
            path=place.site,
            now=time.time(),
        )
        if renew:
            from trapezoid.renewal import renew as renew_documents

            if any(getattr(request, one.name) not in (one.default, []) for one in fields(request)):
                raise SettingsError("--renew only changes dates: omit the module and all other options")
            renewal = renew_documents(target.path, target.keys, domain=target.domain, now=target.now)
            _end_renewal(renewal, as_json=json)
        report = publish_stub(target, request) if no_check else publish_stub(target, request, check=check_stub)
        facts = msgspec.to_builtins(report)
        if json:
            print_facts(facts, as_json=True)
            return
        options = facts.pop("options")
        facts |= {"options": [f"{name}: {value}" for name, value in options.items()]}
        facts |= {"kept": ", ".join(report.kept) or "none"}
        if facts.pop("is_new_fingerprint"):
            facts["note"] = "THE FINGERPRINT CHANGED: send it to partners that pin it, and update it in DNS (k=)"
        print_facts(facts, as_json=False)


def check_stub(module: Path, options: PublishOptions) -> None:
    """Run `stub check` on a module before it is published. Raises SettingsError if it fails."""
    from protofly.errors import SettingsError
    from stubkit.check import check

    report = check(module, endpoints=options.endpoints)
    complaints = [f"{one.name}: {one.complaint}" for one in report.steps if one.complaint]
    wrong = [report.refusal] if report.refusal else complaints
    if not wrong and options.needs_auth and report.is_live_unproved:
        wrong = ["it reports `live` before the peer is verified, which nodes refuse: use --no-auth or --range"]
    if wrong:
        raise SettingsError(
            f"{module}: not published, `trapezoid stub check` failed: {'; '.join(wrong)}"
            " (use --no-check to publish it anyway)"
        )


def _end_renewal(report: RenewalReport, *, as_json: bool) -> None:
    """Print a renewal, and exit with 1 if something that is due could not be renewed."""
    facts = report.facts()
    if not as_json:
        facts |= {
            "renewed": facts["renewed"] or "nothing",
            "left_due": facts["left_due"] or "none",
            "expiries": [one.text for one in report.expiries],
        }
    print_facts(facts, as_json=as_json)
    raise typer.Exit(FOUND_WANTING if report.left_due else 0)
