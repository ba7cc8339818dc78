"""What comes in about people: GUID records, answers of global registries, assertions in messages."""

from __future__ import annotations

import json
from functools import cache
from typing import Final

from joserfc import jws
from joserfc.jwk import ECKey

from msg_node.identity.core.assertions import ProviderRules, assertion_in, check_assertion
from msg_node.identity.core.issued_tokens import IssuedTokens
from msg_node.identity.core.session_tokens import SessionTokens, TokenLife, own_rules
from msg_node.kernel.credentials import Credentials
from msg_node.kernel.issuer_keys import VerificationKey, keys_of_jwks
from msg_node.kernel.proof import Offered
from msg_node.registries.core.global_registry_rest import read_answer, record_in
from protofly.documents import SigningKey
from protofly.guid import derive_guid, load_public_key
from protofly.guid_record import GuidRecord, advance, check_usable, read_record, sign_dataset
from tests.fuzz.target import Target
from tests.support.guid_holder import GuidHolder

NOW: Final = 1_800_000_000.0
HOLDER: Final = GuidHolder("fuzzed")
PROVIDER: Final = ProviderRules("https://login.a.example", frozenset({"node"}), frozenset({"a.example"}))


def check_record(data: bytes) -> None:
    """Any text is refused; what the holder's key has signed is a record of its GUID, or is refused.

    The first byte says what the rest is: a whole record, or the dataset of one that is well signed.
    """
    jwt = data[1:].decode("latin-1") if data[:1] == b"t" else sign_dataset(data[1:], HOLDER.key)
    record = read_record(jwt)
    assert isinstance(record, GuidRecord)
    assert record.guid == derive_guid(record.public_key, record.salt)
    assert load_public_key(record.public_key)
    mark = advance(record, None, now=NOW)
    assert advance(record, mark, now=NOW) == mark
    check_usable(record, now=NOW)
    assert not record.is_revoked


_DATASET: Final = HOLDER.dataset(updated=NOW - 60, user="user://idp.example/ana", domain="a.example")
RECORDS: Final = (
    b"d" + json.dumps(_DATASET).encode(),
    b"d" + json.dumps({**_DATASET, "userIDs": ["x", {"uID": "y"}], "schemaVersion": 1, "revoked": 1}).encode(),
    b"d" + json.dumps({**_DATASET, "timeout": "2026-13-01T00:00:00Z"}).encode(),
    b"t" + HOLDER.record(updated=NOW - 60).encode(),
    b"t" + HOLDER.record(updated=NOW - 60, encoding="der").encode(),
    b"teyJhbGciOiJFUzI1NiJ9.eyJkYXRhIjoiZTMwIn0.MAYCAQECAQE",
)


def check_registry_answer(data: bytes) -> None:
    """Any body is a record's text, or refused; the first byte makes the status."""
    assert record_in(read_answer(100 + data[0] * 2 if data else 200, data[1:], host="r.example"), host="r.example")


ANSWERS: Final = (
    b'2{"Code":200,"Description":"OK","Value":"a.b.c"}',
    b'2{"message":"ok","responseCode":200,"errorCode":0,"data":"a.b.c"}',
    b'2{"Code":404,"Explanation":"GUID not found","Value":""}',
    b'2{"Code":"200"}',
)


@cache
def _signing() -> tuple[ECKey, dict[str, list[VerificationKey]]]:
    key = ECKey.import_key(  # of RFC 7515, appendix A.3
        {
            "kty": "EC",
            "crv": "P-256",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
            "d": "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI",
        }
    )
    public = {**key.as_dict(private=False), "kid": "k1"}
    return key, {PROVIDER.issuer: keys_of_jwks(json.dumps({"keys": [public]}).encode())}


