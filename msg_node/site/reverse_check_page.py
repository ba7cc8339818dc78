"""The reverse check over HTTP: a challenge for each GET, an answer to each proof. See `docs/link.md`.

Proofs cost signatures and look-ups, so each address has a rate of its own for them, beside that of the site.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from federation.discovery.reverse_check import ReverseChecks
from msg_node.connectors.http_line import remote_of
from msg_node.kernel.keyed_rates import KeyedRates
from msg_node.site.pages import JSON
from protofly.errors import Code, PeerError
from protofly.reverse_check import PATH, PROOF_BYTES, ReverseAnswer, ReverseChallenge, ReverseProof
from protofly.signatures import parse_strict
from wire.core.address_group import address_group

PER_SECOND: Final = 0.2
BURST_SECONDS: Final = 25.0
"""Five proofs of one address at once, and twelve a minute."""
_ADDRESSES_REMEMBERED: Final = 4096
_NOT_STORED: Final = {"Cache-Control": "no-store"}


class ReverseCheckPage:
    """Serves the reverse check.

    Args:
        checks: Judge proofs.
        is_offered: Whether the settings offer it now.
    """

    def __init__(self, checks: ReverseChecks, is_offered: Callable[[], bool]) -> None:
        self._checks = checks
        self._is_offered = is_offered
        self._rates = KeyedRates(per_second=PER_SECOND, burst_seconds=BURST_SECONDS, most=_ADDRESSES_REMEMBERED)

    def routes(self) -> list[Route]:
        """Routes of the reverse check."""
        return [Route(PATH, self._challenge, methods=["GET"]), Route(PATH, self._judge, methods=["POST"])]

    async def _challenge(self, _request: Request) -> Response:
        if not self._is_offered():
            return PlainTextResponse("no reverse checks here\n", status_code=404)
        return _json(ReverseChallenge(challenge=self._checks.challenge()))

    async def _judge(self, request: Request) -> Response:
        if not self._is_offered():
            return PlainTextResponse("no reverse checks here\n", status_code=404)
        remote = remote_of(request.scope)
        wait_seconds = self._rates.take(address_group(remote), trio.current_time())
        if wait_seconds:
            answer = ReverseAnswer(admitted=False, code=Code.RATE.word, hint=f"ask again in {wait_seconds:.0f} s")
            return _json(answer, Code.RATE.status, {"Retry-After": str(max(math.ceil(wait_seconds), 1))})
        try:
            return _json(await self._checks.judge(await _proof(request), remote=remote))
        except PeerError as exc:
            return _json(ReverseAnswer(admitted=False, code=exc.code.word, hint=exc.detail), exc.code.status)


async def _proof(request: Request) -> ReverseProof:
    """Read the body. Raises PeerError TOO_LARGE, BAD_BODY."""
    body = bytearray()
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > PROOF_BYTES:
                raise PeerError(Code.TOO_LARGE, f"a proof has at most {PROOF_BYTES:,} bytes")
    try:
        return msgspec.convert(parse_strict(bytes(body)), ReverseProof)
    except (ValueError, RecursionError) as exc:
        raise PeerError(Code.BAD_BODY, "no JSON object with `challenge` and `token`") from exc


def _json(
    content: ReverseAnswer | ReverseChallenge, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return Response(
        msgspec.json.encode(content), status_code=status, media_type=JSON, headers=_NOT_STORED | (headers or {})
    )
