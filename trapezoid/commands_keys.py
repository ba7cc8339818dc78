"""`trapezoid keys`: make and show the keys of a domain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trapezoid.output import FOUND_WANTING, errors_reported, print_facts, print_rows

if TYPE_CHECKING:
    from protofly.documents import Root
    from stubkit.keys import KeyRing

Keys = Annotated[Path, typer.Option("--keys", metavar="DIR", help="Folder of the private keys.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(help="The keys of a domain.", no_args_is_help=True)


@app.command()
def init(
    domain: Annotated[str, typer.Argument(help="The domain that the keys are for.")],
    keys: Keys,
    algorithm: Annotated[Literal["ed25519", "p256"], typer.Option(help="p256 is for keys in hardware.")] = "ed25519",
    json: Json = False,
) -> None:
    """Make one key for each role (root, live, pkg, node). Nothing that exists is overwritten."""
    with errors_reported(as_json=json):
        from protofly.address import valid_domain
        from protofly.errors import SettingsError
        from stubkit.keys import make_keys, save_keys

        valid_domain(domain)
        if any(keys.glob("*.pem")):
            raise SettingsError(f"{keys} holds keys already; one more of a role is made by `trapezoid keys add`")
        ring = make_keys(alg=algorithm)
        paths = save_keys(ring, keys, domain=domain)
        facts = {"domain": domain, "fingerprint": _fingerprint(domain, ring, 1), "files": [str(path) for path in paths]}
        print_facts(facts, as_json=json)


@app.command()
def token(
    keys: Keys,
    algorithm: Annotated[Literal["ed25519", "p256"], typer.Option(help="p256 is for readers without Ed25519.")] = (
        "ed25519"
    ),
    json: Json = False,
) -> None:
    """Make a key that signs session tokens (identity.tokens); those that are there stay, and still verify."""
    with errors_reported(as_json=json):
        _add("token", keys, algorithm, as_json=json)


@app.command()
def add(
    role: Annotated[Literal["root", "live", "pkg", "node"], typer.Argument(help="What the key is for.")],
    keys: Keys,
    algorithm: Annotated[Literal["ed25519", "p256"], typer.Option(help="p256 is for keys in hardware.")] = "ed25519",
    json: Json = False,
) -> None:
    """Make one more key of a role, to replace one that is there: docs/operating.md says how."""
    with errors_reported(as_json=json):
        from stubkit.keys import load_keys

        load_keys(keys)  # a folder with a name mistyped has none, and would get a set of one
        _add(role, keys, algorithm, as_json=json)


def _add(role: str, folder: Path, algorithm: Literal["ed25519", "p256"], *, as_json: bool) -> None:
    from stubkit.keys import KeyRing, domain_of_keys, make_key, save_keys

    domain = domain_of_keys(folder)
    key = make_key(role, alg=algorithm)
    (path,) = save_keys(KeyRing(**{role: (key,)}), folder, domain=domain)
    print_facts({"id": key.key_id, "algorithm": key.alg, "file": str(path)}, as_json=as_json)


@app.command()
def show(keys: Keys, json: Json = False) -> None:
    """List the keys: role, id, algorithm, public half."""
    with errors_reported(as_json=json):
        from stubkit.keys import load_keys

        rows = [
            {"role": key.key_id.partition("-")[0], "id": key.key_id, "algorithm": key.alg, "public": key.record().pub}
            for key in load_keys(keys).all_keys()
        ]
        print_rows(rows, as_json=json)


@app.command()
def fingerprint(
    keys: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the private keys.")] = None,
    site: Annotated[Path | None, typer.Option(metavar="DIR", help="Or: folder of `trapezoid publish`.")] = None,
    threshold: Annotated[int, typer.Option(help="With --keys: root keys that must sign.", min=1)] = 1,
    json: Json = False,
) -> None:
    """Print the key-set fingerprint: what partners put into their settings, and DNS into `k=`."""
    with errors_reported(as_json=json):
        from protofly.errors import SettingsError
        from stubkit.keys import load_keys

        if site is not None:
            from trapezoid.publishing import published_fingerprint

            text = published_fingerprint(site)
        elif keys is not None:
            text = _fingerprint("keys.invalid", load_keys(keys), threshold)
        else:
            raise SettingsError("name a folder with --keys or --site")
        if json:
            print_facts({"fingerprint": text}, as_json=True)
        else:
            typer.echo(text)


def _fingerprint(domain: str, ring: KeyRing, threshold: int) -> str:
    from protofly.documents import key_set_fingerprint

    return key_set_fingerprint(_root(domain, ring, threshold))


def _root(domain: str, ring: KeyRing, threshold: int) -> Root:
    """The root that these keys would have; the fingerprint depends on its root keys and threshold only."""
    from protofly.documents import decode_envelope, decode_root
    from stubkit.sign import RootTerms, sign_root

    envelope = sign_root(ring, domain=domain, now=0.0, terms=RootTerms(threshold=threshold))
    return decode_root(decode_envelope(envelope).payload, domain=domain)


@app.command()
def expiry(
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings: certificates and live, too.")] = None,
    site: Annotated[Path | None, typer.Option(metavar="DIR", help="Or: folder of `trapezoid publish`.")] = None,
    json: Json = False,
) -> None:
    """Say how many days are left of root, manifests, live document and certificates; exit code 1 when too few."""
    with errors_reported(as_json=json):
        import time

        from msg_node.admin.expiry_watch import expiry_facts, published_terms, terms_on_disk
        from msg_node.kernel.expiry import judge_all
        from msg_node.site.publication import SiteFolder
        from protofly.errors import SettingsError

        if config is not None:
            from msg_node.settings.load import load_settings

            terms = terms_on_disk(load_settings(config))
        elif site is not None:
            terms = published_terms(SiteFolder(site))
        else:
            raise SettingsError("name settings with --config or a folder with --site")
        expiries = judge_all(terms, time.time())
        is_good = not any(one.is_failing or one.is_warning for one in expiries)
        if json:
            print_facts({"ok": is_good, "expiries": [expiry_facts(one) for one in expiries]}, as_json=True)
        else:
            print_rows(
                [
                    {
                        "days left": one.days_left,
                        "state": one.state.value,
                        "what": one.advice,
                        "file": one.term.file or "-",
                    }
                    for one in expiries
                ],
                as_json=False,
            )
    raise typer.Exit(0 if is_good else FOUND_WANTING)


@app.command()
def records(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="Settings, for example node.toml.")],
) -> None:
    """Print the public keys that sign this node's record segments, as `trapezoid pipeline --keys` takes them."""
    with errors_reported(as_json=True):
        from msg_node.settings.load import load_settings
        from trapezoid.output import print_json
        from trapezoid.record_keys import record_keys

        print_json(record_keys(load_settings(config)))
