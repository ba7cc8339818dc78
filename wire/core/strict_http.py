"""An `h11.Connection` that refuses what HTTP readers are known to read in different ways.

An attacker who gets two readers to disagree about where a message ends speaks in somebody else's name: the second
reader takes the rest of a body for the next client's request. `h11` follows RFC 9112 where that allows to repair a
message; here such a message is refused, in requests and in answers:

* `Content-Length` together with `Transfer-Encoding`, given twice (equal or not), or as a list;
* `Transfer-Encoding` in HTTP/1.0, and any version but 1.0 and 1.1;
* lines that end with a bare LF, a bare CR anywhere, and folded lines, in heads as in trailers;
* control characters in the line before a chunk, where some readers see its end at a bare CR, and sizes of more than
  16 digits, which others count modulo 2^64.

Two things are refused for their cost, since what came at once is read in one turn: a body in tiny chunks, each of which
costs as much as a page of content, and a head that is too long, however it comes.

`h11` itself refuses space before a colon, differing lengths, unknown transfer codings and missing or repeated `Host`.

Source: RFC 9112, sections 2.2, 5.1, 5.2, 6.1, 7.1 and 11.2.
"""

from __future__ import annotations

import re
from typing import Final

import h11
from h11._receivebuffer import ReceiveBuffer

from protofly.limits import HTTP_HEADERS

_LENGTH: Final = re.compile(rb"^content-length:[ \t]*([^\r]*)", re.IGNORECASE | re.MULTILINE)
_CODING: Final = re.compile(rb"^transfer-encoding:", re.IGNORECASE | re.MULTILINE)
_VERSION: Final = re.compile(rb"(?:^| )HTTP/([0-9]\.[0-9])(?: |\r\n|$)")
_CHUNK: Final = re.compile(rb"[0-9A-Fa-f]{1,16}(?![0-9A-Fa-f])[^\x00-\x08\x0a-\x1f\x7f]*\r\n")
_NOT_SUPPORTED: Final = 505
_HEAD_TOO_LARGE: Final = 431
_HEAD_BYTES: Final = 16 << 10
_CHUNKS: Final = 256
_BYTES_PER_CHUNK: Final = 128
"""A message may have so many chunks of any size, and one more for so many bytes of its content."""


class StrictConnection(h11.Connection):
    """See the module; to be used like `h11.Connection`."""

    def __init__(
        self, our_role: type[h11.CLIENT | h11.SERVER], *, max_incomplete_event_size: int = _HEAD_BYTES
    ) -> None:
        super().__init__(our_role, max_incomplete_event_size=max_incomplete_event_size)
        # The one place where the bytes of a head are seen as they came.
        self._receive_buffer = _StrictBuffer(max_incomplete_event_size)


class _StrictBuffer(ReceiveBuffer):
    """Judges the lines of a head, of trailers, and before chunks, before they are taken apart."""

    def __init__(self, head_bytes: int) -> None:
        super().__init__()
        self._head_bytes = head_bytes
        self._taken = bytearray()
        self._chunks_left = float(_CHUNKS)

    def _extract(self, count: int) -> bytearray:
        """See `ReceiveBuffer`; the bytes stay as they came until the next ones are taken."""
        taken: bytearray = super()._extract(count)
        self._taken = taken
        return taken

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """See `ReceiveBuffer`. Raises h11.LocalProtocolError, which the connection turns into a remote one."""
        lines: list[bytearray] | None = super().maybe_extract_lines()
        if lines is not None:
            if len(self._taken) > self._head_bytes:  # h11 bounds those only that come in several pieces
                raise h11.LocalProtocolError("too long a head", error_status_hint=_HEAD_TOO_LARGE)
            _check(bytes(self._taken))
            self._chunks_left = float(_CHUNKS)
        return lines

    def maybe_extract_next_line(self) -> bytearray | None:
        """See `ReceiveBuffer`; the line before a chunk. Raises as `maybe_extract_lines` does."""
        line: bytearray | None = super().maybe_extract_next_line()
        if line is None:
            return None
        if not _CHUNK.fullmatch(line):
            raise h11.LocalProtocolError("a chunk that can be read in two ways")
        self._chunks_left -= 1
        if self._chunks_left < 0:
            raise h11.LocalProtocolError("a body in too many small chunks")
        return line

    def maybe_extract_at_most(self, count: int) -> bytearray | None:
        """See `ReceiveBuffer`; content, or the end of a chunk."""
        content: bytearray | None = super().maybe_extract_at_most(count)
        if content is not None:
            self._chunks_left += len(content) / _BYTES_PER_CHUNK
        return content


def _check(block: bytes) -> None:
    ends = block.count(b"\r\n")
    if block.count(b"\n") != ends or block.count(b"\r") != ends:
        raise h11.LocalProtocolError("a line does not end with CR LF")
    if b"\r\n " in block or b"\r\n\t" in block:
        raise h11.LocalProtocolError("a folded line")
    lengths = _LENGTH.findall(block)
    codings = _CODING.findall(block)
    if len(lengths) > 1 or (lengths and not lengths[0].strip().isdigit()):
        raise h11.LocalProtocolError("more than one Content-Length, or one that is no number")
    if codings and lengths:
        raise h11.LocalProtocolError("Content-Length together with Transfer-Encoding")
    version = _VERSION.search(block[: block.find(b"\r\n") + 2])
    if version is None:
        if ends > HTTP_HEADERS:
            raise h11.LocalProtocolError("too many trailers", error_status_hint=_HEAD_TOO_LARGE)
        return  # trailers, or no HTTP at all: that is for h11
    if version[1] not in (b"1.0", b"1.1"):
        raise h11.LocalProtocolError("neither HTTP/1.1 nor HTTP/1.0", error_status_hint=_NOT_SUPPORTED)
    if codings and version[1] == b"1.0":
        raise h11.LocalProtocolError("Transfer-Encoding in HTTP/1.0")
