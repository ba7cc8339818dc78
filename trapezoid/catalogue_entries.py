"""Catalogue entries of the original kind besides stubs: hyperties, data schemas, runtimes, idp-proxies.

Each is a descriptor and a source package, as original catalogues serve them. Readers keep what they have while `cguid`
is the same and the version is not newer, so every change gets a higher version. Original readers verify nothing; with
`pkg` keys at hand the entries are signed for those that do.

Source: data formats, sections 2.2 to 2.8.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from catalogue_client.core.catalogue_entry import entry_of
from catalogue_client.core.legacy import decode_source_package
from msg_node.kernel.data_schemas import DataSchema
from msg_node.site.publication import INDEX_NAME, Publication, PublishedEntry, SiteFolder
from msg_node.storage.file_checks import read_file
from policy.core.document import read_document
from policy.core.object_policies import compile_document
from protofly.documents import SigningKey, decode_envelope, decode_manifest, parse_strict
from protofly.errors import HostError, PeerError, SettingsError
from protofly.limits import DESCRIPTOR_BYTES
from protofly.plain_words import without_types
from protofly.signatures import sign_envelope
from stubkit.pack import SourcePackage, class_name, md5_text
from trapezoid.site_files import replace_published

CODE_BYTES: Final = 2 << 20
ENTRIES_MAX: Final = 256
SIGNATURE_TYPE: Final = "application/vnd.rmn.catalogue-entry+json"
_VERSION: Final = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,3}")
_VERSION_IN_CODE: Final = re.compile(r"@version (\d{1,9}(?:\.\d{1,9}){0,3})\b")


@dataclass(frozen=True, slots=True)
class _Kind:
    """What all entries of one kind have: the digit of the `cguid`, attributes, and those that must be given."""

    digit: str
    attributes: Mapping[str, object]
    required: tuple[str, ...] = ()


_CODE: Final[Mapping[str, object]] = {"language": "JAVASCRIPT_ECMA6", "configuration": {}, "constraints": {}}
KINDS: Final[Mapping[str, _Kind]] = {
    "hyperty": _Kind("1", {"type": "HYPERTY", **_CODE, "hypertyType": [], "dataObjects": []}),
    "dataschema": _Kind("2", {"type": "HYPERTY_DATA_OBJECT", "language": "JSON_SCHEMA_V4"}),
    "runtime": _Kind(
        "3", {"type": "HYPERTY_RUNTIME", **_CODE}, ("runtimeType", "hypertyCapabilities", "protocolCapabilities")
    ),
    "idp-proxy": _Kind("5", {"type": "IDP_PROXY", **_CODE, "interworking": False, "idpProxy": True}),
    "policy": _Kind("6", {"type": "POLICY", "language": "JSON"}),
}
"""The kinds, and the attributes that their descriptors have if nothing else is said."""
_IN_JSON: Final = ("dataschema", "policy")
"""Kinds whose source is JSON and no code; nodes read it."""


class _Attributes(msgspec.Struct, rename="camel"):
    """Attributes of descriptors as they have to be; others are taken over as they are, and readers ignore them."""

    object_name: str = ""
    version: str | int | float = ""
    description: str = ""
    language: str = ""
    configuration: dict[str, Any] | list[Any] = []
    constraints: dict[str, bool] | list[Any] = []
    hyperty_type: list[str] = []
    data_objects: list[str] = []
    interworking: bool = False
    idp_proxy: bool = False
    runtime_type: str = ""
    scheme: str = ""
    hyperty_capabilities: dict[str, Any] = {}
    protocol_capabilities: dict[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRequest:
    """One entry to publish; what is "" is found in the files, or is as published."""

    kind: str
    file: Path
    descriptor: Path | None = None
    name: str = ""
    version: str = ""
    description: str = ""
    class_name: str = ""
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class _Source:
    """What the files of a request hold: attributes, code, and the name of its class, "" for none."""

    attributes: dict[str, Any]
    code: str
    class_name: str = ""


class EntryReport(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the catalogue as published now."""

    kind: str
    name: str
    version: str
    url: str
    class_name: str
    code_sha256: str
    code_bytes: int
    is_default: bool
    is_changed: bool
    is_signed: bool
    note: str


