"""One POST that ends in bounded time and keeps little of what is answered."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterable, Mapping
from typing import Final

import httpx

_ANSWER_BYTES: Final = 1_000
_ANSWER_CHARS: Final = 200


def post(
    url: str,
    content: bytes | AsyncIterable[bytes],
    headers: Mapping[str, str],
    *,
    limit_s: float,
    trusted: ssl.SSLContext | None = None,
) -> tuple[int, str]:
    """Post something; the status, and the beginning of what is answered, fit for a line.

    No redirect is followed, and no proxy of the environment is used.

    Args:
        url: Where to.
        content: The body.
        headers: Those of the request.
        limit_s: All of it may take so long: a limit for each piece would be none for an answer of many pieces.
        trusted: Whose certificates count; None: those of the system.

    Raises:
        httpx.HTTPError, httpx.InvalidURL, OSError: It did not get there, or nobody answered; TimeoutError among them.
    """
    try:
        return asyncio.run(_posted(url, content, headers, limit_s, trusted))
    except TimeoutError as exc:
        raise TimeoutError(f"no whole answer within {limit_s:.0f} s") from exc


async def _posted(
    url: str,
    content: bytes | AsyncIterable[bytes],
    headers: Mapping[str, str],
    limit_s: float,
    trusted: ssl.SSLContext | None,
) -> tuple[int, str]:
    said = b""
    verify = True if trusted is None else trusted
    async with (
        asyncio.timeout(limit_s),
        httpx.AsyncClient(timeout=limit_s, trust_env=False, follow_redirects=False, verify=verify) as client,
        client.stream("POST", url, content=content, headers=headers) as answer,
    ):
        async for piece in answer.aiter_raw():  # as it came: nothing is unpacked
            said += piece[:_ANSWER_BYTES]
            if len(said) >= _ANSWER_BYTES:
                break
    text = said.decode(errors="replace")[:_ANSWER_CHARS]
    return answer.status_code, "".join(char for char in text if char.isprintable())
