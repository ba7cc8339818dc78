"""Attacks on envelopes, signatures and their JSON. Source: trust and hosts, section 7, rows 11 and 16 to 20."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from hypothesis import given
from hypothesis import strategies as st

from catalogue_client.core.trust import peek_root_version
from protofly.documents import (
    LIVE_TYPE,
    MANIFEST_TYPE,
    ROOT_TYPE,
    KeyRecord,
    base64url,
    decode_envelope,
    decode_live,
    decode_manifest,
    decode_root,
    encode_document,
    sign_envelope,
    verify_signature,
)
from protofly.errors import Code, PeerError
from tests.support.repository import PublishedDomain, World, signing_key

ED25519_ORDER = 2**252 + 27742317777372353535851937790883648493


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


async def refused_and_nothing_changed(world: World, code: Code) -> None:
    """The next refresh is refused with `code`; memory stays, and what was accepted before goes on."""
    before = world.state()
    with pytest.raises(PeerError) as caught:
        await world.provide()
    assert caught.value.code is code
    assert caught.value.domain == "b.example"
    assert world.state() == before
    if world.bundle is not None:
        trust = world.client.restore(world.b.location, world.anchor, world.bundle)
        assert trust is not None
        assert (await world.fetch_stub(trust)).serial == 1


# Row 16.


async def test_manifest_served_as_live_document_is_refused(world: World) -> None:
    await world.provide()
    world.b.files[world.b.location.well_known_url] = world.b.manifest_raw
    await refused_and_nothing_changed(world, Code.PAYLOAD_TYPE)


async def test_payload_type_changed_after_signing_is_refused(world: World) -> None:
    await world.provide()
    url = world.b.location.well_known_url
    signed_as_manifest = world.b.publish_live(payload_type=MANIFEST_TYPE)
    world.b.files[url] = signed_as_manifest.replace(MANIFEST_TYPE.encode(), LIVE_TYPE.encode())
    await refused_and_nothing_changed(world, Code.TOO_FEW_SIGNATURES)


async def test_payload_changed_after_signing_is_refused(world: World) -> None:
    await world.provide()
    envelope = json.loads(world.b.publish_live())
    payload = base64.b64decode(envelope["payload"]).replace(b"mn.b.example", b"mn.evil.test")
    envelope["payload"] = base64.b64encode(payload).decode()
    world.b.files[world.b.location.well_known_url] = json.dumps(envelope).encode()
    await refused_and_nothing_changed(world, Code.TOO_FEW_SIGNATURES)


# Row 17.


async def test_signature_by_an_unknown_key_is_refused(world: World) -> None:
    await world.provide()
    world.b.publish_live(signed_by=(signing_key("X9"),))
    await refused_and_nothing_changed(world, Code.TOO_FEW_SIGNATURES)


async def test_signature_under_a_known_id_by_an_unknown_key_is_refused(world: World) -> None:
    await world.provide()
    world.b.publish_live(signed_by=(signing_key("L1", of="evil.example"),))
    await refused_and_nothing_changed(world, Code.TOO_FEW_SIGNATURES)


@pytest.mark.parametrize("role", ["P1", "K1"])
async def test_signature_by_the_right_key_of_another_role_is_refused(world: World, role: str) -> None:
    await world.provide()
    world.b.publish_live(signed_by=(world.b.keys[role],))
    await refused_and_nothing_changed(world, Code.TOO_FEW_SIGNATURES)


async def test_documents_of_another_domain_are_refused(world: World) -> None:
    await world.provide()
    other = PublishedDomain("c.example")
    world.b.files[world.b.location.well_known_url] = other.files[other.location.well_known_url]
    await refused_and_nothing_changed(world, Code.TOO_FEW_SIGNATURES)


async def test_first_contact_with_the_documents_of_another_domain_is_refused(world: World) -> None:
    other = PublishedDomain("c.example")
    world.b.files[world.b.location.well_known_url] = other.files[other.location.well_known_url]
    world.b.files[world.b.location.root_url(1)] = other.root_raw
    await refused_and_nothing_changed(world, Code.WRONG_DOMAIN)


# Row 18.


async def test_threshold_is_not_met_by_one_key_signing_twice(world: World) -> None:
    world.b.publish_root(root_keys=("K1", "K2"), threshold=2, signed_by=("K1", "K1"))
    world.b.publish_live()
    await refused_and_nothing_changed(world, Code.TOO_FEW_SIGNATURES)
    world.b.publish_root(root_keys=("K1", "K2"), threshold=2)
    world.b.publish_live()
    assert (await world.provide()).serial == 1


async def test_threshold_cannot_be_met_by_one_key_under_two_ids(world: World) -> None:
    same = {"K1": world.b.keys["K1"].record(), "K2": world.b.keys["K1"].record()}
    world.b.publish_root(root_keys=("K1", "K2"), threshold=2, records=same, signed_by=("K1",))
    world.b.publish_live()
    await refused_and_nothing_changed(world, Code.DOCUMENT_MALFORMED)


def test_one_key_under_two_ids_counts_as_one_signer() -> None:
    key, again = signing_key("K1"), signing_key("K1")
    records = {"K1": key.record(), "K2": again.record()}
    raw = sign_envelope(b"{}", ROOT_TYPE, [key, key])
    assert decode_envelope(raw.replace(b"K1", b"K2", 1)).signers(records, allowed=["K1", "K2"]) == 1


# Row 19.


async def test_extra_invalid_signatures_beside_enough_valid_ones_do_no_harm(world: World) -> None:
    strangers = tuple(signing_key(name, of="evil.example") for name in ("L1", "X1", "X2"))
    world.b.publish_live(signed_by=(*strangers, world.b.keys["L1"]))
    assert (await world.provide()).serial == 1


def test_signatures_without_a_hint_cost_a_bounded_number_of_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[bytes] = []

    def count(_key: KeyRecord, signature: bytes, _data: bytes) -> bool:
        checked.append(signature)
        return False

    monkeypatch.setattr("protofly.signatures.verify_signature", count)
    records = {f"L{number}": signing_key(f"L{number}").record() for number in range(16)}
    raw = sign_envelope(b"{}", LIVE_TYPE, [signing_key("X")] * 32).replace(b'"X"', b'""')
    assert decode_envelope(raw).signers(records, allowed=list(records)) == 0
    assert len(checked) == 64


async def test_flood_of_signatures_is_refused_before_any_is_checked(world: World) -> None:
    await world.provide()
    world.b.publish_live(signed_by=(world.b.keys["L1"],) * 33)
    await refused_and_nothing_changed(world, Code.ENVELOPE_MALFORMED)


# Row 20.


@pytest.mark.parametrize("length", [0, 63, 65, 128])
def test_signature_of_another_length_is_refused(length: int) -> None:
    key = signing_key("L1")
    signature = (key.sign(b"data") * 3)[:length]
    assert not verify_signature(key.record(), signature, b"data")


def test_scalar_beyond_the_group_order_is_refused() -> None:
    key = signing_key("L1")
    signature = key.sign(b"data")
    assert verify_signature(key.record(), signature, b"data")
    scalar = int.from_bytes(signature[32:], "little") + ED25519_ORDER
    assert not verify_signature(key.record(), signature[:32] + scalar.to_bytes(32, "little"), b"data")


SMALL_ORDER = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000080",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]


@pytest.mark.parametrize("point", SMALL_ORDER)
async def test_small_order_and_non_canonical_keys_are_refused(world: World, point: str) -> None:
    weak = KeyRecord(alg="ed25519", pub=base64url(bytes.fromhex(point)))
    # Under such a key this "signature" holds for any message, in a verifier that is not strict.
    assert not verify_signature(weak, bytes.fromhex(point) + bytes(32), b"anything")
    world.b.publish_root(records={"L1": weak})
    world.b.publish_live()
    await refused_and_nothing_changed(world, Code.DOCUMENT_MALFORMED)


def test_p256_signature_in_der_is_refused_and_r_s_accepted() -> None:
    key = signing_key("L1", alg="p256")
    signature = key.sign(b"data")
    assert verify_signature(key.record(), signature, b"data")
    r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
    assert not verify_signature(key.record(), encode_dss_signature(r, s), b"data")
    assert not verify_signature(key.record(), bytes(64), b"data")


def test_p256_signature_with_a_zero_more_or_less_is_refused_although_its_numbers_are_right() -> None:
    key = signing_key("L1", alg="p256")
    signature = key.sign(b"data")
    assert not verify_signature(key.record(), signature[:32] + b"\0" + signature[32:], b"data")
    # One signature in 256 has an s that begins with a zero byte.
    with_zero = next(one for one in iter(lambda: key.sign(b"data"), b"") if not one[32])
    assert verify_signature(key.record(), with_zero, b"data")
    assert not verify_signature(key.record(), with_zero[:32] + with_zero[33:], b"data")


def test_key_of_one_algorithm_under_the_name_of_the_other_is_refused() -> None:
    edwards, nist = signing_key("L1"), signing_key("L1", alg="p256")
    assert not verify_signature(KeyRecord(alg="p256", pub=edwards.record().pub), edwards.sign(b"x"), b"x")
    assert not verify_signature(KeyRecord(alg="ed25519", pub=nist.record().pub), nist.sign(b"x"), b"x")


def test_second_spelling_of_a_key_is_refused() -> None:
    key = signing_key("L1")
    for pub in (key.record().pub + "=", key.record().pub.replace("_", "/").replace("-", "+") + "\n"):
        assert not verify_signature(KeyRecord(alg="ed25519", pub=pub), key.sign(b"x"), b"x")


# Row 11.

BAD_JSON = {
    "duplicate member": b'{"spec":"rmn-live/1","spec":"rmn-live/1"}',
    "NaN": b'{"x":NaN}',
    "infinity": b'{"x":-Infinity}',
    "number out of range": b'{"x":1e999}',
    "10,000 levels": b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "100 levels": b'{"x":' + b"[" * 100 + b"]" * 100 + b"}",
    "many members": b"{" + b",".join(b'"%d":0' % number for number in range(3_000)) + b"}",
    "invalid UTF-8": b'{"x":"\xff"}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"spec":"rmn-live/1"}'.encode("utf-16"),
    "huge integer": b'{"serial":' + b"9" * 5_000 + b"}",
    "lone surrogate": b'{"contact":"\\ud800"}',
    "not an object": b"[]",
    "nothing": b"",
}


@pytest.mark.parametrize("payload", BAD_JSON.values(), ids=BAD_JSON.keys())
async def test_broken_json_inside_a_valid_envelope_is_refused(world: World, payload: bytes) -> None:
    await world.provide()
    world.b.publish_live(payload=payload)
    await refused_and_nothing_changed(world, Code.DOCUMENT_MALFORMED)


@pytest.mark.parametrize("raw", BAD_JSON.values(), ids=BAD_JSON.keys())
async def test_broken_json_instead_of_an_envelope_is_refused(world: World, raw: bytes) -> None:
    await world.provide()
    world.b.files[world.b.location.well_known_url] = raw
    await refused_and_nothing_changed(world, Code.ENVELOPE_MALFORMED)


@given(raw=st.binary(max_size=512))
def test_any_bytes_give_a_document_or_a_peer_error(raw: bytes) -> None:
    for decode in (decode_root, decode_live, decode_manifest):
        with contextlib.suppress(PeerError):
            decode(raw, domain="b.example")
    with contextlib.suppress(PeerError):
        decode_envelope(raw)
    with contextlib.suppress(PeerError):
        peek_root_version(raw, domain="b.example")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
GOOD = PublishedDomain()


@given(member=st.sampled_from(sorted(json.loads(encode_document(GOOD.live)))), value=JSON)
def test_any_value_of_any_member_gives_a_document_or_a_peer_error(member: str, value: object) -> None:
    changed = {**json.loads(encode_document(GOOD.live)), member: value}
    with contextlib.suppress(PeerError):
        decode_live(json.dumps(changed).encode(), domain="b.example")