def check_person(data: bytes) -> None:
    """Any body carries no assertion, one that names a person, or one that is refused.

    The first byte says what the rest is: a body, or the claims of an assertion that is well signed.
    """
    key, keys = _signing()
    assertion = assertion_in(data[1:])
    if data[:1] == b"c":
        assertion = jws.serialize_compact({"alg": "ES256", "kid": "k1"}, data[1:], key)
    if not assertion:
        return
    asserted = check_assertion(assertion, "a.example", {PROVIDER.issuer: PROVIDER}, keys, now=NOW)
    assert asserted.expires_at > NOW
    assert 0 < len(asserted.user) <= 512
    assert asserted.user.isprintable()
    assert asserted.issuer == PROVIDER.issuer


_CLAIMS: Final = {"iss": PROVIDER.issuer, "aud": ["node"], "sub": "ana", "iat": NOW, "exp": NOW + 300, "name": "Ana"}
PERSONS: Final = (
    b"c" + json.dumps(_CLAIMS).encode(),
    b"c" + json.dumps({**_CLAIMS, "aud": "node", "azp": "node", "nbf": NOW}).encode(),
    b'b{"idToken":"a.b.c","identity":{"assertion":"d.e.f"}}',
    b'b{"identity":{"assertion":"eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2xvZ2luLmEuZXhhbXBsZSJ9.AA"}}',
)

RUNTIME: Final = "runtime://a.example/ana"


@cache
def _token_keys() -> tuple[SigningKey, ECKey]:
    key = SigningKey.from_seed("token-1", bytes(32), alg="p256")
    return key, ECKey.import_key(key.to_pem())


def check_session_token(data: bytes) -> None:
    """Any text is refused; of what our own key has signed, a token is renewed once and revoked for good, or refused.

    The first byte says what the rest is: a whole token, or the claims of one that is well signed.
    """
    key, signing = _token_keys()
    rules = own_rules("a.example", ["a.example"])
    tokens = SessionTokens(
        rules, [key], TokenLife(600.0, 3_000.0), IssuedTokens(), believes=lambda issuer: issuer != "x"
    )
    text = data[1:].decode("latin-1")
    if data[:1] == b"c":
        text = jws.serialize_compact({"alg": "ES256", "kid": "token-1"}, data[1:], signing)
    credentials = Credentials(allows_anonymous=False, issuers=[rules])
    credentials.set_issuer_keys(rules.issuer, tokens.verification_keys)
    credentials.set_further_check(rules.issuer, tokens.check)
    new, issued, mark = tokens.renew(text, RUNTIME, now=NOW)
    assert issued.number == mark.least
    assert credentials.check(Offered(new), RUNTIME, now=NOW).login == issued.login == mark.login
    assert credentials.introspect(text, now=NOW) is None
    assert tokens.revoke(new, RUNTIME, now=NOW).is_revoked
    assert credentials.introspect(new, now=NOW) is None


_OURS: Final = {
    "iss": "domain://idm.a.example",
    "sub": f"{PROVIDER.issuer} ana",
    "aud": "domain://msg-node.a.example",
    "client_id": RUNTIME,
    "runtime": RUNTIME,
    "exp": int(NOW) + 300,
    "iat": int(NOW),
    "auth_time": int(NOW),
    "jti": "l1.0",
    "roles": ["guard"],
}
TOKENS: Final = (
    b"c" + json.dumps(_OURS).encode(),
    b"c" + json.dumps({**_OURS, "jti": "l1.999999999999999", "roles": []}).encode(),
    b"c" + json.dumps({**_OURS, "auth_time": 1e300, "exp": 253402300799}).encode(),
    b"c" + json.dumps({**_OURS, "jti": "l1", "sub": "x y", "runtime": [RUNTIME]}).encode(),
    b"teyJhbGciOiJub25lIn0.eyJpc3MiOiJkb21haW46Ly9pZG0uYS5leGFtcGxlIn0.AA",
)

TARGETS: Final = (
    Target("session-token", check_session_token, TOKENS),
    Target("guid-record", check_record, RECORDS),
    Target("global-registry-answer", check_registry_answer, ANSWERS),
    Target("identity-assertion", check_person, PERSONS),
)