def publish_entry(folder: SiteFolder, request: EntryRequest, keys: tuple[SigningKey, ...] = ()) -> EntryReport:
    """Write one entry. Repeating a call changes nothing. Entries that are published already stay.

    Args:
        folder: A site folder in which a stub is published.
        request: What to publish.
        keys: The `pkg` keys that sign, if any.

    Raises:
        SettingsError: The folder or a file cannot be used, or the entry would be of no use to readers.
    """
    folder.load()  # before the folder is locked, which would make it
    source = _read_source(request)
    name = request.name or str(source.attributes.get("objectName", "")) or request.file.name.partition(".")[0]
    request = replace(request, name=name, class_name=request.class_name or source.class_name or class_name(name))
    with folder.locked():
        publication = folder.load()
        published = _entry(publication, request.kind, name)
        _check_names(publication, request)
        draft = _Draft(folder, publication, request, source)
        version = draft.version(published)
        descriptor, package = draft.files(version, keys)
        is_default = request.is_default or (published is not None and published.is_default)
        entry = PublishedEntry(
            kind=request.kind,
            name=name,
            class_name=request.class_name,
            version=version,
            sha256=hashlib.sha256(source.code.encode()).hexdigest(),
            is_default=is_default,
        )
        before = [path.read_bytes() if path.exists() else b"" for path in draft.paths]
        for path, content in zip(draft.paths, (descriptor, package), strict=True):
            replace_published(path, content)
        others = [one for one in publication.entries if one is not published]
        _replace_index(folder, publication, sorted([*others, entry], key=lambda one: (one.kind, one.name)))
        if published is not None and published.class_name != request.class_name:
            folder.source_package(published.class_name).unlink(missing_ok=True)
    return EntryReport(
        kind=request.kind,
        name=name,
        version=version,
        url=f"{_public_url(folder, publication)}/.well-known/{request.kind}/{name}",
        class_name=request.class_name,
        code_sha256=entry.sha256,
        code_bytes=len(source.code.encode()),
        is_default=is_default,
        is_changed=before != [descriptor, package] or published != entry,
        is_signed=bool(keys),
        note=_schema_note(source.code) if request.kind == "dataschema" else "",
    )


def remove_entry(folder: SiteFolder, kind: str, name: str) -> PublishedEntry:
    """Take an entry away.

    Raises:
        SettingsError: The folder cannot be used, or has no such entry.
    """
    folder.load()
    with folder.locked():
        publication = folder.load()
        entry = _entry(publication, kind, name)
        if entry is None:
            known = ", ".join(f"{one.kind} {one.name}" for one in publication.entries) or "none"
            raise SettingsError(f"{folder.path} has no {kind} {name}; it has: {known}")
        _replace_index(folder, publication, [one for one in publication.entries if one is not entry])
        try:
            folder.descriptor(name, kind).unlink(missing_ok=True)
            folder.source_package(entry.class_name).unlink(missing_ok=True)
        except OSError as exc:
            raise SettingsError(f"{exc.filename}: {exc.strerror}") from exc
    return entry


def list_entries(folder: SiteFolder) -> list[dict[str, object]]:
    """List everything in the catalogue of a site folder, stubs included. Raises SettingsError."""
    publication = folder.load()
    rows: list[dict[str, object]] = [
        _row("protocolstub", one.reference.name, one.reference.version, one.module_sha256, selector == "default")
        for selector, one in publication.stubs.items()
    ]
    if (runtime := publication.runtime_stub) is not None:
        rows.append(_row("protocolstub", runtime.name, runtime.version, runtime.sha256, True))
    return rows + [_row(one.kind, one.name, one.version, one.sha256, one.is_default) for one in publication.entries]


def _row(kind: str, name: str, version: str, sha256: str, is_default: bool) -> dict[str, object]:
    return {"kind": kind, "name": name, "version": version, "sha256": sha256, "default": is_default}


