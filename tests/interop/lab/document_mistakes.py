"""Mistakes of a verifier of signed documents: what each replaces, for `monkeypatch`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from catalogue_client import downloads
from catalogue_client.core import trust, verify
from protofly import limits
from protofly.documents import ROOT_TYPE
from protofly.signatures import Envelope, KeyRecord, pae, verify_signature


class Replaced(NamedTuple):
    """One name of a module or class, and what stands there instead."""

    place: object
    name: str
    by: object


def _signers_by_signature(
    self: Envelope, keys: Mapping[str, KeyRecord], *, allowed: Iterable[str], excluded: Collection[str] = ()
) -> int:
    data, candidates = pae(self.payload_type, self.payload), {*allowed} - {*excluded}
    signed = [one for one in self.signatures if one.key_id in candidates and one.key_id in keys]
    return sum(verify_signature(keys[one.key_id], one.signature, data) for one in signed)


_is_signed = trust._is_signed


def _is_signed_or_next(envelope: Envelope, root: Any, role: Any) -> bool:
    if envelope.payload_type == ROOT_TYPE and msgspec.json.decode(envelope.payload)["version"] != root.version:
        return True
    return _is_signed(envelope, root, role)


DOCUMENT_MISTAKES = {
    "signatures-not-counted": (Replaced(Envelope, "signers", lambda *_, **__: 16), "envelope-unknown-key"),
    "one-key-counts-twice": (Replaced(Envelope, "signers", _signers_by_signature), "envelope-one-key-twice"),
    "next-root-vouches-for-itself": (Replaced(trust, "_is_signed", _is_signed_or_next), "root-signed-only-by-new"),
    "serials-go-back": (Replaced(trust, "check_serial", lambda *_, **__: None), "live-rollback"),
    "serials-leap": (Replaced(limits, "SERIAL_JUMP", 1 << 62), "live-fast-forward"),
    "times-not-looked-at": (Replaced(trust, "_check_live_times", lambda *_: None), "live-expired"),
    "another-root-than-live-names": (Replaced(trust, "is_current_root", lambda *_: True), "live-root-hash"),
    "marks-outlive-their-keys": (
        Replaced(trust, "_without_burnt_marks", lambda state, *_: state),
        "live-mended-by-new-key",
    ),
    "any-key-burns-the-marks": (Replaced(trust, "_has_lost_key", lambda *_: True), "live-key-added-resets-nothing"),
    "revoked-modules-run": (Replaced(verify, "_is_revoked", lambda *_: False), "manifest-revoked-module"),
    "permissions-grow": (Replaced(verify, "held_permissions", lambda *_: []), "manifest-grows"),
    "modules-of-another-digest-run": (Replaced(verify, "check_module", lambda *_: None), "module-changed"),
}
"""What each mistake replaces, and the scenario whose file finds it."""
FURTHER_PLACES = {"modules-of-another-digest-run": (Replaced(downloads, "check_module", lambda *_: None),)}
"""Modules that have imported the same name."""
