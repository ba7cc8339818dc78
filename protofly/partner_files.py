"""A file that one domain hands to another by HTTP: what is signed about it, so that it is known before it is read.

The request is a POST whose header `trapezoid-file` has two parts in base64url, joined by a dot: the facts about the
file as JSON, and the Ed25519 signature of its author over `trapezoid-file/1`, a line feed and these facts. They name
author, reader, name, size, hash and time, so a reader can refuse before it has read a byte of the body, and nobody can
send the file on to somebody else, or an hour later.

The operators have exchanged their keys over another channel.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from protofly.block_list import DomainName
from protofly.errors import Code, PeerError
from protofly.signatures import KeyRecord, SigningKey, base64url, parse_strict, verify_signature

HEADER: Final = "trapezoid-file"
HEADER_CHARS: Final = 2048
PATH: Final = "/.well-known/rethink-mn/exchange"
"""Below the site of a node; the author's domain follows."""
CLOCK_SECONDS: Final = 300.0
"""So old may a request be, and so much may the clock of its author be ahead of ours."""
FILE_BYTES_MAX: Final = 1 << 30
_PREFIX: Final = b"trapezoid-file/1\n"
_TEXT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{86}")


class PartnerFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts about a file.

    Attributes:
        author: Domain that hands it over.
        reader: Domain that it is for.
        name: What it is to be called; one part of a path, and no hidden one.
        size: In bytes.
        sha256: Of its content, in hex.
        sent: Seconds since the Unix epoch.
    """

    author: DomainName
    reader: DomainName
    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9.-]{0,99}\Z")]
    size: Annotated[int, Meta(ge=0, le=FILE_BYTES_MAX)]
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    sent: Annotated[float, Meta(ge=0, le=4e9)]


def header_of(file: PartnerFile, key: SigningKey) -> str:
    """The value of the header, signed."""
    facts = msgspec.json.encode(file)
    return f"{base64url(facts)}.{base64url(key.sign(_PREFIX + facts))}"


def read_header(text: str, *, author: str, reader: str, keys: Sequence[KeyRecord], now: float) -> PartnerFile:
    """Read the header of a request, and believe it if one of the author's keys has signed it.

    Args:
        text: Its value; anybody may have written it.
        author: Whose file it has to be.
        reader: We.
        keys: The author's keys; at most a few.
        now: Seconds since the Unix epoch.

    Raises:
        PeerError: AUTH_MALFORMED, AUTH_SIGNATURE, AUTH_AUDIENCE, AUTH_STALE; each blames the author.
    """
    if len(text) > HEADER_CHARS or not _TEXT.fullmatch(text):
        raise PeerError(Code.AUTH_MALFORMED, f"no header `{HEADER}` as it should be", domain=author)
    facts, signature = (_decoded(part) for part in text.split("."))
    if not any(verify_signature(key, signature, _PREFIX + facts) for key in keys):
        raise PeerError(Code.AUTH_SIGNATURE, f"not signed by a key of {author} that is known here", domain=author)
    try:
        file = msgspec.convert(parse_strict(facts), PartnerFile)
    except (ValueError, RecursionError) as exc:
        raise PeerError(Code.AUTH_MALFORMED, f"facts about a file: {exc}"[:200], domain=author) from exc
    if (file.author, file.reader) != (author, reader):
        raise PeerError(Code.AUTH_AUDIENCE, f"a file of {file.author} for {file.reader}", domain=author)
    if abs(now - file.sent) > CLOCK_SECONDS:
        raise PeerError(Code.AUTH_STALE, "the request is too old, or a clock is wrong: send it anew", domain=author)
    return file


def _decoded(text: str) -> bytes:
    """The bytes of base64url without padding, or nothing where it is none."""
    try:
        found = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, binascii.Error):
        return b""
    return found if base64url(found) == text else b""
