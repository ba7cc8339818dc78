"""Tokens that prove a node: replayed, misdirected, forged. Trust and hosts, section 7, rows 32 to 37."""

from __future__ import annotations

import base64
import contextlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.core import auth
from federation.core.auth import Claims, Expected, Issuer, SeenTokens, StubIdentity, TokenRequest
from protofly.documents import KeyRecord, SigningKey
from protofly.errors import Code, PeerError
from protofly.limits import CHALLENGE_BYTES_MAX, CHALLENGE_BYTES_MIN, TOKEN_BYTES, TOKEN_SECONDS, TOKEN_SKEW_SECONDS

NOW = 1_795_219_200.0
KEY = SigningKey.from_seed("N1", b"\x01" * 32)
OTHER_KEY = SigningKey.from_seed("N1", b"\x02" * 32)
P256_KEY = SigningKey.from_seed("N1", b"\x03" * 32, alg="p256")
CHALLENGE = b"\x05" * 32
ENDPOINT = "wss://mn.b.example/link"
BINDING = auth.channel_binding(b"\x06" * 32)
EXPECTED = Expected("b.example", frozenset({ENDPOINT}), frozenset({BINDING}), auth.nonce_text(CHALLENGE))


def claims(**changes: Any) -> Claims:
    issuer = Issuer("a.example", "runtime://a.example/mn-1", ["a.example"])
    stub = StubIdentity(name="link", serial=1, sha256="00")
    request = TokenRequest("b.example", ENDPOINT, BINDING, CHALLENGE, stub)
    made = auth.new_claims(issuer, request, auth.nonce_text(CHALLENGE), now=NOW, random_bytes=bytes(range(48)))
    return msgspec.structs.replace(made, **changes)


def token(key: SigningKey = KEY, **changes: Any) -> bytes:
    return auth.make_token(claims(**changes), key).encode()


def verify(
    raw: bytes, expected: Expected = EXPECTED, *, now: float = NOW, key: SigningKey = KEY, **more: Any
) -> Claims:
    revoked = more.get("revoked", frozenset())
    return auth.check_signature(
        auth.check_form(raw, expected, now=now), {key.key_id: key.record()}, revoked=revoked, now=now
    )


def signed_with(name: str, text: str) -> bytes:
    changes: dict[str, Any] = {name: text}
    return token(**changes)


def code_of(raw: bytes, expected: Expected = EXPECTED, **more: Any) -> Code:
    with pytest.raises(PeerError) as caught:
        verify(raw, expected, **more)
    return caught.value.code


def header_changed(raw: bytes, **members: Any) -> bytes:
    head, rest = raw.split(b".", 1)
    decoded = json.loads(base64.urlsafe_b64decode(head + b"=="))
    changed = base64.urlsafe_b64encode(json.dumps({**decoded, **members}).encode()).rstrip(b"=")
    return changed + b"." + rest


@pytest.mark.parametrize("key", [KEY, P256_KEY])
def test_an_honest_token_proves_its_node(key: SigningKey) -> None:
    assert verify(token(key), key=key).node == "runtime://a.example/mn-1"


def test_a_token_for_another_audience_is_refused() -> None:
    assert code_of(token(aud="c.example")) is Code.AUTH_AUDIENCE


def test_a_token_of_another_domain_than_the_expected_one_is_refused() -> None:
    expected = Expected("b.example", EXPECTED.endpoints, EXPECTED.bindings, EXPECTED.nonce, "c.example")
    assert code_of(token(), expected) is Code.AUTH_AUDIENCE


def test_a_token_for_another_endpoint_is_refused() -> None:
    assert code_of(token(ep="wss://mn.c.example/link")) is Code.AUTH_ENDPOINT


def test_a_token_for_another_certificate_is_refused() -> None:
    assert code_of(token(cb=auth.channel_binding(b"\x07" * 32))) is Code.AUTH_BINDING


def test_a_token_without_channel_binding_is_refused_where_there_is_tls() -> None:
    assert code_of(token(cb=auth.WITHOUT_TLS)) is Code.AUTH_BINDING


def test_a_token_for_another_challenge_is_refused() -> None:
    assert code_of(token(nonce=auth.nonce_text(b"\x08" * 32))) is Code.AUTH_NONCE


@pytest.mark.parametrize("shift_seconds", [-61, 61, 3600, -86_400 * 365, 86_400 * 3650])
def test_a_token_of_another_time_is_refused(shift_seconds: int) -> None:
    assert code_of(token(), now=NOW + shift_seconds + (30 if shift_seconds > 0 else 0)) is Code.AUTH_STALE


