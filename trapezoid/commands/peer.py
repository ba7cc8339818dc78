"""`trapezoid peer`: list and change the stored trust in other domains, and check what they publish."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.option_groups import grouped
from trapezoid.output import NOT_RECORDED, errors_reported, print_facts, print_rows
from trapezoid.peer_entry import EntryOptions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from catalogue_client.core.state import TrustState
    from catalogue_client.trust_store import TrustStore
    from msg_node.settings.model import Settings

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="Configuration file, for example node.toml.")]
Domain = Annotated[str, typer.Argument(help="Domain of the peer.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation. Required with --json and in scripts.")]

app = typer.Typer(help="List and change the stored trust in other domains.", no_args_is_help=True)


@app.command("list")
def list_peers(config: Config, json: Json = False) -> None:
    """List the peers whose documents were accepted: trust level, root version, serial and held updates."""
    with errors_reported(as_json=json), _trust_store(config) as store:
        from msg_node.settings.load import load_settings
        from trapezoid.peer_stubs import pinned_rows

        chosen = pinned_rows(load_settings(config))
        print_rows([*(_row(store, domain) for domain in store.domains()), *chosen], as_json=json)


@app.command()
def show(domain: Domain, config: Config, json: Json = False) -> None:
    """Show the stored trust in a domain, and its stubs with what their author says about their certification.

    A certification is the author's word: `stub certify` with the module and its cases repeats it.
    """
    with errors_reported(as_json=json), _trust_store(config) as store:
        import trio

        from msg_node.settings.load import load_settings
        from protofly.address import valid_domain
        from trapezoid.peer_show import show as show_peer

        facts = _row(store, valid_domain(domain))
        print_facts(trio.run(show_peer, load_settings(config), store, domain, facts), as_json=json)


@app.command()
def retrust(
    domain: Domain,
    config: Config,
    fingerprint: Annotated[str, typer.Option(help="New key-set fingerprint, received from the peer out of band.")],
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Replace the trust in a domain that lost its keys (broken-trust): accept only this key set from now on."""
    with errors_reported(as_json=json):
        import trio

        from msg_node.settings.load import load_settings

        _check_retrust(load_settings(config), domain, fingerprint)
        with _trust_stores(config) as stores:
            store = next(iter(stores.values()))
            before = _row(store, domain)
            after = {**before, "level": "pinned", "root": 0, "serial": 0, "fingerprint": fingerprint, "held": ""}
            _confirm({"before": before, "after": after}, is_sure=yes, as_json=json)
            arguments: dict[str, object] = {"domain": domain, "fingerprint": fingerprint}
            beside = list(_unasked(stores, "peer retrust", arguments))
            for folder in beside:
                trio.run(stores[folder].retrust, domain, fingerprint)
            undo = f"trapezoid peer forget {domain} --config {config}, until a root of that key set was accepted"
            _print_change(before, _row(store, domain), undo, beside, as_json=json)


@app.command()
def forget(domain: Domain, config: Config, yes: Yes = False, json: Json = False) -> None:
    """Undo an unused retrust; otherwise delete the stored trust, so that the next contact is a first one."""
    with errors_reported(as_json=json), _trust_stores(config) as stores:
        import trio

        from msg_node.settings.load import load_settings
        from protofly.address import valid_domain
        from protofly.errors import Code, HostError
        from trapezoid.peer_stubs import pins_of
        from trapezoid.process_environment import settings_of_processes

        valid_domain(domain)
        store, knowing = next(iter(stores.values())), [one for one in stores.values() if domain in one.domains()]
        pins = {one.node.data_dir: pins_of(one) for one in settings_of_processes(load_settings(config))}
        concerned = [one for one in stores if domain in (*stores[one].domains(), *pins[one].domains())]
        if not concerned:
            raise HostError(Code.NOT_REGISTERED, f"no trust is stored for {domain}")
        before = _row(store, domain)
        after = _replaced_row(store, domain)
        _confirm({"before": before, "after": after}, is_sure=yes, as_json=json)
        beside = list(_unasked(concerned, "peer forget", {"domain": domain}))
        for folder in beside:
            pins[folder].forget(domain)
            if stores[folder] in knowing:
                trio.run(stores[folder].forget, domain)
        if not knowing:
            undo = "none: the stub that you choose is pinned anew"
            print_facts({"domain": domain, "undo": undo, **_recorded(beside)}, as_json=json)
            return
        now = _row(store, domain)
        is_first = now["level"] == _facts(domain, None)["level"]
        undo = "its next documents are a first contact" if is_first else "what was known before counts again"
        _print_change(before, now, f"none: {undo}", beside, as_json=json)


