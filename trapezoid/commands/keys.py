"""`trapezoid keys`: create and list the keys of a domain, and check when documents expire."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trapezoid.commands import keys_tls
from trapezoid.output import FOUND_WANTING, errors_reported, print_facts, print_rows

if TYPE_CHECKING:
    from protofly.documents import Root
    from stubkit.keys import KeyRing

Keys = Annotated[Path, typer.Option("--keys", metavar="DIR", help="Folder of the private keys.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(help="Create, list and check the keys of a domain.", no_args_is_help=True)
app.add_typer(keys_tls.app, name="tls")


@app.command()
def init(
    domain: Annotated[str, typer.Argument(help="Domain that the keys belong to.")],
    keys: Keys,
    algorithm: Annotated[
        Literal["ed25519", "p256"], typer.Option(help="Signature algorithm; p256 is for keys in hardware.")
    ] = "ed25519",
    json: Json = False,
) -> None:
    """Create one key for each role (root, live, pkg, node). Existing files are never overwritten."""
    with errors_reported(as_json=json):
        from protofly.address import valid_domain
        from protofly.errors import SettingsError
        from stubkit.keys import make_keys, save_keys

        valid_domain(domain)
        if any(keys.glob("*.pem")):
            raise SettingsError(
                f"{keys} already contains keys; create another key for a role with `trapezoid keys add`"
            )
        ring = make_keys(alg=algorithm)
        paths = save_keys(ring, keys, domain=domain)
        facts = {"domain": domain, "fingerprint": _fingerprint(domain, ring, 1), "files": [str(path) for path in paths]}
        print_facts(facts, as_json=json)


@app.command()
def token(
    keys: Keys,
    algorithm: Annotated[
        Literal["ed25519", "p256"], typer.Option(help="Signature algorithm; p256 is for verifiers without Ed25519.")
    ] = "ed25519",
    json: Json = False,
) -> None:
    """Create a key that signs session tokens (identity.tokens). Existing keys stay and still verify."""
    with errors_reported(as_json=json):
        _add("token", keys, algorithm, as_json=json)


@app.command()
def policy(keys: Keys, json: Json = False) -> None:
    """Create a key that signs policy bundles (policy.keys). Keep it where the node is not."""
    with errors_reported(as_json=json):
        _add("policy", keys, "ed25519", as_json=json)


@app.command()
def state(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file, for storage.key_file.")], json: Json = False
) -> None:
    """Create a key that encrypts the state of a node, and put it first in the file: it encrypts, all keys decrypt.

    The next start of the node seals the state with it; older keys may be removed then.
    """
    with errors_reported(as_json=json):
        from msg_node.storage.sealing import add_state_key

        keys = add_state_key(file)
        print_facts({"file": str(file), "keys": keys.ids}, as_json=json)


@app.command()
def add(
    role: Annotated[Literal["root", "live", "pkg", "node"], typer.Argument(help="Role of the key.")],
    keys: Keys,
    algorithm: Annotated[
        Literal["ed25519", "p256"], typer.Option(help="Signature algorithm; p256 is for keys in hardware.")
    ] = "ed25519",
    json: Json = False,
) -> None:
    """Create another key for a role, to replace an existing one as docs/operating.md describes."""
    with errors_reported(as_json=json):
        from stubkit.keys import load_keys

        load_keys(keys)  # raises for a mistyped folder, which would otherwise be created
        _add(role, keys, algorithm, as_json=json)


def _add(role: str, folder: Path, algorithm: Literal["ed25519", "p256"], *, as_json: bool) -> None:
    from stubkit.keys import KeyRing, domain_of_keys, make_key, save_keys

    domain = domain_of_keys(folder)
    key = make_key(role, alg=algorithm)
    (path,) = save_keys(KeyRing(**{role: (key,)}), folder, domain=domain)
    print_facts({"id": key.key_id, "algorithm": key.alg, "file": str(path)}, as_json=as_json)


@app.command()
def show(keys: Keys, json: Json = False) -> None:
    """List the keys: role, id, algorithm and public key."""
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
    site: Annotated[Path | None, typer.Option(metavar="DIR", help="Published site folder, instead of --keys.")] = None,
    threshold: Annotated[int, typer.Option(help="With --keys: number of root keys that must sign.", min=1)] = 1,
    json: Json = False,
) -> None:
    """Print the key-set fingerprint, which partners pin in their configuration and DNS carries as `k=`."""
    with errors_reported(as_json=json):
        from protofly.errors import SettingsError
        from stubkit.keys import load_keys

        if site is not None:
            from trapezoid.publishing import published_fingerprint

            text = published_fingerprint(site)
        elif keys is not None:
            text = _fingerprint("keys.invalid", load_keys(keys), threshold)
        else:
            raise SettingsError("give either --keys or --site")
        if json:
            print_facts({"fingerprint": text}, as_json=True)
        else:
            typer.echo(text)


def _fingerprint(domain: str, ring: KeyRing, threshold: int) -> str:
    from protofly.documents import key_set_fingerprint

    return key_set_fingerprint(_root(domain, ring, threshold))


def _root(domain: str, ring: KeyRing, threshold: int) -> Root:
    """A root for these keys. The fingerprint depends only on its root keys and threshold."""
    from protofly.documents import decode_envelope, decode_root
    from stubkit.sign import RootTerms, sign_root

    envelope = sign_root(ring, domain=domain, now=0.0, terms=RootTerms(threshold=threshold))
    return decode_root(decode_envelope(envelope).payload, domain=domain)


@app.command()
def expiry(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Configuration file; includes its certificates.")
    ] = None,
    site: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Published site folder, instead of --config.")
    ] = None,
    json: Json = False,
) -> None:
    """List the days until root, manifests, live document and certificates expire. Exits with 1 if any is too few."""
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
            raise SettingsError("give either --config or --site")
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
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="Configuration file, for example node.toml.")
    ],
) -> None:
    """Print the public keys that sign the record segments of a node, for `trapezoid pipeline --keys`."""
    with errors_reported(as_json=True):
        from msg_node.settings.load import load_settings
        from trapezoid.output import print_json
        from trapezoid.record_keys import record_keys

        print_json(record_keys(load_settings(config)))
