"""The body of a request to the admin site."""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

from starlette.requests import Request

from protofly.errors import Code, PeerError

FORM_BYTES: Final = 64 << 10


async def body_of(request: Request, most_bytes: int = FORM_BYTES) -> bytes:
    """Read a body. Raises PeerError TOO_LARGE or TIMEOUT."""
    body = bytearray()
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > most_bytes:
                raise PeerError(Code.TOO_LARGE, f"a request has at most {most_bytes} bytes")
    return bytes(body)
