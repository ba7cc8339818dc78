"""The file in which one operator shows another what is needed to reconcile, and no more. Reading, writing; no Spark.

    trapezoid-extract/2 ⏎
    <header: JSON, one line> ⏎
    <Ed25519 signature over the first line and the header, base64url> ⏎
    <body: Zstandard, JSON arrays, one a line>

The header says who shows what to whom, how far its author's manifests prove it complete, and the size and hash of the
body, so the signature covers everything. `totals` are one row for each direction and 5 minutes; `details` are the
records of those 5 minutes in which the totals of both differ. Rows name no domain, no address and no body: `out` is the
author's records of what went to the reader, `in` of what came from there.

Such a file may contain anything. Nothing in it becomes a path, nothing is decoded before the
signature holds, sizes are checked before bytes are read, rows must be sorted so that none can come twice; and what
does not fit is refused as a whole, with a `ExtractFault`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from io import BufferedReader
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal, TypeAlias, get_args, get_type_hints

import msgspec
import zstandard
from msgspec import Meta, Struct

from protofly.records import MessageRecord
from protofly.signatures import KeyRecord, SigningKey, base64url, verify_signature

MAGIC: Final = b"trapezoid-extract/2\n"
HEADER_BYTES: Final = 1 << 20
BODY_BYTES: Final = 1 << 30
RAW_BYTES: Final = 8 << 30
LINE_BYTES: Final = 1024
WINDOW_BYTES: Final = 8 << 20
_CHUNK: Final = 1 << 20
_SIGNATURE_CHARS: Final = 86
_LEVEL: Final = 3


class ExtractFault(Enum):
    """Reason to refuse an extract: code, and advice."""

    UNREADABLE = "unreadable", "name the file itself"
    """No regular file, or it cannot be read."""
    NOT_AN_EXTRACT = "not-an-extract", "ask for it again"
    TOO_LARGE = "too-large", "ask the partner; treat a file that unpacks to more than its declared size as hostile"
    MALFORMED = "malformed", "ask for it again"
    BAD_SIGNATURE = "bad-signature", "check the key with the partner"
    DAMAGED = "damaged", "transfer it again"
    """The body is not the one that was signed."""
    WRONG_DOMAIN = "wrong-domain", "ask for the right one"
    WRONG_DAY = "wrong-day", "ask for the right one"
    OUT_OF_ORDER = "out-of-order", "ask for it again"
    """A row stands behind one that it should precede, or comes twice."""
    MISSING_STEP = "missing-step", "do the steps in order; after a change of records begin with totals"
    """Details without the totals that they explain, or of another version of the records."""
    SUPERSEDED = "superseded", "ask for the newest one"
    """Made before one that is here: somebody may have kept it to hide what came later."""
    CONTRADICTION = "contradiction", "ask for both again; keep both files, they are signed"
    """Details that do not add up to the totals that their author has signed."""

    def __init__(self, code: str, advice: str) -> None:
        self.code = code
        self.advice = advice


class ExtractError(Exception):
    """An extract is refused.

    Attributes:
        verdict: Why.
        detail: What exactly, for people.
    """

    def __init__(self, verdict: ExtractFault, detail: str) -> None:
        super().__init__(f"{verdict.code}: {detail}; {verdict.advice}")
        self.verdict = verdict
        self.detail = detail


_Outcome: TypeAlias = Literal[get_args(get_type_hints(MessageRecord)["outcome"])]  # type: ignore[valid-type]
_Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Time = Annotated[int, Meta(ge=0, le=2**53)]
_Count = Annotated[int, Meta(ge=0, le=2**48)]
_Domain = Annotated[str, Meta(max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")]
_Hex32 = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
Step: TypeAlias = Literal["totals", "details"]


class Total(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One side's total of one direction over 5 minutes; see `schemas.SIDE_TOTAL`."""

    role: Literal["out", "in"]
    bucket_us: _Time
    messages: _Count
    delivered: _Count
    bytes: _Count
    set_xor: _Long
    set_sum: _Long
    undelivered: _Count
    repeats: _Count
    lag_min_us: _Long | None
    lag_max_us: _Long | None

    @property
    def order(self) -> tuple[str | int, ...]:
        """Rows ascend by this."""
        return self.role, self.bucket_us


