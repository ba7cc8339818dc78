"""The REST client of a global registry: one GUID is read or written per call, and nothing is believed.

Source: reTHINK data formats, section 4.1.
"""

from __future__ import annotations

from msg_node.connectors.backend_http import BackendHttp
from msg_node.core.global_registry_rest import check_written, read_answer, record_in
from protofly.limits import GLOBAL_REGISTRY_READ_SECONDS, GLOBAL_REGISTRY_WRITE_SECONDS, GUID_RECORD_BYTES

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

    async def read(self, guid: str) -> str:
        """The record that the registry has, unchecked.

        Raises:
            HostError: NOT_REGISTERED, HTTP_STATUS, BAD_REPLY, DOCUMENT_TOO_LARGE, TLS_FAILED, CONNECT_FAILED or
                FETCH_TIMEOUT.
        """
        answer = await self._http.ask("GET", f"/guid/{guid}", seconds=self._read_seconds)
        return record_in(read_answer(answer.status, answer.body, host=self._http.host), host=self._http.host)

    async def write(self, guid: str, jwt: str) -> None:
        """Store a record; whether it is a good one is the caller's.

        Raises:
            HostError: BAD_BODY, RECORD_OUTDATED, RECORD_REVOKED, TOO_LARGE or RATE as the registry refuses it;
                HTTP_STATUS, BAD_REPLY, DOCUMENT_TOO_LARGE, TLS_FAILED, CONNECT_FAILED or FETCH_TIMEOUT.
        """
        answer = await self._http.ask(
            "PUT",
            f"/guid/{guid}",
            seconds=self._write_seconds,
            body=jwt.encode("ascii"),
            headers={"Content-Type": "text/plain"},
        )
        check_written(read_answer(answer.status, answer.body, host=self._http.host), host=self._http.host)
