"""Settings of `trapezoid pipeline serve`: one TOML file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from pipeline.lake.store_path import parsed
from pipeline.partners.settings import PARTNERS_MAX, Exchange, Listing, Partner, check_partners, placed
from pipeline.partners.toml_file import read_toml_file
from protofly.errors import SettingsError

SETTINGS_BYTES: Final = 1 << 20
_PERIOD: Final = re.compile(r"(\d{1,9}(?:\.\d+)?)([smhd])")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LEAST_S: Final = 0.1
_ORDER: Final = (
    *("ingest", "refine", "abuse", "alerts", "settle", "reconcile", "usage", "exchange", "block-list"),
    *("stubs", "report", "retention", "compact"),
)
_HERE: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_Secret = TypeVar("_Secret", bound=msgspec.Struct)

Text = Annotated[str, Meta(min_length=1)]
Address = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9.-]{1,253}\Z")]


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Interval of each job: a number with s, m, h or d; `never` leaves it out.

    `ingest` is followed by `refine` and `abuse` when it has brought something.
    """

    ingest: Text = "5s"
    settle: Text = "10m"
    reconcile: Text = "1h"
    stubs: Text = "1h"
    exchange: Text = "10m"
    usage: Text = "10m"
    block_list: Text = "1h"
    compact: Text = "1d"
    retention: Text = "1d"
    report: Text = "1h"


class Email(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"sender": "from"}):
    """Alerts by e-mail: to whom, from whom, and by which server.

    `credentials` is a TOML file with `username` and `password`; absent: the server asks for none.
    """

    to: Annotated[tuple[Address, ...], Meta(min_length=1, max_length=20)]
    sender: Address
    host: Text = "127.0.0.1"
    port: Annotated[int, Meta(ge=1, le=65_535)] = 25
    security: Literal["starttls", "tls", "none"] = "starttls"
    credentials: str = ""


class Alerts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Receivers of alerts: URLs that get them as JSON, Alertmanagers, and mailboxes."""

    webhook: tuple[Text, ...] = ()
    alertmanager: tuple[Text, ...] = ()
    email: Email | None = None
    severity: Literal["warning", "severe"] = "warning"


class Listen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Listener for metrics and health."""

    host: Text = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 9464


