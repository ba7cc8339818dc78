"""Signatures of policy bundles: a detached statement that names the files by their digest, and the domain they are for.

The statement is a DSSE envelope beside the files. So files are not even parsed before a key of the settings has signed
exactly them, and what one domain signed is nothing to another one that trusts the same key.
Source: message specification, section 15.2; DSSE 1.0.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec

from protofly.errors import Code, PeerError
from protofly.limits import POLICY_SIGNATURE_BYTES
from protofly.signatures import (
    KeyRecord,
    SigningKey,
    decode_envelope,
    pae,
    parse_strict,
    sign_envelope,
    verify_signature,
)

PAYLOAD_TYPE: Final = "application/vnd.trapezoid.policy-bundle+json"


class BundleStatement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signed statement about a bundle.

    Attributes:
        domain: Whose nodes may use the files.
        sha256: Digest of their names, texts and order.
    """

    spec: Literal["policy-bundle/1"] = "policy-bundle/1"
    domain: Annotated[str, msgspec.Meta(max_length=253)]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


def sign_bundle(domain: str, digest: str, keys: Sequence[SigningKey]) -> bytes:
    """The signature of files with that digest, for a domain."""
    return sign_envelope(msgspec.json.encode(BundleStatement(domain=domain, sha256=digest)), PAYLOAD_TYPE, keys)


def check_signature(raw: bytes, *, keys: Sequence[str], domain: str, digest: str) -> None:
    """Check that one of our keys has signed files with that digest for our domain.

    Args:
        raw: The signature, b"" without one.
        keys: Ed25519 public keys, base64url; one of them is enough.
        domain: Ours.
        digest: Of the files.

    Raises:
        PeerError: POLICY_UNSIGNED, with what is wrong.
    """
    if not raw:
        raise PeerError(Code.POLICY_UNSIGNED, "`policy.keys` are set: sign the bundle with `trapezoid policy sign`")
    if len(raw) > POLICY_SIGNATURE_BYTES:
        raise PeerError(Code.POLICY_UNSIGNED, f"a signature has at most {POLICY_SIGNATURE_BYTES} bytes")
    try:
        envelope = decode_envelope(raw)
    except PeerError as exc:
        raise PeerError(Code.POLICY_UNSIGNED, f"no signature: {exc.detail}") from exc
    data = pae(envelope.payload_type, envelope.payload)
    records = [KeyRecord(alg="ed25519", pub=pub) for pub in keys]
    count = sum(verify_signature(key, one.signature, data) for one in envelope.signatures for key in records)
    if envelope.payload_type != PAYLOAD_TYPE or not count:
        raise PeerError(Code.POLICY_UNSIGNED, "no key of `policy.keys` has signed this")
    try:
        statement = msgspec.convert(parse_strict(envelope.payload), BundleStatement)
    except (ValueError, RecursionError) as exc:
        raise PeerError(Code.POLICY_UNSIGNED, f"what is signed is no statement about a bundle: {exc}"[:200]) from exc
    if statement.domain != domain:
        raise PeerError(Code.POLICY_UNSIGNED, f"the bundle is signed for {statement.domain}")
    if statement.sha256 != digest:
        raise PeerError(Code.POLICY_UNSIGNED, "other files are signed: their names, texts or order differ")
