"""Signed bills: read as they were written, refused when anything about them is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from pipeline.cli.program import app
from pipeline.partners.bill_file import BILL_FORMAT, MAGIC, Bill, BillDocument, BillLine, read_bill
from protofly.errors import SettingsError
from protofly.signatures import SigningKey, base64url

KEY = SigningKey.from_seed("live", b"k" * 32)
LINE = BillLine(
    currency="EUR",
    role="in",
    tariff="b-2026",
    counted="delivered",
    price="0.50",
    per=1,
    tariff_sha256="0" * 64,
    quantity=3,
    amount=150,
)
DOCUMENT = BillDocument(
    number="a.example-b.example-2026-03-1",
    kind="invoice",
    corrects="",
    issuer="a.example",
    payer="b.example",
    month="2026-03",
    zone="UTC",
    currency="EUR",
    issued_us=1,
    statements={"2026-03-01": 1},
    lines=(LINE, msgspec.structs.replace(LINE, role="out", counted="messages", quantity=1, amount=50)),
    amount=200,
)


def bill(**changes: Any) -> Bill:
    document = msgspec.structs.replace(DOCUMENT, **changes)
    return Bill(domain="a.example", peer="b.example", made_us=1, documents=(document,))


def read(folder: Path, content: bytes) -> Bill:
    path = folder / "bill"
    path.write_bytes(content)
    return read_bill(path, peer_key=KEY.record(), domain="b.example", peer="a.example")


def signed(line: bytes) -> bytes:
    text = MAGIC + line + b"\n"
    return text + base64url(KEY.sign(text)).encode() + b"\n"


def test_a_bill_is_read_as_it_was_signed(tmp_path: Path) -> None:
    assert read(tmp_path, BILL_FORMAT.encode(bill(), KEY)) == bill()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (BILL_FORMAT.encode(bill(), SigningKey.from_seed("x", b"x" * 32)), "bad-signature"),
        (BILL_FORMAT.encode(bill(), KEY).replace(b"150", b"950"), "bad-signature"),
        (BILL_FORMAT.encode(bill(amount=201), KEY), "malformed"),
        (BILL_FORMAT.encode(bill(lines=()), KEY), "malformed"),
        (
            BILL_FORMAT.encode(bill(lines=(msgspec.structs.replace(LINE, amount=200, currency="USD"),)), KEY),
            "malformed",
        ),
        (BILL_FORMAT.encode(bill(lines=(msgspec.structs.replace(LINE, amount=200, price="1/2"),)), KEY), "malformed"),
        (BILL_FORMAT.encode(bill(lines=(msgspec.structs.replace(LINE, amount=200, per=0),)), KEY), "malformed"),
        (BILL_FORMAT.encode(bill(issuer="c.example"), KEY), "wrong-domain"),
        (BILL_FORMAT.encode(bill(payer="c.example"), KEY), "wrong-domain"),
        (BILL_FORMAT.encode(msgspec.structs.replace(bill(), peer="c.example"), KEY), "wrong-domain"),
        (BILL_FORMAT.encode(msgspec.structs.replace(bill(), domain="c.example"), KEY), "wrong-domain"),
        (BILL_FORMAT.encode(bill(currency="../"), KEY), "malformed"),
        (signed(b"{}"), "malformed"),
        (signed(b"[" * 4000), "malformed"),
    ],
)
def test_a_bill_that_is_not_for_us_or_does_not_add_up_is_refused_with_its_code(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, content)
    assert f": {reason}: " in caught.value.detail


def test_the_command_shows_what_a_partner_asks_for(tmp_path: Path) -> None:
    path = tmp_path / "bill"
    path.write_bytes(BILL_FORMAT.encode(bill(number="march\x1b[2J"), KEY))
    names = ["--domain", "b.example", "--peer", "a.example", "--peer-key", KEY.record().pub]
    done = CliRunner().invoke(app, ["bill-of-theirs", str(path), *names])
    assert done.exit_code == 0, done.output
    assert "b.example owes a.example 2.00 EUR" in done.stdout
    assert "\x1b" not in done.stdout
    path.write_bytes(b"nonsense")
    assert CliRunner().invoke(app, ["bill-of-theirs", str(path), *names]).exit_code == 2
