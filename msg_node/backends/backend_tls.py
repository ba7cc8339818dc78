"""TLS towards a server of the settings, with certificates that are renewed while the node runs.

Certificates that live for days are put in place of the old ones by a tool, and nobody restarts a node for that. So the
files are looked at again when a connection is made, once in some seconds at most. New ones that cannot be used change
nothing: the old ones stay, and the log says so once. Source: feature row CN-12.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable

from msg_node.settings.registries import backend_context
from msg_node.settings.tables.registries import BackendSettings
from msg_node.storage.tls_files import Stamp, stamp_of
from protofly.errors import SettingsError
from protofly.limits import CERTIFICATES_LOOKED_AT_SECONDS

logger = logging.getLogger("msg_node")


class BackendTls:
    """Gives the context of the next connection.

    Args:
        table: Where in the settings, for the log.
        settings: Which files.
        clock: Seconds since some moment.

    Raises:
        SettingsError: A file cannot be used.
    """

    def __init__(self, table: str, settings: BackendSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._settings = settings
        self._clock = clock
        self._stamps = self._look()
        self._context = backend_context(table, settings)
        self._looked_at = clock()

    def __call__(self) -> ssl.SSLContext:
        """A context with the files as they are now, or as they last could be used."""
        now = self._clock()
        if now - self._looked_at >= CERTIFICATES_LOOKED_AT_SECONDS:
            self._looked_at = now
            stamps = self._look()
            if stamps != self._stamps:
                self._renew(stamps)
        return self._context

    def _renew(self, stamps: list[Stamp | None]) -> None:
        self._stamps = stamps
        try:
            self._context = backend_context(self._table, self._settings)
        except SettingsError as exc:  # perhaps the tool is between two files
            logger.warning("certificates stay as they were: %s", exc.detail)
        else:
            logger.info("%s: certificates were renewed", self._table)

    def _look(self) -> list[Stamp | None]:
        chosen = self._settings
        return [stamp_of(path) for path in (chosen.ca_file, chosen.certificate, chosen.key) if path is not None]
