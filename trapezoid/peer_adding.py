"""`trapezoid peer add`: write a `[[peer]]` entry for a domain that publishes nothing, and connect to its node once."""

from __future__ import annotations

from pathlib import Path

import trio

from federation.error_groups import first_error
from msg_node.settings.load import load_settings
from msg_node.settings.model import Settings
from msg_node.settings.tables.peers import PeerSettings
from protofly.address import valid_domain
from protofly.errors import HostError, SettingsError
from trapezoid.findings import Level
from trapezoid.peer_entry import EntryOptions, entry_text
from trapezoid.peer_stubs import approve_choice, check_choice
from trapezoid.stub_trial import connect_once


def add_peer(config: Path, domain: str, options: EntryOptions, *, connects: bool) -> dict[str, object]:
    """Write the entry into `conf.d` beside the settings, check it, connect once, and pin the stub.

    Nothing is left behind when something of that fails.

    Raises:
        HostError: The settings refuse the entry, the stub is none, or the node cannot be reached through it.
    """
    valid_domain(domain)
    before = load_settings(config)
    if any(peer.domain == domain for peer in before.peer):
        raise SettingsError(f"the settings have an entry for {domain} already; change or remove that one")
    text = entry_text(domain, options)
    folder = config.parent / "conf.d"
    path = folder / f"peer-{domain}.toml"
    try:
        folder.mkdir(exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    try:
        settings = load_settings(config)
        peer = next(peer for peer in settings.peer if peer.domain == domain)
        found = check_choice(settings, peer)
        seconds = _connected(settings, peer) if connects else None
        approved = approve_choice(settings, domain) or {}
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    checked = found if isinstance(found, str) else found.line
    is_loud = not isinstance(found, str) and found.level is not Level.OK
    return {
        "domain": domain,
        "file": str(path),
        "stub": approved.get("stub", ""),
        "sha256": approved.get("sha256", ""),
        "live": "not tried" if seconds is None else f"after {seconds:.1f} s",
        **({"warning": checked.lstrip(": ")} if is_loud else {}),
        "next": "trapezoid node reload",
    }


def _connected(settings: Settings, peer: PeerSettings) -> float:
    """Seconds until the stub was live. Raises HostError, the first of what went wrong."""
    try:
        return trio.run(connect_once, settings, peer)
    except* HostError as group:
        raise first_error(group) from None
