"""What the node under test publishes itself, read and verified as another domain does."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from interop.conformance.outcome import NodeFaultError
from interop.partner.core.keys import is_signed, pre_authentication
from interop.partner.core.publication import (
    LIVE_TYPE,
    MANIFEST_TYPE,
    ROOT_TYPE,
    WELL_KNOWN,
    payload_of,
    root_path,
    sha256_of,
)
from interop.partner.model import PartnerCase
from interop.partner.node import Fetched, NodeUnderTest
from interop.partner.steps import Checks

_LIVE_BYTES: Final = 50 << 10
_ROOT_BYTES: Final = 64 << 10
_MANIFEST_BYTES: Final = 16 << 10
_WEEK: Final = 7 * 86_400.0
_AHEAD_SECONDS: Final = 300.0
Document = Mapping[str, object]


def _members(value: object, what: str) -> Document:
    if not isinstance(value, dict):
        raise NodeFaultError(f"{what} is no object")
    return value


def _expect(what: str, expected: object, got: object) -> None:
    if expected != got:
        raise NodeFaultError(f"{what}: expected {expected!r}, got {got!r}")


async def _document(node: NodeUnderTest, path: str, most: int) -> tuple[bytes, Document]:
    answer: Fetched = await node.fetch(path)
    _expect(f"status of {path}", 200, answer.status)
    if len(answer.body) > most:
        raise NodeFaultError(f"{path} has {len(answer.body)} bytes, at most {most}")
    try:
        return answer.body, _members(json.loads(payload_of(answer.body)), path)
    except (ValueError, KeyError, TypeError) as exc:
        raise NodeFaultError(f"{path} is no DSSE envelope with a JSON payload: {exc}") from exc


async def _live(node: NodeUnderTest) -> tuple[bytes, Document]:
    return await _document(node, WELL_KNOWN, _LIVE_BYTES)


async def _root(node: NodeUnderTest, version: int) -> tuple[bytes, Document]:
    return await _document(node, root_path(version), _ROOT_BYTES)


async def _current_root(node: NodeUnderTest) -> tuple[bytes, Document]:
    reference = _members((await _live(node))[1].get("root"), "live.root")
    raw, root = await _root(node, int(str(reference.get("version"))))
    _expect("SHA-256 of the root", reference.get("sha256"), sha256_of(raw))
    return raw, root


def _check_signed(raw: bytes, kind: str, root: Document, role: str) -> None:
    """Enough different keys of a role have signed an envelope, P-256 aside."""
    wire = json.loads(raw)
    _expect("payloadType", kind, wire.get("payloadType"))
    wanted = _members(_members(root.get("roles"), "root.roles").get(role), f"role {role}")
    keys, names = _members(root.get("keys"), "root.keys"), wanted.get("keys")
    data = pre_authentication(kind, payload_of(raw))
    found = set()
    for name in names if isinstance(names, list) else ():
        record = _members(keys.get(name), f"key {name}")
        if any(is_signed(data, _sig(entry), record) for entry in wire["signatures"]):
            found.add(record.get("pub"))
    if len(found) < int(str(wanted.get("threshold", 1))):
        raise NodeFaultError(f"{len(found)} keys of role {role} have signed, {wanted.get('threshold')} have to")


def _sig(entry: Mapping[str, str]) -> bytes:
    from base64 import b64decode

    return b64decode(entry.get("sig", ""))


def _seconds(document: Document, name: str) -> float:
    try:
        return datetime.fromisoformat(str(document.get(name))).timestamp()
    except ValueError as exc:
        raise NodeFaultError(f"{name} is {document.get(name)!r}, expected RFC 3339") from exc


async def _form(node: NodeUnderTest) -> None:
    answer = await node.fetch(WELL_KNOWN)
    _expect("status", 200, answer.status)
    if answer.content_type not in {"application/json", LIVE_TYPE}:
        raise NodeFaultError(f"content type {answer.content_type!r}")


async def _live_signed(node: NodeUnderTest) -> None:
    raw, live = await _live(node)
    _expect("spec", "rmn-live/1", live.get("spec"))
    _expect("domain", node.domain, live.get("domain"))
    _check_signed(raw, LIVE_TYPE, (await _current_root(node))[1], "live")


async def _live_times(node: NodeUnderTest) -> None:
    live, now = (await _live(node))[1], time.time()
    issued, ends = _seconds(live, "issued"), _seconds(live, "expires")
    if issued > now + _AHEAD_SECONDS or ends <= now or ends - issued > _WEEK:
        raise NodeFaultError(f"issued {live.get('issued')}, expires {live.get('expires')}")


async def _root_signed(node: NodeUnderTest) -> None:
    raw, root = await _current_root(node)
    _expect("spec", "rmn-root/1", root.get("spec"))
    _expect("domain", node.domain, root.get("domain"))
    _check_signed(raw, ROOT_TYPE, root, "root")
    if _seconds(root, "expires") <= time.time():
        raise NodeFaultError("the root has expired")


async def _root_chain(node: NodeUnderTest) -> None:
    _, root = await _current_root(node)
    newest = int(str(root.get("version")))
    for version in range(max(2, newest - 64), newest + 1):
        raw, _ = await _root(node, version)
        _check_signed(raw, ROOT_TYPE, (await _root(node, version - 1))[1], "root")
    await _root(node, max(1, newest - 64))


async def _endpoint(node: NodeUnderTest) -> None:
    endpoints = (await _live(node))[1].get("endpoints")
    urls = [str(one.get("url")) for one in endpoints if isinstance(one, dict)] if isinstance(endpoints, list) else []
    if node.terms.link not in urls:
        raise NodeFaultError(f"endpoints are {urls}, expected {node.terms.link}")
    if any(urlsplit(url).scheme not in {"wss", "https", "tls"} for url in urls):
        raise NodeFaultError(f"an endpoint without TLS: {urls}")


async def _manifest(node: NodeUnderTest) -> tuple[bytes, Document, Document]:
    stubs = _members((await _live(node))[1].get("stubs"), "live.stubs")
    reference = _members(stubs.get("default"), "live.stubs.default")
    raw, manifest = await _document(node, f"{WELL_KNOWN}/manifest/{reference.get('name')}", _MANIFEST_BYTES)
    return raw, manifest, reference


async def _manifest_signed(node: NodeUnderTest) -> None:
    raw, manifest, reference = await _manifest(node)
    _expect("SHA-256 of the manifest", reference.get("manifest_sha256"), sha256_of(raw))
    _check_signed(raw, MANIFEST_TYPE, (await _current_root(node))[1], "pkg")
    _expect("spec", "rmn-stub/1", manifest.get("spec"))
    for name in ("name", "serial"):
        _expect(f"manifest.{name}", reference.get(name), manifest.get(name))
    _expect("manifest.domain", node.domain, manifest.get("domain"))
    if _seconds(manifest, "expires") <= time.time():
        raise NodeFaultError("the manifest has expired")


async def _module(node: NodeUnderTest) -> None:
    reference = _members((await _manifest(node))[1].get("module"), "manifest.module")
    urls = reference.get("urls")
    parts = urlsplit(str(urls[0]) if isinstance(urls, list) and urls else "")
    answer = await node.fetch(parts.path)
    _expect(f"status of {parts.path}", 200, answer.status)
    try:  # a source package of the original catalogues carries the module inside
        from base64 import b64decode

        module = b64decode(json.loads(answer.body)["sourceCode"])
    except (ValueError, KeyError, TypeError):
        module = answer.body
    _expect("size of the module", reference.get("size"), len(module))
    _expect("SHA-256 of the module", reference.get("sha256"), hashlib.sha256(module).hexdigest())
    _expect("its first bytes", b"\0asm\x01\0\0\0", module[:8])


async def _unknown_path(node: NodeUnderTest) -> None:
    answer = await node.fetch(f"{WELL_KNOWN}/root/999999")
    _expect("status of a root that is not there", 404, answer.status)


_RULES: Final[tuple[tuple[str, str, str, Callable[[NodeUnderTest], Awaitable[None]]], ...]] = (
    ("own-live-form", "2.4, step 3", "the live document is at its place, as JSON, without a redirect", _form),
    ("own-live-signed", "3.4", "the live document is signed by the live role of the root that it names", _live_signed),
    ("own-live-times", "3.6, step 3", "it is issued, unexpired, and valid for seven days at most", _live_times),
    ("own-root-signed", "3.6, step 2", "the root has the hash that live names, is signed and unexpired", _root_signed),
    ("own-root-chain", "3.4", "old roots stay available, and each is signed by the keys before it", _root_chain),
    ("own-root-missing", "3.4", "a root that is not there is a 404", _unknown_path),
    ("own-endpoint", "2.7, step 1", "its link endpoint is published, and all endpoints have TLS", _endpoint),
    (
        "own-manifest-signed",
        "3.6, step 4",
        "the manifest has the hash that live names, is signed and fits",
        _manifest_signed,
    ),
    ("own-module", "3.4", "the module has the size and the hash that the manifest names", _module),
)

CASES: Final = tuple(
    PartnerCase(id=id_, group="own-documents", section=section, says=says, steps=(Checks(check),))
    for id_, section, says, check in _RULES
)
