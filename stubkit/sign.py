"""Make and sign two of the three documents that a domain publishes: `root` and `manifest`. A node signs `live`.

Every function takes the keys and `now` and returns the envelope's bytes; nothing here reads a clock or writes a file.
What comes out is decoded again before it is returned, so a document that readers would refuse cannot leave this page.

Source: trust and hosts, sections 3.3 to 3.5.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from protofly import limits
from protofly.documents import (
    ABI_MAJOR,
    ABI_NAME,
    Abi,
    Manifest,
    ModuleReference,
    Needs,
    Permissions,
    Role,
    Roles,
    Root,
    SigningKey,
    StubReference,
    decode_envelope,
    decode_manifest,
    decode_root,
    document_sha256,
    sign_document,
)
from protofly.errors import Code, PeerError, SettingsError
from stubkit.keys import KeyRing

ROOT_VALIDITY_SECONDS: Final = 365 * 86_400.0
MANIFEST_VALIDITY_SECONDS: Final = 180 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StubRelease:
    """Terms of one version of a stub that its author chooses; the rest is read from the module."""

    domain: str
    name: str
    serial: int
    version: str
    urls: Sequence[str]
    """Where the module may be fetched; at least one."""
    connect: Sequence[str] = ("mn",)
    """Names of the endpoints that the stub opens."""
    needs_auth: bool = True
    """True if it asks the host for tokens."""
    needs: Needs = field(default_factory=Needs)
    for_domains: Sequence[str] = ("*",)
    replaces: int | None = None
    ranges: Sequence[str] = ()
    """The legacy addresses that it speaks for; such a stub is an interworking stub."""
    configuration: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the settings that operators may give it; empty: any."""
    events: Sequence[str] = ()
    """Optional events of the contract that it wants to hear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootTerms:
    """Terms of a root document besides its keys.

    Attributes:
        version: 1 for the first, one more at each change.
        threshold: How many of the root keys must sign the next root.
        aliases: Further domains that these keys speak for.
    """

    version: int = 1
    threshold: int = 1
    aliases: Sequence[str] = ()


_FIRST_TERMS: Final = RootTerms()


def sign_root(
    keys: KeyRing,
    *,
    domain: str,
    now: float,
    terms: RootTerms = _FIRST_TERMS,
    previous: KeyRing | None = None,
) -> bytes:
    """The root document that names these keys.

    Args:
        keys: The domain's keys from now on; `root`, `live` and `pkg` must be there.
        domain: Whose keys they are.
        now: Unix seconds.
        terms: Version, threshold and aliases.
        previous: The keys of the version before, which must sign as well when root keys change.

    Raises:
        SettingsError: keys are missing, or a value cannot stand in a root.
    """
    for role in ("root", "live", "pkg"):
        if not getattr(keys, role):
            raise SettingsError(f"no {role} key at hand; make one with `trapezoid keys add`")
    listed = [*keys.root, *keys.live, *keys.pkg]
    root = Root(
        spec="rmn-root/1",
        domain=domain,
        version=terms.version,
        issued=_moment(now),
        expires=_moment(now + ROOT_VALIDITY_SECONDS),
        keys={key.key_id: key.record() for key in listed},
        roles=Roles(root=_role(keys.root, terms.threshold), live=_role(keys.live), pkg=_role(keys.pkg)),
        aliases=list(terms.aliases),
    )
    old_keys = previous.root if previous is not None else ()
    signers = {key.key_id: key for key in [*keys.root, *old_keys]}
    return _signed(root, list(signers.values()), limits.ROOT_BYTES)


def sign_manifest(
    keys: KeyRing,
    module: bytes,
    release: StubRelease,
    *,
    now: float,
    validity_seconds: float = MANIFEST_VALIDITY_SECONDS,
) -> bytes:
    """The manifest of one version of a stub.

    Raises:
        SettingsError: no `pkg` key, or a value cannot stand in a manifest.
    """
    if not keys.pkg:
        raise SettingsError("no pkg key at hand; make one with `trapezoid keys add`")
    manifest = Manifest(
        spec="rmn-stub/1",
        domain=release.domain,
        name=release.name,
        serial=release.serial,
        version=release.version,
        released=_moment(now),
        expires=_moment(now + validity_seconds),
        module=ModuleReference(sha256=hashlib.sha256(module).hexdigest(), size=len(module), urls=list(release.urls)),
        abi=Abi(name=ABI_NAME, version=str(ABI_MAJOR)),
        permissions=Permissions(
            connect=list(release.connect),
            clock="wall",
            random=True,
            auth=release.needs_auth,
            ranges=list(release.ranges),
        ),
        needs=release.needs,
        for_domains=list(release.for_domains),
        replaces=release.replaces,
        interworking=bool(release.ranges),
        configuration=dict(release.configuration),
        events=list(release.events),
    )
    return _signed(manifest, keys.pkg, limits.MANIFEST_BYTES)


def stub_reference(manifest_envelope: bytes, *, domain: str) -> StubReference:
    """Build the entry by which the live document refers to the manifest in this envelope.

    Raises:
        PeerError: it is no manifest of that domain.
    """
    manifest = decode_manifest(decode_envelope(manifest_envelope, domain=domain).payload, domain=domain)
    return StubReference(
        name=manifest.name,
        serial=manifest.serial,
        version=manifest.version,
        manifest_sha256=document_sha256(manifest_envelope),
        abi=manifest.abi,
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)


def _role(keys: Sequence[SigningKey], threshold: int = 1) -> Role:
    return Role(keys=[key.key_id for key in keys], threshold=threshold)


def _signed(document: Root | Manifest, keys: Sequence[SigningKey], max_bytes: int) -> bytes:
    envelope = sign_document(document, keys)
    if len(envelope) > max_bytes:
        raise SettingsError(f"the document has {len(envelope)} bytes; readers take {max_bytes}")
    decode = {Root: decode_root, Manifest: decode_manifest}[type(document)]
    try:
        decode(decode_envelope(envelope).payload, domain=document.domain)
    except PeerError as exc:
        if exc.code not in {Code.DOCUMENT_MALFORMED, Code.WRONG_DOMAIN}:
            raise
        raise SettingsError(f"the document would be refused: {exc.detail}") from exc
    return envelope
