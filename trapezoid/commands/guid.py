"""`trapezoid guid`: create, show, verify and publish GUIDs; `serve-global-registry`: a registry to try them with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipeline.cli.option_groups import grouped
from trapezoid.output import FOUND_WANTING, errors_reported, print_facts

if TYPE_CHECKING:
    from msg_node.backends.global_registry_rest import GlobalRegistryRest
    from protofly.guid_record import Draft, GuidRecord, UserId
    from trapezoid.guid_folder import GuidFolder

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with key, salt and record of the GUID.")]
Users = Annotated[
    list[str] | None,
    typer.Option(
        "--user", metavar="UID=DOMAIN", help="User identifier, and the domain whose registry knows it. Repeatable."
    ),
]
Days = Annotated[float, typer.Option(help="Days for which the record is valid.", min=0.01, max=3_660)]
Format = Annotated[
    Literal["raw", "der"], typer.Option(help="Format of the signature: raw (r‖s, as in JOSE), or der for old servers.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

DEFAULT_DAYS = 90.0
"""As the original tool. Source: data formats, section 4.3."""

app = typer.Typer(help="Create, show, verify and publish GUIDs and their signed records.", no_args_is_help=True)


@dataclass(frozen=True, kw_only=True)
class RegistryAccess:
    """A global registry, and the TLS towards it."""

    registry: Annotated[str, typer.Option(metavar="URL", help="Global registry, for example https://host:5002.")] = ""
    ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM file with the certificate authorities to trust.")
    ] = None
    insecure_plaintext: Annotated[
        bool, typer.Option("--insecure-plaintext", help="Allow a registry without TLS (http:).")
    ] = False

    def client(self) -> GlobalRegistryRest:
        """A client of the registry. Raises SettingsError: it has no TLS and that is not allowed, or no URL is given."""
        import ssl

        from msg_node.backends.backend_http import BackendHttp
        from msg_node.backends.global_registry_rest import ANSWER_BYTES, GlobalRegistryRest
        from msg_node.storage.tls_files import believe
        from protofly.errors import SettingsError

        if not self.registry:
            raise SettingsError("--registry is missing, for example --registry https://host:5002")
        if self.registry.startswith("http:") and not self.insecure_plaintext:
            raise SettingsError(f"{self.registry} does not use TLS; use --insecure-plaintext to allow that")
        context = ssl.create_default_context()
        if self.ca is not None:
            believe(context, self.ca, "--ca")
        return GlobalRegistryRest(BackendHttp(self.registry, context, max_bytes=ANSWER_BYTES))


@dataclass(frozen=True, kw_only=True)
class RecordChanges:
    """The changes that the next record makes to the last one."""

    user: Users = None
    forget_user: Annotated[list[str] | None, typer.Option(metavar="UID", help="User identifier to remove.")] = None
    days: Days = DEFAULT_DAYS
    active: Annotated[bool, typer.Option("--active/--inactive", help="Let others find you by this GUID.")] = True
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke this GUID permanently.")] = False

    def draft(self, kept: GuidFolder) -> Draft:
        """The last record of the folder with these changes, dated later than it. Raises SettingsError."""
        import time

        from protofly.errors import SettingsError
        from protofly.guid_record import Draft, merged_user_ids
        from trapezoid.guid_folder import moment

        last, now = kept.record(), time.time()
        old = last.user_ids if last is not None else ()
        more, fewer = _user_ids(self.user), self.forget_user or ()
        strangers = set(fewer) - {one.uid for one in old}
        if strangers:
            raise SettingsError(f"--forget-user {min(strangers)}: the record does not contain it")
        if last is not None:
            if last.is_revoked and not self.revoke:
                raise SettingsError("this GUID is revoked; create another with `trapezoid guid new`")
            now = max(now, last.last_update_us // 1_000_000 + 1)
        return Draft(
            salt=kept.salt,
            user_ids=tuple(one for one in merged_user_ids(old, more) if one.uid not in fewer),
            legacy_ids=last.legacy_ids if last is not None else (),
            last_update=moment(now),
            timeout=moment(now + self.days * 86_400),
            is_active=self.active,
            is_revoked=self.revoke,
        )


@app.command()
def new(
    folder: Folder,
    user: Users = None,
    days: Days = DEFAULT_DAYS,
    salt: Annotated[str, typer.Option(help="Salt of the GUID. Default: random.")] = "",
    encoding: Format = "raw",
    json: Json = False,
) -> None:
    """Create a key and its GUID, and sign the first record. Existing files are never overwritten."""
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
    """Show the GUID in a folder and its newest record."""
    with errors_reported(as_json=json):
        from trapezoid.guid_folder import load_folder

        kept = load_folder(folder)
        print_facts({"guid": kept.guid, **_facts_of(kept.record())}, as_json=json)


def _no_option(record: str) -> str:
    """A record as named on the command line. Raises typer.BadParameter: an option that does not exist."""
    from protofly.guid import GUID_CHARS

    if record.startswith("-") and record != "-" and len(record) != GUID_CHARS:
        raise typer.BadParameter(f"no such option: {record}")
    return record


@app.command(context_settings={"ignore_unknown_options": True})  # one GUID in 64 begins with a hyphen
@grouped
def verify(
    record: Annotated[
        str,
        typer.Argument(
            help="File with a record, - for standard input, or a GUID if --registry is given.", callback=_no_option
        ),
    ],
    access: RegistryAccess,
    *,
    guid: Annotated[str, typer.Option(help="GUID that the record must belong to.")] = "",
    json: Json = False,
) -> None:
    """Verify a record as a node does. Exits with 1 if it is invalid, or cannot be used now."""
    with errors_reported(as_json=json):
        import time

        import trio

        from protofly.guid import bare_guid
        from protofly.guid_record import RecordError, advance, check_usable, read_record

        wanted = bare_guid(record if access.registry else guid) if access.registry or guid else ""
        jwt = trio.run(access.client().read, wanted) if access.registry else _read(record)
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
@grouped
def publish(
    folder: Folder,
    access: RegistryAccess,
    changes: RecordChanges,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    encoding: Format = "raw",
    json: Json = False,
) -> None:
    """Sign the next record with the given changes, and store it in a global registry."""
    with errors_reported(as_json=json):
        import trio

        from trapezoid.guid_folder import load_folder

        kept = load_folder(folder, encoding=encoding)
        client = access.client()
        if changes.revoke and not yes:
            typer.confirm(f"Revoke {kept.guid} permanently? This cannot be undone", abort=True, err=True)
        jwt = kept.sign(changes.draft(kept))  # before it is sent: its `lastUpdate` is never used twice
        trio.run(client.write, kept.guid, jwt)
        print_facts({**_facts_of(kept.record()), "registry": access.registry}, as_json=json)


def serve_global_registry(
    store: Annotated[Path, typer.Option(metavar="FILE", help="SQLite file with the records; created if missing.")],
    host: Annotated[str, typer.Option(help="IP address to bind to.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="TCP port; 0 takes any free port.", min=0, max=65_535)] = 5002,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM file with the certificate. Default: no TLS.")
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="PEM file with the private key.")] = None,
    deletion_token_sha256: Annotated[
        str, typer.Option(help="Hex SHA-256 of the token that permits deletions. Default: none are permitted.")
    ] = "",
) -> None:
    """Run a global registry for tests and laboratories, until SIGINT or SIGTERM."""
    with errors_reported():
        import signal
        from functools import partial
        from importlib.metadata import version

        import trio

        from msg_node.site.global_registry_server import ServerOptions, serve
        from protofly.errors import SettingsError
        from trapezoid.serving import print_ready, run_services

        if (certificate is None) != (key is None):
            raise SettingsError("--certificate and --key must be given together")
        if certificate is None and host not in ("127.0.0.1", "::1", "localhost"):
            typer.echo("INSECURE: without TLS others can read queries and suppress answers", err=True)
        options = ServerOptions(store, host, port, certificate, key, deletion_token_sha256)

        async def until_signal() -> None:
            async with trio.open_nursery() as nursery:
                with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                    nursery.start_soon(partial(serve, options, version=version("trapezoid"), on_ready=print_ready))
                    async for _ in signals:
                        nursery.cancel_scope.cancel()

        run_services(until_signal)


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
                raise SettingsError(f"--user {text}: expected user://<identity provider>/<name>=<domain>")
            found.append(UserId(uid, valid_domain(domain)))
        except PeerError as exc:
            raise SettingsError(f"--user {text}: {exc.detail}") from exc
    return merged_user_ids((), found)


def _facts_of(record: GuidRecord | None) -> dict[str, object]:
    if record is None:
        return {"record": "none signed yet"}
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
