"""Sources of catalogue entries, made what they mean: schemas of data objects, policies of objects.

A descriptor embeds its package, or names its class, which is asked for at the same places; where it is a static file,
it may be the source itself. Original brokers parse what they stored as text, so a source comes as text or as an object.
Source: data formats, sections 2.2 to 2.8.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
import trio

from catalogue_client.core.legacy import decode_source_package
from msg_node.kernel.catalogue_questions import CatalogueQuestion
from msg_node.kernel.data_schemas import DataSchema
from policy.core.engine import CompiledPolicies
from policy.core.object_policies import compile_document
from protofly.documents import parse_strict
from protofly.errors import Code, PeerError, SettingsError
from protofly.limits import SCHEMAS_KEPT

_CLASS_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_Made = TypeVar("_Made")

Read = Callable[[CatalogueQuestion], Awaitable[dict[str, object]]]
"""Reads what a catalogue has under a name; raises HostError."""


class SourceKind(NamedTuple):
    """A kind of sources.

    Attributes:
        noun: For people.
        words: An object with one of these members is a source itself; descriptors have none of them.
        code: What a source that cannot be used is refused with.
    """

    noun: str
    words: frozenset[str]
    code: Code


SCHEMAS: Final = SourceKind("schema", frozenset({"$schema", "properties", "type"}), Code.SCHEMA)
POLICIES: Final = SourceKind("policy", frozenset({"rules", "policies", "sets"}), Code.POLICY_INVALID)


class SourceReader(Generic[_Made]):
    """Answers with what the source of an entry means, made once for as long as the catalogue's answer counts.

    Args:
        read: Asks the catalogue.
        kind: Of the sources.
        make: Makes one, blaming a domain; runs in a thread, raises PeerError.
    """

    def __init__(self, read: Read, kind: SourceKind, make: Callable[[dict[str, object], str], _Made]) -> None:
        self._read = read
        self._kind = kind
        self._make = make
        self._made: OrderedDict[tuple[str, str, str], tuple[dict[str, object], _Made | PeerError]] = OrderedDict()

    async def __call__(self, question: CatalogueQuestion) -> _Made:
        """Read a source package or source, and convert it to its result.

        Raises:
            HostError: What the catalogue did wrong; NOT_REGISTERED; the code of the kind for one that is not used.
        """
        entry = question.entry
        holder = await self._read(question)
        is_source = "sourcePackageURL" not in holder and bool(self._kind.words & holder.keys())
        if not isinstance(holder.get("sourcePackage"), dict) and not is_source:
            name = str(holder.get("sourcePackageURL", "")).rpartition("/")[2]
            if not _CLASS_NAME.fullmatch(name):
                raise PeerError(Code.NOT_REGISTERED, f"the descriptor names no {self._kind.noun}", domain=entry.domain)
            package = replace(entry, kind="sourcepackage", name=name, attribute="")
            holder = await self._read(CatalogueQuestion(package, question.asked_by))
        key = entry.domain, entry.authority, entry.name
        known = self._made.get(key)
        if known is None or known[0] is not holder:  # the catalogue's reader gives the same as long as it counts
            known = self._made[key] = holder, await trio.to_thread.run_sync(self._make_of, holder, entry.domain)
            self._made.move_to_end(key)
            if len(self._made) > SCHEMAS_KEPT:
                self._made.popitem(last=False)
        if isinstance(known[1], PeerError):
            raise known[1]
        return known[1]

    def _make_of(self, holder: dict[str, object], domain: str) -> _Made | PeerError:
        try:
            return self._make(source_of(holder, domain=domain, kind=self._kind), domain)
        except PeerError as exc:
            return PeerError(exc.code, exc.detail, domain=domain)


def schema_reader(read: Read) -> SourceReader[DataSchema]:
    """Reads schemas of data objects."""
    return SourceReader(read, SCHEMAS, lambda source, _domain: DataSchema(source))


def document_reader(read: Read) -> SourceReader[CompiledPolicies]:
    """Reads policies of objects."""
    return SourceReader(read, POLICIES, _policies_of)


def _policies_of(source: dict[str, object], domain: str) -> CompiledPolicies:
    try:
        return compile_document(msgspec.json.encode(source).decode(), "document")
    except SettingsError as exc:
        raise PeerError(Code.POLICY_INVALID, exc.detail, domain=domain) from exc


def source_of(holder: dict[str, object], *, domain: str, kind: SourceKind = SCHEMAS) -> dict[str, object]:
    """The source in a descriptor, in a source package, or in neither.

    Raises:
        PeerError: DOCUMENT_MALFORMED, or the code of its kind.
    """
    embedded = holder.get("sourcePackage")
    package = embedded if isinstance(embedded, dict) else holder
    source = package.get("sourceCode")
    if isinstance(source, str):
        text = decode_source_package(msgspec.json.encode(package), domain=domain).code
        try:
            source = parse_strict(text)
        except (ValueError, RecursionError) as exc:
            raise PeerError(kind.code, f"the {kind.noun} is no JSON: {str(exc)[:100]}", domain=domain) from exc
    elif source is None and embedded is None:
        source = package
    if not isinstance(source, dict):
        raise PeerError(kind.code, f"the {kind.noun} is no JSON object", domain=domain)
    return source
