"""Schemas of data objects, as catalogues give them: the descriptor, then its source package, then the schema in it.

A descriptor embeds its package, or names its class, which is asked for at the same places; where it is a static file,
it may be the schema itself. Original brokers parse what they stored as text, so a schema comes as text or as an object.
Source: data formats, sections 2.2 to 2.8.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec
import trio

from catalogue_client.core.legacy import decode_source_package
from msg_node.kernel.catalogue_questions import CatalogueQuestion
from msg_node.kernel.data_schemas import DataSchema
from protofly.documents import parse_strict
from protofly.errors import Code, PeerError
from protofly.limits import SCHEMAS_KEPT

_CLASS_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_SCHEMA_WORDS: Final = frozenset({"$schema", "properties", "type"})

Read = Callable[[CatalogueQuestion], Awaitable[dict[str, object]]]
"""Reads what a catalogue has under a name; raises HostError."""


class SchemaReader:
    """Answers with the schema of an entry, read once for as long as the catalogue's answer counts."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._made: OrderedDict[tuple[str, str, str], tuple[dict[str, object], DataSchema | PeerError]] = OrderedDict()

    async def __call__(self, question: CatalogueQuestion) -> DataSchema:
        """The schema.

        Raises:
            HostError: What the catalogue did wrong; NOT_REGISTERED; SCHEMA for one that is not used.
        """
        entry = question.entry
        holder = await self._read(question)
        is_schema = "sourcePackageURL" not in holder and bool(_SCHEMA_WORDS & holder.keys())  # descriptors have a type
        if not isinstance(holder.get("sourcePackage"), dict) and not is_schema:
            name = str(holder.get("sourcePackageURL", "")).rpartition("/")[2]
            if not _CLASS_NAME.fullmatch(name):
                raise PeerError(Code.NOT_REGISTERED, "the descriptor names no schema", domain=entry.domain)
            package = replace(entry, kind="sourcepackage", name=name, attribute="")
            holder = await self._read(CatalogueQuestion(package, question.asked_by))
        key = entry.domain, entry.authority, entry.name
        known = self._made.get(key)
        if known is None or known[0] is not holder:  # the catalogue's reader gives the same as long as it counts
            known = self._made[key] = holder, await self._make(holder, entry.domain)
            self._made.move_to_end(key)
            if len(self._made) > SCHEMAS_KEPT:
                self._made.popitem(last=False)
        if isinstance(known[1], PeerError):
            raise known[1]
        return known[1]

    async def _make(self, holder: dict[str, object], domain: str) -> DataSchema | PeerError:
        try:
            return await trio.to_thread.run_sync(partial(DataSchema, source_of(holder, domain=domain)))
        except PeerError as exc:
            return PeerError(exc.code, exc.detail, domain=domain)


def source_of(holder: dict[str, object], *, domain: str) -> dict[str, object]:
    """The schema in a descriptor, in a source package, or in neither.

    Raises:
        PeerError: SCHEMA, DOCUMENT_MALFORMED.
    """
    embedded = holder.get("sourcePackage")
    package = embedded if isinstance(embedded, dict) else holder
    source = package.get("sourceCode")
    if isinstance(source, str):
        text = decode_source_package(msgspec.json.encode(package), domain=domain).code
        try:
            source = parse_strict(text)
        except (ValueError, RecursionError) as exc:
            raise PeerError(Code.SCHEMA, f"the schema is no JSON: {str(exc)[:100]}", domain=domain) from exc
    elif source is None and embedded is None:
        source = package
    if not isinstance(source, dict):
        raise PeerError(Code.SCHEMA, "the schema is no JSON object", domain=domain)
    return source