class ExtractEntry(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One record; see `schemas.SIDE_RECORD`."""

    role: Literal["out", "in"]
    msg_id: _Hex32
    ts_us: _Time
    digest: _Hex32 | None
    size: _Count | None
    outcome: _Outcome
    span_us: Annotated[int, Meta(ge=0, le=2**53)] | None
    node: Annotated[str, Meta(max_length=256)]
    boot: _Count
    seq: _Count

    @property
    def order(self) -> tuple[str | int, ...]:
        """Rows ascend by this; the same record cannot come twice."""
        return self.role, self.msg_id, self.node, self.boot, self.seq


Row: TypeAlias = Total | ExtractEntry
ROW_TYPES: Final[dict[Step, type[Row]]] = {"totals": Total, "details": ExtractEntry}


class Header(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Header of an extract. Times in µs, sizes in bytes.

    `books_version` is the version of the author's records; the name belongs to the format.
    """

    step: Step
    domain: _Domain
    peer: _Domain
    day: Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")]
    created_us: _Time
    books_version: _Count
    complete_from_us: _Time
    complete_until_us: _Time
    holes: Annotated[list[tuple[_Time, _Time]], Meta(max_length=10_000)]
    proof: Annotated[str, Meta(max_length=4096)]
    rows: _Count
    raw_bytes: Annotated[int, Meta(ge=0, le=RAW_BYTES)]
    body_bytes: Annotated[int, Meta(ge=0, le=BODY_BYTES)]
    body_sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    key_id: Annotated[str, Meta(max_length=64)]


@dataclass(frozen=True, slots=True)
class Expected:
    """The extract that the reader asked for."""

    domain: str
    """Whose extract."""
    peer: str
    """Ours."""
    key: KeyRecord
    raw_bytes: int = RAW_BYTES
    """It may unpack to so much."""


def write_extract(path: Path, header: Header, rows: Iterable[Row], key: SigningKey) -> Header:
    """Write rows, sign them, and put the file in place whole.

    Args:
        path: Must not exist yet.
        header: Its `rows`, sizes, hash and `key_id` are filled in here.
        rows: Of the step that the header names, ascending by `order`.
        key: An Ed25519 key; the reader needs its public half.

    Raises:
        OSError: As the file system does; FileExistsError rather than overwriting.
        ExtractError: OUT_OF_ORDER, or TOO_LARGE for a reader.
    """
    with tempfile.TemporaryFile(dir=path.parent) as body:
        count, raw_bytes = _write_body(body, rows)
        body_bytes = body.seek(0, os.SEEK_END)
        body.seek(0)
        if body_bytes > BODY_BYTES or raw_bytes > RAW_BYTES:
            raise ExtractError(ExtractFault.TOO_LARGE, f"{body_bytes:,} bytes; nobody reads more than {BODY_BYTES:,}")
        header = msgspec.structs.replace(
            header,
            rows=count,
            raw_bytes=raw_bytes,
            body_bytes=body_bytes,
            body_sha256=hashlib.file_digest(body, "sha256").hexdigest(),
            key_id=key.key_id,
        )
        signed = MAGIC + msgspec.json.encode(header) + b"\n"
        body.seek(0)
        with path.open("xb") as file:
            file.write(signed + base64url(key.sign(signed)).encode() + b"\n")
            shutil.copyfileobj(body, file, _CHUNK)
            file.flush()
            os.fsync(file.fileno())
    return header


def _write_body(body: BinaryIO, rows: Iterable[Row]) -> tuple[int, int]:
    """Returns how many rows and bytes went into it."""
    count, raw_bytes = 0, 0
    last: tuple[str | int, ...] = ()
    with zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).stream_writer(body, closefd=False) as writer:
        for row in rows:
            if row.order <= last:
                raise ExtractError(ExtractFault.OUT_OF_ORDER, f"row {count + 1} does not come after the one before it")
            last = row.order
            line = msgspec.json.encode(row) + b"\n"
            writer.write(line)
            count, raw_bytes = count + 1, raw_bytes + len(line)
    return count, raw_bytes


@contextmanager
def open_extract(path: Path, expected: Expected) -> Iterator[tuple[Header, Iterator[Row], str]]:
    """Verify an extract.

    Yields:
        The header, its rows, and the SHA-256 of what was signed. Rows are checked as they are taken: none of them
        counts before the last one has come.

    Raises:
        ExtractError: It is refused; also while rows are taken.
    """
    with _opened(path) as file:
        header, signed = _read_header(file, expected)
        yield header, _read_rows(file, header), hashlib.sha256(signed).hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        raise ExtractError(ExtractFault.UNREADABLE, f"{path}: {exc.strerror}") from exc
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ExtractError(ExtractFault.UNREADABLE, f"{path} is no regular file")
    with os.fdopen(descriptor, "rb") as file:
        if status.st_size > len(MAGIC) + HEADER_BYTES + BODY_BYTES:
            raise ExtractError(ExtractFault.TOO_LARGE, f"{status.st_size:,} bytes; at most {BODY_BYTES:,} are read")
        yield file


