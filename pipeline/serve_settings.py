"""Settings of `trapezoid pipeline serve`: one TOML file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from protofly.errors import SettingsError

SETTINGS_BYTES: Final = 1 << 20
_PERIOD: Final = re.compile(r"(\d{1,9}(?:\.\d+)?)([smhd])")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LEAST_S: Final = 0.1

Text = Annotated[str, Meta(min_length=1)]


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often each job runs: a number with s, m, h or d; `never` leaves it out.

    `ingest` is followed by `refine` and `abuse` when it has brought something.
    """

    ingest: Text = "5s"
    settle: Text = "10m"
    reconcile: Text = "1h"
    stubs: Text = "1h"
    compact: Text = "1d"
    retention: Text = "1d"
    report: Text = "1h"


class Alerts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where alerts go: URLs that get them as JSON, and Alertmanagers."""

    webhook: tuple[Text, ...] = ()
    alertmanager: tuple[Text, ...] = ()
    severity: Literal["warning", "severe"] = "warning"


class Listen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where metrics and health are served."""

    host: Text = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 9464


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


def read_settings(file: Path) -> ServeSettings:
    """Read and check a settings file; its paths are absolute afterwards.

    Raises:
        SettingsError: Whatever is wrong, with the name of the file.
    """
    try:
        with file.open("rb") as opened:
            raw = opened.read(SETTINGS_BYTES + 1)
    except OSError as exc:
        raise SettingsError(f"{file}: {exc.strerror}") from exc
    if len(raw) > SETTINGS_BYTES:
        raise SettingsError(f"{file}: larger than {SETTINGS_BYTES} bytes")
    try:
        settings = msgspec.convert(tomllib.loads(raw.decode()), ServeSettings)
        periods(settings)
        for url in (*settings.alerts.webhook, *settings.alerts.alertmanager):
            _check_url(url)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError, ValueError) as exc:
        raise SettingsError(f"{file}: {exc}") from exc
    folder = file.absolute().parent
    return msgspec.structs.replace(
        settings,
        lake=str(folder / settings.lake),
        spools=tuple(str(folder / spool) for spool in settings.spools),
        keys=str(folder / settings.keys) if settings.keys else "",
        report=str(folder / settings.report) if settings.report else "",
    )


def periods(settings: ServeSettings) -> dict[str, float | None]:
    """By job its period in s, in the order in which they run; None for jobs that do not. Raises ValueError."""
    found = {name: _seconds(name, text) for name, text in msgspec.structs.asdict(settings.schedule).items()}
    order = ("ingest", "refine", "abuse", "alerts", "settle", "reconcile", "stubs", "report", "retention", "compact")
    # What follows records runs with them; the periods say how often at the latest.
    follows = {"refine": found["ingest"], "abuse": found["settle"], "alerts": found["ingest"]}
    whole = found | {name: max(60.0, period) if period else period for name, period in follows.items()}
    if settings.retention_days is None:
        whole["retention"] = None
    if not settings.report:
        whole["report"] = None
    return {name: whole[name] for name in order}


def _seconds(name: str, text: str) -> float | None:
    if text == "never":
        return None
    found = _PERIOD.fullmatch(text)
    if found is None or float(found[1]) * _UNITS[found[2]] < _LEAST_S:
        raise ValueError(f"schedule.{name}: {text!r} is no period such as 30s, 10m, 1h or 1d, nor `never`")
    return float(found[1]) * _UNITS[found[2]]


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    is_local = parts.hostname in {"127.0.0.1", "::1", "localhost"}
    if parts.scheme not in {"https", "http"} or not parts.hostname or (parts.scheme == "http" and not is_local):
        raise ValueError(f"alerts: {url} is no https URL (http only to this machine: alerts name senders)")
