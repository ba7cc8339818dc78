"""The file by which one operator returns to another what it does not accept: a whole file, or single records.

It is a signed line (`pipeline.partners.signed_line`), `trapezoid-return/1`: like the returned accounts of roaming
partners, it names what was refused, and why, in words that both know. A record is named by the id of its message, so
there is no address in it.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from pipeline.partners.signed_line import SignedLine

MAGIC: Final = b"trapezoid-return/1\n"
RECORDS_MAX: Final = 10_000
FILE_BYTES: Final = 4 << 20

RecordReason = Literal["lost", "orphan", "altered", "duplicated", "size", "outcome", "skewed"]
"""Class of the message in the reconciliation of the author, who has no such record, or another one."""
_Time = Annotated[int, Meta(ge=0, le=2**53)]
_Domain = Annotated[str, Meta(max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")]
_Word = Annotated[str, Meta(pattern=r"^[a-z][a-z-]{0,63}\Z")]


class ReturnedFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file that was refused as a whole: its name, its SHA-256, the code of the verdict, and what exactly."""

    name: Annotated[str, Meta(max_length=100)]
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    reason: _Word
    detail: Annotated[str, Meta(max_length=500)]


class ReturnedRecord(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A record of the reader's that the author does not accept: whether it sent or received it, and why not."""

    msg_id: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
    role: Literal["out", "in"]
    reason: RecordReason


class Return(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Return of an extract or of records that a domain does not accept, to the partner they came from.

    Attributes:
        domain: The author, who does not accept something.
        peer: The reader, whose it is.
        day: Of the extract, or of the records.
        made_us: When it was made.
        file: A file that was refused, if it is about one.
        records: Records of that day that are not accepted.
        left_out: As many more, beyond `RECORDS_MAX`.
    """

    domain: _Domain
    peer: _Domain
    day: Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")]
    made_us: _Time
    file: ReturnedFile | None = None
    records: Annotated[tuple[ReturnedRecord, ...], Meta(max_length=RECORDS_MAX)] = ()
    left_out: Annotated[int, Meta(ge=0, le=2**48)] = 0


RETURN_FORMAT: Final = SignedLine(MAGIC, Return, "return", FILE_BYTES)
