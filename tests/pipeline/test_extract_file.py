"""A partner's file may be anything: what is not exactly what was agreed is refused, with its verdict."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pipeline.partners.extract_file import (
    BODY_BYTES,
    MAGIC,
    Expected,
    ExtractEntry,
    ExtractError,
    ExtractFault,
    Header,
    Row,
    Total,
    open_extract,
    write_extract,
)
from protofly.signatures import SigningKey, base64url

KEY = SigningKey.from_seed("live-b", bytes(32))
OTHER_KEY = SigningKey.from_seed("live-x", bytes(31) + b"x")
EXPECTED = Expected("b.example", "a.example", KEY.record())
NOON_US = 1_772_452_800_000_000
HEADER = Header(
    step="details",
    domain="b.example",
    peer="a.example",
    day="2026-03-02",
    created_us=NOON_US,
    books_version=3,
    complete_from_us=0,
    complete_until_us=NOON_US,
    holes=[(1, 2)],
    proof="node mn-1 boot 1 segment 9",
    rows=0,
    raw_bytes=0,
    body_bytes=0,
    body_sha256="0" * 64,
    key_id="",
)


def entry(number: int, **members: object) -> ExtractEntry:
    row = ExtractEntry("in", f"{number:032x}", NOON_US, "ab" * 16, 210, "delivered", None, "mn-1", 1, number)
    return msgspec.structs.replace(row, **members)


ROWS: list[Row] = [entry(number) for number in range(1, 4)]


def read(path: Path, expected: Expected = EXPECTED) -> tuple[Header, list[Row]]:
    with open_extract(path, expected) as (header, rows, _):
        return header, list(rows)


def refused(path: Path, expected: Expected = EXPECTED) -> ExtractFault:
    with pytest.raises(ExtractError) as caught:
        read(path, expected)
    return caught.value.verdict


def forged(path: Path, lines: bytes, members: dict[str, object] | None = None, *, body: bytes | None = None) -> Path:
    """An extract that says what its author wants it to say, signed with the right key."""
    packed = zstandard.compress(lines) if body is None else body
    facts = {
        "rows": lines.count(b"\n"),
        "raw_bytes": len(lines),
        "body_bytes": len(packed),
        "body_sha256": sha256(packed).hexdigest(),
    }
    header = msgspec.to_builtins(HEADER) | facts | (members or {})
    signed = MAGIC + msgspec.json.encode(header) + b"\n"
    path.write_bytes(signed + base64url(KEY.sign(signed)).encode() + b"\n" + packed)
    return path


def lines_of(*rows: Row) -> bytes:
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "details"
    written = write_extract(path, HEADER, ROWS, KEY)
    header, rows = read(path)
    assert (header, rows) == (written, ROWS)
    assert (header.rows, header.key_id, header.holes) == (3, "live-b", [(1, 2)])


def test_totals_are_read_as_totals(tmp_path: Path) -> None:
    path = tmp_path / "totals"
    total = Total("out", NOON_US, 3, 2, 630, -(2**63), 2**63 - 1, 1, 2, -5, 7)
    write_extract(path, msgspec.structs.replace(HEADER, step="totals"), [total], KEY)
    assert read(path)[1] == [total]


def test_an_extract_without_rows_is_one(tmp_path: Path) -> None:
    write_extract(tmp_path / "empty", HEADER, [], KEY)
    assert read(tmp_path / "empty")[1] == []


def test_a_file_that_exists_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        write_extract(path, HEADER, ROWS, KEY)
    assert path.read_bytes() == b"precious"
    assert list(tmp_path.iterdir()) == [path]


def test_rows_are_written_in_order_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(ExtractError):
        write_extract(tmp_path / "details", HEADER, ROWS[::-1], KEY)
    assert list(tmp_path.iterdir()) == []


def _flip_last(path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:])


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def _other_day_in_header(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"2026-03-02", b"2026-03-03", 1))


def _no_magic(path: Path) -> None:
    path.write_bytes(b"PAR1" + path.read_bytes())


def _no_end(path: Path) -> None:
    path.write_bytes(MAGIC + b"{" * 100)


def _huge(path: Path) -> None:
    os.truncate(path, 10 * BODY_BYTES)  # a sparse file: nothing is read of it


@pytest.mark.parametrize(
    ("spoil", "verdict"),
    [
        (_flip_last, ExtractFault.DAMAGED),
        (_cut, ExtractFault.DAMAGED),
        (_append, ExtractFault.DAMAGED),
        (_other_day_in_header, ExtractFault.BAD_SIGNATURE),
        (_no_magic, ExtractFault.NOT_AN_EXTRACT),
        (_no_end, ExtractFault.MALFORMED),
        (_huge, ExtractFault.TOO_LARGE),
    ],
)
def test_a_file_that_was_changed_on_the_way_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], verdict: ExtractFault
) -> None:
    path = tmp_path / "details"
    write_extract(path, HEADER, ROWS, KEY)
    spoil(path)
    assert refused(path) is verdict


def test_somebody_elses_signature_is_refused(tmp_path: Path) -> None:
    write_extract(tmp_path / "details", HEADER, ROWS, OTHER_KEY)
    assert refused(tmp_path / "details") is ExtractFault.BAD_SIGNATURE


def test_an_extract_for_or_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "details"
    write_extract(path, HEADER, ROWS, KEY)
    assert refused(path, Expected("c.example", "a.example", KEY.record())) is ExtractFault.WRONG_DOMAIN
    assert refused(path, Expected("b.example", "c.example", KEY.record())) is ExtractFault.WRONG_DOMAIN


@pytest.mark.parametrize("what", ["missing", "folder", "link", "pipe"])
def test_only_a_regular_file_is_opened(tmp_path: Path, what: str) -> None:
    path = tmp_path / "details"
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "link":
        write_extract(tmp_path / "real", HEADER, ROWS, KEY)
        path.symlink_to(tmp_path / "real")
    assert refused(path) is ExtractFault.UNREADABLE


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        (lines_of(ROWS[1], ROWS[0]), ExtractFault.OUT_OF_ORDER),
        (lines_of(ROWS[0], ROWS[0]), ExtractFault.OUT_OF_ORDER),
        (lines_of(Total("in", 0, 1, 1, 1, 1, 1, 1, 1, 1, 1)), ExtractFault.MALFORMED),
        (b'["in"]\n', ExtractFault.MALFORMED),
        (b"[" * 900 + b"\n", ExtractFault.MALFORMED),
        (b"\xff\xfe\n", ExtractFault.MALFORMED),
        (b"\n", ExtractFault.MALFORMED),
        (lines_of(ROWS[0])[:-1], ExtractFault.MALFORMED),
        (b"x" * 5_000_000 + b"\n", ExtractFault.MALFORMED),
        (lines_of(entry(1, msg_id="../../etc/passwd".ljust(32))), ExtractFault.MALFORMED),
        (lines_of(entry(1, digest="AB" * 16)), ExtractFault.MALFORMED),
        (lines_of(entry(1, size=-1)), ExtractFault.MALFORMED),
        (lines_of(entry(1, size=2**60)), ExtractFault.MALFORMED),
        (lines_of(entry(1, outcome="paid")), ExtractFault.MALFORMED),
        (lines_of(entry(1, role="both")), ExtractFault.MALFORMED),
        (lines_of(entry(1))[:-2] + b',"more"]\n', ExtractFault.MALFORMED),
    ],
)
def test_rows_that_are_not_as_agreed_are_refused_though_they_are_signed(
    tmp_path: Path, lines: bytes, verdict: ExtractFault
) -> None:
    assert refused(forged(tmp_path / "details", lines)) is verdict


@pytest.mark.parametrize(
    "members",
    [
        {"rows": 2},
        {"rows": 4},
        {"raw_bytes": 10_000},
        {"step": "everything"},
        {"day": "2026-02-30"},
        {"day": "../../../etc"},
        {"domain": "b.example/../../x"},
        {"holes": [[1, 2, 3]]},
        {"more": 1},
        {"body_sha256": "../"},
    ],
)
def test_a_header_that_lies_or_is_not_as_agreed_is_refused_though_it_is_signed(
    tmp_path: Path, members: dict[str, object]
) -> None:
    assert refused(forged(tmp_path / "details", lines_of(*ROWS), members)) is ExtractFault.MALFORMED


def test_a_bomb_is_not_unpacked_beyond_what_it_claims(tmp_path: Path) -> None:
    bomb = zstandard.compress(b"\n" * 100_000_000)
    assert len(bomb) < 100_000
    assert refused(forged(tmp_path / "bomb", b"\n", body=bomb)) is ExtractFault.TOO_LARGE


def test_a_body_that_is_no_zstandard_is_refused(tmp_path: Path) -> None:
    assert refused(forged(tmp_path / "details", b"", body=b"plain")) is ExtractFault.MALFORMED


@given(raw=st.binary(max_size=300), has_magic=st.booleans())
def test_any_bytes_are_refused_with_a_verdict(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes, has_magic: bool
) -> None:
    path = tmp_path_factory.mktemp("any") / "file"
    path.write_bytes((MAGIC if has_magic else b"") + raw)
    assert refused(path) in {ExtractFault.NOT_AN_EXTRACT, ExtractFault.MALFORMED, ExtractFault.BAD_SIGNATURE}
