"""Messages that killed a stub twice, kept for operators.

A message here was answered with `quarantined` and goes nowhere any more. Source: trust and hosts, section 4.2.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from federation.core.outbound_queue import OutboundMessage

logger = logging.getLogger("msg_node")

MAX_FILES = 1000


class Quarantine:
    """A folder with one JSON file per message, by domain; the oldest go when there are too many."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, domain: str, pending: OutboundMessage) -> None:
        """Write one message down; a full disk costs the file, not the node."""
        entry = {
            "domain": domain,
            "msg_id": pending.msg_id.hex(),
            "ts_us": pending.ts_us,
            "message": msgspec.Raw(pending.message.raw),
        }
        folder = self._folder / domain
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / f"{pending.msg_id.hex()}.json").write_bytes(msgspec.json.encode(entry))
            for old in sorted(folder.glob("*.json"))[:-MAX_FILES]:
                old.unlink(missing_ok=True)
        except OSError as exc:
            logger.error("a quarantined message of %s could not be kept: %s", domain, exc, extra={"domain": domain})