class _Draft:
    """One entry on its way into a folder: its two files, but for the version.

    Attributes:
        paths: Of descriptor and source package.
    """

    def __init__(self, folder: SiteFolder, publication: Publication, request: EntryRequest, source: _Source) -> None:
        self._folder, self._domain, self._request, self._source = folder, publication.domain, request, source
        self._authority = urlsplit(_public_url(folder, publication)).netloc
        self.paths = folder.descriptor(request.name, request.kind), folder.source_package(request.class_name)
        self._given = _attributes(request, source)

    def version(self, published: PublishedEntry | None) -> str:
        """The version given, or the published one; one higher if something has changed since.

        Raises:
            SettingsError: It is none, or is not above the published one although something has changed.
        """
        in_code = _VERSION_IN_CODE.search(self._source.code)
        given = (
            self._request.version or str(self._source.attributes.get("version", "")) or (in_code[1] if in_code else "")
        )
        if given and not _VERSION.fullmatch(given):
            raise SettingsError(f"version {given!r}: expected numbers with dots, such as 1.2")
        if published is None:
            return given or "1.0"
        stored = self._folder.read_object(self.paths[0]) or {}
        package = self._folder.read_object(self.paths[1]) or {}
        is_same = _unsigned(stored) == _unsigned(self._descriptor(published.version)) and (
            _unsigned(package) == _unsigned(self._package())
        )
        if is_same and given in ("", published.version):
            return published.version
        *above, last = published.version.split(".")
        version = given or ".".join([*above, str(int(last) + 1)])
        if _numbers(version) <= _numbers(published.version):
            raise SettingsError(
                f"version {version} is not above the published {published.version}: runtimes that have that one would "
                "not load the change"
            )
        return version

    def files(self, version: str, keys: tuple[SigningKey, ...]) -> tuple[bytes, bytes]:
        """Descriptor and source package.

        Raises:
            SettingsError: Readers would refuse them as too large.
        """
        descriptor, package = self._descriptor(version), self._package()
        if keys:
            sha256 = hashlib.sha256(self._source.code.encode()).hexdigest()
            statement = {
                "domain": self._domain,
                "kind": self._request.kind,
                "name": self._request.name,
                "version": version,
            }
            signed = msgspec.json.encode({**statement, "sha256": sha256})
            descriptor["signature"] = package["signature"] = sign_envelope(signed, SIGNATURE_TYPE, keys).decode()
        files = msgspec.json.encode(descriptor), msgspec.json.encode(package)
        for file, what in zip(files, ("descriptor", "source package"), strict=True):
            is_read_by_nodes = what == "descriptor" or self._request.kind in _IN_JSON
            if is_read_by_nodes and len(file) > DESCRIPTOR_BYTES:
                raise SettingsError(f"the {what} has {len(file):,} bytes; readers take {DESCRIPTOR_BYTES:,}")
        return files

    def _descriptor(self, version: str) -> dict[str, Any]:
        kind = self._request.kind
        return {
            "cguid": KINDS[kind].digit + md5_text(self._request.name),
            **KINDS[kind].attributes,
            "description": f"{kind} {self._request.name} of {self._domain}",
            **self._given,
            "objectName": self._request.name,
            "version": version,
            "sourcePackageURL": f"hyperty-catalogue://{self._authority}/.well-known/sourcepackage/{self._request.class_name}",
            "signature": "",
        }

    def _package(self) -> dict[str, Any]:
        package = SourcePackage(
            source_code_classname=self._request.class_name,
            encoding="UTF-8",
            source_code=self._source.code,
            md5=md5_text(self._source.code),
        )
        made: dict[str, Any] = msgspec.to_builtins(package)
        return made


_COMPUTED: Final = ("cguid", "objectName", "version", "sourcePackage", "sourcePackageURL", "signature")


def _attributes(request: EntryRequest, source: _Source) -> dict[str, Any]:
    """Attributes that the files state, checked.

    Raises:
        SettingsError: One of them is missing, or is not of its type.
    """
    kind = KINDS[request.kind]
    given = source.attributes | ({"description": request.description} if request.description else {})
    place = request.descriptor or request.file
    if missing := [name for name in kind.required if name not in given]:
        raise SettingsError(f"{place}: a {request.kind} needs {', '.join(missing)}; state them with --descriptor FILE")
    try:
        read = msgspec.convert(given, type=_Attributes)
        for url in read.data_objects:
            entry_of(url)
    except msgspec.ValidationError as exc:
        raise SettingsError(f"{place}: {without_types(str(exc))}") from exc
    except PeerError as exc:
        raise SettingsError(f"{place}: dataObjects: {url}: {exc.detail}") from exc
    return {name: value for name, value in given.items() if name not in _COMPUTED}


