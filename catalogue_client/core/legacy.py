"""Reading catalogues of the original kind: descriptors and source packages, tolerantly.

Original brokers store every value as text and emit whatever parses as JSON, so a version may arrive as a number, a
flag as text, an empty list as an object. Everything scalar is turned into text first and compared as text.
No original program signs anything: what is read here is shown to operators, and never run. A `sourcePackageURL` is
never followed; the URL is computed from the authority that was asked.

Source: data formats, sections 2.3 to 2.7; trust and hosts, section 7, row 31.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from protofly.documents import parse_strict
from protofly.errors import Code, PeerError
from protofly.limits import DESCRIPTOR_BYTES

_CLASS_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_LISTED_MAX = 256
_CODE = "sourceCode"
_PACKAGE = "sourcePackage"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePackage:
    """Code as an original catalogue carries it, already decoded. Source: data formats, section 2.6."""

    class_name: str
    code: bytes
    signature: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A protostub descriptor; scalars as text. Source: data formats, section 2.6."""

    object_name: str
    version: str
    language: str = ""
    cguid: str = ""
    source_package_url: str = ""
    source_package: SourcePackage | None = None
    signature: str = ""
    is_interworking: bool
    hyperty_types: tuple[str, ...] = ()
    configuration: dict[str, str] = field(default_factory=dict)
    constraints: dict[str, bool] = field(default_factory=dict)


def decode_source_package(raw: bytes, *, domain: str) -> SourcePackage:
    """Decode a source package.

    Raises:
        PeerError: DOCUMENT_MALFORMED, blaming `domain`.
    """
    return _source_package(_members(raw, domain), domain)


def decode_descriptor(raw: bytes, *, domain: str) -> Descriptor:
    """Decode a protostub descriptor.

    Raises:
        PeerError: DOCUMENT_MALFORMED, blaming `domain`.
    """
    members = _members(raw, domain)
    name = _text(members.get("objectName"))
    if not _CLASS_NAME.fullmatch(name) or name == "default":
        raise PeerError(Code.DOCUMENT_MALFORMED, "descriptor without a usable objectName", domain=domain)
    embedded = members.get(_PACKAGE)
    return Descriptor(
        object_name=name,
        version=_text(members.get("version")),
        language=_text(members.get("language")),
        cguid=_text(members.get("cguid")),
        source_package_url=_text(members.get("sourcePackageURL")),
        source_package=_source_package(embedded, domain) if isinstance(embedded, dict) and embedded else None,
        signature=_text(members.get("signature")),
        is_interworking=_flag(members.get("interworking")),
        hyperty_types=_texts(members.get("hypertyType")),
        configuration={key: _text(value) for key, value in _object(members.get("configuration")).items()},
        constraints={key: _flag(value) for key, value in _object(members.get("constraints")).items()},
    )


def source_package_url(descriptor: Descriptor, authority: str, *, domain: str) -> str:
    """The URL of a descriptor's package on `authority`, the host (and port) that gave the descriptor.

    Only the class name is taken from what the descriptor says, and only if it speaks of the same authority: brokers
    build the member from the request's `Host`, so anyone can put anything there.

    Raises:
        PeerError: ADDRESS_REFUSED if it points elsewhere.
    """
    parts = urlsplit(descriptor.source_package_url)
    is_same_place = parts.scheme in {"", "https", "hyperty-catalogue"} and parts.netloc in {"", authority}
    kind, _, name = parts.path.rpartition("/")
    is_package = kind.lower().removeprefix("/.well-known") == "/sourcepackage"
    if not is_same_place or not is_package or not _CLASS_NAME.fullmatch(name) or parts.query or parts.fragment:
        detail = f"source package elsewhere: {descriptor.source_package_url[:100]!r}"
        raise PeerError(Code.ADDRESS_REFUSED, detail, domain=domain)
    return f"https://{authority}/.well-known/sourcepackage/{name}"


class _Holder(msgspec.Struct):
    """The two members of a descriptor or a package that may be long, as they are written."""

    code: Raw = msgspec.field(name=_CODE, default=Raw(b""))
    package: Raw = msgspec.field(name=_PACKAGE, default=Raw(b""))


def _members(raw: bytes, domain: str) -> dict[str, object]:
    """The members of a descriptor or a package.

    Of a long text only the code is long, and one string: what a stranger writes beside it is bounded before it is made
    into values, of which a short text has a million.
    """
    try:
        code = _code_in(raw) if len(raw) > DESCRIPTOR_BYTES else b""
        rest = raw.replace(code, b'""', 1) if code else raw
        if len(rest) > DESCRIPTOR_BYTES:
            raise ValueError(f"{len(rest)} bytes besides its code, at most {DESCRIPTOR_BYTES}")
        value = parse_strict(rest)
        text = msgspec.json.decode(code, type=str) if code else ""
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise PeerError(Code.DOCUMENT_MALFORMED, str(error)[:200], domain=domain) from error
    if not isinstance(value, dict):
        raise PeerError(Code.DOCUMENT_MALFORMED, "not a JSON object", domain=domain)
    if code:
        package = value.get(_PACKAGE)
        (package if isinstance(package, dict) else value)[_CODE] = text
    return value


def _code_in(raw: bytes) -> bytes:
    """The code in a text, as it is written; b"" without any. Raises msgspec.MsgspecError."""
    holder = msgspec.json.decode(raw, type=_Holder)
    package = bytes(holder.package)
    return bytes(msgspec.json.decode(package, type=_Holder).code if package.startswith(b"{") else holder.code)


def _source_package(members: dict[str, object], domain: str) -> SourcePackage:
    source = members.get(_CODE)
    if not isinstance(source, str):
        raise PeerError(Code.DOCUMENT_MALFORMED, "source package without sourceCode", domain=domain)
    code = source.encode()
    if _text(members.get("encoding")).lower() == "base64":
        try:
            code = base64.b64decode(code, validate=True)
        except ValueError as error:
            raise PeerError(Code.DOCUMENT_MALFORMED, "sourceCode is not base64", domain=domain) from error
    # The specification's table writes the member with a capital S; programs do not.
    name = _text(members.get("sourceCodeClassname", members.get("SourceCodeClassname")))
    return SourcePackage(class_name=name, code=code, signature=_text(members.get("signature")))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""


def _flag(value: object) -> bool:
    return _text(value).lower() in {"true", "1"}


def _object(value: object) -> dict[str, object]:
    """An object, also when it came as JSON text; brokers emit an empty list for an empty object."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = parse_strict(value.encode())
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) and len(value) <= _LISTED_MAX else {}


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(_text(entry) for entry in value[:_LISTED_MAX])
    return (value,) if isinstance(value, str) and value else ()