@pytest.mark.parametrize(
    ("now", "says"), [(NOW + 100, "before our now, by 100 s"), (NOW - 61, "after our now, by 61 s")]
)
def test_a_token_of_another_time_says_on_which_side_of_ours(now: float, says: str) -> None:
    with pytest.raises(PeerError, match=says):
        verify(token(), now=now)


@pytest.mark.parametrize("life_seconds", [0, -1, 61, 1 << 40])
def test_a_token_that_lives_too_long_is_refused_for_that_and_not_for_the_clocks(life_seconds: int) -> None:
    with pytest.raises(PeerError, match=f"this one for {life_seconds}$") as caught:
        verify(token(exp=int(NOW) + life_seconds))
    assert caught.value.code is Code.AUTH_STALE


def test_a_token_signed_by_another_key_is_refused() -> None:
    assert code_of(token(OTHER_KEY)) is Code.AUTH_SIGNATURE


def test_a_token_of_an_unknown_key_is_refused() -> None:
    assert code_of(header_changed(token(), kid="N9")) is Code.AUTH_KEY_UNKNOWN


def test_a_token_of_a_revoked_key_is_refused() -> None:
    assert code_of(token(), revoked=frozenset({"N1"})) is Code.AUTH_KEY_REVOKED


def test_a_token_used_twice_is_refused_the_second_time() -> None:
    seen = SeenTokens()
    seen.use(claims(), now=NOW)
    with pytest.raises(PeerError) as caught:
        seen.use(claims(), now=NOW + 1)
    assert caught.value.code is Code.AUTH_REPLAY


def test_used_tokens_are_forgotten_when_they_are_stale_anyway() -> None:
    seen = SeenTokens()
    seen.use(claims(), now=NOW)
    seen.use(claims(), now=NOW + 3600)


@pytest.mark.parametrize(
    "members",
    [
        {"alg": "none"},
        {"alg": "HS256"},
        {"typ": "JWT"},
        {"crit": ["x"]},
        {"jwk": {}},
        {"jku": "https://evil.example/k"},
        {"x5u": "https://evil.example/k"},
        {"alg": ["EdDSA"]},
    ],
)
def test_a_header_that_tries_tricks_is_malformed(members: dict[str, Any]) -> None:
    assert code_of(header_changed(token(), **members)) is Code.AUTH_MALFORMED


def test_an_algorithm_that_is_not_that_of_the_key_is_refused() -> None:
    assert code_of(header_changed(token(), alg="ES256")) is Code.AUTH_KEY_UNKNOWN


def test_hmac_with_the_public_key_proves_nothing() -> None:
    head, body, _ = token().split(b".")
    forged = head + b"." + body + b"." + base64.urlsafe_b64encode(b"\0" * 64).rstrip(b"=")
    assert code_of(forged) is Code.AUTH_SIGNATURE


def test_a_changed_claim_breaks_the_signature() -> None:
    head, _, signature = token().split(b".")
    changed = base64.urlsafe_b64encode(msgspec.json.encode(claims(doms=["a.example", "x.example"]))).rstrip(b"=")
    assert code_of(head + b"." + changed + b"." + signature) is Code.AUTH_SIGNATURE


@pytest.mark.parametrize("raw", [b"", b"a.b", b"....", b"a" * 5000, b"\xff.\xff.\xff", b"e30.e30.e30"])
def test_what_is_no_token_is_malformed(raw: bytes) -> None:
    assert code_of(raw) is Code.AUTH_MALFORMED


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5])
def test_an_honest_token_with_another_number_of_parts_is_malformed(count: int) -> None:
    parts = token().split(b".")
    assert code_of(b".".join((*parts, *parts)[:count])) is Code.AUTH_MALFORMED
    assert verify(b".".join((*parts, *parts)[:3])).iss == "a.example"


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("other", ["=", "==", "\n", "!", "é", "+"])
def test_a_part_in_another_spelling_of_base64_is_malformed(place: int, other: str) -> None:
    """The library passes over what is not of its alphabet; of two spellings one would be in no list of used tokens."""
    parts = token().split(b".")
    for changed in (parts[place] + other.encode(), other.encode() + parts[place]):
        assert code_of(b".".join((*parts[:place], changed, *parts[place + 1 :]))) is Code.AUTH_MALFORMED


