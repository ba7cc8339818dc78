"""Attacks by way of unsigned catalogues. Source: trust and hosts, section 7, row 31."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue_client.core import legacy
from catalogue_client.core.legacy import decode_descriptor, decode_source_package, source_package_url
from protofly import limits
from protofly.errors import Code, PeerError
from protofly.signatures import parse_strict
from tests.support.repository import MODULE, PublishedDomain, World

DESCRIPTOR_URL = "https://catalogue.b.example/.well-known/protocolstub/default"
PACKAGE_URL = "https://catalogue.b.example/.well-known/sourcepackage/BNodeStub"
DESCRIPTOR: dict[str, object] = {
    "objectName": "bNodeStub",
    "version": 1.4,
    "sourcePackageURL": "hyperty-catalogue://catalogue.b.example/.well-known/sourcepackage/BNodeStub",
}
PACKAGE = {"sourceCodeClassname": "BNodeStub", "encoding": "base64", "sourceCode": base64.b64encode(MODULE).decode()}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    published = PublishedDomain()
    published.files = {DESCRIPTOR_URL: json.dumps(DESCRIPTOR).encode(), PACKAGE_URL: json.dumps(PACKAGE).encode()}
    world = World(tmp_path, published)
    yield world
    world.close()


async def test_unsigned_catalogue_is_read_to_be_looked_at(world: World) -> None:
    descriptor, code = await world.client.read_unsigned("b.example")
    assert (descriptor.object_name, descriptor.version, code) == ("bNodeStub", "1.4", MODULE)


async def test_unsigned_catalogue_of_a_domain_that_has_signed_is_not_even_shown(world: World) -> None:
    world.b.publish_stub(serial=1)
    world.b.publish_root()
    world.b.publish_live()
    await world.refresh()
    asked = len(world.fetcher.requests)
    with pytest.raises(PeerError) as caught:
        await world.client.read_unsigned("b.example")
    assert (caught.value.code, len(world.fetcher.requests)) == (Code.UNSIGNED_REFUSED, asked)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/.well-known/sourcepackage/BNodeStub",
        "hyperty-catalogue://evil.example/.well-known/sourcepackage/BNodeStub",
        "https://catalogue.b.example.evil.example/.well-known/sourcepackage/BNodeStub",
        "https://catalogue.b.example@evil.example/.well-known/sourcepackage/BNodeStub",
        "https://catalogue.b.example:22/.well-known/sourcepackage/BNodeStub",
        "//evil.example/.well-known/sourcepackage/BNodeStub",
        "file:///etc/passwd",
        "file://catalogue.b.example/.well-known/sourcepackage/BNodeStub",
        "http://catalogue.b.example/.well-known/sourcepackage/BNodeStub",
        "/.well-known/sourcepackage/../../admin",
        "/sourcepackage/a/b",
        "/sourcepackage/",
        "/sourcepackage/X?y=1",
        "/restart",
        "",
    ],
)
async def test_source_package_elsewhere_is_never_followed(world: World, url: str) -> None:
    world.b.files[DESCRIPTOR_URL] = json.dumps({**DESCRIPTOR, "sourcePackageURL": url}).encode()
    with pytest.raises(PeerError) as caught:
        await world.client.read_unsigned("b.example")
    assert caught.value.code is Code.ADDRESS_REFUSED
    assert world.fetcher.requests == [DESCRIPTOR_URL]


@given(raw=st.binary(max_size=256))
def test_any_bytes_give_a_value_or_a_peer_error(raw: bytes) -> None:
    with contextlib.suppress(PeerError):
        decode_source_package(raw, domain="b.example")
    with contextlib.suppress(PeerError):
        decode_descriptor(raw, domain="b.example")


@given(url=st.text(max_size=80))
def test_any_package_url_stays_on_the_authority_or_is_refused(url: str) -> None:
    descriptor = decode_descriptor(
        json.dumps({"objectName": "x", "sourcePackageURL": url}).encode("utf-8", "replace"), domain="b.example"
    )
    with contextlib.suppress(PeerError):
        assert source_package_url(descriptor, "catalogue.b.example", domain="b.example").startswith(
            "https://catalogue.b.example/.well-known/sourcepackage/"
        )


LONG = limits.MODULE_BYTES * 4 // 3
CROWDS = {
    "lists": b'{"a":[' + b"[]," * (LONG // 3) + b"1]}",
    "objects": b'{"a":[' + b"{}," * (LONG // 3) + b"1]}",
    "members": b"{" + b",".join(b'"%d":1' % number for number in range(LONG // 10)) + b"}",
    "beside some code": b'{"sourceCode":"AGFzbQ==","encoding":"base64","a":[' + b"[]," * (LONG // 3) + b"1]}",
    "in the code": b'{"sourceCode":[' + b"[]," * (LONG // 3) + b"1]}",
    "in the package": b'{"objectName":"x","sourcePackage":{"sourceCode":"x","a":[' + b"[]," * (LONG // 3) + b"1]}}",
    "code twice": b'{"sourceCode":"' + b"A" * LONG + b'","sourceCode":"' + b"A" * LONG + b'"}',
    "code that is a name": b'{"' + b"A" * LONG + b'":1,"sourceCode":"' + b"A" * LONG + b'"}',
}
"""As long as the answer with a module may be, and with a million values."""


@pytest.mark.parametrize("raw", CROWDS.values(), ids=list(CROWDS))
def test_a_long_answer_is_refused_before_its_values_are_made(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def noted(text: bytes) -> object:
        parsed.append(len(text))
        return parse_strict(text)

    monkeypatch.setattr(legacy, "parse_strict", noted)
    for decode in (decode_source_package, decode_descriptor):
        with pytest.raises(PeerError, check=lambda error: error.code is Code.DOCUMENT_MALFORMED):
            decode(raw, domain="b.example")
    assert max(parsed, default=0) <= limits.DESCRIPTOR_BYTES


@pytest.mark.parametrize("spaces", [b"", b" \n"])
def test_a_long_module_in_a_package_and_in_a_descriptor_is_read(spaces: bytes) -> None:
    module = bytes(range(256)) * (limits.MODULE_BYTES // 256)
    code = base64.b64encode(module)
    package = b'{"encoding":"base64",' + spaces + b'"sourceCode"' + spaces + b":" + spaces + b'"' + code + b'"}'
    assert decode_source_package(package, domain="b.example").code == module
    descriptor = decode_descriptor(b'{"objectName":"x","sourcePackage":' + package + b"}", domain="b.example")
    assert descriptor.source_package is not None
    assert descriptor.source_package.code == module
