"""The file by which an operator returns a partner's bill: a signed line, `trapezoid-bill-return/1`.

It names the bill by its SHA-256, so that both know which one is meant, and its documents by their numbers, each with
the reason and with what the author counts in place of what was billed.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from pipeline.core.tariffs import Counted, Price
from pipeline.partners.signed_line import SignedLine

MAGIC: Final = b"trapezoid-bill-return/1\n"
FILE_BYTES: Final = 4 << 20
OBJECTIONS_MAX: Final = 10_000

_Count = Annotated[int, Meta(ge=-(2**62), le=2**62)]
_Time = Annotated[int, Meta(ge=0, le=2**53)]
_Domain = Annotated[str, Meta(max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")]
_Word = Annotated[str, Meta(pattern=r"^[a-z][a-z-]{0,63}\Z")]


class ReturnedItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Terms of the line of a bill that is objected to. `role` is that of the author of the bill."""

    currency: Annotated[str, Meta(pattern=r"^[A-Z]{3}\Z")]
    role: Literal["in", "out"]
    counted: Counted
    price: Price
    per: Annotated[int, Meta(ge=1, le=1_000_000_000_000)]


class BillObjection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One objection to a bill.

    Attributes:
        number: Of the document; empty: the whole file is not accepted.
        reason: Why, in a word that both know.
        detail: What exactly, for people.
        quantity: What was billed.
        ours: What the author of the return counts.
        item: Of a count that is not accepted: of what.
    """

    number: Annotated[str, Meta(max_length=600)]
    reason: _Word
    detail: Annotated[str, Meta(max_length=500)]
    quantity: _Count | None = None
    ours: _Count | None = None
    item: ReturnedItem | None = None


class BillReturn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Objections of a domain to bills of a partner.

    Attributes:
        domain: The author, who was to accept the bill.
        peer: The reader, who has made it.
        made_us: When it was made.
        sha256: Of the files that are returned: the bill, and those before it that it was checked with.
        objections: What is wrong with them.
    """

    domain: _Domain
    peer: _Domain
    made_us: _Time
    sha256: Annotated[tuple[Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")], ...], Meta(min_length=1, max_length=100)]
    objections: Annotated[tuple[BillObjection, ...], Meta(min_length=1, max_length=OBJECTIONS_MAX)]


BILL_RETURN_FORMAT: Final = SignedLine(MAGIC, BillReturn, "return of a bill", FILE_BYTES)
