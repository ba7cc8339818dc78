"""What a stub may write into an `open` action: the one reading of it, for the host and for the authors' checker.

Nothing here knows endpoints; a request that passes cannot bend the line that the host then opens: no other host, no
header that belongs to the host, no second request inside the first.

Source: docs/abi.md, "Actions"; trust and hosts, section 7, row 36.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

import msgspec

from protofly.errors import Code, StubFaultError
from sandbox.core.exchange import ChannelKind
from sandbox.core.grants import denied

_PATH: Final = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%/-]{0,512})?(\?[A-Za-z0-9._~!$&'()*+,;=:@%/?-]{0,512})?")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_HEADER_VALUE: Final = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e]{0,1022}[\x21-\x7e])?)?")
_OWN_HEADERS: Final = frozenset(
    {"host", "connection", "upgrade", "origin", "cookie", "authorization", "transfer-encoding", "content-length"}
    | {"proxy-authorization", "accept-encoding", "expect", "keep-alive", "te", "trailer", "user-agent"}
)


class OpenRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes of the action `open`. `text` asks for text frames; `method`, `body` and `token` belong to `http`.

    `token` names an access token that the host keeps: it goes into the request's `Authorization` header.
    """

    endpoint: str
    path: str = ""
    headers: Annotated[dict[str, str], msgspec.Meta(max_length=16)] = {}
    subprotocol: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{0,64}\Z")] = ""
    text: bool = False
    method: Literal["", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = ""
    body: str = ""
    token: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{0,64}\Z")] = ""


_decode = msgspec.json.Decoder(OpenRequest).decode


def decode_open(raw: bytes) -> OpenRequest:
    """Read the bytes of `open`.

    Raises:
        StubFaultError: STUB_OUTPUT.
    """
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise StubFaultError(Code.STUB_OUTPUT, "open cannot be read") from exc


def check_open(request: OpenRequest, kind: int) -> None:
    """Judge kind, path, headers and what belongs to one kind only.

    Raises:
        StubFaultError: STUB_DENIED.
    """
    if kind not in _KINDS:
        raise denied("connect", f"unknown kind of channel {kind}")
    if not _PATH.fullmatch(request.path):
        raise denied("connect", "the path is not allowed")
    if kind != ChannelKind.HTTP and (request.method or request.body or request.token):
        raise denied("connect", "method, body and token belong to http channels")
    for name, value in request.headers.items():
        is_ours = name.lower() in _OWN_HEADERS or name.lower().startswith("sec-")
        if is_ours or not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise denied("connect", f"header {name[:64]!r} is not allowed")


_KINDS: Final = frozenset(int(kind) for kind in ChannelKind)
