"""Keys, their forms and the text of signed documents: what is not exactly so is refused."""

from __future__ import annotations

import base64

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448

from protofly.errors import Code, PeerError
from protofly.signatures import (
    KeyRecord,
    SigningKey,
    base64url,
    decode_envelope,
    domain_of_pem,
    is_fingerprint,
    is_usable,
    parse_strict,
    sign_envelope,
)

ED25519 = SigningKey.from_seed("K1", b"\x01" * 32)
P256 = SigningKey.from_seed("K2", b"\x02" * 32, alg="p256")


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_a_json_web_key_has_the_public_half_of_its_algorithm() -> None:
    jwk = ED25519.jwk()
    assert {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": "K1", "use": "sig", "x": ED25519.record().pub} == jwk
    jwk = P256.jwk()
    assert (jwk["kty"], jwk["crv"], jwk["alg"], jwk["kid"]) == ("EC", "P-256", "ES256", "K2")
    assert b"\x04" + decoded(jwk["x"]) + decoded(jwk["y"]) == decoded(P256.record().pub)


def test_a_private_key_of_another_algorithm_is_refused() -> None:
    pem = ed448.Ed448PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(ValueError, match="neither"):
        SigningKey.from_pem("K1", pem)


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_public_key_of_another_length_is_not_usable(size: int) -> None:
    assert is_usable(ED25519.record())
    pub = base64.urlsafe_b64encode(b"\x05" * size).rstrip(b"=").decode()
    assert not is_usable(KeyRecord(alg="ed25519", pub=pub))


def test_ids_of_keys_that_are_not_there_neither_count_nor_exclude() -> None:
    envelope = decode_envelope(sign_envelope(b"{}", "type", [ED25519, P256]))
    keys = {"K1": ED25519.record()}
    assert envelope.signers(keys, allowed=["K1", "K2"], excluded=["K2"]) == 1
    assert envelope.signers(keys, allowed=["K2"]) == 0


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_numbers_that_are_none_are_refused(word: str) -> None:
    assert parse_strict(b'{"a":1e300}') == {"a": 1e300}
    with pytest.raises(ValueError, match=r"JSON|range"):
        parse_strict(b'{"a":%b}' % word.encode())


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_documents_are_nested_up_to_32_levels(opening: bytes, closing: bytes) -> None:
    def nested(levels: int) -> bytes:
        return b"[[]," + opening * (levels - 1) + b"1" + closing * (levels - 1) + b"]"

    parse_strict(nested(31))
    parse_strict(b"[" + b"[]," * 40 + b"{}]")
    with pytest.raises(ValueError, match="nested"):
        parse_strict(nested(33))


def test_an_envelope_without_a_signature_is_malformed() -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.ENVELOPE_MALFORMED):
        decode_envelope(b'{"payloadType":"t","payload":"","signatures":[]}')


def test_a_key_record_takes_128_characters() -> None:
    assert msgspec.convert({"alg": "ed25519", "pub": "A" * 128}, KeyRecord).pub == "A" * 128
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"alg": "ed25519", "pub": "A" * 129}, KeyRecord)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        *((base64url(bytes(range(size))), size == 32) for size in range(30, 36)),
        *((base64url(b"\xff" * 32), True), (base64url(b"\xff" * 32) + "=", False), ("_" * 43, False), ("", False)),
        *(("!" * 43, False), ("+" * 42 + "8", False), ("\u00e9" * 43, False), (base64url(bytes(32)) + "\n", False)),
    ],
)
def test_a_fingerprint_is_32_bytes_in_their_one_spelling(text: str, is_one: bool) -> None:
    assert is_fingerprint(text) is is_one


@pytest.mark.parametrize("first", [0x02, 0x03, 0x05, 0x06, 0x07])
def test_a_point_in_another_form_is_not_usable(first: int) -> None:
    raw = decoded(P256.record().pub)
    assert is_usable(KeyRecord(alg="p256", pub=base64url(raw)))
    assert not is_usable(KeyRecord(alg="p256", pub=base64url(bytes([first]) + raw[1:])))
    assert not is_usable(KeyRecord(alg="p256", pub=base64url(bytes([2 + raw[64] % 2]) + raw[1:33])))


def test_the_file_of_a_key_says_whose_it_is_in_front_of_the_key() -> None:
    assert (
        domain_of_pem(b"Key: K1\nDomain: b.example \n-----BEGIN X-----\nDomain: c.example\n-----END X-----")
        == "b.example"
    )
    assert domain_of_pem(b"-----BEGIN X-----\nDomain: c.example\n-----END X-----\nDomain: d.example") == ""


P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@pytest.mark.parametrize("number", [0, 1, P256_ORDER - 2, P256_ORDER - 1, P256_ORDER, P256_ORDER + 1, (1 << 256) - 1])
def test_every_seed_gives_a_key_of_either_kind(number: int) -> None:
    seed = number.to_bytes(32)
    for alg in ("ed25519", "p256"):
        assert is_usable(SigningKey.from_seed("K1", seed, alg=alg).record())
    private = SigningKey.from_seed("K1", seed, alg="p256").private
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.private_numbers().private_value == number % (P256_ORDER - 1) + 1


@pytest.mark.parametrize("y", [0, 1, (1 << 255) - 20, (1 << 255) - 19, (1 << 255) - 18, (1 << 255) - 1])
@pytest.mark.parametrize("sign", [0, 1])
def test_a_point_of_small_order_or_beyond_the_field_is_not_usable(y: int, sign: int) -> None:
    assert not is_usable(KeyRecord(alg="ed25519", pub=base64url((sign << 255 | y).to_bytes(32, "little"))))


@pytest.mark.parametrize("half", ["\\ud83d", "\\ude00", "\\ude00\\ud83d"])
def test_half_a_character_is_in_no_signed_document(half: str) -> None:
    assert parse_strict(b'{"a":"\\ud83d\\ude00"}') == {"a": "\U0001f600"}
    for text in ('{"a":"%s"}', '{"%s":1}', '["%s"]'):
        with pytest.raises(ValueError, match="surrogates not allowed"):
            parse_strict((text % half).encode())


def test_a_document_has_32_levels_and_not_33() -> None:
    def nested(levels: int) -> bytes:
        return b"[" * levels + b"]" * levels

    assert parse_strict(nested(32))
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_strict(nested(33))
