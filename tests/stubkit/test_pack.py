"""Catalogue entries, read by the tolerant reader of original catalogues."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue_client.core.legacy import decode_descriptor, decode_source_package, source_package_url
from protofly.errors import Code, PeerError, SettingsError
from stubkit.keys import make_keys
from stubkit.pack import build_descriptor, build_source_package, class_name, pack_stub
from stubkit.sign import StubRelease, sign_manifest

ECHO = Path(__file__).parents[2] / "examples" / "stubs" / "echo" / "echo.wasm"
AUTHORITY = "catalogue.b.example"


def test_descriptor_has_the_members_of_the_original_data_model() -> None:
    raw = build_descriptor(
        name="bNodeStub",
        version="1.4.0",
        description="connects a message node to b.example",
        authority=AUTHORITY,
    )
    assert json.loads(raw) == {
        "cguid": "4" + hashlib.md5(b"bNodeStub").hexdigest(),
        "type": "PROTOSTUB",
        "objectName": "bNodeStub",
        "version": "1.4.0",
        "description": "connects a message node to b.example",
        "language": "WASM",
        "sourcePackageURL": "hyperty-catalogue://catalogue.b.example/.well-known/sourcepackage/BNodeStub",
        "signature": "",
        "messageSchemas": [],
        "configuration": {},
        "constraints": {"wasm": True, "wss": True},
        "dataObjects": [],
        "hypertyType": [],
        "interworking": False,
        "idpProxy": False,
    }


@given(module=st.binary(max_size=500))
def test_source_package_carries_the_module_and_the_md5_of_what_is_stored(module: bytes) -> None:
    raw = build_source_package(module, "b-node")
    members = json.loads(raw)
    assert base64.b64decode(members["sourceCode"], validate=True) == module
    assert members["md5"] == hashlib.md5(members["sourceCode"].encode()).hexdigest()
    assert (members["encoding"], members["sourceCodeClassname"], members["signature"]) == ("base64", "BNode", "")


def test_packed_stub_is_read_back_by_the_reader_of_original_catalogues(tmp_path: Path) -> None:
    release = StubRelease(
        domain="b.example", name="echo", serial=1, version="1.0.0", urls=["https://b.example/echo.wasm"]
    )
    manifest = tmp_path / "manifest.json"
    manifest.write_bytes(sign_manifest(make_keys(), ECHO.read_bytes(), release, now=1_795_219_200.0))
    packed = pack_stub(ECHO, tmp_path / "site" / "catalogue", authority=AUTHORITY, manifest=manifest)
    descriptor = decode_descriptor(packed.descriptor.read_bytes(), domain="b.example")
    package = decode_source_package(packed.source_package.read_bytes(), domain="b.example")
    assert (descriptor.object_name, descriptor.version, descriptor.language) == ("echo", "1.0.0", "WASM")
    assert source_package_url(descriptor, AUTHORITY, domain="b.example").endswith(
        f"/sourcepackage/{package.class_name}"
    )
    assert package.code == ECHO.read_bytes()
    assert json.loads(package.signature) == json.loads(descriptor.signature) == json.loads(manifest.read_bytes())


@pytest.mark.parametrize("ranges", [(), ("sip://legacy.example",)])
def test_descriptor_says_of_interworking_what_the_manifest_has_signed(tmp_path: Path, ranges: tuple[str, ...]) -> None:
    release = StubRelease(
        domain="sip.legacy.example", name="echo", serial=1, version="1.0.0", urls=["https://x.example/m"], ranges=ranges
    )
    manifest = tmp_path / "manifest.json"
    manifest.write_bytes(sign_manifest(make_keys(), ECHO.read_bytes(), release, now=1_795_219_200.0))
    packed = pack_stub(ECHO, tmp_path / "site", authority=AUTHORITY, manifest=manifest)
    assert decode_descriptor(packed.descriptor.read_bytes(), domain="x").is_interworking == bool(ranges)


def test_ranges_that_readers_would_refuse_are_not_signed() -> None:
    release = StubRelease(
        domain="b.example",
        name="echo",
        serial=1,
        version="1",
        urls=["https://x.example/m"],
        ranges=["user://b.example"],
    )
    with pytest.raises(SettingsError, match="no legacy's"):
        sign_manifest(make_keys(), ECHO.read_bytes(), release, now=1_795_219_200.0)


def test_module_that_breaks_the_contract_is_not_packed(tmp_path: Path) -> None:
    bad = tmp_path / "bad.wasm"
    bad.write_bytes(b"\0asm\x01\0\0\0")
    with pytest.raises(PeerError, check=lambda error: error.code is Code.ABI_UNSUPPORTED):
        pack_stub(bad, tmp_path, authority=AUTHORITY)
    assert list(tmp_path.iterdir()) == [bad]


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nothing\.wasm"):
        pack_stub(tmp_path / "nothing.wasm", tmp_path, authority=AUTHORITY)


def test_manifest_that_is_no_json_is_refused() -> None:
    with pytest.raises(SettingsError, match="not an envelope"):
        build_source_package(b"x", "echo", manifest_envelope=b"\xff{")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("trapezoid-link", "TrapezoidLink"), ("bNodeStub", "BNodeStub"), ("a_b.c", "ABC"), ("7", "7")],
)
def test_class_name_follows_the_object_name(name: str, expected: str) -> None:
    assert class_name(name) == expected


@pytest.mark.parametrize("name", ["", "default", "a/b", "ü", "-x", "x" * 65, "a b", "x\n"])
def test_unusable_object_name_is_refused(name: str) -> None:
    with pytest.raises(SettingsError):
        class_name(name)
