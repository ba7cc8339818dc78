"""Documents, keys, envelopes: what is written is read back, and fingerprints mean what they say."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from catalogue_client.core.location import Location, kept_location
from catalogue_client.core.selection import fitting_stubs, select_stub
from protofly.documents import (
    Abi,
    DocumentBundle,
    Live,
    SigningKey,
    StubReference,
    decode_envelope,
    decode_live,
    decode_manifest,
    decode_root,
    document_sha256,
    encode_document,
    key_set_fingerprint,
    pae,
    sign_document,
    sign_envelope,
    verify_signature,
)
from protofly.errors import Code, MisuseError, PeerError
from protofly.signatures import base64url, domain_of_pem
from tests.support.repository import DAY, START, PublishedDomain, moment, signing_key

B = PublishedDomain()


def test_pre_authentication_encoding_is_that_of_the_dsse_specification() -> None:
    encoded = pae("http://example.com/HelloWorld", b"hello world")
    assert encoded == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_documents_survive_encoding() -> None:
    assert decode_root(encode_document(B.root), domain="b.example") == B.root
    assert decode_live(encode_document(B.live), domain="b.example") == B.live
    assert decode_manifest(encode_document(B.manifest), domain="b.example") == B.manifest


def test_unknown_members_are_ignored_and_unknown_spec_is_not() -> None:
    members = json.loads(encode_document(B.live))
    assert decode_live(json.dumps({**members, "future": [1]}).encode(), domain="b.example") == B.live
    with pytest.raises(PeerError) as caught:
        decode_live(json.dumps({**members, "spec": "rmn-live/2"}).encode(), domain="b.example")
    assert caught.value.code is Code.DOCUMENT_MALFORMED


@pytest.mark.parametrize("alg", ["ed25519", "p256"])
def test_key_survives_pem_and_signs_what_its_record_verifies(alg: Any) -> None:
    key = signing_key("K1", alg=alg)
    again = SigningKey.from_pem("K1", key.to_pem())
    assert again.record() == key.record()
    assert verify_signature(key.record(), again.sign(b"data"), b"data")
    assert not verify_signature(key.record(), again.sign(b"data"), b"other")
    assert "private" not in repr(key)


def test_a_key_file_says_whose_key_it_holds_before_the_key() -> None:
    key = signing_key("K1")
    named = key.to_pem("b.example")
    assert (domain_of_pem(named), domain_of_pem(key.to_pem())) == ("b.example", "")
    assert domain_of_pem(b"Made: today\n" + named) == "b.example"
    assert domain_of_pem(key.to_pem() + b"Domain: c.example\n") == ""
    assert SigningKey.from_pem("K1", named).record() == key.record()


def test_seed_of_wrong_length_and_foreign_pem_are_refused() -> None:
    with pytest.raises(MisuseError):
        SigningKey.from_seed("K1", b"short")
    with pytest.raises(ValueError, match="PKCS"):
        SigningKey.from_pem("K1", b"not a key")


def test_key_record_bounds_its_own_use() -> None:
    record = signing_key("N1").record(nbf=moment(START), exp=moment(START + DAY))
    assert not record.is_valid_at(START - 1)
    assert record.is_valid_at(START)
    assert not record.is_valid_at(START + DAY)
    assert signing_key("N1").record().is_valid_at(0)


def test_both_base64_alphabets_are_read() -> None:
    key = signing_key("K1")
    envelope = json.loads(sign_envelope(b"\xfb\xff\xfe", "type", [key]))
    for member in (envelope, envelope["signatures"][0]):
        for name in {"payload", "sig"} & set(member):
            member[name] = base64.urlsafe_b64encode(base64.b64decode(member[name])).decode()
    decoded = decode_envelope(json.dumps(envelope).encode())
    assert decoded.payload == b"\xfb\xff\xfe"
    assert decoded.signers({"K1": key.record()}, allowed=["K1"]) == 1


@pytest.mark.parametrize("mark", ["!", " ", "\n", "é"])
def test_base64_with_a_foreign_character_is_malformed_although_it_could_be_skipped(mark: str) -> None:
    envelope = json.loads(sign_envelope(b"payload", "type", [signing_key("K1")]))
    for holder, name in ((envelope, "payload"), (envelope["signatures"][0], "sig")):
        whole = holder[name]
        holder[name] = whole[:4] + mark + whole[4:]
        with pytest.raises(PeerError) as caught:
            decode_envelope(json.dumps(envelope).encode())
        assert caught.value.code is Code.ENVELOPE_MALFORMED
        holder[name] = whole
    assert decode_envelope(json.dumps(envelope).encode()).payload == b"payload"


def test_signature_without_a_hint_is_tried_against_all_keys_of_the_role() -> None:
    keys = [signing_key(name) for name in ("K1", "K2")]
    raw = sign_envelope(b"{}", "type", keys).replace(b'"K1"', b'""').replace(b'"K2"', b'""')
    assert decode_envelope(raw).signers({key.key_id: key.record() for key in keys}, allowed=["K1", "K2"]) == 2


def test_hash_of_a_document_does_not_change_with_its_signatures() -> None:
    keys = [signing_key("L1"), signing_key("L2")]
    assert document_sha256(sign_document(B.live, keys)) == document_sha256(sign_document(B.live, keys[:1]))


def test_fingerprint_is_of_the_root_keys_and_threshold_alone() -> None:
    other = PublishedDomain()
    other.publish_root(live_keys=("L2",), version=7)
    assert other.fingerprint == B.fingerprint
    other.publish_root(root_keys=("K1", "K2"))
    two_of_any = other.fingerprint
    other.publish_root(root_keys=("K2", "K1"))
    assert other.fingerprint == two_of_any
    other.publish_root(root_keys=("K1", "K2"), threshold=2)
    assert len({B.fingerprint, two_of_any, key_set_fingerprint(other.root)}) == 3


@given(payload=st.binary(max_size=200), kind=st.text(max_size=20))
def test_any_payload_survives_its_envelope(payload: bytes, kind: str) -> None:
    key = signing_key("K1")
    envelope = decode_envelope(sign_envelope(payload, kind, [key]))
    assert (envelope.payload, envelope.payload_type) == (payload, kind)
    assert envelope.signers({"K1": key.record()}, allowed=["K1"]) == 1


def reference(name: str, serial: int, abi: Abi | None = None) -> StubReference:
    return StubReference(name=name, serial=serial, version="1", manifest_sha256="0" * 64, abi=abi)


def live_with(**stubs: StubReference) -> Live:
    return msgspec.structs.replace(B.live, stubs=stubs)


OURS, FOREIGN = Abi(name="trapezoid-stub", version="1.3"), Abi(name="rmn-stub", version="1.2")


def test_stub_is_chosen_by_entry_then_by_name_then_by_what_fits() -> None:
    assert select_stub(live_with(default=reference("x", 1), other=reference("y", 9))).name == "x"
    assert select_stub(live_with(default=reference("x", 1), other=reference("y", 9)), "y").name == "y"
    assert select_stub(live_with(default=reference("x", 1, FOREIGN), b=reference("y", 2, OURS))).name == "y"
    assert select_stub(live_with(a=reference("x", 1), b=reference("x", 2)), "x").serial == 2


def test_alternatives_of_the_default_stub_follow_it_and_nothing_else_does() -> None:
    def numbered(name: str, digit: str, abi: Abi | None = None) -> StubReference:
        return msgspec.structs.replace(reference(name, 1, abi), manifest_sha256=digit * 64)

    live = live_with(
        **{
            "default-tcp": numbered("t", "3"),
            "default": numbered("d", "1"),
            "default-old": numbered("o", "2"),
            "default-same": numbered("d", "1"),
            "default-foreign": numbered("f", "5", FOREIGN),
            "for-c": numbered("c", "4"),
            "defaults": numbered("n", "6"),
        }
    )
    assert [one.name for one in fitting_stubs(live)] == ["d", "o", "t"]
    assert [one.name for one in fitting_stubs(live, "c")] == ["c"]
    assert [one.name for one in fitting_stubs(live, "default-tcp")] == ["t"]


def test_no_stub_and_no_fitting_stub_are_distinguished() -> None:
    for stubs, wanted in (({}, "default"), ({"a": reference("x", 1)}, "y")):
        with pytest.raises(PeerError) as caught:
            select_stub(live_with(**stubs), wanted)
        assert caught.value.code is Code.SERVICE_DECLINED
    with pytest.raises(PeerError) as caught:
        select_stub(live_with(default=reference("x", 1, FOREIGN)))
    assert caught.value.code is Code.ABI_UNSUPPORTED
    for wanted in ("a", "x"):  # by its entry and by its name
        with pytest.raises(PeerError) as caught:
            select_stub(live_with(a=reference("x", 1, FOREIGN)), wanted)
        assert caught.value.code is Code.ABI_UNSUPPORTED


def test_location_overrides_the_line_for_its_own_host_only() -> None:
    plain = Location.of("b.example")
    assert plain.connect_to is None
    assert plain.root_url(3) == "https://b.example/.well-known/rethink-mn/root/3"
    assert plain.manifest_url("a/b") == "https://b.example/.well-known/rethink-mn/manifest/a%2Fb"
    moved = Location(domain="b.example", well_known_url=plain.well_known_url, connect_host="h.example")
    assert moved.connect_to == ("h.example", 443)
    assert moved.connect_to_for(plain.root_url(1)) == ("h.example", 443)
    assert moved.connect_to_for("https://catalogue.b.example/x") is None
    ported = Location(domain="b.example", well_known_url=plain.well_known_url, connect_port=8444)
    assert ported.connect_to == ("b.example", 8444)


def test_location_is_kept_with_cached_documents() -> None:
    bundle = DocumentBundle(domain="b.example", live=b"", fetched_at=0, fresh_until=0)
    assert kept_location(bundle) is None
    url = Location.of("b.example").well_known_url
    bundle = msgspec.structs.replace(bundle, well_known_url=url, connect_host="h", connect_port=1)
    kept = kept_location(bundle)
    assert kept is not None
    assert kept.connect_to == ("h", 1)


def test_a_role_names_only_keys_that_are_there() -> None:
    members = json.loads(encode_document(B.root))
    members["roles"]["live"]["keys"] = [*members["roles"]["live"]["keys"], "nobody"]
    with pytest.raises(PeerError, match="names a key that is not there"):
        decode_root(json.dumps(members).encode(), domain="b.example")


def test_one_key_under_two_names_does_not_reach_a_threshold_of_two() -> None:
    members = json.loads(encode_document(B.root))
    role = members["roles"]["root"]
    role |= {"keys": [role["keys"][0], "again"], "threshold": 2}
    members["keys"]["again"] = members["keys"][role["keys"][0]]
    with pytest.raises(PeerError, match="fewer keys than its threshold"):
        decode_root(json.dumps(members).encode(), domain="b.example")


def test_a_root_holds_no_weak_key_although_no_role_names_it() -> None:
    members = json.loads(encode_document(B.root))
    members["keys"]["weak"] = {"alg": "ed25519", "pub": base64url(bytes(32))}
    with pytest.raises(PeerError, match="key weak is malformed or weak"):
        decode_root(json.dumps(members).encode(), domain="b.example")


def test_a_live_document_holds_no_weak_node_key() -> None:
    members = json.loads(encode_document(B.live))
    members["node_keys"] = {"weak": {"alg": "ed25519", "pub": base64url(bytes(32))}}
    with pytest.raises(PeerError, match="key weak is malformed or weak"):
        decode_live(json.dumps(members).encode(), domain="b.example")


def test_endpoints_are_found_by_names_of_which_each_is_given_once() -> None:
    members = json.loads(encode_document(B.live))
    live = decode_live(json.dumps(members).encode(), domain="b.example")
    first = live.endpoints[0]
    assert (live.endpoint(first.name), live.endpoint("nobody")) == (first, None)
    members["endpoints"] = [members["endpoints"][0]] * 2
    with pytest.raises(PeerError, match="two endpoints have the same name"):
        decode_live(json.dumps(members).encode(), domain="b.example")


def test_a_key_of_another_curve_is_none_of_ours() -> None:
    other = ec.generate_private_key(ec.SECP384R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(ValueError, match="neither an Ed25519 nor a P-256 key"):
        SigningKey.from_pem("K1", other)


KEY = msgspec.to_builtins(signing_key("K1").record())
MOST = 2**53
LONGEST = ".".join(("a" * 63, "a" * 63, "a" * 63, "a" * 61))
"""A domain name of as many characters as there may be."""
RANGES = [f"tel:+49{number}*" for number in range(65)]


def endpoints(number: int) -> list[dict[str, Any]]:
    return [{"name": f"e{one}", "url": "wss://mn.b.example/link"} for one in range(number)]


def keyed(number: int, value: object, first: str = "K1") -> dict[str, object]:
    return {first: value} | {f"k{one}": value for one in range(number - 1)}


ROOT_BOUNDS: list[tuple[str, list[object], list[object]]] = [
    ("version", [1, MOST], [0, MOST + 1]),
    ("aliases", [["c.example"] * 64, [LONGEST]], [["c.example"] * 65, [LONGEST + "a"]]),
    ("keys", [keyed(1, KEY), keyed(64, KEY)], [{}, keyed(65, KEY)]),
    ("roles.live.keys", [["K1"], ["K1"] * 16], [[], ["K1"] * 17]),
    ("roles.live.threshold", [1], [0, 17]),
]
LIVE_BOUNDS: list[tuple[str, list[object], list[object]]] = [
    ("serial", [1, MOST], [0, MOST + 1]),
    ("endpoints", [endpoints(1), endpoints(16)], [[], endpoints(17)]),
    ("endpoints.0.spki", [["x" * 64] * 8], [["x" * 65], ["x"] * 9]),
    ("endpoints.0.url", ["wss://b.example/" + "x" * 2032], ["wss://b.example/" + "x" * 2033]),
    ("stubs", [{}, "of 64"], ["of 65"]),
    ("node_keys", [{}, keyed(64, KEY)], [keyed(65, KEY)]),
    ("revoked", [{"modules": ["0" * 64] * 512}], [{"modules": ["0" * 64] * 513}]),
    ("revoked", [{"keys": ["K1"] * 64}], [{"keys": ["K1"] * 65}]),
    ("revoked", [{"min_serial": keyed(64, 1)}], [{"min_serial": keyed(65, 1)}]),
    ("contact", ["x" * 256], ["x" * 257]),
]
MANIFEST_BOUNDS: list[tuple[str, list[object], list[object]]] = [
    ("module.size", [8, 32 << 20], [7, (32 << 20) + 1]),
    ("module.urls", [["http://b.example/"] * 8], [["http://b.example/"] * 9]),
    ("module.urls", [["http://b.example/" + "x" * 2031]], [["http://b.example/" + "x" * 2032]]),
    ("permissions.connect", [["mn"] * 16], [["mn"] * 17]),
    ("permissions.storage_bytes", [0, MOST], [-1, MOST + 1]),
    ("permissions.ranges", [RANGES[:64]], [RANGES]),
    ("needs.memory_bytes", [0, MOST], [-1, MOST + 1]),
    ("needs.call_ms", [0, 2**31], [-1, 2**31 + 1]),
    ("for_domains", [["x"] * 1000], [["x"] * 1001]),
    ("configuration", [keyed(16, 1)], [keyed(17, 1)]),
    ("events", [["x"] * 16], [["x"] * 17]),
]


def with_member(members: dict[str, Any], path: str, value: object) -> bytes:
    """A document with another value at a place such as `roles.live.keys`."""
    holder: Any = json.loads(json.dumps(members))
    whole = holder
    *way, last = path.split(".")
    for name in way:
        holder = holder[int(name)] if name.isdigit() else holder.setdefault(name, {})
    if isinstance(value, str) and value.startswith("of "):
        value = keyed(int(value[3:]), next(iter(holder[last].values())))
    holder[last] = value
    whole["interworking"] = bool(whole.get("permissions", {}).get("ranges"))
    return json.dumps(whole).encode()


@pytest.mark.parametrize(
    ("document", "decode", "bounds"),
    [
        (B.root, decode_root, ROOT_BOUNDS),
        (B.live, decode_live, LIVE_BOUNDS),
        (B.manifest, decode_manifest, MANIFEST_BOUNDS),
    ],
)
def test_each_member_has_its_bounds(
    document: Any, decode: Callable[..., object], bounds: list[tuple[str, list[object], list[object]]]
) -> None:
    members = json.loads(encode_document(document))
    if document is B.root:
        members["keys"] = {"K1": KEY}
        members["roles"] = {name: {"keys": ["K1"], "threshold": 1} for name in ("root", "live", "pkg")}
    for path, good, bad in bounds:
        for value in good:
            decode(with_member(members, path, value), domain="b.example")
        for value in bad:
            with pytest.raises(PeerError) as caught:
                decode(with_member(members, path, value), domain="b.example")
            assert caught.value.code is Code.DOCUMENT_MALFORMED
            assert f"$.{path.partition('.')[0]}" in caught.value.detail


def test_a_role_may_ask_for_sixteen_keys() -> None:
    names = [f"K{number}" for number in range(16)]
    members = json.loads(encode_document(B.root))
    members["keys"] = {name: msgspec.to_builtins(signing_key(name).record()) for name in names}
    members["roles"] = {name: {"keys": names, "threshold": 16} for name in ("root", "live", "pkg")}
    assert decode_root(json.dumps(members).encode(), domain="b.example").roles.pkg.threshold == 16


def test_a_document_that_is_nested_without_end_is_malformed() -> None:
    with pytest.raises(PeerError) as caught:
        decode_live(b"[" * 100_000, domain="b.example")
    assert caught.value.code is Code.DOCUMENT_MALFORMED


@pytest.mark.parametrize(
    ("name", "version", "is_supported"),
    [
        ("trapezoid-stub", "1", True),
        ("trapezoid-stub", "1.9", True),
        ("trapezoid-stub", "2.0", False),
        ("trapezoid-stub", "0.1", False),
        ("trapezoid-stub", "10", False),
        ("rmn-stub", "1", False),
    ],
)
def test_an_abi_of_our_name_and_major_version_is_supported(name: str, version: str, is_supported: bool) -> None:
    assert Abi(name=name, version=version).is_supported is is_supported
