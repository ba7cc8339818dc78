"""Domains that one operator advises others to block: signed, with an end, and never to be replaced by an older one.

A block list is a DSSE envelope. Its author makes it of what it has seen; another operator's node asks for it by URL and
decides for itself what it does about it. It names domains only, never persons.

Source: DSSE 1.0.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from protofly.errors import Code, PeerError
from protofly.signatures import (
    KeyRecord,
    SigningKey,
    decode_envelope,
    pae,
    parse_strict,
    sign_envelope,
    verify_signature,
)

PAYLOAD_TYPE: Final = "application/vnd.trapezoid.block-list+json"
ENTRIES_MAX: Final = 1_000
LIST_BYTES: Final = 1 << 20
SERIAL_MAX: Final = 2**53
VALID_SECONDS_MAX: Final = 7 * 86_400.0
CLOCK_SECONDS: Final = 300.0
"""So much may the clock of the author be ahead of ours."""

DomainName = Annotated[str, Meta(max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")]
_Time = Annotated[float, Meta(ge=0, le=4e9)]


class BlockedDomain(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A domain, and why it is advised to block it."""

    domain: DomainName
    reason: Annotated[str, Meta(max_length=200, pattern=r"^[ -~]*\Z")] = ""


class BlockList(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Domains that an author advises others to block, valid from `issued` to `expires`.

    Attributes:
        author: Its domain.
        serial: Greater than that of all lists before.
        issued: Seconds since the Unix epoch.
        expires: Likewise; afterwards the list says nothing.
        entries: Each domain once.
    """

    author: DomainName
    serial: Annotated[int, Meta(ge=1, le=SERIAL_MAX)]
    issued: _Time
    expires: _Time
    entries: Annotated[tuple[BlockedDomain, ...], Meta(max_length=ENTRIES_MAX)] = ()


def sign_block_list(block_list: BlockList, key: SigningKey) -> bytes:
    """The list as it is published."""
    return sign_envelope(msgspec.json.encode(block_list), PAYLOAD_TYPE, [key])


def read_block_list(
    raw: bytes, *, author: str, keys: Sequence[KeyRecord], now: float, least_serial: int = 0
) -> BlockList:
    """Read a published list, and believe it if one of the author's keys has signed it.

    Args:
        raw: As it came; anybody may have written it.
        author: Whose list it has to be.
        keys: The author's keys; at most a few.
        now: Seconds since the Unix epoch.
        least_serial: That of the newest list that is known.

    Raises:
        PeerError: DOCUMENT_TOO_LARGE, ENVELOPE_MALFORMED, TOO_FEW_SIGNATURES, DOCUMENT_MALFORMED, WRONG_DOMAIN,
            ROLLBACK, DOCUMENT_EXPIRED; each blames the author.
    """
    if len(raw) > LIST_BYTES:
        raise PeerError(Code.DOCUMENT_TOO_LARGE, f"a block list of {len(raw)} bytes", domain=author)
    envelope = decode_envelope(raw, domain=author)
    data = pae(envelope.payload_type, envelope.payload)
    count = sum(verify_signature(key, entry.signature, data) for entry in envelope.signatures for key in keys)
    if envelope.payload_type != PAYLOAD_TYPE or not count:
        raise PeerError(Code.TOO_FEW_SIGNATURES, "the block list is not signed by a key of its author", domain=author)
    try:
        found = msgspec.convert(parse_strict(envelope.payload), BlockList)
    except (ValueError, RecursionError) as exc:
        raise PeerError(Code.DOCUMENT_MALFORMED, f"block list: {exc}"[:200], domain=author) from exc
    if len({one.domain for one in found.entries}) != len(found.entries):
        raise PeerError(Code.DOCUMENT_MALFORMED, "block list: a domain is there twice", domain=author)
    if found.author != author:
        raise PeerError(Code.WRONG_DOMAIN, f"a block list of {found.author}", domain=author)
    if found.serial < least_serial:
        raise PeerError(Code.ROLLBACK, f"block list {found.serial} after {least_serial}", domain=author)
    is_too_long = found.expires > found.issued + VALID_SECONDS_MAX
    if not found.issued - CLOCK_SECONDS <= now < found.expires or is_too_long:
        raise PeerError(Code.DOCUMENT_EXPIRED, "the block list is not valid now, or for too long", domain=author)
    return found
