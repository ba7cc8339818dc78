"""`trapezoid guid`: make a GUID, look at one, check a record, publish one. And a registry to try it with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trapezoid.output import FOUND_WANTING, errors_reported, print_facts

if TYPE_CHECKING:
    from msg_node.backends.global_registry_rest import GlobalRegistryRest
    from protofly.guid_record import Draft, GuidRecord, UserId
    from trapezoid.guid_folder import GuidFolder

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Where key, salt and record of the GUID are.")]
Users = Annotated[
    list[str] | None,
    typer.Option(
        "--user", metavar="UID=DOMAIN", help="A user identifier, and the domain whose domain registry knows it."
    ),
]
Days = Annotated[float, typer.Option(help="How long the record is valid.", min=0.01, max=3_660)]
Registry = Annotated[str, typer.Option("--registry", metavar="URL", help="Global registry, `https://host:5002`.")]
CaFile = Annotated[Path | None, typer.Option("--ca", metavar="FILE", help="PEM file with authorities to believe.")]
Plaintext = Annotated[bool, typer.Option("--insecure-plaintext", help="Take a registry without TLS (`http:`).")]
Format = Annotated[Literal["raw", "der"], typer.Option(help="Signature: r‖s as JOSE says, or DER as old servers do.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

DEFAULT_DAYS = 90.0
"""As the original tool. Source: data formats, section 4.3."""

app = typer.Typer(help="GUIDs: names of users that no domain gives, and their signed records.", no_args_is_help=True)


@app.command()
def new(
    folder: Folder,
    user: Users = None,
    days: Days = DEFAULT_DAYS,
    salt: Annotated[str, typer.Option(help="Salt of the GUID; absent: random.")] = "",
    encoding: Format = "raw",
    json: Json = False,
) -> None:
    """Make a key and with it a GUID, and sign its first record. Nothing that exists is overwritten."""
    with errors_reported(as_json=json):
        import time
        from dataclasses import replace

        from protofly.guid_record import Draft
        from trapezoid.guid_folder import make_folder, moment

        user_ids = _user_ids(user)
        now = time.time()
        made = replace(make_folder(folder, salt=salt), encoding=encoding)
        draft = Draft(salt=made.salt, user_ids=user_ids, last_update=moment(now), timeout=moment(now + days * 86_400))
        made.sign(draft)
        print_facts({**_facts_of(made.record()), "folder": str(folder)}, as_json=json)


@app.command()
def show(folder: Folder, json: Json = False) -> None:
    """Show the GUID of a folder, and what its newest record says."""
    with errors_reported(as_json=json):
        from trapezoid.guid_folder import load_folder

        kept = load_folder(folder)
        print_facts({"guid": kept.guid, **_facts_of(kept.record())}, as_json=json)


@app.command()
def verify(
    record: Annotated[str, typer.Argument(help="File with a record, - for standard input, or with --registry a GUID.")],
    guid: Annotated[str, typer.Option(help="The GUID that the record has to be of.")] = "",
    registry: Registry = "",
    ca: CaFile = None,
    insecure_plaintext: Plaintext = False,
    json: Json = False,
) -> None:
    """Check a record as a node does. Exit code 1: it is not to be believed, or of no use now."""
    with errors_reported(as_json=json):
        import time

        from protofly.guid import bare_guid
        from protofly.guid_record import RecordError, advance, check_usable, read_record

        wanted = bare_guid(record if registry else guid) if registry or guid else ""
        jwt = _fetched(wanted, registry, ca, is_plaintext=insecure_plaintext) if registry else _read(record)
        facts: dict[str, object] = {}
        try:
            checked = read_record(jwt, guid=wanted)
            facts = _facts_of(checked)
            now = time.time()
            advance(checked, None, now=now)
            check_usable(checked, now=now)
        except RecordError as exc:
            print_facts({"ok": False, "flaw": exc.flaw.value, "detail": exc.detail, **facts}, as_json=json)
            raise typer.Exit(FOUND_WANTING) from exc
        print_facts({"ok": True, **facts}, as_json=json)


@app.command()
def publish(
    folder: Folder,
    registry: Registry,
    user: Users = None,
    forget_user: Annotated[
        list[str] | None, typer.Option("--forget-user", metavar="UID", help="A user identifier to take out.")
    ] = None,
    days: Days = DEFAULT_DAYS,
    active: Annotated[bool, typer.Option("--active/--inactive", help="Whether you can be found by it now.")] = True,
    revoke: Annotated[bool, typer.Option("--revoke", help="End this GUID for ever.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing.")] = False,
    encoding: Format = "raw",
    ca: CaFile = None,
    insecure_plaintext: Plaintext = False,
    json: Json = False,
) -> None:
    """Sign the record anew, with what you add or take out, and store it in a global registry."""
    with errors_reported(as_json=json):
        import trio

        from trapezoid.guid_folder import load_folder

        kept = load_folder(folder, encoding=encoding)
        client = _client(registry, ca, is_plaintext=insecure_plaintext)
        if revoke and not yes:
            typer.confirm(f"End {kept.guid} for ever? Nothing brings it back", abort=True, err=True)
        draft = _draft(kept, _user_ids(user), forget_user or [], days, is_active=active, is_revoked=revoke)
        jwt = kept.sign(draft)  # before it is sent: its `lastUpdate` is never used twice
        trio.run(client.write, kept.guid, jwt)
        print_facts({**_facts_of(kept.record()), "registry": registry}, as_json=json)


def serve_global_registry(
    store: Annotated[Path, typer.Option(metavar="FILE", help="SQLite file with the records; made if it is not there.")],
    host: Annotated[str, typer.Option(help="Address to bind.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="TCP port; 0 lets the system choose one.", min=0, max=65_535)] = 5002,
    certificate: Annotated[Path | None, typer.Option(metavar="FILE", help="PEM file; absent: without TLS.")] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="PEM file with the private key.")] = None,
    deletion_token_sha256: Annotated[
        str, typer.Option(help="Hex SHA-256 of the token that may delete; absent: nobody may.")
    ] = "",
) -> None:
    """Run a global registry for laboratories, until it is told to stop."""
    with errors_reported():
        import signal
        from functools import partial
        from importlib.metadata import version

        import trio

        from msg_node.site.global_registry_server import ServerOptions, serve
        from protofly.errors import SettingsError
        from trapezoid.serving import run_services, tell_ready

        if (certificate is None) != (key is None):
            raise SettingsError("--certificate and --key come together")
        if certificate is None and host not in ("127.0.0.1", "::1", "localhost"):
            typer.echo("INSECURE: without TLS others see who is looked for, and can keep answers back", err=True)
        options = ServerOptions(store, host, port, certificate, key, deletion_token_sha256)

        async def until_told() -> None:
            async with trio.open_nursery() as nursery:
                with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                    nursery.start_soon(partial(serve, options, version=version("trapezoid"), on_ready=tell_ready))
                    async for _ in signals:
                        nursery.cancel_scope.cancel()

        run_services(until_told)


def _draft(
    kept: GuidFolder, more: tuple[UserId, ...], fewer: list[str], days: float, *, is_active: bool, is_revoked: bool
) -> Draft:
    """The next record: what the last one says, with changes, and later than it."""
    import time

    from protofly.errors import SettingsError
    from protofly.guid_record import Draft, merged_user_ids
    from trapezoid.guid_folder import moment

    last, now = kept.record(), time.time()
    old = last.user_ids if last is not None else ()
    strangers = set(fewer) - {one.uid for one in old}
    if strangers:
        raise SettingsError(f"--forget-user {min(strangers)}: the record does not have it")
    if last is not None:
        if last.is_revoked and not is_revoked:
            raise SettingsError("this GUID is revoked; make another with `trapezoid guid new`")
        now = max(now, last.last_update_us // 1_000_000 + 1)
    return Draft(
        salt=kept.salt,
        user_ids=tuple(one for one in merged_user_ids(old, more) if one.uid not in fewer),
        legacy_ids=last.legacy_ids if last is not None else (),
        last_update=moment(now),
        timeout=moment(now + days * 86_400),
        is_active=is_active,
        is_revoked=is_revoked,
    )


def _user_ids(texts: list[str] | None) -> tuple[UserId, ...]:
    """`user://idp.example/ana=a.example`, several times."""
    from protofly.address import domain_of, scheme_of, valid_domain
    from protofly.errors import PeerError, SettingsError
    from protofly.guid_record import UserId, merged_user_ids

    found = []
    for text in texts or ():
        uid, equals, domain = text.rpartition("=")
        try:
            if not equals or scheme_of(uid) != "user" or not domain_of(uid):
                raise SettingsError(f"--user {text}: say user://<identity provider>/<name>=<domain>")
            found.append(UserId(uid, valid_domain(domain)))
        except PeerError as exc:
            raise SettingsError(f"--user {text}: {exc.detail}") from exc
    return merged_user_ids((), found)


def _facts_of(record: GuidRecord | None) -> dict[str, object]:
    if record is None:
        return {"record": "none is signed yet"}
    from protofly.guid import guid_address
    from trapezoid.guid_folder import moment

    return {
        "guid": record.guid,
        "address": guid_address(record.guid),
        "users": [f"{one.uid} at {one.domain}" if one.domain else one.uid for one in record.user_ids],
        "last_update": moment(record.last_update_us / 1e6),
        "timeout": moment(record.timeout_us / 1e6),
        "active": record.is_active,
        "revoked": record.is_revoked,
        "public_key": record.public_key,
        "salt": record.salt,
    }


def _read(name: str) -> str:
    import sys

    from protofly.errors import SettingsError
    from protofly.limits import GUID_RECORD_BYTES

    try:
        if name == "-":
            return sys.stdin.read(GUID_RECORD_BYTES + 1)
        with Path(name).open(encoding="ascii", errors="replace") as file:
            return file.read(GUID_RECORD_BYTES + 1)
    except OSError as exc:
        raise SettingsError(f"{name}: {exc.strerror}") from exc


def _fetched(guid: str, registry: str, ca: Path | None, *, is_plaintext: bool) -> str:
    import trio

    return trio.run(_client(registry, ca, is_plaintext=is_plaintext).read, guid)


def _client(registry: str, ca: Path | None, *, is_plaintext: bool) -> GlobalRegistryRest:
    import ssl

    from msg_node.backends.backend_http import BackendHttp
    from msg_node.backends.global_registry_rest import ANSWER_BYTES, GlobalRegistryRest
    from msg_node.storage.tls_files import believe
    from protofly.errors import SettingsError

    if registry.startswith("http:") and not is_plaintext:
        raise SettingsError(f"{registry} is without TLS; say --insecure-plaintext if that is what you want")
    context = ssl.create_default_context()
    if ca is not None:
        believe(context, ca, "--ca")
    return GlobalRegistryRest(BackendHttp(registry, context, max_bytes=ANSWER_BYTES))
