"""Addresses, messages, signed documents, records, error codes and limits. Pure, and below every other package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protofly.public_names import public_names

__all__ = [
    "Address",
    "Code",
    "DecisionRecord",
    "HostError",
    "LinkEvent",
    "Live",
    "Manifest",
    "Message",
    "MessageRecord",
    "MisuseError",
    "PeerError",
    "PolicyEvent",
    "Root",
    "SegmentManifest",
    "SessionEvent",
    "SettingsError",
    "SigningKey",
    "StubEvent",
    "StubFaultError",
    "TransportError",
    "TrustLevel",
    "VerifiedStub",
]

if TYPE_CHECKING:
    from protofly.address import Address
    from protofly.documents import Live, Manifest, Root, TrustLevel
    from protofly.errors import Code, HostError, MisuseError, PeerError, SettingsError, StubFaultError, TransportError
    from protofly.message import Message
    from protofly.records import (
        DecisionRecord,
        LinkEvent,
        MessageRecord,
        PolicyEvent,
        SegmentManifest,
        SessionEvent,
        StubEvent,
    )
    from protofly.signatures import SigningKey
    from protofly.stub import VerifiedStub
else:
    __getattr__ = public_names(
        __name__,
        {
            "Address": "protofly.address",
            "Code": "protofly.errors",
            "DecisionRecord": "protofly.records",
            "HostError": "protofly.errors",
            "LinkEvent": "protofly.records",
            "Live": "protofly.documents",
            "Manifest": "protofly.documents",
            "Message": "protofly.message",
            "MessageRecord": "protofly.records",
            "MisuseError": "protofly.errors",
            "PeerError": "protofly.errors",
            "PolicyEvent": "protofly.records",
            "Root": "protofly.documents",
            "SegmentManifest": "protofly.records",
            "SessionEvent": "protofly.records",
            "SettingsError": "protofly.errors",
            "SigningKey": "protofly.signatures",
            "StubEvent": "protofly.records",
            "StubFaultError": "protofly.errors",
            "TransportError": "protofly.errors",
            "TrustLevel": "protofly.documents",
            "VerifiedStub": "protofly.stub",
        },
    )
