"""The values of trust: anchors, what is remembered of a domain, and what may be believed of it now.

Source: trust and hosts, sections 3.5 and 3.6.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

import msgspec

from catalogue_client.core.location import Location
from protofly.documents import DocumentBundle, Live, Permissions, Root, TrustLevel
from protofly.errors import SettingsError
from protofly.stub import VerifiedStub

_KEPT_MANIFESTS: Final = 4


@dataclass(frozen=True, slots=True)
class TrustAnchor:
    """Ground on which the first root of a domain is accepted.

    `fingerprint` is that of a key set in its history, "" for `web`.
    """

    level: TrustLevel
    fingerprint: str = ""

    def __post_init__(self) -> None:
        if self.level in {TrustLevel.PINNED, TrustLevel.DNSSEC} and not self.fingerprint:
            raise SettingsError(f"trust {self.level.value!r} needs the fingerprint of the domain's root keys")

    @classmethod
    def web(cls) -> Self:
        """Believe what HTTPS with a certificate for the domain brings first; continuity afterwards."""
        return cls(TrustLevel.WEB)

    @classmethod
    def pinned(cls, fingerprint: str) -> Self:
        """Believe only a root whose history holds the key set that the operator learned out of band."""
        return cls(TrustLevel.PINNED, fingerprint)


class StubMark(msgspec.Struct, frozen=True, kw_only=True):
    """The newest accepted manifest of one stub, and the permissions that it was accepted with."""

    serial: int
    manifest_sha256: str
    permissions: Permissions
    approved: list[str] = []
    """Payload hashes of manifests that the operator approved."""
    module_sha256: str = ""
    """Of its module, "" for marks of earlier versions of this program."""
    previous_sha256: str = ""
    """The manifest that was accepted before and did not fail, "" for none."""
    is_proved: bool = True
    """This one has run here for long enough, or has no predecessor; until then that one may go on in its place."""


class HeldUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """An update that wants more than was granted, or is one that the settings hold; it waits for the operator."""

    manifest_sha256: str
    serial: int
    excess: list[str]


class FailedModule(msgspec.Struct, frozen=True, kw_only=True):
    """Mark of a module that failed on this node and is not started again: code and detail of the error."""

    code: str
    detail: str = ""


class TrustState(msgspec.Struct, frozen=True, kw_only=True):
    """All that has to survive about one domain. `root_version` 0 = retrusted, no root accepted yet."""

    domain: str
    level: TrustLevel
    root: bytes = b""
    """Current root, the envelope as received."""
    root_version: int = 0
    fingerprints: list[str] = []
    """Fingerprints of every key set since the first, oldest first."""
    live_serial: int = 0
    live_sha256: str = ""
    newest_issued: float = 0.0
    stubs: dict[str, StubMark] = {}
    held: dict[str, HeldUpdate] = {}
    failed_modules: dict[str, FailedModule] = {}
    """Modules that failed here, by SHA-256, oldest first."""
    replaced: TrustState | None = None
    """Of a retrusted domain of which no root was accepted yet: what was remembered before, to undo it."""

    @property
    def is_pending(self) -> bool:
        """True if the operator named a key set of which no root was accepted yet."""
        return not self.root_version


def retrusted(before: TrustState | None, domain: str, fingerprint: str) -> TrustState:
    """Forget a domain, and believe only the key set named here next. A second word replaces the first."""
    replaced = before.replaced if before is not None and before.is_pending else before
    return TrustState(domain=domain, level=TrustLevel.PINNED, fingerprints=[fingerprint], replaced=replaced)


def have_same_keys(one: TrustState, other: TrustState) -> bool:
    """True if two memories of a domain follow the same key sets, one of them perhaps further than the other."""
    return all(first == second for first, second in zip(one.fingerprints, other.fingerprints, strict=False))


def raised(ours: TrustState, theirs: TrustState) -> TrustState | None:
    """Our marks of a domain with those of another node of ours that has seen more of it; None if it has not.

    Only one that has followed the same key sets is believed, and no word of an operator is overridden. What stubs may
    do stays as it was granted here.
    """
    if ours.is_pending or theirs.is_pending or theirs.fingerprints[: len(ours.fingerprints)] != ours.fingerprints:
        return None
    if (theirs.root_version, theirs.live_serial) <= (ours.root_version, ours.live_serial):
        return None
    return msgspec.structs.replace(
        ours,
        root=theirs.root,
        root_version=theirs.root_version,
        fingerprints=theirs.fingerprints,
        live_serial=theirs.live_serial,
        live_sha256=theirs.live_sha256,
        newest_issued=max(ours.newest_issued, theirs.newest_issued),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainTrust:
    """Verified documents of a domain after a refresh or a warm start, and the times until which they hold."""

    domain: str
    level: TrustLevel
    root: Root
    live: Live
    live_envelope: bytes
    location: Location
    fetched_at: float
    fresh_until: float
    """Until when nobody needs to ask again, Unix seconds."""
    refresh_at: float
    """When to ask again in the background, Unix seconds: 80 % of the life."""
    expires_at: float
    """End of the live document itself, Unix seconds."""
    warnings: tuple[str, ...] = ()
    manifests: tuple[tuple[str, bytes], ...] = ()
    """Manifest envelopes known from the cache: payload hash, bytes. Verified when they are used."""

    def is_fresh(self, now: float) -> bool:
        """True if the documents may be used without asking the catalogue."""
        return now < self.fresh_until

    def bundle(self, stubs: Iterable[VerifiedStub] = ()) -> DocumentBundle:
        """The documents for the cache, with the manifests of `stubs` and the newest of those known before.

        An earlier manifest is what a domain falls back on while its update is held or cannot be had.
        """
        manifests = dict(self.manifests)
        for stub in stubs:
            manifests.pop(stub.manifest_sha256, None)
            manifests[stub.manifest_sha256] = stub.manifest_envelope
        return DocumentBundle(
            domain=self.domain,
            live=self.live_envelope,
            manifests=dict(list(manifests.items())[-_KEPT_MANIFESTS:]),
            fetched_at=self.fetched_at,
            fresh_until=self.fresh_until,
            well_known_url=self.location.well_known_url,
            connect_host=self.location.connect_host,
            connect_port=self.location.connect_port,
        )
