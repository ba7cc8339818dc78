"""From bytes to a `VerifiedStub`: the manifest, what it may ask for, and the module.

The order of the checks is that of the specification, so that each attack gets its own code. Every load goes through
here, also that of a stub from the cache: a cached stub is verified again.

Source: trust and hosts, section 3.6, steps 4 and 5.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from catalogue_client.core.state import DomainTrust, HeldUpdate, StubMark, TrustState
from catalogue_client.core.trust import check_serial, open_envelope
from catalogue_client.core.updates import (
    AUTOMATIC,
    UpdateRule,
    check_module_may_run,
    following_mark,
    held_update,
    may_go_on,
)
from protofly import limits
from protofly.clock_skew import off_by
from protofly.documents import (
    MANIFEST_TYPE,
    Envelope,
    Live,
    Manifest,
    Permissions,
    Root,
    StubReference,
    decode_manifest,
)
from protofly.errors import Code, PeerError
from protofly.legacy_range import parse_range
from protofly.stub import VerifiedStub

_CLOCKS = ("none", "monotonic", "wall")
_WASM_HEADER = b"\0asm\x01\0\0\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionsPolicy:
    """The most that a stub of a peer may ask for, without and with the operator being asked.

    `endpoints` None = any endpoint that the domain's live document declares. `is_growth_approved` lets an update ask
    for more than its predecessor as long as it stays inside this policy; otherwise it is held. Whether a stub may
    interwork, and for which of its ranges, is not said here: the settings do, once it is verified.
    """

    endpoints: frozenset[str] | None = None
    clock: str = "wall"
    random: bool = True
    auth: bool = True
    storage_bytes: int = 0
    is_growth_approved: bool = False

    def excess(self, wanted: Permissions) -> list[str]:
        """Return the permissions in `wanted` that exceed this policy, in words; empty: none."""
        connect = [name for name in wanted.connect if self.endpoints is not None and name not in self.endpoints]
        return _excess(wanted, connect, self)


def growth(wanted: Permissions, accepted: Permissions) -> list[str]:
    """Return the permissions in `wanted` that exceed `accepted`, in words; empty: none."""
    connect = [name for name in wanted.connect if name not in accepted.connect]
    had = tuple(map(parse_range, accepted.ranges))
    ranges = [text for text in wanted.ranges if not any(parse_range(text).is_within(one) for one in had)]
    return [*_excess(wanted, connect, accepted), *(f"range {text}" for text in ranges)]


def _excess(wanted: Permissions, connect: list[str], allowed: Permissions | PermissionsPolicy) -> list[str]:
    found = [f"connect {name}" for name in connect]
    if _CLOCKS.index(wanted.clock) > _CLOCKS.index(allowed.clock):
        found.append(f"clock {wanted.clock}")
    if wanted.random and not allowed.random:
        found.append("random")
    if wanted.auth and not allowed.auth:
        found.append("auth")
    if wanted.storage_bytes > allowed.storage_bytes:
        found.append(f"storage_bytes {wanted.storage_bytes}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRules:
    """Inputs of the check of a manifest besides the documents: our domain, our policy, the time (Unix seconds)."""

    our_domain: str
    policy: PermissionsPolicy
    now: float
    updates: UpdateRule = AUTOMATIC


class PermissionsHeldError(PeerError):
    """An update wants more than was granted. `state` remembers it for the operator; store it."""

    def __init__(self, manifest: Manifest, excess: list[str], state: TrustState) -> None:
        detail = f"{manifest.name} {manifest.serial} wants {', '.join(excess)}"
        super().__init__(Code.PERMISSIONS_HELD, detail, domain=manifest.domain)
        self.state = state


def accept_manifest(
    state: TrustState, trust: DomainTrust, reference: StubReference, raw: bytes, rules: ManifestRules
) -> tuple[Manifest, TrustState]:
    """Believe the manifest that the live document names, and raise its marks.

    Raises:
        PeerError: DIGEST_MISMATCH, TOO_FEW_SIGNATURES, WRONG_DOMAIN, MIX_AND_MATCH, ROLLBACK, FAST_FORWARD, REVOKED,
            DOCUMENT_EXPIRED, ISSUED_IN_FUTURE, ABI_UNSUPPORTED, or what decoding raises.
        PermissionsHeldError: It wants more than policy and predecessor allow.
    """
    envelope = open_envelope(raw, MANIFEST_TYPE, domain=state.domain, max_bytes=limits.MANIFEST_BYTES)
    digest = hashlib.sha256(envelope.payload).hexdigest()
    if digest != reference.manifest_sha256:
        detail = f"manifest of {reference.name} is not the one that the live document names"
        raise PeerError(Code.DIGEST_MISMATCH, detail, domain=state.domain)
    manifest = _signed_manifest(envelope, trust.root, trust.live)
    if (manifest.name, manifest.serial) != (reference.name, reference.serial):
        detail = f"live names {reference.name} {reference.serial}, manifest is {manifest.name} {manifest.serial}"
        raise PeerError(Code.MIX_AND_MATCH, detail, domain=state.domain)
    mark = state.stubs.get(manifest.name)
    seen = (mark.serial, mark.manifest_sha256) if mark else (0, "")
    check_serial(manifest.serial, digest, seen, what=f"manifest of {manifest.name}", domain=state.domain)
    _check_manifest(manifest, trust.live, rules)
    check_module_may_run(state, manifest, rules.updates)
    excess = held_permissions(manifest, digest, state, rules.policy)
    if mark is None or digest not in mark.approved:
        excess += held_update(mark, manifest, rules.updates)
    if excess:
        raise PermissionsHeldError(manifest, excess, _hold(state, manifest, digest, excess))
    accepted = following_mark(state, manifest, digest)
    held = {name: update for name, update in state.held.items() if name != manifest.name}
    return manifest, msgspec.structs.replace(state, stubs={**state.stubs, manifest.name: accepted}, held=held)


def is_newest_mark(state: TrustState, stub: VerifiedStub) -> bool:
    """True if the high-water mark is already at this version."""
    mark = state.stubs.get(stub.name)
    return mark is not None and mark.manifest_sha256 == stub.manifest_sha256 and stub.name not in state.held


def accept_previous(
    state: TrustState, trust: DomainTrust, name: str, rules: ManifestRules, *, digest: str = ""
) -> tuple[Manifest, bytes]:
    """The manifest that was accepted before and may go on while its successor is held, failed here, or cannot be had.

    Args:
        state: What is remembered.
        trust: Has the manifests of the cache.
        name: Of the stub.
        rules: As for its successor.
        digest: Of the predecessor of a version on trial; "" for the one that `may_go_on`.

    Raises:
        PeerError: PERMISSIONS_HELD if there is none in the cache; REVOKED, DOCUMENT_EXPIRED and others if it must not
            go on.
    """
    accepted = digest or may_go_on(state, name)
    raw = dict(trust.manifests).get(accepted)
    if raw is None:
        raise PeerError(Code.PERMISSIONS_HELD, f"{name} has no version that may go on", domain=state.domain)
    envelope = open_envelope(raw, MANIFEST_TYPE, domain=state.domain, max_bytes=limits.MANIFEST_BYTES)
    if hashlib.sha256(envelope.payload).hexdigest() != accepted:
        raise PeerError(Code.CACHE_TAMPERED, f"cached manifest of {name}", domain=state.domain)
    manifest = _signed_manifest(envelope, trust.root, trust.live)
    _check_manifest(manifest, trust.live, rules)
    check_module_may_run(state, manifest, rules.updates)
    return manifest, raw


def _hold(state: TrustState, manifest: Manifest, digest: str, excess: list[str]) -> TrustState:
    """Remember that an update waits for the operator."""
    update = HeldUpdate(manifest_sha256=digest, serial=manifest.serial, excess=excess)
    return msgspec.structs.replace(state, held={**state.held, manifest.name: update})


def approve(state: TrustState, name: str) -> TrustState:
    """The operator grants what the held update of `name` wants; the next look-up accepts it.

    Raises:
        KeyError: Nothing is held under that name.
    """
    update = state.held[name]
    mark = state.stubs.get(name) or StubMark(serial=0, manifest_sha256="", permissions=Permissions())
    mark = msgspec.structs.replace(mark, approved=[*mark.approved, update.manifest_sha256])
    held = {other: waiting for other, waiting in state.held.items() if other != name}
    return msgspec.structs.replace(state, stubs={**state.stubs, name: mark}, held=held)


def held_permissions(manifest: Manifest, digest: str, state: TrustState, policy: PermissionsPolicy) -> list[str]:
    """Return permissions that need the operator: beyond the policy, or beyond what its domain was granted before.

    That is what the accepted predecessor of this name has. A new name has none: there it is what one of the other
    accepted stubs of the domain has, its endpoints aside, so that no domain gets more by another name for its stub.
    """
    mark = state.stubs.get(manifest.name)
    if mark is not None and digest in mark.approved:
        return []
    excess = policy.excess(manifest.permissions)
    if policy.is_growth_approved:
        return excess
    if mark is not None:
        grown = growth(manifest.permissions, mark.permissions) if mark.serial else []
    else:
        granted = [one.permissions for one in state.stubs.values() if one.serial]
        grown = _growth_beyond_each(manifest.permissions, granted)
    return excess + [word for word in grown if word not in excess]


def _growth_beyond_each(wanted: Permissions, granted: list[Permissions]) -> list[str]:
    """What exceeds the nearest of those that were granted, endpoints aside; none if one has it all, or none were.

    The nearest and not all together: what two stubs have, each a part, is more in the hands of one.
    """
    found = [[word for word in growth(wanted, one) if not word.startswith("connect ")] for one in granted]
    return min(found, key=len, default=[])


def check_module_size(manifest: Manifest) -> None:
    """Raise PeerError MODULE_LIMITS if the module is larger than this host takes; before it is fetched."""
    if manifest.module.size > limits.MODULE_BYTES:
        detail = f"{manifest.module.size} bytes, at most {limits.MODULE_BYTES}"
        raise PeerError(Code.MODULE_LIMITS, detail, domain=manifest.domain)


def check_module(module: bytes, manifest: Manifest) -> None:
    """Check that `module` is what the manifest names, and WebAssembly. Its inside is judged by the sandbox's gate.

    Raises:
        PeerError: MODULE_LIMITS, DIGEST_MISMATCH or MODULE_MALFORMED.
    """
    check_module_size(manifest)
    reference = manifest.module
    if len(module) != reference.size:
        detail = f"module has {len(module)} bytes, the manifest says {reference.size}"
        raise PeerError(Code.DIGEST_MISMATCH, detail, domain=manifest.domain)
    if hashlib.sha256(module).hexdigest() != reference.sha256:
        raise PeerError(Code.DIGEST_MISMATCH, f"module of {manifest.name}", domain=manifest.domain)
    if not module.startswith(_WASM_HEADER):
        raise PeerError(Code.MODULE_MALFORMED, "not a core WebAssembly module", domain=manifest.domain)


def make_stub(trust: DomainTrust, manifest: Manifest, manifest_envelope: bytes, module: bytes) -> VerifiedStub:
    """Check the module of an accepted manifest and make the value that the sandbox takes.

    Raises:
        PeerError: What `check_module` raises.
    """
    check_module(module, manifest)
    declared = {endpoint.name: endpoint for endpoint in trust.live.endpoints}
    return VerifiedStub._create(  # noqa: SLF001 - the one place that may
        domain=trust.domain,
        name=manifest.name,
        serial=manifest.serial,
        version=manifest.version,
        module=module,
        module_sha256=manifest.module.sha256,
        manifest=manifest,
        manifest_sha256=hashlib.sha256(_payload(manifest_envelope, trust.domain)).hexdigest(),
        manifest_envelope=manifest_envelope,
        level=trust.level,
        expires=min(manifest.expires.timestamp(), trust.expires_at),
        endpoints={name: declared[name] for name in manifest.permissions.connect if name in declared},
    )


def judge_running(stub: VerifiedStub, trust: DomainTrust, *, now: float, grace_seconds: float) -> Code | None:
    """Return why a running stub has to stop under newer documents of its domain, or None.

    Revoked are modules, serials and package keys; a key that merely left the root takes running stubs with it as well.
    Documents speak for their own domain only: another domain's identical module goes on.
    """
    if _is_revoked(stub.manifest, trust.live):
        return Code.REVOKED
    envelope = open_envelope(stub.manifest_envelope, MANIFEST_TYPE, domain=stub.domain, max_bytes=limits.MANIFEST_BYTES)
    try:
        _signed_manifest(envelope, trust.root, trust.live)
    except PeerError:
        return Code.REVOKED
    ends = min(stub.manifest.expires.timestamp(), trust.expires_at)
    return Code.DOCUMENT_EXPIRED if now >= ends + grace_seconds else None


def _payload(raw: bytes, domain: str) -> bytes:
    return open_envelope(raw, MANIFEST_TYPE, domain=domain, max_bytes=limits.MANIFEST_BYTES).payload


def _signed_manifest(envelope: Envelope, root: Root, live: Live) -> Manifest:
    role = root.roles.pkg
    if envelope.signers(root.keys, allowed=role.keys, excluded=live.revoked.keys) < role.threshold:
        is_revoked = envelope.signers(root.keys, allowed=role.keys) >= role.threshold
        code = Code.REVOKED if is_revoked else Code.TOO_FEW_SIGNATURES
        raise PeerError(code, "keys of the manifest", domain=root.domain)
    return decode_manifest(envelope.payload, domain=root.domain)


def _is_revoked(manifest: Manifest, live: Live) -> bool:
    least = live.revoked.min_serial.get(manifest.name, 0)
    return manifest.serial < least or manifest.module.sha256 in live.revoked.modules


def _check_manifest(manifest: Manifest, live: Live, rules: ManifestRules) -> None:
    """Check revocation, times, audience and ABI of a signed manifest."""
    if _is_revoked(manifest, live):
        detail = f"{manifest.name} {manifest.serial} was revoked by its domain"
        raise PeerError(Code.REVOKED, detail, domain=manifest.domain)
    late_seconds = rules.now - manifest.expires.timestamp()
    if late_seconds >= 0:
        detail = f"manifest ended {manifest.expires}, before our now by {off_by(late_seconds)}"
        raise PeerError(Code.DOCUMENT_EXPIRED, detail, domain=manifest.domain)
    early_seconds = manifest.released.timestamp() - rules.now
    if early_seconds > limits.CLOCK_SKEW_SECONDS:
        detail = f"manifest released {manifest.released}, after our now by {off_by(early_seconds)}"
        raise PeerError(Code.ISSUED_IN_FUTURE, detail, domain=manifest.domain)
    if not {"*", rules.our_domain} & set(manifest.for_domains):
        raise PeerError(Code.WRONG_DOMAIN, f"{manifest.name} is not for {rules.our_domain}", domain=manifest.domain)
    if not manifest.abi.is_supported:
        detail = f"{manifest.abi.name} {manifest.abi.version}"
        raise PeerError(Code.ABI_UNSUPPORTED, detail, domain=manifest.domain)
