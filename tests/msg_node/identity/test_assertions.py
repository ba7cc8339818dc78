"""Assertions as a core sees them: what is believed, what is refused, what is remembered."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hmac
import json
import time
from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import ECKey

from msg_node.identity.core.assertions import (
    Asserted,
    AssertionRefusedError,
    ProviderRules,
    assertion_in,
    check_assertion,
)
from msg_node.identity.core.verdicts import UNASSERTED, AssertionVerdict, Verdicts
from msg_node.kernel.issuer_keys import VerificationKey
from protofly.errors import Code
from protofly.limits import ASSERTION_CHECKS_PER_SECOND, VERDICT_SECONDS
from tests.support.token_issuer import Algorithm, TokenIssuer, part

DOMAIN, OTHER = "alpha.example", "beta.example"
ISSUER, STRANGER = "https://login.alpha.example", "https://login.beta.example"
CLIENT = "node.alpha.example"
NOW = 1_900_000_000.0
SIGNER, OTHER_SIGNER = TokenIssuer(ISSUER), TokenIssuer(STRANGER)
RULES = ProviderRules(ISSUER, frozenset({CLIENT}), frozenset({DOMAIN}))


def claims(**changes: Any) -> dict[str, Any]:
    made = {"iss": ISSUER, "aud": CLIENT, "sub": "ana-7", "iat": NOW, "exp": NOW + 300, **changes}
    return {name: value for name, value in made.items() if value is not None}


def token(header: dict[str, Any] | None = None, **changes: Any) -> str:
    return SIGNER.signed(claims(**changes), header)


def headed(**header: Any) -> str:
    """A token with another header than its signature is for: it is refused before that is looked at."""
    return f"{part({'alg': 'ES256', 'kid': SIGNER.key_id, **header})}.{token().partition('.')[2]}"


def check(assertion: str, *, domain: str = DOMAIN, rules: ProviderRules = RULES, now: float = NOW) -> str:
    keys: Mapping[str, list[VerificationKey]] = {ISSUER: SIGNER.keys, STRANGER: OTHER_SIGNER.keys}
    asserted = check_assertion(assertion, domain, {rules.issuer: rules}, keys, now=now)
    assert asserted.issuer == rules.issuer
    return asserted.user


def confused_by_public_key() -> str:
    """HS256 with the public key as the secret, in the forms that a careless library might take for it."""
    header, payload = part({"alg": "HS256", "kid": SIGNER.key_id}), part(claims())
    assert isinstance(SIGNER.key, ECKey)
    secret = SIGNER.key.as_pem(private=False)
    digest = hmac.digest(secret, f"{header}.{payload}".encode(), "sha256")
    return f"{header}.{payload}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "EdDSA", "RS256", "PS256"])
def test_a_good_assertion_names_its_user(algorithm: Algorithm) -> None:
    signer = TokenIssuer(ISSUER, algorithm=algorithm)
    asserted = check_assertion(
        signer.signed(claims(name="Ana", email="a@b", picture=5)),
        DOMAIN,
        {ISSUER: RULES},
        {ISSUER: signer.keys},
        now=NOW,
    )
    assert (asserted.user, asserted.subject, asserted.issuer) == ("ana-7", "ana-7", ISSUER)
    assert asserted.expires_at == NOW + 360
    assert asserted.profile == {"name": "Ana", "email": "a@b"}


@pytest.mark.parametrize(
    ("assertion", "said"),
    [
        ("", "no signed token"),
        ("a.b", "no signed token"),
        ("A" * 9_000, "no signed token"),
        (f"{part({'alg': 'none'})}.{part(claims())}.AA", "algorithm"),
        (f"{part({'alg': 'nOnE', 'kid': 'k1'})}.{part(claims())}.AA", "algorithm"),
        (confused_by_public_key(), "algorithm"),
        (headed(crit=["exp"]), "extension"),
        (headed(b64=False), "extension"),
        (headed(typ="logout+jwt"), "typ"),
        (headed(jwk=OTHER_SIGNER.jwks["keys"][0], kid="other"), "no key"),
        (headed(jku="https://evil.example/jwks", kid="evil"), "no key"),
        (OTHER_SIGNER.signed(claims()), "signature"),
        (token()[:-6] + "AAAAAA", "signature"),
        (token(iss=STRANGER), "no identity provider"),
        (token(iss=None), "no identity provider"),
        (token(iss=ISSUER + "/"), "no identity provider"),
        (token(iss=5), "`iss`"),
        (token(aud="another"), "audience"),
        (token(aud=None), "audience"),
        (token(aud=[CLIENT, "another"]), "azp"),
        (token(azp="another"), "azp"),
        (token(exp=None), "never expires"),
        (token(exp=NOW - 61), "expired"),
        (token(exp="soon"), "point in time"),
        (token(exp=True), "point in time"),
        (token(exp=1e300), "point in time"),
        (token(iat=NOW + 61), "future"),
        (token(nbf=NOW + 61), "not valid yet"),
        (token(sub=None), "names nobody"),
        (token(sub="a\nb"), "names nobody"),
        (token(sub="a" * 600), "names nobody"),
    ],
)
def test_an_assertion_that_does_not_hold_is_refused(assertion: str, said: str) -> None:
    with pytest.raises(AssertionRefusedError, match=said) as caught:
        check(assertion)
    assert caught.value.code is Code.BAD_ASSERTION


def test_clocks_may_differ_by_a_minute() -> None:
    for good in (token(exp=NOW - 59), token(iat=NOW + 59), token(nbf=NOW + 59), token(aud=[CLIENT])):
        assert check(good) == "ana-7"
    assert check(token(aud=[CLIENT, "another"], azp=CLIENT)) == "ana-7"


@pytest.mark.parametrize(
    ("changes", "is_good"),
    [
        ({"sub": "s" * 512}, True),
        ({"sub": "s" * 513}, False),
        ({"sub": ""}, False),
        ({"uid": "u" * 512}, True),
        ({"uid": "u" * 513}, False),
        ({"uid": ""}, False),
        ({"uid": "a\nb"}, False),
        ({"uid": 7}, False),
        ({"uid": ["u"]}, False),
        ({"uid": None}, False),
    ],
)
def test_subject_and_user_are_each_a_name(changes: dict[str, Any], is_good: bool) -> None:
    rules = dataclasses.replace(RULES, user_claim="uid")
    assertion = token(**{"uid": "u", **changes})
    if is_good:
        assert check(assertion, rules=rules) == changes.get("uid", "u")
        return
    with pytest.raises(AssertionRefusedError, match="names nobody"):
        check(assertion, rules=rules)


def asserted(rules: ProviderRules = RULES, **changes: Any) -> Asserted:
    return check_assertion(token(**changes), DOMAIN, {ISSUER: rules}, {ISSUER: SIGNER.keys}, now=NOW)


def test_a_profile_has_short_printable_texts_and_nothing_else() -> None:
    profile = asserted(name="n" * 512, email="e" * 513, picture="a\nb", locale="", nickname="x").profile
    assert profile == {"name": "n" * 512, "locale": ""}


@pytest.mark.parametrize(
    ("claim", "roles"), [("", set()), ("roles", {"lab"}), ("realm.roles", {"lab", "guard"}), ("none", set())]
)
def test_roles_come_from_the_claim_that_the_settings_name_and_else_from_none(claim: str, roles: set[str]) -> None:
    rules = dataclasses.replace(RULES, roles_claim=claim)
    found = asserted(rules, roles=["lab"], realm={"roles": "lab guard"}, **{"": ["operator"]}).roles
    assert found == roles


@pytest.mark.parametrize(("stub", "is_good"), [(None, True), ("s", True), ("", False), ("a\nb", False), (7, False)])
def test_a_stub_that_is_named_is_a_name(stub: object, is_good: bool) -> None:
    rules = dataclasses.replace(RULES, stub_claim="stub")
    if is_good:
        assert asserted(rules, stub=stub).stub == (stub or "")
        return
    with pytest.raises(AssertionRefusedError, match="names no stub"):
        asserted(rules, stub=stub)


@pytest.mark.parametrize("raw", [b"", b"[[[", b"\xff", b'"assert"'])
def test_a_body_without_an_assertion_is_not_even_read(raw: bytes) -> None:
    assert assertion_in(raw) == ""


def test_a_provider_speaks_for_its_domains_only() -> None:
    with pytest.raises(AssertionRefusedError, match=f"does not speak for {OTHER}"):
        check(token(), domain=OTHER)
    everybodys = ProviderRules(ISSUER, frozenset({CLIENT}), frozenset({"*"}))
    assert check(token(), domain=OTHER, rules=everybodys) == "ana-7"


def test_an_algorithm_that_the_settings_do_not_allow_is_refused_although_the_key_fits() -> None:
    rules = ProviderRules(ISSUER, frozenset({CLIENT}), frozenset({DOMAIN}), algorithms=frozenset({"RS256"}))
    with pytest.raises(AssertionRefusedError, match="algorithm"):
        check(token(), rules=rules)


def test_an_address_names_the_user_only_when_it_is_verified() -> None:
    rules = ProviderRules(ISSUER, frozenset({CLIENT}), frozenset({DOMAIN}), user_claim="email")
    assert check(token(email="ana@alpha.example", email_verified=True), rules=rules) == "ana@alpha.example"
    for wrong in ({"email_verified": False}, {"email_verified": "true"}, {}):
        with pytest.raises(AssertionRefusedError, match="not verified"):
            check(token(email="ana@alpha.example", **wrong), rules=rules)


@pytest.mark.parametrize(
    "changes", [{"exp": NOW - 3600}, {"aud": "others"}, {"sub": ""}, {"iss": "https://other.example"}]
)
def test_where_the_key_is_known_no_issuer_is_said_to_lack_one(changes: dict[str, Any]) -> None:
    with pytest.raises(AssertionRefusedError) as caught:
        check(token(**changes))
    assert caught.value.lacking_issuer == ""


def test_where_a_key_is_missing_its_issuer_is_named() -> None:
    with pytest.raises(AssertionRefusedError) as caught:
        check(token({"kid": "new"}))
    assert caught.value.lacking_issuer == ISSUER


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"idToken": "a.b.c"}, "a.b.c"),
        ({"identity": {"assertion": "a.b.c", "userProfile": {}}}, "a.b.c"),
        ({"idToken": "a.b.c", "identity": {"assertion": "d.e.f"}}, "a.b.c"),
        ({"identity": {"userProfile": {"guid": "anonymous"}}}, ""),
        ({"value": "idToken assertion"}, ""),
        ({"value": {"idToken": "a.b.c"}}, ""),
        ({}, ""),
    ],
)
def test_an_assertion_is_found_where_messages_carry_it(body: dict[str, Any], found: str) -> None:
    assert assertion_in(json.dumps(body).encode()) == found


@pytest.mark.parametrize("body", [{"idToken": 5}, {"identity": {"assertion": ["a"]}}, {"idToken": {"a": "b"}}])
def test_something_else_in_that_place_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(AssertionRefusedError):
        assertion_in(json.dumps(body).encode())


# Verdicts.


def body(assertion: str) -> bytes:
    claimed = {"userProfile": {"username": "claimed@alpha.example"}}
    return json.dumps({"idToken": assertion, "identity": claimed}).encode()


def verdicts() -> Verdicts:
    made = Verdicts([RULES])
    made.set_keys(ISSUER, SIGNER.keys)
    return made


def test_what_was_verified_is_reported_and_nothing_of_what_was_claimed() -> None:
    assert verdicts().judge(body(token()), DOMAIN, now=NOW) == AssertionVerdict(True, "ana-7", ISSUER)
    refused = verdicts().judge(body(token(aud="x")), DOMAIN, now=NOW)
    assert (refused.is_verified, refused.user, refused.issuer) == (False, "", "")
    assert verdicts().judge(b'{"auth":true,"assertedIdentity":"ana"}', DOMAIN, now=NOW) == UNASSERTED
    assert (UNASSERTED.is_verified, UNASSERTED.user, UNASSERTED.issuer) == (False, "", "")


def test_a_verdict_is_remembered_for_five_minutes_and_not_beyond_the_assertion() -> None:
    known = verdicts()
    short, long = body(token(exp=NOW + 10)), body(token(exp=NOW + 3_600))
    assert known.judge(short, DOMAIN, now=NOW).is_verified
    assert known.judge(long, DOMAIN, now=NOW).is_verified
    known._keys.clear()  # from here on only what is remembered is good
    assert known.judge(short, DOMAIN, now=NOW + 69).is_verified
    assert not known.judge(short, DOMAIN, now=NOW + 71).is_verified
    assert known.judge(long, DOMAIN, now=NOW + VERDICT_SECONDS - 1).is_verified
    assert not known.judge(long, DOMAIN, now=NOW + VERDICT_SECONDS).is_verified


def test_a_verdict_for_one_domain_is_none_for_another() -> None:
    known = verdicts()
    assert known.judge(body(token()), DOMAIN, now=NOW).is_verified
    assert not known.judge(body(token()), OTHER, now=NOW).is_verified


def test_new_keys_make_old_verdicts_void() -> None:
    known = verdicts()
    assert known.judge(body(token()), DOMAIN, now=NOW).is_verified
    known.set_keys(ISSUER, TokenIssuer(ISSUER, key_id="k2").keys)
    assert not known.judge(body(token()), DOMAIN, now=NOW).is_verified


def test_other_settings_make_old_verdicts_void() -> None:
    known = verdicts()
    assert known.judge(body(token()), DOMAIN, now=NOW).is_verified
    known.follow([], {ISSUER: SIGNER.keys})
    assert not known.judge(body(token()), DOMAIN, now=NOW).is_verified
    known.follow([RULES], {ISSUER: SIGNER.keys})
    assert known.judge(body(token()), DOMAIN, now=NOW).is_verified
    known.follow([RULES], {})
    assert not known.judge(body(token()), DOMAIN, now=NOW).is_verified


def test_the_verdict_that_was_given_longest_ago_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msg_node.identity.core.verdicts.ASSERTION_VERDICTS", 2)
    known, later = verdicts(), NOW + VERDICT_SECONDS
    first, second, third = (body(token(sub=name, exp=NOW + 3_600)) for name in ("ana", "bo", "cleo"))
    for one, now in ((first, NOW), (second, NOW + 1), (first, later), (third, later)):
        assert known.judge(one, DOMAIN, now=now).is_verified
    known._keys.clear()  # from here on only what is remembered is good
    verified = [known.judge(one, DOMAIN, now=later).is_verified for one in (first, third, second)]
    assert verified == [True, True, False]


def test_checks_are_counted_for_a_bounded_number_of_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msg_node.identity.core.verdicts.ASSERTION_VERDICTS", 2)
    known = verdicts()
    for number in range(20):
        known.judge(body(token()), f"d{number}.example", now=NOW)
        assert len(known._checks) <= 3


def test_an_unknown_key_is_wanted_and_the_verdict_is_not_remembered() -> None:
    wanted: list[str] = []
    known = Verdicts([RULES], wants_keys=wanted.append)
    assert not known.judge(body(token()), DOMAIN, now=NOW).is_verified
    assert wanted == [ISSUER]
    assert not known.judge(body(token()), DOMAIN, now=NOW).is_verified
    assert wanted == [ISSUER] * 2
    known.set_keys(ISSUER, SIGNER.keys)
    assert known.judge(body(token()), DOMAIN, now=NOW).is_verified


def test_the_same_rubbish_costs_one_check_however_often_it_comes() -> None:
    known = verdicts()
    for _ in range(ASSERTION_CHECKS_PER_SECOND + 1):
        assert not known.judge(body(f"{part({'alg': 'ES256'})}.e30.AA"), DOMAIN, now=NOW).is_verified
    assert known.judge(body(token()), DOMAIN, now=NOW).is_verified


def test_rubbish_of_one_domain_costs_so_much_and_no_more() -> None:
    known = verdicts()
    flood = [body(f"{part({'alg': 'ES256', 'n': number})}.e30.AA") for number in range(ASSERTION_CHECKS_PER_SECOND)]
    for one in flood:
        known.judge(one, OTHER, now=NOW)
    too_many = known.judge(body(token()), OTHER, now=NOW + 0.5)
    assert (too_many.is_verified, too_many.detail.startswith("too many")) == (False, True)
    assert known.judge(body(token()), DOMAIN, now=NOW + 0.5).is_verified  # others are not held up
    assert "speak for" in known.judge(body(token()), OTHER, now=NOW + 1).detail


def test_rubbish_of_sessions_of_ours_uses_up_no_check_of_another_session() -> None:
    known = verdicts()
    for session, number in product(range(20), range(30)):
        rubbish = body(f"{part({'alg': 'ES256', 'n': [session, number]})}.e30.AA")
        known.judge(rubbish, DOMAIN, now=NOW, sender=partial(int, session))
    assert "too many" in known.judge(body(token()), DOMAIN, now=NOW, sender=lambda: 7).detail
    assert known.judge(body(token()), DOMAIN, now=NOW, sender=lambda: 30).is_verified


def test_checks_of_all_sessions_of_ours_are_bounded_in_a_second() -> None:
    known, refused = verdicts(), 0
    for number in range(3 * ASSERTION_CHECKS_PER_SECOND):
        rubbish = body(f"{part({'alg': 'ES256', 'n': number})}.e30.AA")
        verdict = known.judge(rubbish, DOMAIN, now=NOW, sender=partial(int, number % ASSERTION_CHECKS_PER_SECOND))
        refused += "too many" in verdict.detail
    assert refused == ASSERTION_CHECKS_PER_SECOND


@pytest.mark.parametrize(
    ("claim", "groups", "left_out"),
    [
        (["staff", "night shift"], {"staff", "night shift"}, 0),
        ("staff", {"staff"}, 0),
        (None, set(), 0),
        ([], set(), 0),
        ([["staff"], 7, None, "", "a\nb", "x" * 129, {"staff": 1}], set(), 7),
        ({"staff": True}, set(), 1),
        (["x" * 128, "g"], {"x" * 128, "g"}, 0),
        ([f"g{number}" for number in range(70)], {f"g{number}" for number in range(64)}, 6),
    ],
)
def test_groups_are_what_the_claim_names_within_bounds_and_the_rest_is_counted(
    claim: object, groups: set[object], left_out: int
) -> None:
    rules = dataclasses.replace(RULES, groups_claim="realm.groups")
    found = asserted(rules, realm={"groups": claim})
    assert (set(found.groups or ()), found.groups_left_out) == (groups, left_out)
    made, counted = Verdicts([rules]), list[int]()
    made.set_keys(ISSUER, SIGNER.keys)
    made.count_groups_left_out = counted.append
    again = body(token(realm={"groups": claim}))
    for _ in range(2):
        assert made.judge(again, DOMAIN, now=NOW).groups == frozenset(groups)
    assert sum(counted) == left_out


def test_without_a_claim_in_the_settings_no_groups_are_known() -> None:
    found = asserted(RULES, groups=["staff"])
    assert (found.groups, found.groups_left_out) == (None, 0)


@given(raw=st.binary(max_size=200) | st.text(max_size=100).map(lambda text: body(text)))
def test_any_body_gives_a_verdict(raw: bytes) -> None:
    assert not verdicts().judge(raw, DOMAIN, now=NOW).is_verified


@given(text=st.from_regex(r"[A-Za-z0-9_-]{1,90}\.[A-Za-z0-9_-]{1,90}\.[A-Za-z0-9_-]{1,90}", fullmatch=True))
def test_any_token_is_refused_by_an_error_of_ours(text: str) -> None:
    with contextlib.suppress(AssertionRefusedError):
        raise AssertionError(check(text, now=time.time()))
