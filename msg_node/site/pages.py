"""Pages that publish: signed documents, modules, and the same stubs as an original catalogue shows them.

Source: trust and hosts, section 3.4; data formats, sections 2.2 to 2.7.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from msg_node.site.catalogue_objects import CATALOGUE_TYPES, CatalogueObjects
from msg_node.site.catalogue_query import CatalogueObject, attribute_text, decode_constraints, without_empty
from msg_node.site.publication import WELL_KNOWN
from msg_node.site.publisher import Publisher
from protofly import limits
from protofly.errors import Code, PeerError, SettingsError

FOREVER = "public, max-age=31536000, immutable"
ROOT_CACHE = "public, max-age=86400"
SHORTLY = "public, max-age=300"
JSON = "application/json"
_PIECE_BYTES = 64 << 10
_SHA256 = re.compile(r"[0-9a-f]{64}")
_VERSION = re.compile(r"[0-9]{1,9}")


def published_routes(publisher: Publisher) -> list[Route]:
    """Routes of everything below `/.well-known/`."""
    documents, catalogue = Documents(publisher), Catalogue(publisher.objects)
    both = ["GET", "POST"]
    return [
        Route(WELL_KNOWN, documents.live),
        Route(f"{WELL_KNOWN}/root/{{version}}", documents.root),
        Route(f"{WELL_KNOWN}/manifest/{{name}}", documents.manifest),
        Route(f"{WELL_KNOWN}/certification/{{name}}", documents.certification),
        Route(f"{WELL_KNOWN}/module/{{sha256}}.wasm", documents.module),
        Route("/.well-known/", catalogue.types, methods=both),
        Route("/.well-known/{type}", catalogue.names, methods=both),
        Route("/.well-known/{type}/{instance}", catalogue.instance, methods=both),
        Route("/.well-known/{type}/{instance}/{attribute}", catalogue.attribute, methods=both),
    ]


class Documents:
    """The signed documents and the modules."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def live(self, request: Request) -> Response:
        """`live`, with its entity tag."""
        live = self._publisher.live
        if live is None:
            return _missing("no live document yet")
        headers = {"ETag": live.etag, "Cache-Control": self._publisher.cache_control(now=time.time())}
        if request.headers.get("if-none-match") == live.etag:
            return Response(status_code=304, headers=headers)
        return Response(live.envelope, media_type=JSON, headers=headers)

    async def root(self, request: Request) -> Response:
        """One root version; old ones stay."""
        version = request.path_params["version"]
        if not _VERSION.fullmatch(version):
            return _missing("no such root")
        return _File(self._publisher.folder.root(int(version)), JSON, ROOT_CACHE)

    async def manifest(self, request: Request) -> Response:
        """The current manifest of a stub."""
        return self._of_stub(request, self._publisher.folder.manifest)

    async def certification(self, request: Request) -> Response:
        """The report of `stub certify` about a stub, where there is one."""
        return self._of_stub(request, self._publisher.folder.certification)

    def _of_stub(self, request: Request, path_of: Callable[[str], Path]) -> Response:
        name = request.path_params["name"]
        publication = self._publisher.publication
        known = {stub.reference.name for stub in publication.stubs.values()} if publication else set()
        if name not in known:
            return _missing("no such stub")
        return _File(path_of(name), JSON, SHORTLY)

    async def module(self, request: Request) -> Response:
        """A module by its hash."""
        sha256 = request.path_params["sha256"]
        if not _SHA256.fullmatch(sha256):
            return _missing("no such module")
        return _File(self._publisher.folder.module(sha256), "application/wasm", FOREVER)


class Catalogue:
    """Stubs and other entries for readers of original catalogues. Source: data formats, section 2.3."""

    def __init__(self, objects: CatalogueObjects) -> None:
        self._objects = objects

    async def types(self, _request: Request) -> Response:
        """Names of the types that are served."""
        return _catalogue_json(msgspec.json.encode(CATALOGUE_TYPES))

    async def names(self, request: Request) -> Response:
        """Names of the objects of a type that satisfy the constraints."""
        requested = await _constraints(request)
        if request.path_params["type"] not in CATALOGUE_TYPES:
            return _missing("no such type")
        return _catalogue_json(msgspec.json.encode(await self._objects.names(request.path_params["type"], requested)))

    async def instance(self, request: Request) -> Response:
        """One object."""
        stored = await self._find(request)
        return _missing() if stored is None else _catalogue_json(msgspec.json.encode(without_empty(stored)))

    async def attribute(self, request: Request) -> Response:
        """One attribute of an object."""
        stored = await self._find(request)
        text = attribute_text(stored, request.path_params["attribute"]) if stored is not None else None
        return _missing() if text is None else _catalogue_json(text)

    async def _find(self, request: Request) -> CatalogueObject | None:
        requested = await _constraints(request)
        return await self._objects.find(request.path_params["type"], request.path_params["instance"], requested)


async def _constraints(request: Request) -> dict[str, object]:
    if request.method != "POST":
        return {}
    body = bytearray()
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > limits.DESCRIPTOR_BYTES:
                raise PeerError(Code.TOO_LARGE, "the constraints are too long")
    return decode_constraints(bytes(body))


class _File(Response):
    """A published file in pieces: many readers that take their time must not keep as many whole modules in memory.

    Raises:
        SettingsError: It is there and cannot be read.
    """

    def __init__(self, path: Path, media_type: str, cache_control: str) -> None:
        super().__init__(None, headers={"Cache-Control": cache_control}, media_type=media_type)
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            file = await trio.open_file(self._path, "rb")
        except FileNotFoundError:
            await _missing()(scope, receive, send)
            return
        except OSError as exc:
            raise SettingsError(f"{self._path}: {exc.strerror}") from exc
        async with file:
            left = os.fstat(file.fileno()).st_size  # published files are replaced, never changed
            self.headers["Content-Length"] = str(left)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            while piece := await file.read(min(left, _PIECE_BYTES)):
                left -= len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def _catalogue_json(body: bytes) -> Response:
    return Response(body, media_type=JSON, headers={"Access-Control-Allow-Origin": "*", "Cache-Control": SHORTLY})


def _missing(text: str = "not found") -> Response:
    return PlainTextResponse(f"{text}\n", status_code=404)
