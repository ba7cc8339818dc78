"""Settings of the admin site: `[admin]`, where operators see and change the running node over HTTPS."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msg_node.settings.model import Settings
from msg_node.settings.problem import Problem

_FILE_NAME: Final = "admin-token"


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
