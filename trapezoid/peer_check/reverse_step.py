"""The step of a check that asks the domain whether it would admit us: they would refuse us because ..."""

from __future__ import annotations

import hashlib
import ssl
import time
from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec
import trio

from catalogue_client.core.location import Location
from federation.core.auth import TokenRequest, channel_binding
from federation.core.contact_trouble import Side, advice, cleaned
from federation.discovery.identity import Identity
from protofly.errors import Code, HostError, PeerError, TransportError
from protofly.limits import HANDSHAKE_SECONDS
from protofly.reverse_check import (
    ANSWER_BYTES,
    PATH,
    ReverseAnswer,
    ReverseProof,
    answer_decoder,
    challenge_decoder,
    endpoint_of,
)
from protofly.signatures import from_base64url
from trapezoid.peer_check.network_steps import NetworkTools
from trapezoid.peer_check.report import Outcome, Report, StepResult
from wire.core.http_exchange import HttpAnswer, HttpExchange, OutgoingRequest

_T = TypeVar("_T")
ASK_SECONDS: Final = HANDSHAKE_SECONDS + 10.0
"""Who is not proved hears so after the time that a proof may take."""
_ABSENT: Final = frozenset({404, 405, 501})
_ABOUT_THE_QUESTION: Final = frozenset(
    {
        Code.AUTH_BINDING.word,
        Code.AUTH_LIMIT.word,
        Code.AUTH_NONCE.word,
        Code.BAD_BODY.word,
        Code.RATE.word,
        Code.TOO_LARGE.word,
    }
)
"""Codes that refuse to answer, and say nothing about a link."""
_RECEIVE_BYTES: Final = 16 << 10


async def ask_back(report: Report, tools: NetworkTools, location: Location, identity: Identity | None) -> None:
    """The step `reverse`: whether a link of ours would be admitted there, and if not, by which code.

    Args:
        report: Gets the step.
        tools: As the node uses them.
        location: Where the site of the domain is.
        identity: Signs our proof; None if we publish nothing.
    """
    if identity is None:
        report.skip("we publish nothing, so we cannot prove who we are: `[publish]` and `trapezoid publish`", "reverse")
        return
    parts = urlsplit(location.well_known_url)
    url = f"{parts.scheme}://{parts.netloc}{PATH}"
    with report.step("reverse", url, side=Side.REFUSAL) as result:
        try:
            with trio.fail_after(ASK_SECONDS):
                answer = await _asked(tools, location, identity, url)
        except trio.TooSlowError:
            result.warn(Code.FETCH_TIMEOUT.word, f"no answer within {ASK_SECONDS:.0f} s")
        except HostError as exc:
            result.warn(exc.code.word, cleaned(exc.detail or exc.code.description))
        else:
            _show(result, answer)


def _show(result: StepResult, answer: ReverseAnswer | None) -> None:
    if answer is None:
        result.outcome, result.code = Outcome.SKIPPED, "not-offered"
        result.observed = "they do not say; `trapezoid check --online` says what others find of us"
        return
    code = cleaned(answer.code)
    hint = advice(Side.REFUSAL, code, time.time())
    if answer.admitted:
        result.observed = "they would admit a link of ours"
    elif code in _ABOUT_THE_QUESTION:
        result.warn(code, "they did not answer the question", hint)
    else:
        result.warn(code, f"they would refuse us because of {code}", hint)
        result.outcome = Outcome.FAILED


async def _asked(tools: NetworkTools, location: Location, identity: Identity, url: str) -> ReverseAnswer | None:
    """Ask over one connection; None if the domain offers no such thing. Raises HostError."""
    parts = urlsplit(url)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    host, port = location.connect_to or (parts.hostname or "", port)
    domain = location.domain
    line: trio.abc.Stream = await tools.dialler.connect(host, port, domain=domain)
    try:
        binding = channel_binding(b"")
        if parts.scheme == "https":
            line = trio.SSLStream(line, tools.tls_context, server_hostname=parts.hostname, https_compatible=True)
            await line.do_handshake()
            binding = channel_binding(hashlib.sha256(line.getpeercert(binary_form=True) or b"").digest())
        asking = OutgoingRequest(url=url, headers={"Accept": "application/json"}, keeps_line=True)
        answer = await _exchange(line, asking, domain)
        if answer.status in _ABSENT:
            return None
        challenge = _read(answer, challenge_decoder, domain).challenge
        request = TokenRequest(domain, endpoint_of(domain), binding, from_base64url(challenge))
        proof = msgspec.json.encode(ReverseProof(challenge=challenge, token=identity.token_for(request)[0]))
        headers: Mapping[str, str] = {"Accept": "application/json", "Content-Type": "application/json"}
        posting = OutgoingRequest(url=url, headers=headers, method="POST", body=proof)
        return _read(await _exchange(line, posting, domain), answer_decoder, domain)
    except (trio.BrokenResourceError, OSError) as exc:
        if isinstance(exc.__cause__, ssl.SSLError):
            raise PeerError(Code.TLS_FAILED, str(exc.__cause__)[:200], domain=domain) from exc
        raise TransportError(Code.CONNECT_FAILED, f"{url}: the line ended", phase="read") from exc
    finally:
        await trio.aclose_forcefully(line)


async def _exchange(line: trio.abc.Stream, request: OutgoingRequest, domain: str) -> HttpAnswer:
    exchange = HttpExchange(request, max_bytes=ANSWER_BYTES, domain=domain)
    await line.send_all(exchange.data_to_send())
    while (answer := exchange.receive(bytes(await line.receive_some(_RECEIVE_BYTES)))) is None:
        pass
    return answer


def _read(answer: HttpAnswer, decoder: msgspec.json.Decoder[_T], domain: str) -> _T:
    """Raises PeerError HTTP_STATUS, BAD_REPLY."""
    try:
        return decoder.decode(answer.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        if answer.status != 200:
            raise PeerError(Code.HTTP_STATUS, str(answer.status), domain=domain) from exc
        raise PeerError(Code.BAD_REPLY, "not the answer to a reverse check", domain=domain) from exc
