"""Messages kept aside for operators: those that killed a stub twice, and those of which a policy wants a copy.

A message that killed a stub was answered with `quarantined` and goes nowhere any more; a copy changes nothing. Each
folder has its own bound, and the oldest files in it make room: what one domain causes never takes the place of what
others did. Domains that no entry of the settings names share one folder, as anybody can have many of them.
Source: trust and hosts, section 4.2; message specification, section 15.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from federation.core.outbound_queue import OutboundMessage
from policy.core.gate import GateVerdict
from policy.core.model import Facts
from policy.core.obligations import is_service
from protofly.limits import HEADER_CHARS, QUARANTINE_BYTES, QUARANTINE_FILES

logger = logging.getLogger("msg_node")

COPIES: Final = "rules"
"""The folder of copies; no domain has one label only, so it is nobody's name, nor are the two below it."""
OTHERS: Final = "others"
OWN_BUS: Final = "local"


class Quarantine:
    """A folder with one JSON file per message.

    Args:
        folder: Has a folder for each domain whose stub was killed, and `rules` with one for each source of copies.
        is_named: Whether an entry of the settings is for a domain alone.
    """

    def __init__(self, folder: Path, is_named: Callable[[str], bool]) -> None:
        self._folder = folder
        self._is_named = is_named

    def keep(self, domain: str, pending: OutboundMessage) -> None:
        """Write down a message that killed the stub of a domain; a full disk costs the file, not the node."""
        entry = {
            "domain": domain,
            "msg_id": pending.msg_id.hex(),
            "ts_us": pending.ts_us,
            "message": msgspec.Raw(pending.message.raw),
        }
        self._write(self._folder / domain, {f"{pending.msg_id.hex()}.json": msgspec.json.encode(entry)})

    def place(self, facts: Facts) -> str:
        """The folder of a copy: that of the other domain where the settings name it, and of all others together."""
        domain = facts.link_domain
        if not domain:
            return OWN_BUS
        return domain if self._is_named(domain) else OTHERS

    def copy(self, place: str, texts: dict[str, bytes]) -> bool:
        """Write copies into one folder, by file name; names sort by time. Blocks. False if they could not be kept."""
        return self._write(self._folder / COPIES / place, texts)

    @staticmethod
    def _write(folder: Path, texts: dict[str, bytes]) -> bool:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name, text in texts.items():
                (folder / name).write_bytes(text)
            _make_room(folder)
        except OSError as exc:
            logger.error("quarantined messages could not be kept in %s: %s", folder.name, exc)
            return False
        return True


def copy_of(facts: Facts, verdict: GateVerdict) -> bytes:
    """The text of a copy: the message as the gate saw it, and what was decided about it.

    What is for a service may hold a token or a password, so only its header is kept.
    """
    message = facts.message
    entry: dict[str, object] = {
        "hook": facts.hook,
        "permitted": verdict.permitted,
        "rule": verdict.rule_id,
        "policy_rev": verdict.revision,
        "link_domain": facts.link_domain,
        "ts_us": int(facts.now * 1e6),
        "type": message.type[:HEADER_CHARS],
        "from": message.from_[:HEADER_CHARS],
        "to": message.to[:HEADER_CHARS],
    }
    if not is_service(message.to):
        entry["message"] = msgspec.Raw(message.raw)
    return msgspec.json.encode(entry)


def _make_room(folder: Path) -> None:
    """Remove the oldest files until the newest ones are few and small enough."""
    bytes_left = QUARANTINE_BYTES
    for place, path in enumerate(sorted(folder.glob("*.json"), reverse=True)):
        bytes_left -= path.stat().st_size
        if place >= QUARANTINE_FILES or bytes_left < 0:
            path.unlink(missing_ok=True)
