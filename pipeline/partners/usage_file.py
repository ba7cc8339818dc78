"""The file by which one operator lets another know which of its senders sent very much, as near real time as it likes.

It is a signed line (`pipeline.partners.signed_line`), `trapezoid-usage/1`. It names no address: addresses may be hashed
with keys that only their own operator has. It names messages, by which the other one finds the senders in records of
its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct

from pipeline.partners.signed_line import SignedLine
from protofly.errors import SettingsError
from protofly.signatures import KeyRecord

MAGIC: Final = b"trapezoid-usage/1\n"
USERS_MAX: Final = 1_000
EVIDENCE: Final = 20
FILE_BYTES: Final = 2 << 20
HOURS_MAX: Final = 24 * 31
"""A report is about so long a time at most."""

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
    """Report of a domain about senders of another one with high usage, for a period of time.

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


USAGE_FORMAT: Final = SignedLine(MAGIC, UsageReport, "report of usage", FILE_BYTES)


def read_usage(path: Path, *, peer_key: KeyRecord, domain: str, peer: str) -> UsageReport:
    """A report that a partner has made for us.

    Args:
        path: The file.
        peer_key: The partner's public key.
        domain: We, its reader.
        peer: The partner, its author.

    Raises:
        SettingsError: It cannot be read, is too large, malformed, of a longer time than anybody may report, not signed
            by this key, or between other domains.
    """
    report = USAGE_FORMAT.read(path, peer_key=peer_key, domain=domain, peer=peer)
    if not 0 <= report.until_us - report.from_us <= HOURS_MAX * 3_600_000_000:  # all days of it are read
        raise SettingsError(f"{path}: malformed: not of 0 to {HOURS_MAX} hours; ask {peer} for it anew")
    return report
