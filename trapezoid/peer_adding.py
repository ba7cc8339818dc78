"""`trapezoid peer add`: write a `[[peer]]` entry for a domain that publishes nothing, and connect to its node once."""

from __future__ import annotations

from pathlib import Path
from secrets import token_bytes

import trio

from catalogue_client.core.state import DomainTrust
from federation.chosen_stubs import read_choice
from federation.error_groups import first_error
from federation.identity import Identity
from msg_node.settings.load import load_settings
from msg_node.settings.model import PeerSettings, Settings
from msg_node.wiring.peer_stubs import stub_choice
from protofly.address import valid_domain
from protofly.documents import SigningKey
from protofly.errors import Code, HostError, SettingsError
from protofly.stub import VerifiedStub
from trapezoid.findings import Level
from trapezoid.peer_entry import EntryOptions, entry_text
from trapezoid.peer_stubs import approve_choice, check_choice
from trapezoid.stub_trial import Candidate, try_stub


def add_peer(config: Path, domain: str, options: EntryOptions, *, connects: bool) -> dict[str, object]:
    """Write the entry into `conf.d` beside the settings, check it, connect once, and pin the stub.

    Nothing is left behind when something of that fails.

    Raises:
        HostError: The settings refuse the entry, the stub is none, or the node cannot be reached through it.
    """
    valid_domain(domain)
    before = load_settings(config)
    if any(peer.domain == domain for peer in before.peer):
        raise SettingsError(f"the settings have an entry for {domain} already")
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
        "next": "restart the node",
    }


def _connected(settings: Settings, peer: PeerSettings) -> float:
    """Seconds until the stub was live. Raises HostError, the first of what went wrong."""
    try:
        return trio.run(connect_once, settings, peer)
    except* HostError as group:
        raise first_error(group) from None


async def connect_once(settings: Settings, peer: PeerSettings, stub: VerifiedStub | None = None) -> float:
    """Try the stub that an entry chooses; returns the seconds until it was live.

    Args:
        settings: With the entry.
        peer: The entry.
        stub: What it chooses, if that was read already.

    Raises:
        HostError: See `try_stub`.
    """
    choice = stub_choice(settings, peer)
    key = SigningKey.from_seed("unpublished", token_bytes(32))
    node = f"runtime://{settings.node.domain}/{settings.node.name}"
    identity = Identity(node=node, domains=list(settings.own_domains), key=key, trust_of=_trust_nobody)
    candidate = Candidate(
        stub=stub or read_choice(choice),
        configuration=choice.configuration,
        identity=identity,
        allows_plaintext=peer.insecure_plaintext,
    )
    return (await try_stub(settings, candidate)).live_seconds


async def _trust_nobody(domain: str, *, is_refresh: bool, asked_by: str = "") -> DomainTrust:  # noqa: ARG001
    """A chosen stub proves nothing, so nobody asks. Raises HostError."""
    raise HostError(Code.BROKEN_TRUST, f"nothing of {domain} is believed")
