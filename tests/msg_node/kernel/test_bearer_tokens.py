"""Bearer tokens of local issuers: which one opens which runtime. Pure: keys and clock are arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa, x25519
from joserfc import jws

from msg_node.kernel.bearer_tokens import TokenProof, check_token, introspect
from msg_node.kernel.credentials import Credentials, digest_of
from msg_node.kernel.issuer_keys import KEYS_PER_ISSUER, VerificationKey, key_of_pem, keys_of_jwks
from msg_node.kernel.proof import Offered
from msg_node.kernel.signed_tokens import ALGORITHMS, TokenRefusedError, issuer_of, looks_like_token
from protofly.errors import Code, PeerError
from protofly.limits import BEARER_TOKEN_CHARS
from tests.support.token_issuer import AUDIENCE, ISSUER, Algorithm, TokenIssuer, part

NOW = 1_795_219_200.0
SKEW = 60.0
ANA = "runtime://alpha.example/rt-ana"
LOGIN = TokenIssuer()


def checked(token: str, runtime: str = ANA, *, now: float = NOW, **rules: Any) -> TokenProof:
    return check_token(token, runtime, LOGIN.rules(**rules), LOGIN.keys, now=now)


def refusal(token: str, runtime: str = ANA, *, now: float = NOW, **rules: Any) -> str:
    with pytest.raises(PeerError) as caught:
        checked(token, runtime, now=now, **rules)
    assert caught.value.code is Code.BAD_TOKEN
    return caught.value.detail


@pytest.mark.parametrize("algorithm", ["EdDSA", "Ed25519", "ES256", "ES384", "ES512", "RS256", "PS256"])
def test_a_token_of_each_algorithm_proves_its_runtime(algorithm: Algorithm) -> None:
    issuer = TokenIssuer(algorithm=algorithm, key_id="one")
    proof = check_token(issuer.token(ANA, now=NOW), ANA, issuer.rules(), issuer.keys, now=NOW)
    assert proof == TokenProof(ISSUER, "ana", frozenset(), NOW + 300 + SKEW, is_in_full=True)


def test_algorithms_that_can_be_allowed_are_signatures_by_private_keys() -> None:
    assert not [name for name in ALGORITHMS if name == "none" or name.startswith("HS")]


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"iss": "https://login.beta.example"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"iss": 7}, "`iss` is no text"),
        ({"aud": "somebody.else"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": ["a", "b"]}, "another audience"),
        ({"aud": {AUDIENCE: 1}}, "another audience"),
        ({"exp": None}, "never expires"),
        ({"exp": "tomorrow"}, "`exp` is no point in time"),
        ({"exp": True}, "`exp` is no point in time"),
        ({"exp": 10**300}, "`exp` is no point in time"),
        ({"exp": -1}, "`exp` is no point in time"),
        ({"exp": 0}, "has expired"),
        ({"exp": 253_402_300_800}, "`exp` is no point in time"),
        ({"nbf": "x"}, "`nbf` is no point in time"),
        ({"iat": True}, "`iat` is no point in time"),
        ({"sub": None}, "subject"),
        ({"sub": ""}, "subject"),
        ({"sub": "a\nb"}, "subject"),
        ({"sub": "x" * 513}, "subject"),
        ({"sub": ["ana"]}, "`sub` is no text"),
        ({"runtime": None}, "not for this runtime"),
        ({"runtime": 7}, "not for this runtime"),
        ({"runtime": ""}, "not for this runtime"),
        ({"runtime": "runtime://alpha.example/rt-bo"}, "not for this runtime"),
        ({"runtime": "runtime://alpha.example/rt-b*"}, "not for this runtime"),
        ({"runtime": "runtime://alpha.exam*"}, "not for this runtime"),
        ({"runtime": [["runtime://alpha.example/*"]]}, "not for this runtime"),
    ],
)
def test_a_token_with_a_wrong_claim_is_refused(changes: dict[str, Any], detail: str) -> None:
    assert detail in refusal(LOGIN.token(**{"runtime": ANA, "now": NOW, **changes}))


def test_a_subject_may_have_so_many_characters() -> None:
    assert checked(LOGIN.token(ANA, now=NOW, sub="x" * 512)).subject == "x" * 512


@pytest.mark.parametrize(
    ("runtime", "is_in_full"),
    [
        (ANA, True),
        ("hyperty-runtime://ALPHA.example/rt-ana", True),
        ("runtime://alpha.example/rt-*", False),
        ("*", False),
        (["runtime://alpha.example/rt-bo", ANA], True),
        (["runtime://alpha.example/*", ANA], True),
    ],
)
def test_the_claim_names_a_runtime_in_full_or_by_pattern(runtime: object, is_in_full: bool) -> None:
    token = LOGIN.token(runtime, now=NOW)
    assert checked(token).is_in_full is is_in_full
    assert not introspect(token, LOGIN.rules(), LOGIN.keys, now=NOW).is_in_full  # of no runtime


def test_an_issuer_speaks_for_no_more_runtimes_than_the_settings_say() -> None:
    token = LOGIN.token("*", now=NOW)
    assert "not for this runtime" in refusal(token, "runtime://beta.example/rt-bo")
    assert "not for this runtime" in refusal(token, "runtime://alpha.example.evil/rt-ana")
    assert "not for this runtime" in refusal(token, ANA, runtimes=("runtime://alpha.example/guest-*",))


@pytest.mark.parametrize(
    ("now", "is_good"),
    [
        (NOW + 300 - 1, True),
        (NOW + 300 + SKEW - 1, True),
        (NOW + 300 + SKEW, False),
        (NOW - SKEW, True),
        (NOW - SKEW - 1, False),
    ],
)
def test_the_life_of_a_token_has_the_skew_at_both_ends(now: float, is_good: bool) -> None:
    for begin in ("nbf", "iat"):
        times: dict[str, Any] = {"iat": None, begin: NOW}
        token = LOGIN.token(ANA, now=NOW, **times)
        if is_good:
            assert checked(token, now=now).expires_at == NOW + 300 + SKEW
        else:
            assert refusal(token, now=now)


def test_without_skew_there_is_none() -> None:
    token = LOGIN.token(ANA, now=NOW)
    assert checked(token, now=NOW + 299, skew_seconds=0)
    assert "has expired" in refusal(token, now=NOW + 300, skew_seconds=0)
    assert "in the future" in refusal(token, now=NOW - 1, skew_seconds=0)
    assert "not valid yet" in refusal(LOGIN.token(ANA, now=NOW, nbf=NOW + 1), skew_seconds=0)


@pytest.mark.parametrize(
    ("header", "detail"),
    [
        ({"kid": "k2"}, "no key of its issuer"),
        ({"crit": ["b64"], "b64": False}, "extension"),
        ({"crit": ["exp"]}, "extension"),
        ({"b64": False}, "extension"),
        ({"alg": "EdDSA"}, "no key of its issuer"),
        ({"alg": "EdDSA", "kid": ""}, "no key of its issuer"),
        ({"alg": 7}, "`alg` is no text"),
        ({"kid": 7}, "`kid` is no text"),
        ({"typ": 7}, "`typ` is no text"),
        ({"typ": "dpop+jwt"}, "`typ`"),
        ({"typ": "logout+jwt"}, "`typ`"),
    ],
)
def test_a_token_with_a_strange_header_is_refused(header: dict[str, Any], detail: str) -> None:
    good, changed = LOGIN.token(ANA, now=NOW).split("."), {"alg": "ES256", "kid": "k1", **header}
    assert detail in refusal(".".join([part(changed), *good[1:]]))


@pytest.mark.parametrize(
    "header",
    [{}, {"typ": "JWT"}, {"typ": "at+jwt"}, {"typ": "application/at+jwt"}, {"kid": None}, {"made-by": "x"}],
)
def test_usual_headers_pass(header: dict[str, Any]) -> None:
    assert checked(LOGIN.token(ANA, now=NOW, header=header)).subject == "ana"


def test_a_token_that_names_no_key_needs_an_issuer_with_one() -> None:
    other = TokenIssuer(key_id="k2")
    token = LOGIN.token(ANA, now=NOW, header={"kid": None})
    with pytest.raises(PeerError, match="does not say which key"):
        check_token(token, ANA, LOGIN.rules(), [*LOGIN.keys, *other.keys], now=NOW)


def test_an_algorithm_that_the_settings_leave_out_is_refused() -> None:
    assert "algorithm" in refusal(LOGIN.token(ANA, now=NOW), algorithms=frozenset({"EdDSA"}))


@pytest.mark.parametrize(
    ("claims", "name", "roles"),
    [
        ({"roles": ["a", "b", 7]}, "roles", {"a", "b"}),
        ({"scope": "a b"}, "scope", {"a", "b"}),
        ({"realm_access": {"roles": ["a"]}}, "realm_access.roles", {"a"}),
        ({"https://alpha.example/roles": ["a"]}, "https://alpha.example/roles", {"a"}),
        ({"roles": ["operator"]}, "", set()),
        ({"roles": {"a": 1}}, "roles", set()),
        ({"realm_access": "x"}, "realm_access.roles", set()),
    ],
)
def test_roles_come_from_the_claim_that_the_settings_name(claims: dict[str, Any], name: str, roles: set[str]) -> None:
    assert checked(LOGIN.token(ANA, now=NOW, **claims), roles_claim=name).roles == roles


def test_the_runtime_may_stand_in_another_claim() -> None:
    assert checked(LOGIN.token(None, now=NOW, sub=ANA), runtime_claim="sub").subject == ANA


def test_a_token_may_live_until_the_end_of_the_year_9999() -> None:
    assert checked(LOGIN.token(ANA, now=NOW, exp=253_402_300_799, iat=0, nbf=0)).expires_at == 253_402_300_799 + SKEW


@pytest.mark.parametrize(
    ("payload", "detail"),
    [(b"{", "not JSON"), (b"\xff", "not JSON"), (b'{"iss":1,"iss":1}', "not JSON"), (b"[1]", "no object")],
)
def test_what_is_signed_is_an_object_of_claims(payload: bytes, detail: str) -> None:
    token = jws.serialize_compact({"alg": "ES256", "kid": "k1"}, payload, LOGIN.key)
    assert f"its payload is {detail}" in refusal(token)


@pytest.mark.parametrize(
    ("header", "detail"), [("!", "not JSON"), ("A", "not JSON"), ("e30x", "not JSON"), (part([1]), "no object")]
)
def test_a_header_is_an_object_in_base64url(header: str, detail: str) -> None:
    assert f"its header is {detail}" in refusal(".".join([header, *LOGIN.token(ANA, now=NOW).split(".")[1:]]))


@pytest.mark.parametrize(("kid", "lacks_key"), [("k2", True), ("k1", False)])
def test_only_a_token_whose_key_is_not_known_may_gain_one(kid: str, lacks_key: bool) -> None:
    token = TokenIssuer(key_id="k2").token(ANA, now=NOW, header={"kid": kid})
    with pytest.raises(TokenRefusedError) as caught:
        checked(token)
    assert caught.value.lacks_key is lacks_key


# Keys.


def test_a_key_verifies_with_its_own_algorithm_and_no_other() -> None:
    issuer = TokenIssuer(algorithm="RS256")
    token = issuer.token(ANA, now=NOW)
    [jwk] = issuer.jwks["keys"]
    [key], [limited] = (keys_of_jwks(json.dumps({"keys": [one]}).encode()) for one in (jwk, {**jwk, "alg": "PS256"}))
    assert key.payload_of(token, "RS256") is not None
    assert [key.payload_of(token, name) for name in ("PS256", "ES256", "HS256", "none")] == [None] * 4
    assert limited.algorithms == {"PS256"}
    assert limited.payload_of(token, "RS256") is None
    assert VerificationKey("k1", frozenset({"PS256"}), key.key).payload_of(token, "RS256") is None
    assert all(key.payload_of(text, "RS256") is None for text in ("", "a.b", token[:-9], f"{token}.x", "é.é.é"))


def test_a_public_key_in_pem_serves_tokens_of_any_key_name() -> None:
    pem = LOGIN.key.public_key.public_bytes(  # type: ignore[union-attr]
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert check_token(LOGIN.token(ANA, now=NOW), ANA, LOGIN.rules(), [key_of_pem(pem.decode())], now=NOW)


@pytest.mark.parametrize(
    ("jwks", "problem"),
    [
        ([], "not a JWK set"),
        ({"keys": {}}, "not a JWK set"),
        ({"keys": []}, "no key in it"),
        ({"keys": [7]}, "no object"),
        ({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}, "shared secret"),
        ({"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}, "without kid"),
        ({"keys": [{"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA", "kid": "k"}]}, "'k'"),
        ({"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "k"}]}, "2048 bits"),
        ({"keys": [{"kty": "RSA", "n": 7, "e": "AQAB"}]}, "no text"),
        ({"keys": [{"kty": "OKP", "crv": "Ed25519"}]}, "without kid"),
        ({"keys": [{"kty": "LATTICE", "kid": "q"}]}, "no key in it"),
        ({"keys": [{**LOGIN.jwks["keys"][0], "use": "enc"}]}, "no key in it"),
        ({"keys": [{**LOGIN.jwks["keys"][0], "use": 7}]}, "no text"),
        ({"keys": [{"kty": "LATTICE", "d": "x"}]}, "no key in it"),
        ({"keys": [{**LOGIN.jwks["keys"][0], "alg": "RS256"}]}, "no key in it"),
        ({"keys": [LOGIN.key.as_dict(private=True)]}, "is private"),
    ],
)
def test_a_broken_key_set_is_refused_in_words(jwks: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        keys_of_jwks(json.dumps(jwks).encode())


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"[" * 9000, b'{"keys": [], "keys": []}'])
def test_a_file_that_is_no_key_set_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        keys_of_jwks(raw)


def test_a_key_of_an_unknown_kind_beside_a_good_one_does_no_harm() -> None:
    jwks = {"keys": [{"kty": "LATTICE", "kid": "q"}, *LOGIN.jwks["keys"]]}
    assert [key.key_id for key in keys_of_jwks(json.dumps(jwks).encode())] == ["k1"]


def test_a_key_set_may_have_so_many_keys_and_not_one_more() -> None:
    keys = [*LOGIN.jwks["keys"], *({"kty": "LATTICE", "kid": f"q{number}"} for number in range(KEYS_PER_ISSUER - 1))]
    assert len(keys_of_jwks(json.dumps({"keys": keys}).encode())) == 1
    with pytest.raises(ValueError, match="at most 64"):
        keys_of_jwks(json.dumps({"keys": [*keys, {"kty": "LATTICE"}]}).encode())


@pytest.mark.parametrize("pem", ["", "nonsense", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"])
def test_what_is_no_pem_is_refused(pem: str) -> None:
    with pytest.raises(ValueError, match="not a public key"):
        key_of_pem(pem)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: x25519.X25519PrivateKey.generate().public_key(), "neither RSA"),
        (lambda: ec.generate_private_key(ec.SECP256K1()).public_key(), "neither RSA"),
        (lambda: rsa.generate_private_key(65537, 1024).public_key(), "2048 bits"),
    ],
)
def test_a_public_key_of_another_kind_or_too_weak_is_refused(make: Callable[[], Any], problem: str) -> None:
    pem = make().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(ValueError, match=problem):
        key_of_pem(pem.decode())


@pytest.mark.parametrize("chars", [256, 300, 341])
def test_a_weak_rsa_key_is_refused_before_the_library_warns(chars: int) -> None:
    weak = {"kty": "RSA", "n": "x" * (chars - 1) + "w", "e": "AQAB", "kid": "k"}
    with pytest.raises(ValueError, match="2048 bits"):
        keys_of_jwks(json.dumps({"keys": [weak]}).encode())


def test_a_token_of_any_key_name_is_tried_with_all_keys_without_one() -> None:
    def unnamed(issuer: TokenIssuer) -> VerificationKey:
        pem = issuer.key.public_key.public_bytes(  # type: ignore[union-attr]
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return key_of_pem(pem.decode())

    keys = [unnamed(TokenIssuer(key_id="k2")), unnamed(LOGIN)]
    assert check_token(LOGIN.token(ANA, now=NOW), ANA, LOGIN.rules(), keys, now=NOW).subject == "ana"
    with pytest.raises(PeerError, match="does not say which key"):
        check_token(LOGIN.token(ANA, now=NOW, header={"kid": None}), ANA, LOGIN.rules(), keys, now=NOW)


# Among other credentials.


def credentials_with(*issuers: TokenIssuer) -> Credentials:
    made = Credentials(allows_anonymous=False, issuers=[issuer.rules() for issuer in issuers])
    for issuer in issuers:
        made.set_issuer_keys(issuer.issuer, issuer.keys)
    return made


def test_the_credential_is_issuer_and_subject_whatever_the_token() -> None:
    gate = credentials_with(LOGIN)
    first = gate.check(Offered(LOGIN.token(ANA, now=NOW)), ANA, now=NOW)
    second = gate.check(Offered(LOGIN.token(ANA, now=NOW + 100)), ANA, now=NOW + 100)
    assert first.credential == second.credential == f"jwt {ISSUER} ana"
    assert gate.is_valid(first.credential, ANA)
    assert not credentials_with().is_valid(first.credential, ANA)
    assert gate.roles(first.credential, ANA, frozenset({"r"})) == {"r"}


def test_an_unknown_issuer_and_one_without_keys_are_refused() -> None:
    gate = Credentials(issuers=[LOGIN.rules()])
    with pytest.raises(PeerError, match="no key of its issuer"):
        gate.check(Offered(LOGIN.token(ANA, now=NOW)), ANA, now=NOW)
    with pytest.raises(PeerError, match=r"issuer .* not known"):
        gate.check(Offered(TokenIssuer("https://x.example").token(ANA, now=NOW)), ANA, now=NOW)


def test_new_keys_take_the_place_of_old_ones() -> None:
    gate, token = credentials_with(LOGIN), LOGIN.token(ANA, now=NOW)
    gate.set_issuer_keys(ISSUER, TokenIssuer(key_id="k2").keys)
    with pytest.raises(PeerError, match="no key of its issuer"):
        gate.check(Offered(token), ANA, now=NOW)


def test_form_and_issuer_are_read_without_belief() -> None:
    token = LOGIN.token(ANA, now=NOW)
    assert looks_like_token(token)
    assert issuer_of(token) == ISSUER
    assert not looks_like_token(token + "=")
    assert not looks_like_token("a.b")
    assert looks_like_token("a.b." + "c" * (BEARER_TOKEN_CHARS - 4))
    assert not looks_like_token("a.b." + "c" * (BEARER_TOKEN_CHARS - 3))
    assert len(digest_of(token)) == 64
