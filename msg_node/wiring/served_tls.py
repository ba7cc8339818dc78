"""The certificates that a node shows, renewed while it runs: those of its listener and of its sites.

New connections get the new certificate, connections that are up keep theirs. Files that cannot be used change nothing.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from msg_node.settings.model import Settings
from msg_node.storage.tls_files import stamp_of
from msg_node.wiring import meaning
from protofly.errors import SettingsError
from protofly.limits import CERTIFICATES_LOOKED_AT_SECONDS

logger = logging.getLogger("msg_node")

_Stamps = tuple[tuple[str, int, int, int], ...]
_MISSING: Final = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class LoadedTls:
    """TLS contexts for new connections from the files of the settings, and bindings of their certificates."""

    listener: ssl.SSLContext | None
    site: ssl.SSLContext | None
    admin: ssl.SSLContext | None
    bindings: frozenset[str]
    site_bindings: frozenset[str]
    stamps: _Stamps


def load_tls(settings: Settings) -> LoadedTls:
    """Read the certificates that the settings name. Blocks.

    Raises:
        SettingsError: One of them cannot be used.
    """
    stamps = _stamps(settings)
    try:
        bindings, site_bindings = meaning.bindings(settings), meaning.site_bindings(settings)
    except (OSError, ValueError) as exc:
        raise SettingsError(f"listen.certificate, listen.proxy_certificates, site.certificate: {exc}") from exc
    return LoadedTls(
        meaning.server_context(settings),
        meaning.site_context(settings.site, "site"),
        meaning.site_context(settings.admin, "admin"),
        bindings,
        site_bindings,
        stamps,
    )


class ServedTls:
    """Watches the certificates that a node shows.

    Args:
        settings: Gives those in force.
        show: Shows other ones from the next connection on.
    """

    def __init__(self, settings: Callable[[], Settings], show: Callable[[LoadedTls], None]) -> None:
        self._settings = settings
        self._show = show
        self._stamps = _stamps(settings())

    def put(self, loaded: LoadedTls) -> None:
        """Show these from the next connection on."""
        self._stamps = loaded.stamps
        self._show(loaded)

    async def run(self) -> None:
        """Look at the files every few seconds; until cancelled."""
        while True:
            await trio.sleep(CERTIFICATES_LOOKED_AT_SECONDS)
            settings = self._settings()
            stamps = _stamps(settings)
            if stamps == self._stamps:
                continue
            self._stamps = stamps
            try:
                loaded = await trio.to_thread.run_sync(load_tls, settings)
            except SettingsError as exc:  # perhaps the tool is between two files
                logger.warning("certificates stay as they were: %s", exc.detail)
            else:
                self.put(loaded)
                logger.info("new certificates are shown")


def _stamps(settings: Settings) -> _Stamps:
    return tuple((str(file), *(stamp_of(file) or _MISSING)) for file in _files(settings))


def _files(settings: Settings) -> list[Path]:
    tables = [one for one in (settings.listen, settings.site, settings.admin) if one is not None]
    own = [file for one in tables for file in (one.certificate, one.key) if file is not None]
    return [*own, *settings.listen.proxy_certificates]
