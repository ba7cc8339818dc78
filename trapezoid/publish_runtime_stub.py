"""Publish the stub for runtimes: catalogue entries of the original kind, in JavaScript.

Runtimes of other domains load it and connect to our node as guests. Original readers check no signature; ours is there
for those that do: an envelope over name, version and digest of the code, by the keys that sign packages.

Source: data formats, sections 2.6 and 2.7; message specification, section 17.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib.parse import urlsplit

import msgspec

from msg_node.site.publication import Publication, PublishedRuntimeStub
from msg_node.storage.file_checks import read_file
from protofly.errors import SettingsError
from protofly.signatures import sign_envelope
from stubkit.pack import ProtostubDescriptor, SourcePackage, catalogue_id, md5_text
from trapezoid.publish_options import SigningSite
from trapezoid.publish_request import PublishRequest
from trapezoid.site_files import replace_published

NAME: Final = "trapezoid-runtime"
CLASS_NAME: Final = "TrapezoidRuntimeStub"
SIGNATURE_TYPE: Final = "application/vnd.rmn.runtime-stub+json"
CODE_BYTES: Final = 1 << 20
_VERSION: Final = re.compile(r"@version (\d+(?:\.\d+){0,3})\b")
_SCHEMES: Final = ("wss", "ws")


def publish_runtime_stub(
    site: SigningSite, request: PublishRequest, index: Publication | None, url: str
) -> PublishedRuntimeStub | None:
    """Write the entries of a stub for runtimes that a request names; what is published stays without one.

    Args:
        site: The folder, with the keys that sign.
        request: Names file and URL; a URL that is left out is the published one.
        index: What is published.
        url: Where others reach the site.

    Raises:
        SettingsError: The file cannot be used, or there is no URL.
    """
    published = index.runtime_stub if index is not None else None
    if request.runtime_stub is None:
        if request.runtime_url is not None:
            raise SettingsError("--runtime-url belongs to --runtime-stub")
        return published
    connects = request.runtime_url or (published.url if published is not None else "")
    if urlsplit(connects).scheme not in _SCHEMES:
        raise SettingsError("--runtime-stub needs --runtime-url, a URL that begins with wss: (or ws:)")
    code = _code(request)
    found = _VERSION.search(code)
    stub = PublishedRuntimeStub(
        name=NAME,
        class_name=CLASS_NAME,
        version=found[1] if found else "1.0",
        sha256=hashlib.sha256(code.encode()).hexdigest(),
        url=connects,
    )
    statement = {"domain": site.domain, "name": stub.name, "version": stub.version, "sha256": stub.sha256}
    signature = sign_envelope(msgspec.json.encode(statement), SIGNATURE_TYPE, site.keys.pkg).decode()
    descriptor = ProtostubDescriptor(
        cguid=catalogue_id(NAME),
        object_name=NAME,
        version=stub.version,
        description="the messaging node of this domain, for runtimes",
        language="javascript",
        source_package_url=f"hyperty-catalogue://{urlsplit(url).netloc}/.well-known/sourcepackage/{CLASS_NAME}",
        signature=signature,
        configuration={"url": connects},
    )
    package = SourcePackage(
        source_code_classname=CLASS_NAME,
        encoding="UTF-8",
        source_code=code,
        md5=md5_text(code),
        signature=signature,
    )
    replace_published(site.folder.source_package(CLASS_NAME), msgspec.json.encode(package))
    replace_published(site.folder.descriptor(NAME), msgspec.json.encode(descriptor))
    return stub


def _code(request: PublishRequest) -> str:
    assert request.runtime_stub is not None
    raw = read_file(request.runtime_stub)
    if len(raw) > CODE_BYTES:
        raise SettingsError(f"{request.runtime_stub}: more than {CODE_BYTES:,} bytes")
    try:
        code = raw.decode()
    except UnicodeDecodeError as exc:
        raise SettingsError(f"{request.runtime_stub}: not UTF-8") from exc
    if "activate" not in code:
        raise SettingsError(f"{request.runtime_stub}: defines no `activate`, which runtimes call")
    return code
