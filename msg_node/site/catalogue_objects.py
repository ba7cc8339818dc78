"""The objects of our catalogue, from the files of the publication: names, descriptors, source packages.

Attributes are kept in memory for as long as their file stays the same. Code is not: it is read when it is asked for, so
that many readers of lists and constraints cost neither the disk nor memory. Source: data formats, sections 2.2 to 2.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import trio

from msg_node.site.catalogue_query import CatalogueObject, satisfies
from msg_node.site.publication import Publication, SiteFolder
from protofly.errors import SettingsError

PACKAGE_TYPE: Final = "sourcepackage"
CATALOGUE_TYPES: Final = ("dataschema", "hyperty", "idp-proxy", "policy", "protocolstub", "runtime", PACKAGE_TYPE)
_CODE: Final = "sourceCode"


@dataclass(frozen=True, slots=True)
class _Kept:
    """The attributes of one file but code, and what was read before `read`; `stamp` changes with the file."""

    stamp: tuple[int, int]
    attributes: CatalogueObject
    members: dict[str, object]


class CatalogueObjects:
    """Finds objects of the current publication.

    Args:
        folder: The files.
        publication: Returns the current index, None while there is none.
    """

    def __init__(self, folder: SiteFolder, publication: Callable[[], Publication | None]) -> None:
        self._folder = folder
        self._publication = publication
        self._kept: dict[Path, _Kept] = {}

    async def names(self, type_: str, requested: Mapping[str, object]) -> list[str]:
        """Names of a type's objects that have the requested attributes, sorted. Raises SettingsError."""
        if not requested:
            return sorted(self._files(type_))
        found = await trio.to_thread.run_sync(self._attributes, self._files(type_))
        return sorted(name for name, attributes in found.items() if satisfies(attributes, requested))

    async def find(self, type_: str, name: str, requested: Mapping[str, object]) -> CatalogueObject | None:
        """The whole object of a name that has the requested attributes, None without one. Raises SettingsError.

        `default` means the first fitting one of those that are published as default.
        """
        files = self._files(type_)
        names = self._defaults(type_, requested) if name == "default" else [name]
        candidates = {one: files[one] for one in names if one in files}
        found = await trio.to_thread.run_sync(self._attributes, candidates)
        fitting = [one for one in candidates if one in found and satisfies(found[one], requested)]
        return await trio.to_thread.run_sync(self._folder.read_object, files[fitting[0]]) if fitting else None

    async def read(self, type_: str, name: str) -> dict[str, object] | None:
        """The members of an object for this node itself, the same as long as its file is. Raises SettingsError."""
        files = self._files(type_)
        names = self._defaults(type_, {}) if name == "default" else [name]
        found = next((files[one] for one in names if one in files), None)
        return None if found is None else await trio.to_thread.run_sync(self._members, found)

    def _files(self, type_: str) -> dict[str, Path]:
        """Files of a type's objects by name. Names in requests become no paths."""
        publication, folder = self._publication(), self._folder
        if publication is None:
            return {}
        named = [("protocolstub", stub.reference.name, stub.class_name) for stub in publication.stubs.values()]
        if (runtime := publication.runtime_stub) is not None:
            named.append(("protocolstub", runtime.name, runtime.class_name))
        named += [(entry.kind, entry.name, entry.class_name) for entry in publication.entries]
        if type_ == PACKAGE_TYPE:
            return {class_name: folder.source_package(class_name) for _, _, class_name in named}
        return {name: folder.descriptor(name, kind) for kind, name, _ in named if kind == type_}

    def _defaults(self, type_: str, requested: Mapping[str, object]) -> list[str]:
        """What `default` may mean, best first. Of stubs that for nodes if they run WebAssembly, else the other."""
        publication = self._publication()
        if publication is None:
            return []
        if type_ not in ("protocolstub", PACKAGE_TYPE):
            return [entry.name for entry in publication.entries if entry.kind == type_ and entry.is_default]
        is_code = type_ == PACKAGE_TYPE
        names = []
        if (runtime := publication.runtime_stub) is not None:
            names.append(runtime.class_name if is_code else runtime.name)
        if (stub := publication.stubs.get("default")) is not None:
            names.append(stub.class_name if is_code else stub.reference.name)
        constraints = requested.get("constraints")
        runs_wasm = isinstance(constraints, Mapping) and constraints.get("wasm") in (True, "true")
        return names[::-1] if runs_wasm else names

    # In a thread.

    def _attributes(self, files: Mapping[str, Path]) -> dict[str, CatalogueObject]:
        kept = {name: self._read(path) for name, path in files.items()}
        return {name: one.attributes for name, one in kept.items() if one is not None}

    def _members(self, path: Path) -> dict[str, object] | None:
        kept = self._read(path)
        if kept is None:
            return None
        if not kept.members:
            stored = self._folder.read_object(path) or {}
            kept.members.update({name: msgspec.json.decode(value) for name, value in stored.items()})
        return kept.members

    def _read(self, path: Path) -> _Kept | None:
        try:
            status = path.stat()
        except FileNotFoundError:
            self._kept.pop(path, None)
            return None
        except OSError as exc:
            raise SettingsError(f"{path}: {exc.strerror}") from exc
        stamp = status.st_mtime_ns, status.st_size
        kept = self._kept.get(path)
        if kept is None or kept.stamp != stamp:
            stored = self._folder.read_object(path)
            if stored is None:
                return None
            attributes = {name: msgspec.Raw(bytes(value)) for name, value in stored.items() if name != _CODE}
            kept = self._kept[path] = _Kept(stamp, attributes, {})
        return kept
