"""Tokens that were not made for us: forged, confused, oversized, of somebody else. None opens a session.

Source: RFC 8725; message specification, section 5.1.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from msg_node.kernel.credentials import Credentials
from msg_node.kernel.proof import Offered
from msg_node.kernel.service import CloseCode, CloseConnection
from protofly.errors import Code, PeerError
from protofly.limits import BEARER_TOKEN_CHARS, UNPROVED_OPENS
from tests.support.state_rig import StateRig, body_of
from tests.support.token_issuer import TokenIssuer, part

NOW = 1_000_000.0
ANA = "runtime://alpha.example/rt-ana"
LOGIN = TokenIssuer(algorithm="RS256")
PARTNER = TokenIssuer("https://partner.example", algorithm="ES256")


def gate() -> Credentials:
    made = Credentials(
        allows_anonymous=False,
        issuers=[LOGIN.rules(), PARTNER.rules(runtimes=("runtime://alpha.example/partner-*",))],
    )
    made.set_issuer_keys(LOGIN.issuer, LOGIN.keys)
    made.set_issuer_keys(PARTNER.issuer, PARTNER.keys)
    return made


def base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def public_pem(issuer: TokenIssuer) -> bytes:
    return issuer.key.public_key.public_bytes(  # type: ignore[union-attr]
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def unsigned(algorithm: str, signature: str = "", **header: Any) -> str:
    claims = LOGIN.claims(ANA, now=NOW)
    return ".".join([part({"alg": algorithm, "kid": "k1", **header}), part(claims), signature])


def hmac_with(secret: bytes, **header: Any) -> str:
    signed = unsigned("HS256", **header).rpartition(".")[0]
    return f"{signed}.{base64url(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


def forgeries() -> dict[str, str]:
    good = LOGIN.token(ANA, now=NOW)
    head, payload, signature = good.split(".")
    richer = part({**LOGIN.claims("*", now=NOW), "roles": ["operator"]})
    jwk = LOGIN.jwks["keys"][0]
    own = TokenIssuer(LOGIN.issuer, algorithm="RS256", key_id="mine")
    return {
        "alg none": unsigned("none"),
        "alg none with a signature": unsigned("none", signature),
        "alg nOnE": unsigned("nOnE", signature),
        "no alg": ".".join([part({"kid": "k1"}), payload, signature]),
        "alg that is a list": ".".join([part({"alg": ["RS256"], "kid": "k1"}), payload, signature]),
        "HS256 with the public key in PEM": hmac_with(public_pem(LOGIN)),
        "HS256 with the modulus": hmac_with(jwk["n"].encode()),
        "HS256 with the JWK": hmac_with(json.dumps(jwk).encode()),
        "HS256 with an empty secret": hmac_with(b""),
        "HS256 without kid": hmac_with(public_pem(LOGIN), kid=None),
        "another algorithm of the same key": ".".join([part({"alg": "PS256", "kid": "k1"}), payload, signature]),
        "another payload": f"{head}.{richer}.{signature}",
        "no signature": f"{head}.{payload}.",
        "half a signature": f"{head}.{payload}.{signature[: len(signature) // 2]}",
        "unknown kid": own.token(ANA, now=NOW),
        "own key under the name of ours": own.token(ANA, now=NOW, header={"kid": "k1"}),
        "own key in the header": own.token(ANA, now=NOW, header={"kid": "k1", "jwk": own.jwks["keys"][0]}),
        "own key behind a link": own.token(ANA, now=NOW, header={"kid": "k1", "jku": "https://evil.example/keys"}),
        "kid that is a path": own.token(ANA, now=NOW, header={"kid": "../../../dev/null"}),
        "kid of another issuer": PARTNER.signed(LOGIN.claims(ANA, now=NOW)),
        "another issuer's token for a runtime that is none of its": PARTNER.token(ANA, now=NOW),
        "our name with a space and more": PARTNER.token(ANA, now=NOW, iss=LOGIN.issuer + " x"),
        "our name in other letters": LOGIN.token(ANA, now=NOW, iss=LOGIN.issuer.upper()),
        "two issuers": f"{head}.{base64url(duplicated())}.{signature}",
        "expired": LOGIN.token(ANA, now=NOW - 1000),
        "not yet valid": LOGIN.token(ANA, now=NOW, nbf=NOW + 1000),
        "one part more": f"{good}.x",
        "encrypted": ".".join([part({"alg": "RSA-OAEP", "enc": "A256GCM"}), "x", "x", "x", "x"]),
        "JSON form": json.dumps({"payload": payload, "protected": head, "signature": signature}),
        "spaces around": f" {good} ",
        "a line end behind": f"{good}\n",
        "deep header": f"{base64url(b'[' * 3000)}.{payload}.{signature}",
        "deep payload": f"{head}.{base64url(b'[' * 3000)}.{signature}",
        "just too long": good + "A" * (BEARER_TOKEN_CHARS + 1 - len(good)),
        "10 MiB": good + "A" * (10 << 20),
        "10 MiB of dots": "." * (10 << 20),
    }


def duplicated() -> bytes:
    text = json.dumps(LOGIN.claims(ANA, now=NOW))
    return (text[:-1] + f', "iss": "{PARTNER.issuer}"' + "}").encode()


@pytest.mark.parametrize("name", forgeries())
def test_a_forged_token_opens_nothing_and_leaves_nothing(name: str) -> None:
    rig = StateRig(gate=gate())
    token = forgeries()[name]
    result = rig.session_verb("open", ANA, 1, {"credentials": {"kind": "bearer", "token": token}})
    body = body_of(result.replies[0])
    assert (body["code"], body["reason"]) == (401, "bad-token")
    assert len(rig.state.sessions) == 0
    assert all(not rows for rows in rig.rows.values())
    assert "runtimeToken" not in body


def test_the_good_token_that_was_forged_above_opens() -> None:
    rig = StateRig(gate=gate())
    good = {"credentials": {"kind": "bearer", "token": LOGIN.token(ANA, now=NOW)}}
    assert body_of(rig.session_verb("open", ANA, 1, good).replies[0])["code"] == 200


@given(
    token=st.one_of(
        st.text(max_size=300),
        st.from_regex(r"[A-Za-z0-9_-]{1,200}\.[A-Za-z0-9_-]{1,200}\.[A-Za-z0-9_-]{1,200}", fullmatch=True),
        st.builds(
            lambda header, claims, signature: ".".join([part(header), part(claims), base64url(signature)]),
            st.dictionaries(
                st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk"]),
                st.one_of(st.sampled_from(["RS256", "ES256", "EdDSA", "none", "HS256", "k1", "JWT"]), st.integers()),
            ),
            st.one_of(
                st.just(LOGIN.claims(ANA, now=NOW)),
                st.dictionaries(st.text(max_size=5), st.integers()),
                st.lists(st.integers()),
            ),
            st.binary(max_size=300),
        ),
    )
)
def test_no_random_token_is_accepted(token: str) -> None:
    with contextlib.suppress(PeerError):
        assert not gate().check(Offered(token), ANA, now=NOW).credential


@given(position=st.integers(min_value=0), letter=st.sampled_from("ABab019_-"))
def test_a_good_token_with_one_other_letter_is_refused_or_the_same(position: int, letter: str) -> None:
    good = LOGIN.token(ANA, now=NOW)
    at = position % len(good)
    changed = good[:at] + letter + good[at + 1 :]
    with contextlib.suppress(PeerError):
        # Letters whose last bits no byte takes decode to the same bytes: then it is the same token.
        assert gate().check(Offered(changed), ANA, now=NOW) == gate().check(Offered(good), ANA, now=NOW)


def test_a_client_that_tries_tokens_is_sent_away() -> None:
    rig = StateRig(gate=gate())
    for attempt in range(1, UNPROVED_OPENS + 1):
        result = rig.session_verb("open", ANA, 1, {"credentials": {"token": f"guess {attempt}"}})
        closes = [effect for effect in result.effects if isinstance(effect, CloseConnection)]
        assert bool(closes) is (attempt == UNPROVED_OPENS)
    assert closes == [CloseConnection(1, CloseCode.UNPROVED)]
    assert [news.event for news in result.news] == ["refused"]


def test_a_client_that_tries_session_tokens_is_sent_away() -> None:
    rig = StateRig()
    _, token = rig.open("rt-ana", 1)
    for attempt in range(UNPROVED_OPENS):
        result = rig.session_verb("re-open", f"{ANA}/{attempt}", 2)
    assert CloseConnection(2, CloseCode.UNPROVED) in result.effects
    assert body_of(rig.session_verb("re-open", f"{ANA}/{token}", 3).replies[0])["code"] == 200


def test_a_runtime_that_renews_badly_keeps_the_session_that_it_has() -> None:
    rig = StateRig()
    sid, token = rig.open("rt-ana", 1)
    for _ in range(UNPROVED_OPENS + 1):
        result = rig.session_verb("re-open", f"{ANA}/{token}", 1, {"credentials": {"token": "old"}})
        assert body_of(result.replies[0])["reason"] == "bad-token"
        assert result.effects == []
    assert rig.state.sessions.by_connection(1) == sid


def test_a_token_never_shows_in_a_refusal_or_in_the_news() -> None:
    rig = StateRig(gate=gate())
    token = LOGIN.token(ANA, now=NOW - 5000)
    result = rig.session_verb("open", ANA, 1, bearer=token)
    assert all(text not in result.replies[0].raw.decode() + str(result.news) for text in token.split("."))
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_TOKEN):
        gate().check(Offered(token), ANA, now=NOW)
