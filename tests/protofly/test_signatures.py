"""Keys, their forms and the text of signed documents: what is not exactly so is refused."""

from __future__ import annotations

import base64

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed448

from protofly.errors import Code, PeerError
from protofly.signatures import KeyRecord, SigningKey, decode_envelope, is_usable, parse_strict, sign_envelope

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
