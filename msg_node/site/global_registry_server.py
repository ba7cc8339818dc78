"""A global registry for laboratories: the published API over HTTP, with the checks that the published servers lack.

It stores a record only for the GUID that follows from the record's own key, never goes back in `lastUpdate`, and lets
nobody delete without the operator's token: a GUID is ended by its holder, with a signed record that says `revoked`.
What is read is what was signed, revoked ones included; to judge its age and its switches is the reader's.

Source: data formats, sections 4.1 and 4.3.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from msg_node.connectors.web_server import WebBounds, WebServer, listen
from msg_node.registries.guid_store import GuidStore
from protofly.errors import DESCRIPTIONS, Code, HostError, PeerError
from protofly.guid import bare_guid
from protofly.guid_record import Flaw, GuidRecord, RecordError, check_usable, read_record
from protofly.limits import GUID_CHECKS_AT_ONCE, GUID_RECORD_BYTES

logger = logging.getLogger("msg_node.site.global_registry_server")

DEFAULT_PORT = 5002
"""Source: data formats, section 4.1."""

_REQUEST_SECONDS = 20


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Settings of the registry.

    Attributes:
        store: The file with its records.
        host: Address to bind.
        port: 0 lets the system choose one.
        certificate: PEM file with the certificate chain; None serves without TLS.
        key: PEM file with its private key.
        deletion_token_sha256: Hex SHA-256 of the token that deletes; "" lets nobody delete.
    """

    store: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    certificate: Path | None = None
    key: Path | None = None
    deletion_token_sha256: str = ""


class GlobalRegistryServer:
    """Answers the requests."""

    def __init__(self, store: GuidStore, *, version: str, deletion_token_sha256: str = "") -> None:
        self._store = store
        self._version = version
        self._deletion_token_sha256 = deletion_token_sha256.lower()
        self._checks = trio.CapacityLimiter(GUID_CHECKS_AT_ONCE)

    def make_app(self) -> Starlette:
        """The ASGI application."""
        routes = [
            Route("/", self._status, methods=["GET"]),
            Route("/guid/{guid}", self._read, methods=["GET"]),
            Route("/guid/{guid}", self._write, methods=["PUT"]),
            Route("/guid/{guid}", self._delete, methods=["DELETE"]),
            Route("/guid", self._without_guid, methods=["GET", "PUT", "DELETE"]),
            Route("/guid/", self._without_guid, methods=["GET", "PUT", "DELETE"]),
        ]
        handlers = {HostError: _refused, HTTPException: _not_here}
        app = Starlette(routes=routes, exception_handlers=handlers)
        app.router.redirect_slashes = False  # it would send clients, and caches, where a request says
        return app

    async def _status(self, _request: Request) -> Response:
        version = {"version": self._version, "date": "", "build": "laboratory"}
        return _answer(200, version=version, connectedNodes=[], records=len(self._store))

    async def _without_guid(self, _request: Request) -> Response:
        raise PeerError(Code.BAD_BODY, "no GUID in the path")

    async def _read(self, request: Request) -> Response:
        guid = bare_guid(request.path_params["guid"])
        kept = await trio.to_thread.run_sync(self._store.load, guid)
        if kept is None or not kept.jwt:
            raise PeerError(Code.NOT_REGISTERED, "GUID not found")
        return _answer(200, value=kept.jwt)

    async def _write(self, request: Request) -> Response:
        guid = bare_guid(request.path_params["guid"])
        jwt = await _body(request)
        await trio.to_thread.run_sync(partial(self._take, guid, jwt, time.time()), limiter=self._checks)
        return _answer(200)

    def _take(self, guid: str, jwt: str, now: float) -> None:
        """Check and store one record; in a thread, since it takes milliseconds and waits for the disk."""
        try:
            record = read_record(jwt, guid=guid)
            if not record.is_complete:
                raise PeerError(Code.BAD_BODY, "the record has no `schemaVersion` or no `defaults`")
            _check_not_over(record, now)
            self._store.accept(record, jwt.strip(), now=now)
        except RecordError as exc:
            raise exc.of_writer() from exc

    async def _delete(self, request: Request) -> Response:
        guid = bare_guid(request.path_params["guid"])
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given = hashlib.sha256(token.strip().encode()).hexdigest()
        if not self._deletion_token_sha256 or scheme.lower() != "bearer":
            raise PeerError(Code.NO_CREDENTIALS, "a GUID is ended by a signed record with `revoked` 1")
        if not hmac.compare_digest(given, self._deletion_token_sha256):
            raise PeerError(Code.BAD_TOKEN, "not the token that deletes")
        if not await trio.to_thread.run_sync(self._store.forget, guid):
            raise PeerError(Code.NOT_REGISTERED, "GUID not found")
        return _answer(200)


async def serve(options: ServerOptions, *, version: str, on_ready: Callable[[dict[str, object]], None]) -> None:
    """Run a registry until cancelled.

    Args:
        options: Where and what.
        version: Sent to those who ask for the status.
        on_ready: Called with the listener's address once it listens.

    Raises:
        SettingsError: Address or certificate cannot be used.
        HostError: STORAGE.
    """
    listener = listen(
        options.host,
        options.port,
        certificate=options.certificate,
        key=options.key,
    )
    with GuidStore(options.store) as store:
        app = GlobalRegistryServer(
            store, version=version, deletion_token_sha256=options.deletion_token_sha256
        ).make_app()
        async with trio.open_nursery() as nursery:
            await nursery.start(WebServer(app, listener, WebBounds(request_seconds=_REQUEST_SECONDS)).run)
            on_ready({"url": listener.url, "store": str(options.store), "records": len(store)})


def _check_not_over(record: GuidRecord, now: float) -> None:
    """Holders may switch a record off and revoke it, but not store one whose time is over."""
    try:
        check_usable(record, now=now)
    except RecordError as exc:
        if exc.flaw is Flaw.EXPIRED:
            raise


async def _body(request: Request) -> str:
    """Read the record in a request, up to the size limit of records. Raises PeerError."""
    body = b""
    try:
        async with aclosing(request.stream()) as parts:
            body = await _bounded(parts)
    except ClientDisconnect as exc:
        raise PeerError(Code.BAD_BODY, "the record was cut") from exc
    try:
        return body.decode("ascii")
    except UnicodeDecodeError as exc:
        raise PeerError(Code.BAD_BODY, "not a record in compact form") from exc


async def _bounded(parts: AsyncIterator[bytes]) -> bytes:
    body = bytearray()
    async for part in parts:
        body += part
        if len(body) > GUID_RECORD_BYTES:
            raise PeerError(Code.TOO_LARGE, f"a record has {GUID_RECORD_BYTES:,} bytes at most")
    return bytes(body)


def _answer(code: int, *, value: str = "", explanation: str = "", reason: str = "", **more: object) -> Response:
    """An answer as the published servers write it; `Reason` is ours. Source: data formats, section 4.1."""
    members: dict[str, object] = {"Code": code, "Description": DESCRIPTIONS.get(code, ""), "Value": value, **more}
    if explanation:
        members["Explanation"] = explanation
    if reason:
        members["Reason"] = reason
    return Response(msgspec.json.encode(members), status_code=code, media_type="application/json")


async def _refused(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HostError)
    if exc.code is Code.STORAGE:
        logger.error("%s", exc)
    return _answer(exc.code.status, explanation=exc.detail, reason=exc.code.word)


async def _not_here(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    return _answer(exc.status_code, explanation=exc.detail)