def test_a_signature_with_bits_behind_its_end_is_malformed() -> None:
    raw = token()
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    last = letters.index(raw[-1:])  # 64 bytes are 86 letters: the last four bits say nothing
    assert last % 16 == 0
    assert code_of(raw[:-1] + letters[last + 1 : last + 2]) is Code.AUTH_MALFORMED


@pytest.mark.parametrize("name", ["iss", "node", "aud", "ep", "nonce", "cb", "jti"])
def test_a_claim_is_a_text_of_1_to_512_characters(name: str) -> None:
    for text in ("", "x" * 513):
        assert code_of(signed_with(name, text)) is Code.AUTH_MALFORMED
    for text in ("x", "x" * 512):
        with contextlib.suppress(PeerError):
            auth.check_form(signed_with(name, text), EXPECTED, now=NOW)
            continue
        assert code_of(signed_with(name, text)) is not Code.AUTH_MALFORMED


@pytest.mark.parametrize(("count", "is_sound"), [(0, False), (1, True), (16, True), (17, False)])
def test_a_token_speaks_for_1_to_16_domains(count: int, is_sound: bool) -> None:
    raw = token(doms=["a.example"] * count)
    assert is_sound or code_of(raw) is Code.AUTH_MALFORMED
    assert not is_sound or len(verify(raw).doms) == count


def test_a_duplicate_claim_is_malformed() -> None:
    head, body, signature = token().split(b".")
    text = base64.urlsafe_b64decode(body + b"==").decode()
    doubled = base64.urlsafe_b64encode((text[:-1] + ',"iss":"c.example"}').encode()).rstrip(b"=")
    assert code_of(head + b"." + doubled + b"." + signature) is Code.AUTH_MALFORMED


@pytest.mark.parametrize("challenge", [b"", b"x" * 15, b"x" * 65, b"x" * (1 << 20)])
def test_a_challenge_of_the_wrong_length_is_not_signed(challenge: bytes) -> None:
    with pytest.raises(PeerError) as caught:
        auth.nonce_text(challenge)
    assert caught.value.code is Code.AUTH_NONCE


def test_a_challenge_that_is_itself_json_stays_inside_the_nonce() -> None:
    challenge = b'","iss":"evil.example","x":"'
    made = verify(
        token(nonce=auth.nonce_text(challenge)),
        Expected("b.example", EXPECTED.endpoints, EXPECTED.bindings, auth.nonce_text(challenge)),
    )
    assert made.iss == "a.example"


@given(raw=st.binary(max_size=600))
def test_any_bytes_are_a_token_or_a_peer_error(raw: bytes) -> None:
    with contextlib.suppress(PeerError):
        verify(raw)


@given(position=st.integers(0, 2_000), bit=st.integers(0, 7))
def test_no_flipped_bit_survives(position: int, bit: int) -> None:
    raw = bytearray(token())
    raw[position % len(raw)] ^= 1 << bit
    with pytest.raises(PeerError):
        verify(bytes(raw))


# Each bound to the second, the byte and the entry.


def test_a_token_holds_from_a_minute_before_to_a_minute_after_its_time() -> None:
    """`iat` is NOW, `exp` a minute later at most; clocks may differ by a minute."""
    skew = TOKEN_SKEW_SECONDS
    for now in (NOW - skew, NOW, NOW + skew):
        assert verify(token(), now=now).iat == NOW
    for now in (NOW - skew - 0.001, NOW + skew + 0.001):
        assert code_of(token(), now=now) is Code.AUTH_STALE
    assert verify(token(exp=int(NOW + skew))).exp == NOW + skew
    assert code_of(token(exp=int(NOW + skew) + 1)) is Code.AUTH_STALE
    assert verify(token(exp=int(NOW) + 1), now=NOW + skew).exp == NOW + 1


@pytest.mark.parametrize("size", [CHALLENGE_BYTES_MIN, CHALLENGE_BYTES_MAX])
def test_the_shortest_and_the_longest_challenge_are_signed(size: int) -> None:
    assert auth.nonce_text(b"x" * size)
    for wrong in (CHALLENGE_BYTES_MIN - 1, CHALLENGE_BYTES_MAX + 1):
        with pytest.raises(PeerError) as caught:
            auth.nonce_text(b"x" * wrong)
        assert caught.value.code is Code.AUTH_NONCE


