"""`live` documents of domains that have no node: signed here as they are asked for, right or wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from protofly.documents import (
    Endpoint,
    Live,
    Revoked,
    RootReference,
    decode_envelope,
    parse_strict,
    sign_document,
)
from stubkit.keys import KeyRing
from stubkit.sign import stub_reference

DAY_SECONDS = 86_400.0


def sign_live(
    keys: KeyRing,
    *,
    root_envelope: bytes,
    serial: int,
    endpoints: Sequence[Endpoint],
    manifests: Mapping[str, bytes],
    now: float,
    validity_seconds: float = 2 * DAY_SECONDS,
    revoked: Revoked | None = None,
) -> bytes:
    payload = decode_envelope(root_envelope).payload
    root = parse_strict(payload)
    assert isinstance(root, dict)
    live = Live(
        spec="rmn-live/1",
        domain=root["domain"],
        serial=serial,
        issued=_moment(now),
        expires=_moment(now + validity_seconds),
        root=RootReference(version=root["version"], sha256=hashlib.sha256(payload).hexdigest()),
        endpoints=list(endpoints),
        stubs={selector: stub_reference(raw, domain=root["domain"]) for selector, raw in manifests.items()},
        node_keys={key.key_id: key.record(nbf=_moment(now - DAY_SECONDS)) for key in keys.node},
        revoked=revoked if revoked is not None else Revoked(),
    )
    return sign_document(live, keys.live)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
