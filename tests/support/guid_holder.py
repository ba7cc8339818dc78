"""Somebody with a GUID, for tests: a key, a salt, and records signed with them."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from protofly.guid import Encoding, derive_guid, public_key_text
from protofly.guid_record import sign_dataset

_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def moment(seconds: float) -> str:
    """RFC 3339 as records write it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


class GuidHolder:
    """One person; the same name, the same key."""

    def __init__(self, name: str, *, salt: str = "salt") -> None:
        number = int.from_bytes(hashlib.sha256(f"test key of {name}".encode()).digest()) % (_ORDER - 1) + 1
        self.key = ec.derive_private_key(number, ec.SECP256K1())
        self.salt = salt
        self.public_key = public_key_text(self.key.public_key())
        self.guid = derive_guid(self.public_key, salt)

    def dataset(self, *, updated: float, user: str = "", domain: str = "", **changes: Any) -> dict[str, Any]:
        """A good dataset; a change to None leaves a member out."""
        made = {
            "schemaVersion": 2,
            "guid": self.guid,
            "salt": self.salt,
            "userIDs": [{"uid": user, "domain": domain}] if user else [],
            "legacyIDs": [],
            "lastUpdate": moment(updated),
            "timeout": moment(updated + 90 * 86_400),
            "publicKey": self.public_key,
            "active": 1,
            "revoked": 0,
            "defaults": {"voice": "", "chat": "", "video": ""},
            **changes,
        }
        return {name: value for name, value in made.items() if value is not None}

    def record(
        self, *, updated: float, user: str = "", domain: str = "", encoding: Encoding = "raw", **changes: Any
    ) -> str:
        """A signed record, good unless changes make it another."""
        dataset = self.dataset(updated=updated, user=user, domain=domain, **changes)
        return sign_dataset(json.dumps(dataset).encode(), self.key, encoding=encoding)