class Store(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Access to the store of `s3://` paths; what is absent is taken from the environment.

    `credentials` is a TOML file with `access_key`, `secret_key`, and `session_token` if there is one.
    """

    endpoint: str = ""
    region: str = ""
    credentials: str = ""


class ServeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. Relative paths are relative to it."""

    lake: Text
    spools: Annotated[tuple[Text, ...], Meta(min_length=1)]
    keys: str = ""
    require_signatures: bool = False
    retention_days: Annotated[int, Meta(ge=1)] | None = None
    report: str = ""
    lease_seconds: Annotated[float, Meta(ge=10, le=3600)] = 120.0
    schedule: Schedule = Schedule()
    alerts: Alerts = Alerts()
    listen: Listen = Listen()
    store: Store = Store()
    exchange: Exchange | None = None
    partner: Annotated[tuple[Partner, ...], Meta(max_length=PARTNERS_MAX)] = ()
    block_list: Listing | None = None


def read_settings(file: Path) -> ServeSettings:
    """Read and check a settings file; its paths are absolute afterwards.

    Raises:
        SettingsError: Whatever is wrong, with the name of the file.
    """
    settings = read_toml_file(file, ServeSettings, SETTINGS_BYTES)
    try:
        periods(settings)
        for url in (*settings.alerts.webhook, *settings.alerts.alertmanager):
            _check_url(url)
        _check_email(settings.alerts.email)
        check_partners(settings.exchange, settings.partner, settings.block_list)
    except ValueError as exc:
        raise SettingsError(f"{file}: {exc}") from exc
    folder = file.absolute().parent
    return msgspec.structs.replace(
        settings,
        lake=_place(folder, settings.lake),
        spools=tuple(_place(folder, spool) for spool in settings.spools),
        keys=str(folder / settings.keys) if settings.keys else "",
        report=_place(folder, settings.report) if settings.report else "",
        store=_store(folder, settings.store),
        alerts=_alerts(folder, settings.alerts),
        exchange=placed(folder, settings.exchange) if settings.exchange else None,
        partner=tuple(_partner(folder, one) for one in settings.partner),
        block_list=_listing(folder, settings.block_list),
    )


def _partner(folder: Path, one: Partner) -> Partner:
    return msgspec.structs.replace(one, ca_file=str(folder / one.ca_file) if one.ca_file else "")


def _listing(folder: Path, listing: Listing | None) -> Listing | None:
    return None if listing is None else msgspec.structs.replace(listing, out=str(folder / listing.out))


def _place(folder: Path, word: str) -> str:
    """A path, or the URL of a store. Raises SettingsError: any other URL."""
    place = parsed(word)
    return str(folder / place) if isinstance(place, Path) else str(place)


def _alerts(folder: Path, alerts: Alerts) -> Alerts:
    email = alerts.email
    if email is None or not email.credentials:
        return alerts
    return msgspec.structs.replace(
        alerts, email=msgspec.structs.replace(email, credentials=str(folder / email.credentials))
    )


def _check_email(email: Email | None) -> None:
    if email is not None and email.security == "none" and (email.credentials or email.host not in _HERE):
        raise ValueError("alerts.email: without TLS only to this machine, and without credentials: alerts name senders")


def _store(folder: Path, store: Store) -> Store:
    if store.endpoint:
        _check_endpoint(store.endpoint)
    return msgspec.structs.replace(store, credentials=str(folder / store.credentials) if store.credentials else "")


def _check_endpoint(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"https", "http"} or not parts.hostname or parts.username or parts.path.strip("/"):
        raise SettingsError("store.endpoint: write it as https://HOST:PORT, credentials go into a file of their own")


def store_environment(store: Store) -> dict[str, str]:
    """Build the environment variables by which S3 programs reach the store of these settings.

    Raises:
        SettingsError: The file of credentials; the message has nothing of its content.
    """
    found = {"AWS_ENDPOINT_URL": store.endpoint, "AWS_REGION": store.region}
    if store.credentials:
        secret = _secret(Path(store.credentials), _StoreKey)
        found |= {
            "AWS_ACCESS_KEY_ID": secret.access_key,
            "AWS_SECRET_ACCESS_KEY": secret.secret_key,
            "AWS_SESSION_TOKEN": secret.session_token,
        }
    return {name: value for name, value in found.items() if value}


def login_of(email: Email) -> Login | None:
    """Read the log-in for the mail server of an e-mail; None if it needs none.

    Raises:
        SettingsError: The file of credentials; the message has nothing of its content.
    """
    return _secret(Path(email.credentials), Login) if email.credentials else None


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name and a password."""

    username: Text
    password: Text


class _StoreKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    access_key: Text
    secret_key: Text
    session_token: str = ""


def _secret(file: Path, kind: type[_Secret]) -> _Secret:
    """What a file of credentials says. Raises SettingsError, without anything of its content."""
    try:
        if file.stat().st_mode & 0o007:
            raise SettingsError(f"{file}: everybody on this machine may read it; `chmod 600` it")
        return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), kind)
    except OSError as exc:
        raise SettingsError(f"{file}: {exc.strerror}") from exc
    except (ValueError, RecursionError, msgspec.ValidationError):
        names = " and ".join(one.name for one in msgspec.structs.fields(kind) if one.required)
        raise SettingsError(f"{file}: no TOML file with {names}") from None


def periods(settings: ServeSettings) -> dict[str, float | None]:
    """By job its period in s, in the order in which they run; None for jobs that do not. Raises ValueError."""
    found = {name: _seconds(name, text) for name, text in msgspec.structs.asdict(settings.schedule).items()}
    found["block-list"] = found.pop("block_list")
    # What follows records runs with them; the periods say how often at the latest.
    follows = {"refine": found["ingest"], "abuse": found["settle"], "alerts": found["ingest"]}
    whole = found | {name: max(60.0, period) if period else period for name, period in follows.items()}
    if settings.retention_days is None:
        whole["retention"] = None
    if not settings.report:
        whole["report"] = None
    if settings.exchange is None or not settings.partner:
        whole["exchange"] = None
    if settings.exchange is None or not any(one.usage for one in settings.partner):
        whole["usage"] = None
    if settings.block_list is None:
        whole["block-list"] = None
    return {name: whole[name] for name in _ORDER}


def _seconds(name: str, text: str) -> float | None:
    if text == "never":
        return None
    found = _PERIOD.fullmatch(text)
    if found is None or float(found[1]) * _UNITS[found[2]] < _LEAST_S:
        raise ValueError(f"schedule.{name}: {text!r} is no period such as 30s, 10m, 1h or 1d, nor `never`")
    return float(found[1]) * _UNITS[found[2]]


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    is_local = parts.hostname in _HERE
    if parts.scheme not in {"https", "http"} or not parts.hostname or (parts.scheme == "http" and not is_local):
        raise ValueError(f"alerts: {url} is no https URL (http only to this machine: alerts name senders)")