@app.command()
def check(
    domain: Domain,
    config: Config,
    connect: Annotated[
        bool,
        typer.Option(
            "--connect",
            help="Also run the domain's stub until both sides have proved themselves, and send a message through it "
            "if the running node has no link. A link that it has may be interrupted for a moment.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Test each step of federation with a domain, without changing anything. Exits with 1 if a step fails."""
    with errors_reported(as_json=json):
        import trio

        from msg_node.settings.load import load_settings
        from trapezoid.peer_check import check_domain
        from trapezoid.peer_check.output import print_report

        report = trio.run(partial(check_domain, load_settings(config), domain, connects=connect))
        status = print_report(report, as_json=json)
    raise typer.Exit(status)


@app.command()
@grouped
def add(
    domain: Domain,
    entry: EntryOptions,
    config: Config,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not connect to the domain's node.")] = False,
    json: Json = False,
) -> None:
    """Add a domain that publishes nothing, with a stub that you choose: write its entry, connect once, pin the stub."""
    with errors_reported(as_json=json):
        from trapezoid.peer_adding import add_peer

        print_facts(add_peer(config, domain, entry, connects=not no_check), as_json=json)


@app.command()
def approve(
    domain: Domain,
    stub: Annotated[str, typer.Argument(help="Stub whose update is held.")],
    config: Config,
    json: Json = False,
) -> None:
    """Approve a held update (permissions-held), or the module that the settings choose (digest-not-approved)."""
    with errors_reported(as_json=json), _trust_stores(config) as stores:
        from msg_node.settings.load import load_settings
        from trapezoid.peer_stubs import approve_choice
        from trapezoid.process_environment import settings_of_processes

        approved = [approve_choice(one, domain) for one in settings_of_processes(load_settings(config))]
        if approved[0] is not None:
            print_facts(approved[0], as_json=json)
            return
        beside = _approve_at(stores, domain, stub)
        print_facts({"domain": domain, "stub": stub, "approved": True, **_recorded(beside)}, as_json=json)


@app.command()
def catalogue(
    domain: Domain,
    config: Config,
    authority: Annotated[
        str, typer.Option("--at", metavar="HOST[:PORT]", help="Catalogue server. Default: catalogue.DOMAIN.")
    ] = "",
    name: Annotated[str, typer.Option(help="Entry to show.")] = "default",
    json: Json = False,
) -> None:
    """Show a stub of an original reTHINK catalogue. It is unsigned; `unsigned_stub` of a peer runs it, pinned."""
    with errors_reported(as_json=json), _trust_store(config) as store:
        import trio

        from msg_node.settings.load import load_settings
        from trapezoid.unsigned_catalogue import describe

        print_facts(trio.run(describe, load_settings(config), store, domain, authority, name), as_json=json)


def _check_retrust(settings: Settings, domain: str, fingerprint: str) -> None:
    """Refuse a retrust that must be a mistake.

    Raises:
        PeerError: NAME_INVALID.
        SettingsError: The text is no fingerprint, the settings pin another one, or domain or keys are our own.
    """
    from msg_node.wiring.meaning import anchor_of
    from protofly.address import valid_domain
    from protofly.documents import is_fingerprint
    from protofly.errors import HostError, SettingsError
    from trapezoid.publishing import published_fingerprint

    is_ours = False
    valid_domain(domain)
    if domain in settings.own_domains:
        raise SettingsError(f"{domain} is our own domain; name another one")
    if not is_fingerprint(fingerprint):
        raise SettingsError(
            f"--fingerprint {fingerprint!r}: expected 43 characters of base64url, from `trapezoid keys fingerprint`"
        )
    if settings.publish is not None:
        with suppress(HostError):  # `check` reports the faults of our own site
            is_ours = fingerprint == published_fingerprint(settings.publish.site_dir)
    if is_ours:
        raise SettingsError("this is the fingerprint of our own keys; ask the peer for theirs")
    pinned = anchor_of(settings, domain).fingerprint
    if pinned and pinned != fingerprint:
        raise SettingsError(f"the [[peer]] entry of {domain} pins {pinned}; change that first, and reload")


def _row(store: TrustStore, domain: str) -> dict[str, object]:
    """The stored trust in one domain. An unreadable one is shown with its error, so that others are still listed."""
    from protofly.errors import PeerError

    try:
        state = store.load(domain)
    except PeerError as exc:
        return {**_facts(domain, None), "level": exc.code.word}
    return _facts(domain, state)


def _replaced_row(store: TrustStore, domain: str) -> dict[str, object]:
    """The trust that `forget` would restore."""
    from protofly.errors import PeerError

    try:
        state = store.load(domain)
    except PeerError:
        state = None
    return _facts(domain, state.replaced if state is not None else None)


def _facts(domain: str, state: TrustState | None) -> dict[str, object]:
    from msg_node.admin.trust_changes import trust_facts

    return {"domain": domain, **trust_facts(state)}


def _confirm(change: dict[str, dict[str, object]], *, is_sure: bool, as_json: bool) -> None:
    """Show before and after, and ask. Raises SettingsError unless the answer is yes."""
    from protofly.errors import SettingsError

    if is_sure:
        return
    if as_json:
        raise SettingsError("nothing was changed: --json needs --yes")
    print_rows([{"": name, **facts} for name, facts in change.items()], as_json=False)
    try:
        is_sure = typer.confirm("Apply this change?", err=True)
    except typer.Abort:
        is_sure = False
    if not is_sure:
        raise SettingsError("nothing was changed: not confirmed (use --yes in scripts)")


def _print_change(
    before: dict[str, object], after: dict[str, object], undo: str, beside: Collection[Path], *, as_json: bool
) -> None:
    said = {"undo": undo, **_recorded(beside)}
    if as_json:
        print_facts({"domain": before["domain"], "before": before, "after": after, **said}, as_json=True)
    else:
        print_rows([{"": "before", **before}, {"": "now", **after}], as_json=False)
        print_facts(said, as_json=False)


def _recorded(beside: Collection[Path]) -> dict[str, object]:
    """The member that says that a change in folders on which nothing runs has no audit record."""
    return {"recorded": NOT_RECORDED} if beside else {}


def _unasked(folders: Iterable[Path], operation: str, arguments: dict[str, object]) -> Iterator[Path]:
    """Have the processes that run on folders make a change; yields the folders on which none runs."""
    from trapezoid.admin_client import ask_if_running

    return (folder for folder in folders if not ask_if_running(folder, operation, arguments))


def _approve_at(stores: Mapping[Path, TrustStore], domain: str, stub: str) -> list[Path]:
    """Approve at all processes where something is held; returns the folders on which none runs.

    Raises:
        HostError: It is held nowhere.
    """
    import trio

    from protofly.errors import HostError
    from trapezoid.admin_client import ask_if_running

    errors, beside = list[HostError](), list[Path]()
    for folder, store in stores.items():
        try:
            if not ask_if_running(folder, "stub approve", {"domain": domain, "stub": stub}):
                trio.run(store.approve, domain, stub)
                beside.append(folder)
        except HostError as exc:
            errors.append(exc)
    if len(errors) == len(stores):
        raise errors[0]
    return beside


@contextmanager
def _trust_store(config: Path) -> Iterator[TrustStore]:
    """The trust store of the node, or of its first process."""
    from msg_node.settings.load import load_settings

    with _opened(load_settings(config).node.data_dir) as store:
        yield store


@contextmanager
def _trust_stores(config: Path) -> Iterator[dict[Path, TrustStore]]:
    """What is remembered by each process of the node, by folder, the first one's first: a change counts at all."""
    from msg_node.settings.load import load_settings
    from trapezoid.process_environment import process_folders

    folders = process_folders(load_settings(config).node.data_dir)
    with ExitStack() as stack:
        yield {folder: stack.enter_context(_opened(folder)) for folder in folders.values()}


def _opened(data_dir: Path) -> TrustStore:
    from catalogue_client.trust_store import TrustStore
    from stubs_cache.store import load_secret

    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return TrustStore(data_dir / "trust.sqlite", secret=load_secret(data_dir / "secret"))