def _read_source(request: EntryRequest) -> _Source:
    """Read the files of a request: code or schema, or a descriptor with its package.

    Raises:
        SettingsError: A file cannot be used.
    """
    text, attributes = _text(request.file), dict[str, Any]()
    if request.descriptor is not None:
        attributes = _object(request.descriptor, _text(request.descriptor))
    name = ""
    if request.file.suffix == ".json":
        members = _object(request.file, text)
        package = members.get("sourcePackage")
        if isinstance(package, dict):
            try:
                decoded = decode_source_package(msgspec.json.encode(package), domain="")
                text, name = decoded.code.decode(), decoded.class_name
            except (PeerError, UnicodeDecodeError) as exc:
                raise SettingsError(f"{request.file}: sourcePackage: {exc}") from exc
            attributes = members | attributes
        elif request.kind not in _IN_JSON:
            raise SettingsError(f"{request.file}: expected code (.js), or a descriptor with its sourcePackage")
    if request.kind == "policy":
        text = _policy_text(request.file, text)
    elif request.kind == "dataschema":
        _object(request.file, text)
    elif not text.strip():
        raise SettingsError(f"{request.file}: there is no code in it")
    return _Source(attributes, text, name)


def _policy_text(path: Path, text: str) -> str:
    """The policy of a file (JSON or TOML) as nodes read it, once it has been compiled and its tests have run.

    Raises:
        SettingsError: Nodes would not use it.
    """
    if path.suffix == ".toml":
        text = msgspec.json.encode(read_document(text, name=path.name, syntax="toml").value).decode()
    compile_document(text, path.name)
    return text


def _text(path: Path) -> str:
    raw = read_file(path)
    if len(raw) > CODE_BYTES:
        raise SettingsError(f"{path}: more than {CODE_BYTES:,} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError as exc:
        raise SettingsError(f"{path}: not UTF-8") from exc


def _object(path: Path, text: str) -> dict[str, Any]:
    try:
        members = parse_strict(text.encode())
    except (ValueError, RecursionError) as exc:
        raise SettingsError(f"{path}: {str(exc)[:200]}") from exc
    if not isinstance(members, dict):
        raise SettingsError(f"{path}: expected a JSON object")
    return members


def _check_names(publication: Publication, request: EntryRequest) -> None:
    """Refuse names that cannot be asked for, or are those of others.

    Raises:
        SettingsError: Saying which name.
    """
    wanted = request.class_name
    for one in (request.name, wanted):
        class_name(one)
    others = [one for one in publication.entries if (one.kind, one.name) != (request.kind, request.name)]
    if len(others) >= ENTRIES_MAX:
        raise SettingsError(f"there are {len(others)} entries already; remove some with `trapezoid publish remove`")
    taken = {one.class_name: one.reference.name for one in publication.stubs.values()}
    taken |= {one.class_name: f"{one.kind} {one.name}" for one in others}
    if publication.runtime_stub is not None:
        taken[publication.runtime_stub.class_name] = publication.runtime_stub.name
    if wanted in taken:
        raise SettingsError(f"the class name {wanted} is that of {taken[wanted]}; give another one with --class-name")


def _entry(publication: Publication, kind: str, name: str) -> PublishedEntry | None:
    return next((one for one in publication.entries if (one.kind, one.name) == (kind, name)), None)


def _replace_index(folder: SiteFolder, publication: Publication, entries: list[PublishedEntry]) -> None:
    changed = msgspec.structs.replace(publication, entries=tuple(entries))
    replace_published(folder.path / INDEX_NAME, msgspec.json.format(msgspec.json.encode(changed), indent=2))


def _public_url(folder: SiteFolder, publication: Publication) -> str:
    """Where others reach the site: every manifest says it. Raises SettingsError."""
    stub = next(iter(publication.stubs.values()), None)
    if stub is None:
        raise SettingsError(f"{folder.path}: no stub is published; run `trapezoid publish` with one")
    try:
        payload = decode_envelope(read_file(folder.manifest(stub.reference.name))).payload
        manifest = decode_manifest(payload, domain=publication.domain)
    except HostError as exc:
        raise SettingsError(f"{folder.manifest(stub.reference.name)}: {exc}") from exc
    parts = urlsplit(manifest.module.urls[0])
    return f"{parts.scheme}://{parts.netloc}"


def _schema_note(code: str) -> str:
    """Why this node would not validate with a schema, "" when it would."""
    try:
        DataSchema(parse_strict(code.encode()))  # type: ignore[arg-type]
    except PeerError as exc:
        return f"this node does not validate with it: {exc.detail}"
    return ""


def _unsigned(members: Mapping[str, Any]) -> dict[str, Any]:
    decoded = {
        name: msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value for name, value in members.items()
    }
    return {name: value for name, value in decoded.items() if name != "signature"}


def _numbers(version: str) -> list[int]:
    numbers = [int(part) for part in version.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers
