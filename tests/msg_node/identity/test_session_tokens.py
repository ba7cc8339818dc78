"""Session tokens of our own: what one says, which ones count, and that none ever counts again."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any, Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from msg_node.identity.core.assertions import Asserted
from msg_node.identity.core.issued_tokens import REVOKED, IssuedTokens, TokenMark
from msg_node.identity.core.session_tokens import (
    RenewedBeforeError,
    SessionTokens,
    TokenLife,
    holder,
    number_of,
    own_rules,
)
from msg_node.kernel.credentials import Credentials
from msg_node.kernel.proof import Offered, Proven
from msg_node.kernel.signed_tokens import TokenRefusedError
from protofly.documents import SigningKey
from protofly.errors import Code, PeerError
from protofly.limits import BEARER_TOKEN_CHARS, SESSION_TOKEN_MAX_SECONDS, SESSION_TOKEN_SKEW_SECONDS
from tests.support.token_issuer import TokenIssuer, part

DOMAIN = "alpha.example"
RUNTIME = f"runtime://{DOMAIN}/ana"
PROVIDER = "https://login.alpha.example"
NOW = 1_800_000_000.0
KEY = SigningKey.from_seed("token-1", bytes(32))
LIFE = TokenLife(600.0, 3_000.0)
ANA = Asserted("ana-7", "ana-7", PROVIDER, NOW + 60, {}, frozenset({"guard", "lab"}))


def made(
    *keys: SigningKey,
    domain: str = DOMAIN,
    issued: IssuedTokens | None = None,
    life: TokenLife = LIFE,
    believes: bool = True,
) -> SessionTokens:
    rules = own_rules(domain, [domain, "alias.example"])
    return SessionTokens(
        rules, keys or (KEY,), life, IssuedTokens() if issued is None else issued, believes=lambda _issuer: believes
    )


def begun(tokens: SessionTokens, *, login: str = "l1", now: float = NOW) -> str:
    return tokens.begin(ANA, RUNTIME, login=login, now=now)[0]


def accepting(tokens: SessionTokens) -> Credentials:
    """Credentials that take these tokens."""
    credentials = Credentials(allows_anonymous=False, issuers=[tokens.rules])
    credentials.set_issuer_keys(tokens.rules.issuer, tokens.verification_keys)
    credentials.set_further_check(tokens.rules.issuer, tokens.check)
    return credentials


def counts(tokens: SessionTokens, text: str, *, runtime: str = RUNTIME, now: float = NOW) -> Proven:
    return accepting(tokens).check(Offered(text), runtime, now=now)


def refusal(tokens: SessionTokens, text: str, *, runtime: str = RUNTIME, now: float = NOW) -> str:
    with pytest.raises(PeerError) as caught:
        counts(tokens, text, runtime=runtime, now=now)
    assert caught.value.code is Code.BAD_TOKEN
    assert accepting(tokens).introspect(text, now=now) is None or "runtime" in caught.value.detail
    return caught.value.detail


def claims_of(text: str) -> dict[str, Any]:
    payload = text.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return claims


def test_a_newer_key_signs_and_tokens_of_an_older_one_count_as_long_as_that_is_there() -> None:
    tokens, newer = made(), SigningKey.from_seed("token-2", b"2" * 32)
    old = begun(tokens)
    tokens.sign_with([newer, KEY], TokenLife(60.0, 3_000.0))
    young = begun(tokens, login="l2")
    assert claims_of(young)["exp"] == NOW + 60
    assert [counts(tokens, one).roles for one in (old, young)] == [ANA.roles] * 2
    tokens.sign_with([newer], LIFE)
    assert counts(tokens, young).roles == ANA.roles
    assert "key" in refusal(tokens, old)


# What a token is.


@pytest.mark.parametrize("alg", ["ed25519", "p256"])
def test_a_token_opens_sessions_of_the_runtime_that_logged_in_and_names_its_user(
    alg: Literal["ed25519", "p256"],
) -> None:
    tokens = made(SigningKey.from_seed("token-1", bytes(32), alg=alg))
    text, issued = tokens.begin(ANA, RUNTIME, login="l1", now=NOW)
    assert claims_of(text) == {
        "iss": f"domain://idm.{DOMAIN}",
        "sub": f"{PROVIDER} ana-7",
        "aud": f"domain://msg-node.{DOMAIN}",
        "client_id": RUNTIME,
        "runtime": RUNTIME,
        "exp": int(NOW) + 600,
        "iat": int(NOW),
        "auth_time": int(NOW),
        "jti": "l1.0",
        "roles": ["guard", "lab"],
    }
    proven = counts(tokens, text)
    assert proven == Proven(
        f"jwt domain://idm.{DOMAIN} {PROVIDER} ana-7",
        frozenset({"guard", "lab"}),
        issued.exp + SESSION_TOKEN_SKEW_SECONDS,
        is_in_full=False,
        login="l1",
    )
    assert holder(issued.sub) == (PROVIDER, "ana-7")
    facts = accepting(tokens).introspect(text, now=NOW)
    assert facts is not None
    assert facts.credential == f"{PROVIDER} ana-7"


def test_a_user_with_spaces_in_the_name_stays_the_same() -> None:
    asserted = Asserted("Ana of A", "7", PROVIDER, NOW + 60, {})
    text, _ = made().begin(asserted, RUNTIME, login="l1", now=NOW)
    assert holder(counts(made(), text).credential.split(" ", 2)[2]) == (PROVIDER, "Ana of A")


@pytest.mark.parametrize(
    ("now", "runtime", "said"),
    [
        (NOW + 604, RUNTIME, ""),
        (NOW + 606, RUNTIME, "expired"),
        (NOW - 10, RUNTIME, "issued in the future"),
        (NOW, f"runtime://{DOMAIN}/bo", "not for this runtime"),
        (NOW, "runtime://beta.example/ana", "not for this runtime"),
    ],
)
def test_a_token_counts_for_its_runtime_and_its_time(now: float, runtime: str, said: str) -> None:
    tokens = made()
    text = begun(tokens)
    if not said:
        assert counts(tokens, text, now=now, runtime=runtime)
        return
    assert said in refusal(tokens, text, now=now, runtime=runtime)
    for use in (tokens.renew, tokens.revoke):
        with pytest.raises(TokenRefusedError, match=said):
            use(text, runtime, now=now)
    assert not tokens.issued


def test_older_keys_verify_and_the_newest_signs() -> None:
    new, old = SigningKey.from_seed("token-2", b"2" * 32), KEY
    text = begun(made(old))
    assert counts(made(new, old), text)
    assert "no key of its issuer fits" in refusal(made(new), text)
    assert base64.urlsafe_b64decode(begun(made(new, old)).split(".")[0] + "==") == (
        b'{"alg":"EdDSA","kid":"token-2","typ":"at+jwt"}'
    )


def test_a_token_whose_provider_is_no_longer_believed_counts_no_more() -> None:
    text = begun(made())
    assert "identity provider" in refusal(made(believes=False), text)
    with pytest.raises(TokenRefusedError, match="identity provider"):
        made(believes=False).renew(text, RUNTIME, now=NOW)


# Attacks.


def forged(header: dict[str, object], claims: dict[str, object], signature: bytes = b"") -> str:
    return f"{part(header)}.{part(claims)}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def test_tokens_that_we_have_not_signed_are_refused_everywhere_and_leave_nothing() -> None:
    tokens = made()
    good = begun(tokens)
    claims = claims_of(good)
    header, payload, signature = good.split(".")
    stranger = TokenIssuer(tokens.rules.issuer, algorithm="EdDSA", key_id="token-1")
    shared = json.dumps(KEY.jwk()).encode()
    hs256 = f"{part({'alg': 'HS256', 'kid': 'token-1'})}.{payload}"
    mac = hmac.digest(shared, hs256.encode(), hashlib.sha256)
    bad = (
        forged({"alg": "none"}, claims, b"x"),
        f"{part({'alg': 'none', 'kid': 'token-1'})}.{payload}.",
        f"{hs256}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}",
        stranger.signed(claims),
        begun(made(SigningKey.from_seed("token-1", b"9" * 32))),
        f"{part({'alg': 'ES256', 'kid': 'token-1'})}.{payload}.{signature}",
        f"{part({'alg': 'EdDSA', 'kid': 'token-1', 'crit': ['exp']})}.{payload}.{signature}",
        f"{part({'alg': 'EdDSA', 'jwk': stranger.jwks['keys'][0]})}.{part(claims)}.{signature}",
        f"{header}.{part({**claims, 'roles': ['operator']})}.{signature}",
        f"{header}.{payload}.{signature[:-4]}AAAA",
        begun(made(domain="beta.example")),  # another domain with the same key
        good + ".x",
        good.replace(".", ""),
        "é" * 40,
    )
    for text in bad:
        refusal(tokens, text)
        for use in (tokens.renew, tokens.revoke):
            with pytest.raises(TokenRefusedError):
                use(text, RUNTIME, now=NOW)
    assert not tokens.issued
    assert counts(tokens, good)


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "domain://msg-node.beta.example"},
        {"jti": "l1"},
        {"jti": "l1.-1"},
        {"jti": "l1." + "9" * 16},
        {"jti": "l1.²"},
        {"jti": 5},
        {"jti": None},
        {"exp": None},
        {"sub": ""},
    ],
    ids=str,
)
def test_claims_that_we_never_write_are_refused_even_with_our_signature(changes: dict[str, object]) -> None:
    """Anyone who gets at the key can sign; what they sign still does not confuse the records."""
    tokens = made()
    issuer = TokenIssuer(tokens.rules.issuer, algorithm="EdDSA", key_id="token-1")
    claims = {name: value for name, value in {**claims_of(begun(tokens)), **changes}.items() if value is not None}
    issuer.key = tokens._private
    text = issuer.signed(claims)
    refusal(tokens, text)
    with pytest.raises(TokenRefusedError):
        tokens.renew(text, RUNTIME, now=NOW)
    assert not tokens.issued


# Renewing and revoking.


def test_a_renewed_token_gives_way_to_the_new_one() -> None:
    tokens = made()
    old = begun(tokens)
    new, issued, mark = tokens.renew(old, RUNTIME, now=NOW + 300)
    assert mark == TokenMark("l1", f"{PROVIDER} ana-7", 1, NOW + 900 + SESSION_TOKEN_SKEW_SECONDS)
    assert (issued.jti, issued.exp, issued.auth_time, issued.roles) == ("l1.1", NOW + 900, NOW, ("guard", "lab"))
    assert "renewed" in refusal(tokens, old, now=NOW + 300)
    assert counts(tokens, new, now=NOW + 300).login == "l1"


def test_who_renews_twice_ends_the_login_for_both() -> None:
    tokens = made()
    old = begun(tokens)
    new, *_ = tokens.renew(old, RUNTIME, now=NOW + 10)
    with pytest.raises(RenewedBeforeError) as caught:
        tokens.renew(old, RUNTIME, now=NOW + 20)
    assert caught.value.code is Code.BAD_TOKEN
    assert caught.value.mark.is_revoked
    for text in (old, new):
        assert "revoked" in refusal(tokens, text, now=NOW + 20)
        with pytest.raises(TokenRefusedError, match="revoked"):
            tokens.renew(text, RUNTIME, now=NOW + 20)
    assert counts(tokens, begun(tokens, login="l2"), now=NOW + 20)  # another login is none of this


def test_any_token_of_a_login_revokes_all_of_it_and_again_is_no_error() -> None:
    tokens = made()
    old = begun(tokens)
    new, *_ = tokens.renew(old, RUNTIME, now=NOW)
    for _ in range(2):
        mark = tokens.revoke(old, RUNTIME, now=NOW)
        assert mark == TokenMark(
            "l1", f"{PROVIDER} ana-7", REVOKED, NOW + SESSION_TOKEN_MAX_SECONDS + SESSION_TOKEN_SKEW_SECONDS
        )
    assert "revoked" in refusal(tokens, new)


def test_all_logins_of_a_user_can_be_ended_and_later_ones_count() -> None:
    tokens = made()
    first, second = begun(tokens), begun(tokens, login="l2", now=NOW + 5)
    renewed, *_ = tokens.renew(first, RUNTIME, now=NOW + 5)
    bo, _ = tokens.begin(Asserted("bo", "bo", PROVIDER, NOW + 60, {}), RUNTIME, login="l3", now=NOW)
    subject = f"{PROVIDER} ana-7"
    mark = tokens.revoke_all(subject, now=NOW + 10)
    assert (mark.is_of_user, mark.is_revoked, mark.user) == (True, False, subject)
    for text in (renewed, second):
        assert "revoked" in refusal(tokens, text, now=NOW + 10)
        with pytest.raises(TokenRefusedError, match="revoked"):
            tokens.renew(text, RUNTIME, now=NOW + 10)
    assert counts(tokens, bo, now=NOW + 10).login == "l3"
    later = begun(tokens, login="l4", now=NOW + 11)
    assert counts(tokens, later, now=NOW + 11).login == "l4"
    restored = IssuedTokens()
    restored.restore([mark], now=NOW + 11)
    assert "revoked" in refusal(made(issued=restored), second, now=NOW + 11)
    assert counts(made(issued=restored), later, now=NOW + 11)
    assert tokens.issued.revoked() == []


def test_a_login_is_renewed_for_its_time_and_no_longer() -> None:
    tokens = made()
    text, now = begun(tokens), NOW
    for _ in range(6):
        now += 500
        if now >= NOW + LIFE.login_seconds:
            break
        text, issued, _ = tokens.renew(text, RUNTIME, now=now)
        assert issued.exp == min(now + 600, NOW + 3_000)
    with pytest.raises(TokenRefusedError, match="too long ago"):
        tokens.renew(text, RUNTIME, now=NOW + 3_001)
    assert "expired" in refusal(tokens, text, now=NOW + 3_006)


def test_revocations_outlive_every_token_even_when_the_settings_were_other_ones() -> None:
    before = made(life=TokenLife(SESSION_TOKEN_MAX_SECONDS, 2_000_000.0))
    text = begun(before)
    after = made(life=TokenLife(60.0, 60.0))
    mark = after.revoke(text, RUNTIME, now=NOW + 1)
    assert mark.until > claims_of(text)["exp"] + SESSION_TOKEN_SKEW_SECONDS


def test_marks_go_when_they_say_nothing_any_more() -> None:
    issued = IssuedTokens()
    issued.renew("l1", "u", 0, until=NOW + 10, now=NOW)
    issued.revoke("l2", "u", until=NOW + 20, now=NOW)
    issued.renew("l3", "u", 0, until=NOW + 100, now=NOW + 12)
    assert [issued.least(login) for login in ("l1", "l2", "l3")] == [0, REVOKED, 1]
    issued.renew("l4", "u", 0, until=NOW + 100, now=NOW + 22)
    assert len(issued) == 2


def test_a_full_table_renews_no_more_but_revokes_and_forgets_nothing() -> None:
    issued = IssuedTokens(max_marks=4, max_per_user=2)
    for name in ("a1", "a2"):
        issued.renew(name, "ana", 0, until=NOW + 10, now=NOW)
    with pytest.raises(PeerError) as caught:
        issued.renew("a3", "ana", 0, until=NOW + 10, now=NOW)
    assert caught.value.code is Code.QUOTA
    assert issued.renew("a1", "ana", 1, until=NOW + 10, now=NOW).least == 2  # a known login needs no room
    for name in ("a3", "a4"):
        issued.revoke(name, "ana", until=NOW + 10, now=NOW)
    with pytest.raises(PeerError) as caught:
        issued.renew("b1", "bo", 0, until=NOW + 10, now=NOW)
    assert caught.value.code is Code.OVERLOAD
    assert issued.least("b1") == 0
    assert issued.revoke("b1", "bo", until=NOW + 10, now=NOW).is_revoked
    assert [issued.least(name) for name in ("a1", "a2", "a3", "a4", "b1")] == [2, 1, REVOKED, REVOKED, REVOKED]
    assert issued.revoked() == ["a3", "a4", "b1"]
    assert issued.renew("c1", "bo", 0, until=NOW + 30, now=NOW + 11).least == 1


def test_a_login_is_not_renewed_at_the_moment_of_its_end_although_its_token_still_counts() -> None:
    tokens = made(life=TokenLife(3_000.0, 3_000.0))
    text = begun(tokens)
    assert counts(tokens, text, now=NOW + 3_000)
    with pytest.raises(TokenRefusedError, match="too long ago"):
        tokens.renew(text, RUNTIME, now=NOW + 3_000)
    assert tokens.renew(text, RUNTIME, now=NOW + 2_999)


def test_a_token_that_is_longer_than_any_that_opens_sessions_is_refused_with_our_signature_too() -> None:
    tokens = made()
    roles = frozenset({"r" * BEARER_TOKEN_CHARS})
    text, _ = tokens.begin(Asserted("ana-7", "ana-7", PROVIDER, NOW, {}, roles), RUNTIME, login="l1", now=NOW)
    for use in (tokens.renew, tokens.revoke):
        with pytest.raises(TokenRefusedError, match="no signed token"):
            use(text, RUNTIME, now=NOW)


def test_a_token_has_a_number_of_at_most_fifteen_digits() -> None:
    assert number_of("l1." + "9" * 15) == 10**15 - 1
    with pytest.raises(TokenRefusedError):
        number_of("l1." + "9" * 16)


@pytest.mark.parametrize("text", ["", ".", "x", "l.", "l.x", "l.-1", "l.1e3", "l.٣"])
def test_names_of_tokens_without_a_number_are_refused(text: str) -> None:
    with pytest.raises(TokenRefusedError):
        number_of(text)


class Logins(RuleBasedStateMachine):
    """Logins over time, with restarts at any moment that know only what was made durable."""

    texts = Bundle("texts")

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.disk: dict[str, TokenMark] = {}
        self.tokens = made()
        self.current: dict[str, str] = {}
        self.over: set[str] = set()
        self.issued: list[str] = []

    @rule(target=texts)
    def log_in(self) -> str:
        login = f"l{len(self.issued)}"
        text = begun(self.tokens, login=login, now=self.now)
        self.current[login] = text
        self.issued.append(text)
        return text

    @rule(target=texts, old=texts)
    def renew(self, old: str) -> Any:
        login = claims_of(old)["jti"].split(".")[0]
        try:
            new, _, mark = self.tokens.renew(old, RUNTIME, now=self.now)
        except RenewedBeforeError as exc:
            self.disk[login] = exc.mark
            assert old != self.current.pop(login, "")
            self._ended(login)
            return multiple()
        except TokenRefusedError:
            return multiple()
        assert self.current[login] == old
        self.disk[login] = mark
        self.over.add(old)
        self.current[login] = new
        self.issued.append(new)
        return new

    @rule(old=texts)
    def revoke(self, old: str) -> None:
        try:
            mark = self.tokens.revoke(old, RUNTIME, now=self.now)
        except TokenRefusedError:
            return
        self.disk[mark.login] = mark
        self._ended(mark.login)

    def _ended(self, login: str) -> None:
        self.current.pop(login, None)
        self.over |= {text for text in self.issued if claims_of(text)["jti"].startswith(login + ".")}

    @rule(seconds=st.sampled_from([1, 299, 700, 90_000]))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def restart(self) -> None:
        issued = IssuedTokens()
        issued.restore(self.disk.values(), now=self.now)
        self.tokens = made(issued=issued)

    @rule(old=consumes(texts))
    def forget(self, old: str) -> None:
        """The client loses a token."""

    @invariant()
    def what_has_expired_never_counts_again_and_the_newest_does_while_it_has_time(self) -> None:
        credentials = accepting(self.tokens)
        for text in self.over:
            with pytest.raises(TokenRefusedError):
                credentials.check(Offered(text), RUNTIME, now=self.now)
        for text in self.current.values():
            if self.now < claims_of(text)["exp"]:
                assert credentials.check(Offered(text), RUNTIME, now=self.now).credential


Logins.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestLogins = Logins.TestCase


def test_logins_that_can_expire_no_more_make_room_for_as_many_of_their_user() -> None:
    issued = IssuedTokens(max_per_user=2)
    issued.renew("a", "ana", 1, until=10.0, now=0.0)
    issued.renew("b", "ana", 1, until=100.0, now=0.0)
    for now, login, has_room in ((0.0, "c", False), (20.0, "c", True), (20.0, "d", False)):
        if has_room:
            issued.renew(login, "ana", 1, until=100.0, now=now)
            continue
        with pytest.raises(PeerError, check=lambda error: error.code is Code.QUOTA):
            issued.renew(login, "ana", 1, until=100.0, now=now)
    issued.renew("e", "bo", 1, until=900.0, now=200.0)
    assert (len(issued), dict(issued._of_user)) == (1, {"bo": 1})


def marked(issued: IssuedTokens, way: str, login: str, user: str) -> Code | None:
    """Renew or revoke a login, or revoke all of its user; the code of what was refused."""
    try:
        if way == "renew":
            issued.renew(login, user, 1, until=NOW + 600, now=NOW)
        elif way == "revoke":
            issued.revoke(login, user, until=NOW + 600, now=NOW)
        else:
            issued.revoke_all(user, moment=NOW, until=NOW + 600, now=NOW)
    except PeerError as exc:
        return exc.code
    return None


@pytest.mark.parametrize("way", ["renew", "revoke", "revoke all"])
@pytest.mark.parametrize(("bounds", "code"), [((100, 2), Code.QUOTA), ((2, 100), Code.OVERLOAD)])
def test_what_ends_logins_has_twice_the_room_of_what_renews_them(way: str, bounds: tuple[int, int], code: Code) -> None:
    most = 2 if way == "renew" else 4
    for before in range(5):
        issued = IssuedTokens(max_marks=bounds[0], max_per_user=bounds[1])
        assert [marked(issued, "revoke", f"l{number}", "ana") for number in range(before)] == [None] * before
        assert marked(issued, way, "last", "ana") == (None if before < most else code)


def test_a_mark_is_taken_over_until_its_tokens_have_expired() -> None:
    issued = IssuedTokens()
    issued.restore([TokenMark("a", "ana", 2, NOW), TokenMark("b", "ana", 2, NOW + 1)], now=NOW)
    assert (issued.least("a"), issued.least("b")) == (0, 2)
