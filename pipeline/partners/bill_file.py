"""The file in which a domain bills a partner, or credits it: a signed line, `trapezoid-bill/1`.

It has the documents as `invoice --out` writes them, so that both operators hold the same, and neither can say later
that it was another one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from pipeline.core.tariffs import Counted, Price
from pipeline.partners.signed_line import SignedLine
from protofly.errors import SettingsError
from protofly.signatures import KeyRecord

MAGIC: Final = b"trapezoid-bill/1\n"
FILE_BYTES: Final = 8 << 20
_Amount = Annotated[int, Meta(ge=-(2**62), le=2**62)]
_Time = Annotated[int, Meta(ge=0, le=2**53)]
_Domain = Annotated[str, Meta(max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")]
_Text = Annotated[str, Meta(max_length=600)]
_Day = Annotated[str, Meta(max_length=10)]


class BillLine(Struct, frozen=True, kw_only=True):
    """One line: how much of what, at which price. `role` is the author's: `in` is what the reader has sent."""

    currency: Annotated[str, Meta(pattern=r"^[A-Z]{3}\Z")]
    role: Literal["in", "out"]
    tariff: _Text
    counted: Counted
    price: Price
    per: Annotated[int, Meta(ge=1, le=1_000_000_000_000)]
    tariff_sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    quantity: _Amount
    amount: _Amount


class BillDocument(Struct, frozen=True, kw_only=True):
    """One document: an invoice, or a note over the difference to one. Amounts in the smallest unit of the currency."""

    number: _Text
    kind: Literal["invoice", "credit-note", "debit-note"]
    corrects: _Text
    issuer: _Domain
    payer: _Domain
    month: Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}\Z")]
    zone: Annotated[str, Meta(max_length=64)]
    currency: Annotated[str, Meta(pattern=r"^[A-Z]{3}\Z")]
    issued_us: _Time
    statements: Annotated[dict[_Day, Annotated[int, Meta(ge=0)]], Meta(max_length=64)]
    lines: Annotated[tuple[BillLine, ...], Meta(max_length=10_000)]
    amount: _Amount


class Bill(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bill of one domain to a partner: all documents issued at one time.

    Attributes:
        domain: The author.
        peer: The reader.
        made_us: When it was made.
        documents: What is issued.
    """

    domain: _Domain
    peer: _Domain
    made_us: _Time
    documents: Annotated[tuple[BillDocument, ...], Meta(min_length=1, max_length=100)]


BILL_FORMAT: Final = SignedLine(MAGIC, Bill, "bill", FILE_BYTES)


def read_bill(path: Path, *, peer_key: KeyRecord, domain: str, peer: str) -> Bill:
    """A bill that a partner has made for us.

    Args:
        path: The file.
        peer_key: The partner's public key.
        domain: We, its reader.
        peer: The partner, its author.

    Raises:
        SettingsError: It cannot be read, is too large, malformed, not signed by this key, between other domains, or
            its lines do not add up.
    """
    bill = BILL_FORMAT.read(path, peer_key=peer_key, domain=domain, peer=peer)
    both = {domain, peer}
    if any({one.issuer, one.payer} != both for one in bill.documents):
        raise SettingsError(f"{path}: wrong-domain: not of {peer} for {domain}")
    for one in bill.documents:
        if sum(line.amount for line in one.lines) != one.amount or {line.currency for line in one.lines} - {
            one.currency
        }:
            raise SettingsError(f"{path}: malformed: the lines of {one.number!r} do not add up; ask {peer} for it anew")
    return bill
