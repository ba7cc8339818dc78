"""`trapezoid peer`: what is remembered of partners, and how the operator trusts anew, forgets, grants more."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trapezoid.output import errors_reported, print_facts, print_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from catalogue_client.core.state import TrustState
    from catalogue_client.trust_store import TrustStore
    from msg_node.settings.model import Settings

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="Settings, for example node.toml.")]
Domain = Annotated[str, typer.Argument(help="The partner's domain.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask; needed with --json and in scripts.")]

app = typer.Typer(help="What is remembered of other domains.", no_args_is_help=True)


@app.command("list")
def list_peers(config: Config, json: Json = False) -> None:
    """List the domains whose documents were accepted once: level, root version, serials, held updates."""
    with errors_reported(as_json=json), _trust_store(config) as store:
        print_rows([_row(store, domain) for domain in store.domains()], as_json=json)


@app.command()
def retrust(
    domain: Domain,
    config: Config,
    fingerprint: Annotated[str, typer.Option(help="Key-set fingerprint that the partner told you out of band.")],
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Forget a domain that lost its keys (broken-trust), and believe only this key set next."""
    with errors_reported(as_json=json):
        import trio

        from msg_node.settings.load import load_settings

        _check_retrust(load_settings(config), domain, fingerprint)
        with _trust_store(config) as store:
            before = _row(store, domain)
            after = {**before, "level": "pinned", "root": 0, "serial": 0, "fingerprint": fingerprint, "held": ""}
            _confirm({"before": before, "after": after}, is_sure=yes, as_json=json)
            trio.run(store.retrust, domain, fingerprint)
            undo = f"trapezoid peer forget {domain} --config {config}, until a root of that key set was accepted"
            _print_change(domain, before, _row(store, domain), undo, as_json=json)


@app.command()
def forget(domain: Domain, config: Config, yes: Yes = False, json: Json = False) -> None:
    """Undo a retrust that was not used yet; else forget all about a domain: the next contact is a first one."""
    with errors_reported(as_json=json), _trust_store(config) as store:
        import trio

        from protofly.address import valid_domain
        from protofly.errors import Code, HostError

        valid_domain(domain)
        if domain not in store.domains():
            raise HostError(Code.NOT_REGISTERED, f"nothing is remembered of {domain}")
        before = _row(store, domain)
        after = _replaced_row(store, domain)
        _confirm({"before": before, "after": after}, is_sure=yes, as_json=json)
        trio.run(store.forget, domain)
        _print_change(domain, before, _row(store, domain), "none: its next documents are a first contact", as_json=json)


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

        from msg_node.settings.load import load_settings
        from trapezoid.unsigned_catalogue import describe

        print_facts(trio.run(describe, load_settings(config), store, domain, authority), as_json=json)


def _check_retrust(settings: Settings, domain: str, fingerprint: str) -> None:
    """Refuse what cannot be meant.

    Raises:
        PeerError: NAME_INVALID.
        SettingsError: It is no fingerprint, the settings pin another one, or it is about ourselves.
    """
    from msg_node.settings.meaning import anchor_of
    from protofly.address import valid_domain
    from protofly.documents import is_fingerprint
    from protofly.errors import HostError, SettingsError
    from trapezoid.publishing import published_fingerprint

    is_ours = False
    valid_domain(domain)
    if domain in settings.own_domains:
        raise SettingsError(f"{domain} is our own domain")
    if not is_fingerprint(fingerprint):
        raise SettingsError(
            f"--fingerprint {fingerprint!r}: 43 characters of base64url, as `trapezoid keys fingerprint` prints it"
        )
    if settings.publish is not None:
        with suppress(HostError):  # whatever is wrong with our own site, `check` says it
            is_ours = fingerprint == published_fingerprint(settings.publish.site_dir)
    if is_ours:
        raise SettingsError("that is the fingerprint of our own keys; ask the partner for theirs")
    pinned = anchor_of(settings, domain).fingerprint
    if pinned and pinned != fingerprint:
        raise SettingsError(f"the [[peer]] entry of {domain} pins {pinned}; change that first, and restart the node")


def _row(store: TrustStore, domain: str) -> dict[str, object]:
    """What is remembered of one domain; one that cannot be read does not hide the others."""
    from protofly.errors import PeerError

    try:
        state = store.load(domain)
    except PeerError as exc:
        return {**_facts(domain, None), "level": exc.code.word}
    return _facts(domain, state)


def _replaced_row(store: TrustStore, domain: str) -> dict[str, object]:
    """What `forget` would bring back."""
    from protofly.errors import PeerError

    try:
        state = store.load(domain)
    except PeerError:
        state = None
    return _facts(domain, state.replaced if state is not None else None)


def _facts(domain: str, state: TrustState | None) -> dict[str, object]:
    return {
        "domain": domain,
        "level": state.level.value if state is not None else "nothing remembered",
        "root": state.root_version if state is not None else 0,
        "serial": state.live_serial if state is not None else 0,
        "fingerprint": state.fingerprints[-1] if state is not None and state.fingerprints else "",
        "held": ", ".join(state.held) if state is not None else "",
    }


def _confirm(change: dict[str, dict[str, object]], *, is_sure: bool, as_json: bool) -> None:
    """Show before and after, and ask. Raises SettingsError when the answer is no, or cannot be had."""
    from protofly.errors import SettingsError

    if is_sure:
        return
    if as_json:
        raise SettingsError("nothing was changed: add --yes, since --json asks nobody")
    print_rows([{"": name, **facts} for name, facts in change.items()], as_json=False)
    try:
        is_sure = typer.confirm("Change it?", err=True)
    except typer.Abort:
        is_sure = False
    if not is_sure:
        raise SettingsError("nothing was changed: it was not confirmed; --yes does so in scripts")


def _print_change(
    domain: str, before: dict[str, object], after: dict[str, object], undo: str, *, as_json: bool
) -> None:
    if as_json:
        print_facts({"domain": domain, "before": before, "after": after, "undo": undo}, as_json=True)
    else:
        print_rows([{"": "before", **before}, {"": "now", **after}], as_json=False)
        print_facts({"undo": undo}, as_json=False)


@contextmanager
def _trust_store(config: Path) -> Iterator[TrustStore]:
    from catalogue_client.trust_store import TrustStore
    from msg_node.settings.load import load_settings
    from stubs_cache.store import load_secret

    data_dir = load_settings(config).node.data_dir
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TrustStore(data_dir / "trust.sqlite", secret=load_secret(data_dir / "secret")) as store:
        yield store
