"""The file by which one operator lets another know which of its senders sent very much, as near real time as it likes.

    trapezoid-usage/1 ⏎
    <report: JSON, one line> ⏎
    <Ed25519 signature over both lines, base64url> ⏎

It names no address: addresses may be hashed with keys that only their own operator has. It names messages, by which the
other one finds the senders in records of its own. Such a file may contain anything: nothing of it is decoded before its
size and its signature hold.
"""

from __future__ import annotations

import binascii
import os
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from protofly.errors import SettingsError
from protofly.signatures import KeyRecord, SigningKey, base64url, verify_signature

MAGIC: Final = b"trapezoid-usage/1\n"
USERS_MAX: Final = 1_000
EVIDENCE: Final = 20
FILE_BYTES: Final = 2 << 20
_SIGNATURE_BYTES: Final = 64

_Time = Annotated[int, Meta(ge=0, le=2**53)]
_Count = Annotated[int, Meta(ge=0, le=2**48)]
_Domain = Annotated[str, Meta(max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")]
_MessageId = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]


class HighUser(Struct, frozen=True, forbid_unknown_fields=True):
    """A sender that sent very much: how much, from when until when, and some of its messages, the first ones."""

    messages: _Count
    bytes: _Count
    first_us: _Time
    last_us: _Time
    evidence: Annotated[tuple[_MessageId, ...], Meta(min_length=1, max_length=EVIDENCE)]


class UsageReport(Struct, frozen=True, forbid_unknown_fields=True):
    """What a domain says about the senders of another one, from one time to another.

    Attributes:
        domain: The author, who received the messages.
        peer: The reader, whose senders they are.
        from_us: First moment that was looked at.
        until_us: The first one behind it.
        made_us: When it was made.
        messages: A sender is named from so many messages on.
        bytes: Or from so many bytes on; 0: bytes do not matter.
        left_out: Senders that were as many, beyond `USERS_MAX`.
        users: Those with the most messages first.
    """

    domain: _Domain
    peer: _Domain
    from_us: _Time
    until_us: _Time
    made_us: _Time
    messages: _Count
    bytes: _Count
    left_out: _Count
    users: Annotated[tuple[HighUser, ...], Meta(max_length=USERS_MAX)]


def usage_bytes(report: UsageReport, key: SigningKey) -> bytes:
    """The signed file."""
    signed = MAGIC + msgspec.json.encode(report) + b"\n"
    return signed + base64url(key.sign(signed)).encode() + b"\n"


def read_usage(path: Path, *, peer_key: KeyRecord, domain: str, peer: str) -> UsageReport:
    """A report that a partner has made for us.

    Args:
        path: The file.
        peer_key: The partner's public key.
        domain: We, its reader.
        peer: The partner, its author.

    Raises:
        SettingsError: It cannot be read, is too large, malformed, not signed by this key, or between other domains.
    """
    try:
        # A pipe would be waited for; a link is followed, since the operator has named it.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            content = file.read(FILE_BYTES + 1) or b""
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    if len(content) > FILE_BYTES:
        raise SettingsError(f"{path}: too-large: more than a report of usage may have; take it as hostile")
    lines = content.split(b"\n")
    if len(lines) != 4 or lines[0] + b"\n" != MAGIC or lines[3]:
        raise SettingsError(f"{path}: malformed: no report of usage; ask {peer} for it anew")
    if not verify_signature(peer_key, _signature(lines[2]), MAGIC + lines[1] + b"\n"):
        raise SettingsError(f"{path}: bad-signature: not signed by the key that was given for {peer}")
    try:
        report = msgspec.json.decode(lines[1], type=UsageReport)
    except (ValueError, RecursionError) as exc:
        raise SettingsError(f"{path}: malformed: {exc}; ask {peer} for it anew") from exc
    if (report.domain, report.peer) != (peer, domain):
        raise SettingsError(f"{path}: wrong-domain: of {report.domain} for {report.peer}, not of {peer} for {domain}")
    return report


def _signature(text: bytes) -> bytes:
    """The bytes of a signature; empty for what is none."""
    try:
        found = urlsafe_b64decode(text + b"==")
    except (binascii.Error, ValueError):
        return b""
    return found if len(found) == _SIGNATURE_BYTES and base64url(found).encode() == text else b""
