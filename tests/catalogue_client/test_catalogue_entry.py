"""Addresses of catalogue entries: what they name, where it may be, and what is none."""

from __future__ import annotations

import pytest

from catalogue_client.core.catalogue_entry import CatalogueEntry, decode_entry, entry_of, places
from catalogue_client.core.legacy import Descriptor, decode_descriptor, decode_source_package, source_package_url
from protofly.errors import Code, PeerError

ENTRY = CatalogueEntry(domain="b.example", authority="b.example", kind="hyperty", name="Chat")


def code_of(address: str) -> Code:
    with pytest.raises(PeerError) as caught:
        entry_of(address)
    return caught.value.code


@pytest.mark.parametrize(
    ("path", "kind", "name", "attribute"),
    [
        ("hyperty/Chat", "hyperty", "Chat", ""),
        (".well-known/hyperty/Chat", "hyperty", "Chat", ""),
        (".well-known/protostub/default/version", "protocolstub", "default", "version"),
        ("DataObjectSchema/a_b.c-1", "dataschema", "a_b.c-1", ""),
        ("runtime/r/", "runtime", "r", ""),
        ("idp-proxy/" + "x" * 128, "idp-proxy", "x" * 128, ""),
    ],
)
def test_an_address_names_kind_name_and_attribute(path: str, kind: str, name: str, attribute: str) -> None:
    found = entry_of(f"hyperty-catalogue://catalogue.b.example/{path}")
    assert found == CatalogueEntry(
        domain="b.example", authority="catalogue.b.example", kind=kind, name=name, attribute=attribute
    )


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("https://b.example/hyperty/Chat", Code.BAD_BODY),
        ("hyperty-catalogue://b.example/hyperty", Code.BAD_BODY),
        ("hyperty-catalogue://b.example/", Code.BAD_BODY),
        ("hyperty-catalogue://b.example/hyperty/a/b/c", Code.BAD_BODY),
        ("hyperty-catalogue://b.example/hyperty/../secret", Code.BAD_BODY),
        ("hyperty-catalogue://b.example/hyperty/.hidden", Code.BAD_BODY),
        ("hyperty-catalogue://b.example/hyperty/a+b", Code.BAD_BODY),
        ("hyperty-catalogue://b.example/hyperty/" + "x" * 129, Code.BAD_BODY),
        ("hyperty-catalogue://b.example/sourcepackage/X", Code.NO_SUCH_SERVICE),
        ("hyperty-catalogue://b_.example/hyperty/Chat", Code.NAME_INVALID),
    ],
)
def test_an_address_that_names_no_entry_is_refused(address: str, code: Code) -> None:
    assert code_of(address) is code


def test_ours_is_asked_at_our_own_place_alone() -> None:
    assert places(ENTRY, own_url="https://ours:8444/", well_known_url="https://x.example/y") == [
        "https://ours:8444/.well-known/hyperty/Chat",
        "https://ours:8444/.well-known/hyperty/Chat.hy.json",
    ]


def test_others_are_asked_where_they_publish_then_by_name_each_once() -> None:
    path = "/.well-known/hyperty/Chat"
    hosts = ["https://pub.example:8444", "https://b.example", "https://catalogue.b.example"]
    found = places(ENTRY, well_known_url="https://pub.example:8444/.well-known/rethink-mn")
    assert found == [f"{host}{path}{suffix}" for host in hosts for suffix in ("", ".hy.json")]
    assert places(ENTRY) == found[2:]
    runtime = CatalogueEntry(domain="b.example", authority="b.example", kind="runtime", name="r")
    assert places(runtime) == [f"{host}/.well-known/runtime/r" for host in hosts[1:]]


@pytest.mark.parametrize("raw", [b"", b"[]", b'"text"', b"null", b"[" * 100_000, b'{"a":1,"a":2}', b"\xff"])
def test_a_descriptor_that_is_no_object_is_malformed(raw: bytes) -> None:
    for decode in (decode_entry, decode_descriptor, decode_source_package):
        with pytest.raises(PeerError) as caught:
            decode(raw, domain="b.example")
        assert (caught.value.code, caught.value.domain) == (Code.DOCUMENT_MALFORMED, "b.example")
    assert decode_entry(b'{"a":1}', domain="b.example") == {"a": 1}


def descriptor(members: str) -> Descriptor:
    return decode_descriptor(b'{"objectName":"x",' + members.encode() + b"}", domain="b.example")


@pytest.mark.parametrize(
    ("members", "attribute", "expected"),
    [
        ('"configuration":"{broken"', "configuration", {}),
        ('"configuration":"{\\"a\\":1}"', "configuration", {"a": "1"}),
        ('"configuration":"[1]"', "configuration", {}),
        ('"configuration":"' + "[" * 5000 + '"', "configuration", {}),
        ('"constraints":{"a":"TRUE","b":"1","c":"no"}', "constraints", {"a": True, "b": True, "c": False}),
        ('"hypertyType":"chat"', "hyperty_types", ("chat",)),
        ('"hypertyType":""', "hyperty_types", ()),
        ('"hypertyType":7', "hyperty_types", ()),
        ('"hypertyType":{"a":1}', "hyperty_types", ()),
        ('"hypertyType":[1,true,null,2.5]', "hyperty_types", ("1", "true", "", "2.5")),
        ('"sourcePackage":{}', "source_package", None),
        ('"sourcePackage":7', "source_package", None),
        ('"version":false', "version", "false"),
        ('"version":null', "version", ""),
        ('"interworking":1', "is_interworking", True),
        ('"interworking":"no"', "is_interworking", False),
    ],
)
def test_members_of_old_descriptors_are_read_in_every_form(members: str, attribute: str, expected: object) -> None:
    assert getattr(descriptor(members), attribute) == expected


@pytest.mark.parametrize(("count", "read"), [(256, 256), (257, 0)])
def test_long_objects_are_left_out_whole(count: int, read: int) -> None:
    members = ",".join(f'"k{number}":"v"' for number in range(count))
    assert len(descriptor(f'"configuration":{{{members}}}').configuration) == read
    listed = ",".join(['"chat"'] * count)
    assert len(descriptor(f'"hypertyType":[{listed}]').hyperty_types) == 256


@pytest.mark.parametrize("package", ['{"sourceCode":7}', "{}", '{"encoding":"base64","sourceCode":"*"}'])
def test_a_package_without_readable_code_is_malformed(package: str) -> None:
    with pytest.raises(PeerError) as caught:
        decode_source_package(package.encode(), domain="b.example")
    assert caught.value.code is Code.DOCUMENT_MALFORMED


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/.well-known/sourcepackage/X",
        "http://catalogue.b.example/.well-known/sourcepackage/X",
        "https://catalogue.b.example/.well-known/other/X",
        "https://catalogue.b.example/.well-known/sourcepackage/../X",
        "https://catalogue.b.example/.well-known/sourcepackage/X?a=b",
        "https://catalogue.b.example/.well-known/sourcepackage/X#a",
        "https://catalogue.b.example@evil.example/sourcepackage/X",
        "",
    ],
)
def test_a_package_elsewhere_is_refused(url: str) -> None:
    found = decode_descriptor(b'{"objectName":"x","sourcePackageURL":"%b"}' % url.encode(), domain="b.example")
    with pytest.raises(PeerError) as caught:
        source_package_url(found, "catalogue.b.example", domain="b.example")
    assert (caught.value.code, caught.value.domain) == (Code.ADDRESS_REFUSED, "b.example")
