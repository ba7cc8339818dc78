"""Settings of the admin site: `[admin]`, where operators see and change the running node over HTTPS."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

if TYPE_CHECKING:
    from msg_node.settings.model import Settings

Problem = tuple[tuple[str | int, ...], str]
"""Where in the settings, and what is wrong."""
_FILE_NAME: Final = "admin-token"


class AdminSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The admin site: the admin service over HTTPS, and the console. Nothing of it is served without its token."""

    host: Annotated[str, Meta(description="Address to bind.")] = "127.0.0.1"
    port: Annotated[
        Annotated[int, Meta(ge=0, le=65_535)], Meta(description="TCP port; 0 lets the system choose one.")
    ] = 8445
    certificate: Annotated[Path | None, Meta(description="PEM file with the certificate chain.")] = None
    key: Annotated[Path | None, Meta(description="PEM file with the private key, mode 0600.")] = None
    insecure_plaintext: Annotated[
        bool, Meta(description="Serve without TLS; only on a loopback address, for clients of this machine.")
    ] = False
    behind_proxy: Annotated[
        bool, Meta(description="Serve requests that a proxy has passed on too; without this they are refused.")
    ] = False
    token_file: Annotated[
        Path | None,
        Meta(
            description="File with the token, mode 0600; absent: `admin-token` in the data folder, made at the first "
            "start. A new content counts at once."
        ),
    ] = None
    requests_per_second: Annotated[
        Annotated[float, Meta(gt=0.0)],
        Meta(description="Requests of one address, five seconds' worth at once; further ones get 429."),
    ] = 20.0


def admin_problems(settings: Settings) -> Iterator[Problem]:
    """Find what is wrong with the admin site, besides its certificate."""
    admin = settings.admin
    if admin is not None and admin.certificate is None and not _is_loopback(admin.host):
        yield ("admin", "host"), f"{admin.host} is not on this machine: it needs `certificate` and `key`"


def token_file(settings: Settings) -> Path:
    """The file with the token of the admin site, wherever it is. Precondition: these settings have that site."""
    named = None if settings.admin is None else settings.admin.token_file
    return named or settings.node.data_dir / _FILE_NAME


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name could be anybody's
        return False
