"""Catalogue entries of the original kind for a stub: protostub descriptor and source package.

Original catalogues carry a binary module as Base64 inside of JSON and leave the member `signature` to anyone who wants
it: our signed manifest goes there, original readers ignore it. `cguid` and `md5` are identities of the original data
model, not protection.

Source: data formats, sections 2.6 and 2.7.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from protofly.documents import decode_envelope, decode_manifest
from protofly.errors import PeerError, SettingsError
from sandbox.core.module_check import inspect_module
from stubkit.files import replace_file
from stubkit.sandboxed import module_named

PROTOSTUB_DIGIT: Final = "4"
"""What the original toolkit puts before the MD5 of an object name to get the `cguid` of a protostub."""

LANGUAGE: Final = "WASM"
_NAME: Final = re.compile(r"(?!default\Z)[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")


class SourcePackage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The code, as an original catalogue stores it."""

    source_code_classname: str
    encoding: str = "base64"
    source_code: str
    md5: str
    signature: str = ""


class ProtostubDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """The descriptor of one stub. Names on the wire are those of the original data model."""

    cguid: str
    type: str = "PROTOSTUB"
    object_name: str = msgspec.field(name="objectName")
    version: str
    description: str
    language: str = LANGUAGE
    source_package_url: str = msgspec.field(name="sourcePackageURL")
    signature: str = ""
    message_schemas: list[str] = msgspec.field(name="messageSchemas", default_factory=list)
    configuration: dict[str, str | int | bool] = msgspec.field(default_factory=dict)
    constraints: dict[str, bool] = msgspec.field(default_factory=dict)
    data_objects: list[str] = msgspec.field(name="dataObjects", default_factory=list)
    hyperty_type: list[str] = msgspec.field(name="hypertyType", default_factory=list)
    interworking: bool = False
    idp_proxy: bool = msgspec.field(name="idpProxy", default=False)


@dataclass(frozen=True, slots=True)
class PackedStub:
    """The two files that `pack_stub` wrote."""

    descriptor: Path
    source_package: Path


def class_name(object_name: str) -> str:
    """Class name that goes with an object name: `trapezoid-link` gives `TrapezoidLink`.

    Raises:
        SettingsError: it cannot be an object name.
    """
    if not _NAME.match(object_name):
        raise SettingsError(
            f"{object_name!r} cannot be a name in a catalogue: letters, digits, `.`, `-`, `_`, not `default`"
        )
    return "".join(part[0].upper() + part[1:] for part in re.split(r"[-_.]+", object_name) if part)


def build_source_package(module: bytes, name: str, *, manifest_envelope: bytes = b"") -> bytes:
    """The source package of a module, JSON.

    Args:
        module: The WebAssembly module.
        name: Object name of the stub.
        manifest_envelope: Signed manifest for the member `signature`.

    Raises:
        SettingsError: the name or the envelope cannot be used.
    """
    code = base64.b64encode(module).decode("ascii")
    package = SourcePackage(
        source_code_classname=class_name(name),
        source_code=code,
        md5=md5_text(code),
        signature=_text(manifest_envelope),
    )
    return msgspec.json.encode(package)


def build_descriptor(
    *,
    name: str,
    version: str,
    description: str,
    authority: str,
    manifest_envelope: bytes = b"",
    is_interworking: bool = False,
) -> bytes:
    """The protostub descriptor, JSON.

    Args:
        name: Object name of the stub, never `default`.
        version: Dotted decimal.
        description: One line for people.
        authority: Host, and port unless 443, of the catalogue that serves the source package.
        manifest_envelope: Signed manifest for the member `signature`.
        is_interworking: Whether a legacy domain is behind the stub.

    Raises:
        SettingsError: the name or the envelope cannot be used.
    """
    descriptor = ProtostubDescriptor(
        cguid=catalogue_id(name),
        object_name=name,
        version=version,
        description=description,
        source_package_url=f"hyperty-catalogue://{authority}/.well-known/sourcepackage/{class_name(name)}",
        signature=_text(manifest_envelope),
        constraints={"wasm": True, "wss": True},
        interworking=is_interworking,
    )
    return msgspec.json.encode(descriptor)


def pack_stub(
    module: Path, folder: Path, *, authority: str, description: str = "", manifest: Path | None = None
) -> PackedStub:
    """Write `<name>.descriptor.json` and `<name>.sourcepackage.json` of a module; name and version are its own.

    Raises:
        SettingsError: a file cannot be read or written.
        PeerError: MODULE_*: the module does not keep the contract.
    """
    try:
        code = module.read_bytes()
        envelope = manifest.read_bytes() if manifest is not None else b""
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise SettingsError(f"{exc.filename}: {exc.strerror}") from exc
    with module_named(module):
        facts = inspect_module(code)
    packed = PackedStub(folder / f"{facts.name}.descriptor.json", folder / f"{facts.name}.sourcepackage.json")
    descriptor = build_descriptor(
        name=facts.name,
        version=facts.version,
        description=description or f"protostub {facts.name}",
        authority=authority,
        manifest_envelope=envelope,
        is_interworking=_is_interworking(envelope),
    )
    replace_file(packed.descriptor, descriptor)
    replace_file(packed.source_package, build_source_package(code, facts.name, manifest_envelope=envelope))
    return packed


def _is_interworking(envelope: bytes) -> bool:
    """What the signed manifest says: the descriptor only repeats it, for catalogues of the original kind.

    Raises:
        SettingsError: what is in the envelope is no manifest.
    """
    if not envelope:
        return False
    try:
        payload = decode_envelope(envelope).payload
        domain = msgspec.json.decode(payload, type=_Signed).domain
        return decode_manifest(payload, domain=domain).interworking
    except (PeerError, msgspec.MsgspecError) as exc:
        raise SettingsError(f"the manifest cannot be read: {exc}") from exc


class _Signed(msgspec.Struct):
    """Whose manifest it is."""

    domain: str


def catalogue_id(object_name: str) -> str:
    """The `cguid` of a protostub."""
    return PROTOSTUB_DIGIT + md5_text(object_name)


def md5_text(text: str) -> str:
    """An MD5 as original catalogues write it; it protects nothing."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _text(envelope: bytes) -> str:
    try:
        return msgspec.json.format(envelope, indent=-1).decode() if envelope else ""
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise SettingsError(f"the manifest is not an envelope: {exc}") from exc
