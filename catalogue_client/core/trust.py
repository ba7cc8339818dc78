"""What we know of a domain's keys, and which documents that knowledge lets us believe.

Theory of operation. A `TrustState` is all that has to survive: the current root as received, the fingerprints of all
key sets since the first, and high-water marks. Every function takes a state and bytes and answers with a new state, or
refuses and leaves the old one standing; a caller that stores the state after each answer can be interrupted anywhere.

The order is TUF's: the first root is believed by an anchor, each later one (version exactly +1) because the threshold
of its predecessor *and* its own threshold signed it; then the live document is judged by the final root. Marks only go
up; rotating the live (or package) keys in the root resets the marks that those keys made, which is how a domain
recovers from somebody who burnt its serial numbers.

Source: trust and hosts, sections 3.5 and 3.6; TUF 1.0 client workflow.
"""

from __future__ import annotations

import hashlib

import msgspec

from catalogue_client.core.state import DomainTrust, HeldUpdate, StubMark, TrustAnchor, TrustState
from protofly import limits
from protofly.clock_skew import off_by
from protofly.documents import (
    LIVE_TYPE,
    ROOT_TYPE,
    DocumentBundle,
    Envelope,
    Live,
    Role,
    Root,
    RootReference,
    decode_envelope,
    decode_live,
    decode_root,
    key_set_fingerprint,
    parse_strict,
)
from protofly.errors import Code, PeerError

__all__ = [
    "DomainTrust",
    "HeldUpdate",
    "StubMark",
    "TrustAnchor",
    "TrustState",
    "accept_live",
    "advance",
    "begin",
    "check_chain_length",
    "check_clock",
    "check_root_current",
    "check_serial",
    "current_root",
    "is_current_root",
    "open_envelope",
    "peek_root_version",
    "raise_marks",
    "strengthen",
]


def open_envelope(raw: bytes, payload_type: str, *, domain: str, max_bytes: int) -> Envelope:
    """Decode an envelope of the one expected type.

    Raises:
        PeerError: DOCUMENT_TOO_LARGE, ENVELOPE_MALFORMED or PAYLOAD_TYPE.
    """
    if len(raw) > max_bytes:
        raise PeerError(Code.DOCUMENT_TOO_LARGE, f"{len(raw)} bytes, at most {max_bytes}", domain=domain)
    envelope = decode_envelope(raw, domain=domain)
    if envelope.payload_type != payload_type:
        detail = f"expected {payload_type}, not {envelope.payload_type[:100]}"
        raise PeerError(Code.PAYLOAD_TYPE, detail, domain=domain)
    return envelope


def current_root(state: TrustState) -> Root:
    """The root that the state believes. It was verified before it was stored; its own signatures are checked again.

    Raises:
        PeerError: What `begin` raises, if the stored bytes are damaged.
    """
    return _self_signed(state.root, state.domain)


def begin(raw: bytes, *, domain: str, version: int, anchor: TrustAnchor) -> TrustState:
    """Believe the first root of a domain, version `version`, because of `anchor`.

    Raises:
        PeerError: FINGERPRINT_MISMATCH if the anchor names another key set, TOO_FEW_SIGNATURES if the root's own
            threshold did not sign it, ROOT_CHAIN if it is of another version, or what decoding raises.
    """
    root = _self_signed(raw, domain)
    if root.version != version:
        raise PeerError(Code.ROOT_CHAIN, f"root {version} was asked for, {root.version} came", domain=domain)
    fingerprint = key_set_fingerprint(root)
    if anchor.fingerprint and anchor.fingerprint != fingerprint:
        raise PeerError(
            Code.FINGERPRINT_MISMATCH, f"expected {anchor.fingerprint}, root has {fingerprint}", domain=domain
        )
    return TrustState(
        domain=domain,
        level=anchor.level,
        root=raw,
        root_version=root.version,
        fingerprints=[fingerprint],
    )


def advance(state: TrustState, raw: bytes) -> TrustState:
    """Go from one root version to the next.

    Raises:
        PeerError: ROOT_CHAIN if the version is not exactly one more, BROKEN_TRUST if the threshold of the current root
            did not sign, TOO_FEW_SIGNATURES if the new root's own did not.
    """
    old = decode_root(decode_envelope(state.root).payload, domain=state.domain)
    envelope = open_envelope(raw, ROOT_TYPE, domain=state.domain, max_bytes=limits.ROOT_BYTES)
    if not _is_signed(envelope, old, old.roles.root):
        detail = f"the next root is not signed by the keys of version {old.version}; the operator has to decide"
        raise PeerError(Code.BROKEN_TRUST, detail, domain=state.domain)
    new = _self_signed(raw, state.domain)
    if new.version != old.version + 1:
        detail = f"version {new.version} cannot follow {old.version}"
        raise PeerError(Code.ROOT_CHAIN, detail, domain=state.domain)
    fingerprint = key_set_fingerprint(new)
    known = [known for known in state.fingerprints if known != fingerprint]
    state = msgspec.structs.replace(
        state,
        root=raw,
        root_version=new.version,
        fingerprints=[*known, fingerprint],
    )
    return _without_burnt_marks(state, old, new)


def _without_burnt_marks(state: TrustState, old: Root, new: Root) -> TrustState:
    """Forget the marks that rotated-out keys made."""
    if _has_lost_key(old, old.roles.live, new, new.roles.live):
        state = msgspec.structs.replace(state, live_serial=0, live_sha256="")
    if _has_lost_key(old, old.roles.pkg, new, new.roles.pkg):
        stubs = {
            name: msgspec.structs.replace(mark, serial=0, manifest_sha256="") for name, mark in state.stubs.items()
        }
        state = msgspec.structs.replace(state, stubs=stubs)
    return state


def _has_lost_key(old: Root, old_role: Role, new: Root, new_role: Role) -> bool:
    kept = {(new.keys[key_id].alg, new.keys[key_id].pub) for key_id in new_role.keys}
    return any((old.keys[key_id].alg, old.keys[key_id].pub) not in kept for key_id in old_role.keys)


def strengthen(state: TrustState, anchor: TrustAnchor) -> TrustState:
    """Hold what is remembered against what the operator configured since.

    A pin must be one of the key sets of the remembered history, then the level rises; nothing lowers it.

    Raises:
        PeerError: FINGERPRINT_MISMATCH.
    """
    if anchor.fingerprint and anchor.fingerprint not in state.fingerprints:
        detail = f"{anchor.fingerprint} is not in the remembered history of the domain"
        raise PeerError(Code.FINGERPRINT_MISMATCH, detail, domain=state.domain)
    if anchor.level.strength > state.level.strength:
        return msgspec.structs.replace(state, level=anchor.level)
    return state


def check_clock(state: TrustState | None, now: float) -> None:
    """Refuse to judge expiry by a clock that is certainly wrong.

    Raises:
        PeerError: CLOCK_WRONG: `now` is before this code was written, or before the newest accepted document.
    """
    earliest = limits.EARLIEST_CLOCK_SECONDS
    if state:
        earliest = max(earliest, state.newest_issued - limits.CLOCK_SKEW_SECONDS)
    if now < earliest:
        detail = f"our own clock is behind documents that were accepted before, by {earliest - now:.0f} s; set it right"
        raise PeerError(Code.CLOCK_WRONG, detail, domain=state.domain if state else "")


def check_root_current(root: Root, now: float) -> None:
    """Check the times of the final root; those before it in the chain may have ended.

    Raises:
        PeerError: DOCUMENT_EXPIRED or ISSUED_IN_FUTURE.
    """
    if root.issued.timestamp() > now + limits.CLOCK_SKEW_SECONDS:
        raise PeerError(
            Code.ISSUED_IN_FUTURE,
            f"root {root.version} issued {root.issued}, after our now by {off_by(root.issued.timestamp() - now)}",
            domain=root.domain,
        )
    if now >= root.expires.timestamp():
        raise PeerError(
            Code.DOCUMENT_EXPIRED,
            f"root {root.version} ended {root.expires}, before our now by {off_by(now - root.expires.timestamp())}",
            domain=root.domain,
        )


class _PeekedRoot(msgspec.Struct):
    version: int


class _PeekedLive(msgspec.Struct):
    root: _PeekedRoot


def peek_root_version(raw: bytes, *, domain: str) -> int:
    """The root version that a live document claims; says nothing about whether the claim is true.

    Raises:
        PeerError: DOCUMENT_TOO_LARGE, ENVELOPE_MALFORMED, PAYLOAD_TYPE or DOCUMENT_MALFORMED.
    """
    envelope = open_envelope(raw, LIVE_TYPE, domain=domain, max_bytes=limits.LIVE_BYTES)
    try:
        version = msgspec.convert(parse_strict(envelope.payload), _PeekedLive).root.version
    except (ValueError, RecursionError) as error:
        raise PeerError(Code.DOCUMENT_MALFORMED, str(error)[:200], domain=domain) from error
    if not 1 <= version <= 2**53:
        raise PeerError(Code.DOCUMENT_MALFORMED, "root version out of range", domain=domain)
    return version


def check_chain_length(state: TrustState, version: int) -> None:
    """Check that `version` can be reached from the remembered root.

    Raises:
        PeerError: ROLLBACK if it is older, ROOT_CHAIN if it is more than `ROOT_STEPS` ahead.
    """
    if version < state.root_version:
        detail = f"root {version} is older than {state.root_version}, which was accepted before"
        raise PeerError(Code.ROLLBACK, detail, domain=state.domain)
    if version - state.root_version > limits.ROOT_STEPS:
        detail = f"root {version} is more than {limits.ROOT_STEPS} versions ahead of {state.root_version}"
        raise PeerError(Code.ROOT_CHAIN, detail, domain=state.domain)


def accept_live(state: TrustState, root: Root, raw: bytes, *, now: float) -> tuple[Live, TrustState]:
    """Believe a live document under the current root, and raise the marks.

    Args:
        state: What is remembered; `root` is its decoded root.
        root: The current root.
        raw: The envelope as received.
        now: Unix seconds, fixed once per refresh.

    Raises:
        PeerError: TOO_FEW_SIGNATURES, WRONG_DOMAIN, ROLLBACK, FAST_FORWARD, MIX_AND_MATCH, DOCUMENT_EXPIRED,
            ISSUED_IN_FUTURE, VALIDITY_TOO_LONG, CLOCK_WRONG, or what decoding raises.

    Source: trust and hosts, section 3.6, step 3.
    """
    check_clock(state, now)
    check_root_current(root, now)
    envelope = open_envelope(raw, LIVE_TYPE, domain=state.domain, max_bytes=limits.LIVE_BYTES)
    if not _is_signed(envelope, root, root.roles.live):
        raise PeerError(Code.TOO_FEW_SIGNATURES, "live document", domain=state.domain)
    live = decode_live(envelope.payload, domain=state.domain)
    digest = hashlib.sha256(envelope.payload).hexdigest()
    check_serial(live.serial, digest, (state.live_serial, state.live_sha256), what="live document", domain=state.domain)
    if not is_current_root(state, live.root):
        raise PeerError(Code.MIX_AND_MATCH, "the live document was made under another root", domain=state.domain)
    _check_live_times(live, now)
    issued = max(state.newest_issued, live.issued.timestamp())
    return live, msgspec.structs.replace(state, live_serial=live.serial, live_sha256=digest, newest_issued=issued)


def is_current_root(state: TrustState, reference: RootReference) -> bool:
    """True if `reference` names the root that is remembered."""
    return (reference.version, reference.sha256) == (state.root_version, _payload_sha256(state.root))


def _check_live_times(live: Live, now: float) -> None:
    issued, expires = live.issued.timestamp(), live.expires.timestamp()
    if now >= expires:
        raise PeerError(
            Code.DOCUMENT_EXPIRED,
            f"live document ended {live.expires}, before our now by {off_by(now - expires)}",
            domain=live.domain,
        )
    if issued > now + limits.CLOCK_SKEW_SECONDS:
        raise PeerError(
            Code.ISSUED_IN_FUTURE,
            f"live document issued {live.issued}, after our now by {off_by(issued - now)}",
            domain=live.domain,
        )
    if expires - issued > limits.LIVE_VALIDITY_SECONDS:
        raise PeerError(Code.VALIDITY_TOO_LONG, "a live document is valid for 7 days at most", domain=live.domain)


def check_serial(serial: int, digest: str, mark: tuple[int, str], *, what: str, domain: str) -> None:
    """Hold a serial number and payload hash against a high-water mark (0 = none).

    Raises:
        PeerError: ROLLBACK if lower or equal with other bytes, FAST_FORWARD if further ahead than `SERIAL_JUMP`.
    """
    marked, marked_digest = mark
    if serial < marked:
        raise PeerError(Code.ROLLBACK, f"{what} {serial} is older than {marked}, which was seen", domain=domain)
    if serial == marked and digest != marked_digest:
        raise PeerError(Code.ROLLBACK, f"{what} {serial} was seen with other content", domain=domain)
    if marked and serial - marked > limits.SERIAL_JUMP:
        raise PeerError(Code.FAST_FORWARD, f"{what} jumps from {marked} to {serial}", domain=domain)


def raise_marks(state: TrustState, root: Root, bundle: DocumentBundle) -> TrustState:
    """Learn high-water marks from cached documents when our own are gone.

    A cached live document that the current root signs proves that its serial existed. It can make us stricter only:
    nothing in the cache is believed beyond that.
    """
    try:
        envelope = open_envelope(bundle.live, LIVE_TYPE, domain=state.domain, max_bytes=limits.LIVE_BYTES)
        live = decode_live(envelope.payload, domain=state.domain)
    except PeerError:
        return state
    if not _is_signed(envelope, root, root.roles.live) or live.serial <= state.live_serial:
        return state
    digest = hashlib.sha256(envelope.payload).hexdigest()
    return msgspec.structs.replace(state, live_serial=live.serial, live_sha256=digest)


def _self_signed(raw: bytes, domain: str) -> Root:
    envelope = open_envelope(raw, ROOT_TYPE, domain=domain, max_bytes=limits.ROOT_BYTES)
    root = decode_root(envelope.payload, domain=domain)
    if not _is_signed(envelope, root, root.roles.root):
        raise PeerError(Code.TOO_FEW_SIGNATURES, f"root {root.version} is not signed by its own keys", domain=domain)
    return root


def _is_signed(envelope: Envelope, root: Root, role: Role) -> bool:
    return envelope.signers(root.keys, allowed=role.keys) >= role.threshold


def _payload_sha256(raw: bytes) -> str:
    return hashlib.sha256(decode_envelope(raw).payload).hexdigest() if raw else ""