def _read_header(file: BufferedReader, expected: Expected) -> tuple[Header, bytes]:
    if file.read(len(MAGIC)) != MAGIC:
        raise ExtractError(ExtractFault.NOT_AN_EXTRACT, "it does not begin as one")
    line = file.readline(HEADER_BYTES)
    signature = file.readline(_SIGNATURE_CHARS + 1)
    if not line.endswith(b"\n") or not signature.endswith(b"\n"):
        raise ExtractError(ExtractFault.MALFORMED, "the header or its signature has no end")
    signed = MAGIC + line
    if not verify_signature(expected.key, _signature(signature[:-1]), signed):
        raise ExtractError(ExtractFault.BAD_SIGNATURE, f"not signed by the key that was given for {expected.domain}")
    try:
        header = msgspec.json.decode(line, type=Header)
        datetime.strptime(header.day, "%Y-%m-%d").replace(tzinfo=UTC)
    except (ValueError, RecursionError) as exc:
        raise ExtractError(ExtractFault.MALFORMED, f"header: {exc}") from exc
    if (header.domain, header.peer) != (expected.domain, expected.peer):
        raise ExtractError(
            ExtractFault.WRONG_DOMAIN,
            f"of {header.domain} for {header.peer}, expected of {expected.domain} for {expected.peer}",
        )
    if header.raw_bytes > expected.raw_bytes:
        raise ExtractError(ExtractFault.TOO_LARGE, f"it unpacks to {header.raw_bytes:,} bytes, more than is taken here")
    begin = len(signed) + len(signature)
    if os.fstat(file.fileno()).st_size - begin != header.body_bytes:
        raise ExtractError(ExtractFault.DAMAGED, f"the body is not {header.body_bytes:,} bytes long")
    if hashlib.file_digest(file, "sha256").hexdigest() != header.body_sha256:
        raise ExtractError(ExtractFault.DAMAGED, "the body has another hash than the signed one")
    file.seek(begin)
    return header, signed


def _signature(text: bytes) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    except (ValueError, binascii.Error):
        return b""


def _read_rows(file: BinaryIO, header: Header) -> Iterator[Row]:
    decoder = msgspec.json.Decoder(ROW_TYPES[header.step])
    last: tuple[str | int, ...] = ()
    count = 0
    for line in _lines(file, header.raw_bytes):
        try:
            row = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise ExtractError(ExtractFault.MALFORMED, f"row {count + 1}: {exc}") from exc
        if row.order <= last:
            raise ExtractError(ExtractFault.OUT_OF_ORDER, f"row {count + 1} does not come after the one before it")
        last = row.order
        count += 1
        yield row
    if count != header.rows:
        raise ExtractError(ExtractFault.MALFORMED, f"{count:,} rows, the header says {header.rows:,}")


def _unpacked(file: BinaryIO) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES)
    try:
        with decompressor.stream_reader(file, closefd=False) as reader:
            while chunk := reader.read(_CHUNK):
                yield chunk
    except zstandard.ZstdError as exc:
        raise ExtractError(ExtractFault.MALFORMED, f"body: {exc}") from exc


def _lines(file: BinaryIO, raw_bytes: int) -> Iterator[bytes]:
    """Lines of the body: at most a chunk of it in memory, at most `raw_bytes` unpacked."""
    rest, seen = b"", 0
    for chunk in _unpacked(file):
        seen += len(chunk)
        if seen > raw_bytes:
            raise ExtractError(
                ExtractFault.TOO_LARGE, f"the body unpacks to more than the {raw_bytes:,} bytes it claims"
            )
        *lines, rest = (rest + chunk).split(b"\n")
        if max(map(len, [*lines, rest])) > LINE_BYTES:
            raise ExtractError(ExtractFault.MALFORMED, f"a row is longer than {LINE_BYTES} bytes")
        yield from lines
    if rest or seen != raw_bytes:
        raise ExtractError(ExtractFault.MALFORMED, "the body does not end where it should")
