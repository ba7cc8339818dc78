"""Reading what original catalogues really emit. Source: data formats, sections 2.3 and 2.6."""

from __future__ import annotations

import json

import pytest

from catalogue_client.core.legacy import decode_descriptor, decode_source_package, source_package_url
from protofly.errors import Code, PeerError


def test_scalars_that_the_broker_turned_into_numbers_and_flags_are_text_again() -> None:
    descriptor = decode_descriptor(
        json.dumps(
            {
                "cguid": 40002,
                "objectName": "slack.slack.com",
                "version": 1.1,
                "interworking": "true",
                "hypertyType": "chat",
                "configuration": '{"url": "wss://mn.b.example/ws", "maxBuffer": 5}',
                "constraints": {"wasm": "true", "browser": False, "node": 1},
                "sourcePackage": {"sourceCodeClassname": "X", "sourceCode": "text"},
            }
        ).encode(),
        domain="b.example",
    )
    assert (descriptor.cguid, descriptor.version, descriptor.is_interworking) == ("40002", "1.1", True)
    assert descriptor.configuration == {"url": "wss://mn.b.example/ws", "maxBuffer": "5"}
    assert descriptor.constraints == {"wasm": True, "browser": False, "node": True}
    assert descriptor.hyperty_types == ("chat",)
    assert descriptor.source_package is not None
    assert descriptor.source_package.code == b"text"


def test_empty_lists_for_objects_and_missing_members_are_read() -> None:
    raw = b'{"objectName":"x","configuration":[],"constraints":[],"hypertyType":["chat","audio"],"sourcePackage":""}'
    descriptor = decode_descriptor(raw, domain="b.example")
    assert (descriptor.configuration, descriptor.constraints, descriptor.source_package) == ({}, {}, None)
    assert descriptor.hyperty_types == ("chat", "audio")


@pytest.mark.parametrize("text", [" {}", ' {"url":"x"}', '[{"url":"x"}]', '"url"', "{", "", "null"])
def test_text_that_does_not_begin_as_an_object_stands_for_none(text: str) -> None:
    raw = json.dumps({"objectName": "x", "configuration": text}).encode()
    assert decode_descriptor(raw, domain="b.example").configuration == {}


@pytest.mark.parametrize("raw", [b"[]", b"{}", b'{"objectName":"default"}', b'{"objectName":"../x"}', b"no json"])
def test_descriptor_without_a_usable_name_is_refused(raw: bytes) -> None:
    with pytest.raises(PeerError) as caught:
        decode_descriptor(raw, domain="b.example")
    assert caught.value.code is Code.DOCUMENT_MALFORMED


def test_source_package_with_the_capital_s_of_the_specification_is_read() -> None:
    package = decode_source_package(
        b'{"SourceCodeClassname":"X","encoding":"base64","sourceCode":"AGFzbQ=="}', domain="b.example"
    )
    assert (package.class_name, package.code) == ("X", b"\0asm")


@pytest.mark.parametrize(
    "url",
    [
        "hyperty-catalogue://catalogue.b.example/.well-known/sourcepackage/X",
        "https://catalogue.b.example/.well-known/sourcepackage/X",
        "/sourcepackage/X",
        "/sourcePackage/X",
    ],
)
def test_package_url_is_computed_from_the_authority_that_was_asked(url: str) -> None:
    descriptor = decode_descriptor(
        json.dumps({"objectName": "x", "sourcePackageURL": url}).encode(), domain="b.example"
    )
    computed = source_package_url(descriptor, "catalogue.b.example", domain="b.example")
    assert computed == "https://catalogue.b.example/.well-known/sourcepackage/X"
