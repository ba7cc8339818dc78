"""The REST client of a global registry: one GUID is read or written per call, and nothing is believed.

A registry that cannot be reached is left alone for a while, so that its askers need not wait for it one by one. What it
answers never counts for that, a 500 least of all: published registries say so of a single bad record, which anybody can
put there and ask for.

Source: data formats, section 4.1; feature row CN-33.
"""

from __future__ import annotations

import logging

import trio

from msg_node.backends.backend_http import BackendHttp
from msg_node.backends.core.circuit_breaker import CircuitBreaker
from msg_node.registries.core.global_registry_rest import check_written, read_answer, record_in
from protofly.errors import Code, HostError, TransportError
from protofly.limits import GLOBAL_REGISTRY_READ_SECONDS, GLOBAL_REGISTRY_WRITE_SECONDS, GUID_RECORD_BYTES
from wire.core.http_exchange import HttpAnswer

logger = logging.getLogger("msg_node.global_registry")

ANSWER_BYTES = 2 * GUID_RECORD_BYTES
"""Largest body of an answer: a record and what is said around it."""


class GlobalRegistryRest:
    """Reads and writes records by GUID."""

    def __init__(
        self,
        http: BackendHttp,
        *,
        read_seconds: float = GLOBAL_REGISTRY_READ_SECONDS,
        write_seconds: float = GLOBAL_REGISTRY_WRITE_SECONDS,
    ) -> None:
        self._http = http
        self._read_seconds = read_seconds
        self._write_seconds = write_seconds
        self._breaker = CircuitBreaker()

    async def read(self, guid: str) -> str:
        """The record that the registry has, unchecked.

        Raises:
            HostError: NOT_REGISTERED, HTTP_STATUS, BAD_REPLY, DOCUMENT_TOO_LARGE, TLS_FAILED, CONNECT_FAILED,
                FETCH_TIMEOUT or CIRCUIT_OPEN.
        """
        answer = await self._ask("GET", guid, seconds=self._read_seconds)
        return record_in(read_answer(answer.status, answer.body, host=self._http.host), host=self._http.host)

    async def write(self, guid: str, jwt: str) -> None:
        """Store a record; whether it is a good one is the caller's.

        Raises:
            HostError: BAD_BODY, RECORD_OUTDATED, RECORD_REVOKED, TOO_LARGE or RATE as the registry refuses it;
                HTTP_STATUS, BAD_REPLY, DOCUMENT_TOO_LARGE, TLS_FAILED, CONNECT_FAILED, FETCH_TIMEOUT or
                CIRCUIT_OPEN.
        """
        answer = await self._ask("PUT", guid, seconds=self._write_seconds, body=jwt.encode("ascii"))
        check_written(read_answer(answer.status, answer.body, host=self._http.host), host=self._http.host)

    async def _ask(self, method: str, guid: str, *, seconds: float, body: bytes = b"") -> HttpAnswer:
        if not self._breaker.may_call(trio.current_time()):
            raise HostError(Code.CIRCUIT_OPEN, "the global registry does not answer and is left alone for a while")
        headers = {"Content-Type": "text/plain"} if body else {}
        try:
            answer = await self._http.ask(method, f"/guid/{guid}", seconds=seconds, body=body, headers=headers)
        except TransportError as exc:
            if self._breaker.failed(trio.current_time()):
                logger.warning("the global registry is left alone for a while: %s", exc.detail)
            raise
        except BaseException:
            self._breaker.abandoned(trio.current_time())
            raise
        if self._breaker.succeeded():
            logger.info("the global registry answers again")
        return answer
