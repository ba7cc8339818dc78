"""`trapezoid publish`: sign or renew the documents that a domain publishes, and fill its catalogue."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from pipeline.cli.option_groups import grouped
from trapezoid.output import FOUND_WANTING, errors_reported, print_facts, print_rows
from trapezoid.publish_request import PublishRequest

if TYPE_CHECKING:
    from trapezoid.publish_options import PublishOptions
    from trapezoid.renewal import RenewalReport

Site = Annotated[Path, typer.Option("--site", metavar="DIR", help="Site folder to publish into.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class _PublishGroup(TyperGroup):
    """`publish DOMAIN …` means `publish stub DOMAIN …`."""

    default_command = "stub"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `click.Group`."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_PublishGroup,
    no_args_is_help=True,
    help="Publish the stub of a domain (`publish DOMAIN …`), and further entries of its catalogue.",
)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Options of publishing: domain, folder of its keys, folder of its site."""

    domain: Annotated[str, typer.Argument(help="Domain that publishes.")]
    keys: Annotated[Path, typer.Option(metavar="DIR", help="Folder of private keys, from `trapezoid keys init`.")]
    site: Annotated[Path, typer.Option(metavar="DIR", help="Site folder to publish into.")]


@app.command("stub")
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
        if facts.pop("is_new_fingerprint"):
            facts["note"] = "THE FINGERPRINT CHANGED: send it to partners that pin it, and update it in DNS (k=)"
        if facts.pop("is_revoked"):
            facts["warning"] = (
                "THE PUBLISHED MODULE IS REVOKED: nodes run no stub of this domain; publish another module"
            )
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


@dataclass(frozen=True, kw_only=True)
class EntryOptions:
    """The properties of a catalogue entry."""

    descriptor: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="JSON with attributes of the descriptor, such as dataObjects or constraints."
        ),
    ] = None
    name: Annotated[str, typer.Option(help="Name of the entry. Default: the descriptor's, else that of the file.")] = ""
    version: Annotated[str, typer.Option(help="Default: the file's; the next one if something has changed.")] = ""
    description: Annotated[str, typer.Option(help="Describe it in one line.")] = ""
    class_name: Annotated[str, typer.Option(help="Name of its source package. Default: the name of the entry.")] = ""
    default: Annotated[bool, typer.Option("--default", help="`default` means this entry, among others.")] = False
    keys: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Sign it with the `pkg` keys of this folder; readers need not check."),
    ] = None


def _publish_entry(kind: str, file: Path, site: Path, options: EntryOptions, *, json: bool) -> None:
    with errors_reported(as_json=json):
        import msgspec

        from msg_node.site.publication import SiteFolder
        from stubkit.keys import load_keys
        from trapezoid.catalogue_entries import EntryRequest, publish_entry

        folder = SiteFolder(site)
        request = EntryRequest(
            kind=kind,
            file=file,
            descriptor=options.descriptor,
            name=options.name,
            version=options.version,
            description=options.description,
            class_name=options.class_name,
            is_default=options.default,
        )
        keys = () if options.keys is None else tuple(load_keys(options.keys, domain=folder.load().domain).pkg)
        facts = msgspec.to_builtins(publish_entry(folder, request, keys))
        print_facts(facts if json else {name: value for name, value in facts.items() if value != ""}, as_json=json)


def _add_entry_command(kind: str, text: str) -> None:
    def command(
        file: Annotated[Path, typer.Argument(help="Code, schema, policy, or a descriptor with its source package.")],
        site: Site,
        options: EntryOptions,
        *,
        json: Json = False,
    ) -> None:
        _publish_entry(kind, file, site, options, json=json)

    command.__doc__ = text
    app.command(kind)(grouped(command))


_add_entry_command("hyperty", "Publish a hyperty: JavaScript, or a descriptor with its source package.")
_add_entry_command("dataschema", "Publish a data schema: a JSON schema, or a descriptor with its source package.")
_add_entry_command(
    "runtime", "Publish a runtime: JavaScript with --descriptor, or a descriptor with its source package."
)
_add_entry_command(
    "idp-proxy", "Publish an identity provider proxy: JavaScript, or a descriptor with its source package."
)
_add_entry_command("policy", "Publish a policy that owners may name for their objects: a policy file, JSON or TOML.")


@app.command("list")
def list_published(site: Site, *, json: Json = False) -> None:
    """List the entries in the catalogue of a site folder."""
    with errors_reported(as_json=json):
        from msg_node.site.publication import SiteFolder
        from trapezoid.catalogue_entries import list_entries

        print_rows(list_entries(SiteFolder(site)), as_json=json)


@app.command("remove")
def remove(
    kind: Annotated[str, typer.Argument(help="hyperty, dataschema, policy, runtime or idp-proxy.")],
    name: Annotated[str, typer.Argument(help="Name of the entry.")],
    site: Site,
    *,
    json: Json = False,
) -> None:
    """Remove an entry from the catalogue. Stubs cannot be removed: replace them, or revoke their module."""
    with errors_reported(as_json=json):
        import msgspec

        from msg_node.site.publication import SiteFolder
        from trapezoid.catalogue_entries import remove_entry

        print_facts({"removed": True, **msgspec.to_builtins(remove_entry(SiteFolder(site), kind, name))}, as_json=json)