def test_a_token_has_at_most_its_bytes() -> None:
    domains = ["a.example"]
    while len(token(doms=[*domains, "d" * 500 + ".example"])) <= TOKEN_BYTES:
        domains.append("d" * 500 + ".example")
    room = TOKEN_BYTES - len(token(doms=domains))
    keys = [SigningKey.from_seed("N" * length, b"\x01" * 32) for length in (1, 2, 3)]  # three remainders of base64
    largest = ((token(key, doms=[*domains, "d" * length]), key) for key in keys for length in range(room, 0, -1))
    fitting, key = next((raw, key) for raw, key in largest if len(raw) == TOKEN_BYTES)
    assert verify(fitting, key=key).iss == "a.example"
    with pytest.raises(PeerError, match="too long", check=lambda error: error.code is Code.AUTH_MALFORMED):
        verify(fitting + b"A", key=key)


def test_an_issuer_is_held_against_the_token_only_where_it_is_known() -> None:
    for issuer, code in (("a.example", None), ("", None), ("b.example", Code.AUTH_AUDIENCE)):
        expected = Expected(EXPECTED.audience, EXPECTED.endpoints, EXPECTED.bindings, EXPECTED.nonce, issuer)
        if code is None:
            assert verify(token(), expected).iss == "a.example"
        else:
            assert code_of(token(), expected) is code


def test_a_token_is_refused_a_second_time_for_as_long_as_it_could_be_used() -> None:
    seen = SeenTokens()
    used = claims()
    seen.use(used, now=NOW)
    for now in (NOW, used.exp + TOKEN_SKEW_SECONDS, used.exp + 2 * TOKEN_SKEW_SECONDS):
        with pytest.raises(PeerError) as caught:
            seen.use(used, now=now)
        assert (caught.value.code, caught.value.domain) == (Code.AUTH_REPLAY, "a.example")
    seen.use(claims(iss="c.example"), now=NOW)  # another issuer has ids of its own
    seen.use(claims(jti="another"), now=NOW)
    seen.use(used, now=used.exp + 2 * TOKEN_SKEW_SECONDS + 1)
    assert len(seen._seen) == 1  # what could not be used any more is forgotten


def test_so_many_used_tokens_are_remembered_and_the_oldest_is_forgotten_first() -> None:
    seen = SeenTokens()
    for number in range(auth._REMEMBERED_TOKENS):
        seen.use(claims(jti=f"t-{number}"), now=NOW)
    assert len(seen._seen) == auth._REMEMBERED_TOKENS
    with pytest.raises(PeerError):
        seen.use(claims(jti=f"t-{auth._REMEMBERED_TOKENS - 1}"), now=NOW)
    seen.use(claims(jti="one more"), now=NOW)
    assert len(seen._seen) <= auth._REMEMBERED_TOKENS
    with pytest.raises(PeerError):
        seen.use(claims(jti="one more"), now=NOW)


def test_fresh_randomness_is_split_into_challenge_and_name() -> None:
    made = claims()
    random_bytes = bytes(range(48))
    assert base64.urlsafe_b64decode(made.cnonce + "=") == random_bytes[:32]
    assert base64.urlsafe_b64decode(made.jti + "==") == random_bytes[32:]
    assert (made.iat, made.exp, made.proto) == (NOW, NOW + TOKEN_SECONDS, 1)


def test_a_node_key_counts_within_its_own_time_and_under_its_own_algorithm() -> None:
    now = datetime.fromtimestamp(NOW, UTC)
    unverified = auth.check_form(token(), EXPECTED, now=NOW)

    def code(key: KeyRecord, *, revoked: frozenset[str] = frozenset()) -> Code | None:
        try:
            auth.check_signature(unverified, {"N1": key}, revoked=revoked, now=NOW)
        except PeerError as error:
            return error.code if error.domain == "a.example" else Code.INTERNAL
        return None

    second = timedelta(seconds=1)
    assert code(KEY.record(nbf=now, exp=now + second)) is None
    assert code(KEY.record(nbf=now + second)) is Code.AUTH_KEY_UNKNOWN
    assert code(KEY.record(exp=now)) is Code.AUTH_KEY_UNKNOWN
    assert code(P256_KEY.record()) is Code.AUTH_KEY_UNKNOWN
    assert code(KEY.record(), revoked=frozenset({"N1"})) is Code.AUTH_KEY_REVOKED
    assert code(KEY.record(), revoked=frozenset({"N2"})) is None
    assert code(OTHER_KEY.record()) is Code.AUTH_SIGNATURE
