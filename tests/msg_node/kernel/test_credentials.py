"""What proves who opens a runtime: configured tokens, signed tokens, certificates, or nothing; and what stays of it."""

from __future__ import annotations

from typing import Any

import pytest

from msg_node.kernel.certificates import CertificateEntry, PeerCertificate
from msg_node.kernel.credentials import CertificateRules, Credential, Credentials, digest_of, shown_of
from msg_node.kernel.proof import ANONYMOUS, Offered, Proven
from msg_node.kernel.signed_tokens import TokenRefusedError
from protofly.errors import Code, PeerError
from protofly.limits import BEARER_TOKEN_CHARS
from tests.support.token_issuer import TokenIssuer

NOW = 1_795_219_200.0
ANA, BO = "runtime://alpha.example/rt-ana", "runtime://alpha.example/rt-bo"
LOGIN = TokenIssuer()
TOKENS = [
    Credential(digest_of("ana's"), ANA, frozenset({"a"})),
    Credential(digest_of("ana's"), "runtime://alpha.example/rt-a*", frozenset({"b"})),
    Credential(digest_of("pool's"), "runtime://alpha.example/rt-*", frozenset({"c"})),
]
BY_HASH = CertificateEntry("runtime://alpha.example/rt-a*", sha256="11", roles=frozenset({"h"}))
BY_SUBJECT = CertificateEntry(BO, subject="CN=bo", roles=frozenset({"s"}))


def certificate(
    sha256: str = "00", subject: str = "CN=x", *runtimes: str, expires_at: float = NOW + 1
) -> PeerCertificate:
    return PeerCertificate(sha256, subject, frozenset(runtimes), expires_at)


def gate(*, is_needed: bool = False, takes_certificates: bool = True, **more: Any) -> Credentials:
    rules = CertificateRules((BY_HASH, BY_SUBJECT), frozenset({"alpha.example"}), is_needed=is_needed)
    made = Credentials(
        TOKENS,
        issuers=[LOGIN.rules(roles_claim="roles")],
        certificates=rules if takes_certificates else None,
        **{"allows_anonymous": False, **more},
    )
    made.set_issuer_keys(LOGIN.issuer, LOGIN.keys)
    return made


def refusal(made: Credentials, offered: Offered, runtime: str = ANA) -> Code:
    with pytest.raises(PeerError) as refused:
        made.check(offered, runtime, now=NOW)
    return refused.value.code


# Nothing.


def test_who_offers_nothing_opens_what_the_settings_leave_open() -> None:
    made = gate(allows_anonymous=True, anonymous_runtimes=["runtime://alpha.example/guest-*"])
    assert made.check(Offered(), "runtime://alpha.example/guest-1", now=NOW) == ANONYMOUS
    assert refusal(made, Offered()) is Code.NO_CREDENTIALS
    assert [made.is_valid("", key) for key in ("runtime://alpha.example/guest-1", ANA)] == [True, False]
    assert refusal(gate(), Offered()) is Code.NO_CREDENTIALS
    assert refusal(gate(anonymous_runtimes=["*"]), Offered()) is Code.NO_CREDENTIALS


def test_where_a_certificate_is_needed_nothing_else_is_enough() -> None:
    made = gate(is_needed=True, allows_anonymous=True)
    for offered in (Offered(), Offered("ana's")):
        assert refusal(made, offered) is Code.NO_CREDENTIALS
    assert refusal(made, Offered(certificate=certificate())) is Code.BAD_TOKEN
    assert not made.is_valid("", ANA)
    assert made.check(Offered("ana's", certificate()), ANA, now=NOW).credential == digest_of("ana's")
    free = gate(allows_anonymous=True)
    assert free.check(Offered(certificate=certificate()), ANA, now=NOW) == ANONYMOUS


# Tokens of the settings.


@pytest.mark.parametrize(
    ("token", "runtime", "proven"),
    [
        ("ana's", ANA, Proven(digest_of("ana's"), frozenset({"a", "b"}), None, is_in_full=True)),
        ("ana's", f"{ANA}2", Proven(digest_of("ana's"), frozenset({"b"}), None, is_in_full=False)),
        ("pool's", ANA, Proven(digest_of("pool's"), frozenset({"c"}), None, is_in_full=False)),
    ],
)
def test_a_token_of_the_settings_proves_the_runtimes_that_it_is_for(token: str, runtime: str, proven: Proven) -> None:
    made = gate()
    assert made.check(Offered(token), runtime, now=NOW) == proven
    assert made.is_valid(proven.credential, runtime)
    assert made.roles(proven.credential, runtime, frozenset({"ignored"})) == proven.roles


def test_a_token_that_is_not_for_a_runtime_or_unknown_or_too_long_is_refused() -> None:
    made = gate()
    for token in ("ana's", "nobody's", "x" * BEARER_TOKEN_CHARS, "x" * (BEARER_TOKEN_CHARS + 1)):
        assert refusal(made, Offered(token), BO) is Code.BAD_TOKEN
    with pytest.raises(PeerError, match="longer than"):
        made.check(Offered("x" * (BEARER_TOKEN_CHARS + 1)), BO, now=NOW)
    with pytest.raises(PeerError, match="not valid for this runtime"):
        made.check(Offered("x" * BEARER_TOKEN_CHARS), BO, now=NOW)
    assert not made.is_valid(digest_of("ana's"), BO)
    assert made.roles(digest_of("ana's"), BO) == frozenset()


def test_a_wrong_token_is_refused_although_the_certificate_beside_it_is_good() -> None:
    offered = Offered("nobody's", certificate("11"))
    assert refusal(gate(), offered) is Code.BAD_TOKEN


def test_a_token_of_the_settings_may_look_like_a_signed_one() -> None:
    token = LOGIN.token(ANA, now=NOW)
    made = Credentials([Credential(digest_of(token), BO)], issuers=[LOGIN.rules()])
    made.set_issuer_keys(LOGIN.issuer, LOGIN.keys)
    assert made.check(Offered(token), BO, now=NOW).expires_at is None
    with pytest.raises(PeerError, match="not valid for this runtime"):
        made.check(Offered(token), ANA, now=NOW)


# Signed tokens.


def test_a_signed_token_counts_only_where_its_issuer_does() -> None:
    token = LOGIN.token(ANA, now=NOW, roles=["r"])
    proven = gate().check(Offered(token), ANA, now=NOW)
    assert (proven.credential, proven.roles, proven.is_in_full) == (f"jwt {LOGIN.issuer} ana", frozenset({"r"}), True)
    with pytest.raises(PeerError, match="not valid for this runtime"):
        Credentials().check(Offered(token), ANA, now=NOW)
    made = gate()
    assert made.roles(proven.credential, ANA, frozenset({"r"})) == {"r"}
    assert made.roles(proven.credential, "runtime://beta.example/x", frozenset({"r"})) == frozenset()
    assert [made.is_valid(proven.credential, key) for key in (ANA, "runtime://beta.example/x")] == [True, False]
    assert not Credentials().is_valid(proven.credential, ANA)


def test_a_key_that_is_not_known_is_asked_for_and_a_wrong_signature_asks_for_none() -> None:
    made, wanted = gate(), list[str]()
    made.wants_keys = wanted.append
    assert refusal(made, Offered(LOGIN.token(ANA, now=NOW - 9_999))) is Code.BAD_TOKEN
    assert wanted == []
    unknown = TokenIssuer(key_id="k2").token(ANA, now=NOW)
    assert refusal(made, Offered(unknown)) is Code.BAD_TOKEN
    assert wanted == [LOGIN.issuer]
    assert made.introspect(unknown, now=NOW) is None
    assert wanted == [LOGIN.issuer] * 2


def test_a_further_check_says_the_login_or_refuses() -> None:
    made, token = gate(), LOGIN.token(ANA, now=NOW)
    assert made.check(Offered(token), ANA, now=NOW).login == ""
    made.set_further_check(LOGIN.issuer, lambda proof: f"login of {proof.subject}")
    assert made.check(Offered(token), ANA, now=NOW).login == "login of ana"

    def refuse(_: object) -> str:
        raise TokenRefusedError("logged out")

    made.set_further_check(LOGIN.issuer, refuse)
    assert refusal(made, Offered(token)) is Code.BAD_TOKEN
    assert made.introspect(token, now=NOW) is None


def test_a_holder_is_known_whichever_runtime_the_token_is_for() -> None:
    made = gate()
    assert made.introspect("ana's", now=NOW) == Proven("", frozenset({"a", "b"}), None, is_in_full=False)
    proven = made.introspect(LOGIN.token("runtime://beta.example/x", now=NOW, roles=["r"]), now=NOW)
    assert proven == Proven("ana", frozenset({"r"}), NOW + 360, is_in_full=False)
    strangers = ["nobody's", TokenIssuer("https://x.example").token(ANA, now=NOW), LOGIN.token(ANA, now=NOW - 9_999)]
    assert [made.introspect(token, now=NOW) for token in strangers] == [None] * 3
    assert Credentials().introspect(LOGIN.token(ANA, now=NOW), now=NOW) is None


def test_a_token_of_the_settings_counts_until_the_last_entry_for_it_ends() -> None:
    entries = [
        Credential(digest_of("ana's"), ANA, frozenset({"a"}), NOW + 1),
        Credential(digest_of("ana's"), ANA, frozenset({"b"}), NOW + 9),
        Credential(digest_of("ana's"), BO, frozenset({"c"}), NOW + 99),
    ]
    made = Credentials(entries)
    for now, roles in ((NOW, {"a", "b"}), (NOW + 5, {"b"})):
        assert made.check(Offered("ana's"), ANA, now=now) == Proven(
            digest_of("ana's"), frozenset(roles), NOW + 9, is_in_full=True
        )
    with pytest.raises(PeerError, match="not valid for this runtime"):
        made.check(Offered("ana's"), ANA, now=NOW + 10)
    ends = [(NOW, NOW + 99), (NOW + 50, NOW + 99)]
    assert [(now, proven.expires_at) for now, _ in ends if (proven := made.introspect("ana's", now=now))] == ends
    assert made.introspect("ana's", now=NOW + 100) is None


@pytest.mark.parametrize(
    ("proven", "shown"),
    [
        (Proven(), {"session.class=anonymous"}),
        (Proven(digest_of("x"), frozenset({"r"})), {"r", "session.class=proved"}),
        (Proven("certificate runtime://a.example/r"), {"session.class=proved"}),
        (Proven("jwt https://idp.example ana", frozenset({"r"})), {"r", "session.class=user"}),
        (Proven(digest_of("x"), frozenset({"operator"})), {"operator", "session.class=operator"}),
        (Proven("jwt i ana", frozenset({"operator", "session.class=guest"})), {"operator", "session.class=operator"}),
    ],
)
def test_what_was_proven_gives_the_class_of_the_session(proven: Proven, shown: set[str]) -> None:
    assert shown_of(proven) == shown


def counts(made: Credentials, issuer: TokenIssuer) -> bool:
    return made.introspect(issuer.token(ANA, now=NOW), now=NOW) is not None


def test_of_new_settings_fetched_keys_stay_for_issuers_that_are_still_there_and_others_go() -> None:
    fetched, gone, of_settings = (TokenIssuer(f"https://{name}.example") for name in ("fetched", "gone", "settings"))
    everybody = (fetched, gone, of_settings)

    def with_issuers(*issuers: TokenIssuer) -> Credentials:
        return Credentials(issuers=[one.rules() for one in issuers])

    made = with_issuers(*everybody)
    made.set_issuer_keys(fetched.issuer, fetched.keys)
    made.set_issuer_keys(gone.issuer, gone.keys)
    made.set_issuer_keys(of_settings.issuer, of_settings.keys, are_of_settings=True)
    assert [counts(made, one) for one in everybody] == [True, True, True]
    made.replace(with_issuers(fetched, of_settings))
    assert [counts(made, one) for one in everybody] == [True, False, False]
    made.replace(with_issuers(*everybody))
    assert [counts(made, one) for one in everybody] == [True, False, False]
    again = with_issuers(*everybody)
    again.set_issuer_keys(of_settings.issuer, of_settings.keys, are_of_settings=True)
    made.replace(again)
    assert [counts(made, one) for one in everybody] == [True, False, True]


# Certificates.


def test_a_node_that_asks_for_no_certificates_takes_none_whatever_new_settings_say() -> None:
    made = gate(takes_certificates=False)
    made.replace(gate())
    assert refusal(made, Offered("", certificate("11", "CN=x", ANA))) is Code.BAD_TOKEN


def test_roles_of_a_certificate_are_those_of_the_entries_that_name_it_alike() -> None:
    by_hash = CertificateEntry(ANA, sha256="11", roles=frozenset({"1"}))
    again = CertificateEntry("runtime://alpha.example/rt-*", sha256="11", roles=frozenset({"2"}))
    by_subject = CertificateEntry(ANA, subject="CN=x", roles=frozenset({"3"}))
    made = Credentials(certificates=CertificateRules((by_hash, by_subject, again), frozenset()))
    proven = made.check(Offered("", certificate("11")), ANA, now=NOW)
    assert (proven.credential, set(proven.roles)) == (by_hash.credential, {"1", "2"})


@pytest.mark.parametrize(
    ("offered", "runtime", "proven"),
    [
        (certificate("11"), ANA, Proven(BY_HASH.credential, frozenset({"h"}), NOW + 1, is_in_full=False)),
        (certificate("11", "CN=x", ANA), ANA, Proven(BY_HASH.credential, frozenset({"h"}), NOW + 1, is_in_full=True)),
        (certificate("22", "CN=bo"), BO, Proven(BY_SUBJECT.credential, frozenset({"s"}), NOW + 1, is_in_full=True)),
        (certificate("22", "CN=x", BO), BO, Proven(f"certificate {BO}", frozenset(), NOW + 1, is_in_full=True)),
    ],
)
def test_a_certificate_proves_what_names_it_or_what_it_names(
    offered: PeerCertificate, runtime: str, proven: Proven
) -> None:
    made = gate()
    assert made.check(Offered(certificate=offered), runtime, now=NOW) == proven
    assert made.is_valid(proven.credential, runtime)
    assert not made.is_valid(proven.credential, "runtime://alpha.example/other")
    assert made.roles(proven.credential, runtime) == proven.roles
    assert made.roles(proven.credential, "runtime://alpha.example/other") == frozenset()
    assert refusal(gate(takes_certificates=False), Offered(certificate=offered), runtime) is Code.BAD_TOKEN


@pytest.mark.parametrize(
    ("offered", "runtime"),
    [
        (certificate(), ANA),
        (certificate("11"), BO),
        (certificate("11", expires_at=NOW), ANA),
        (certificate("22", "CN=bo"), ANA),
        (certificate("22", "CN=x", BO), ANA),
        (certificate("22", "CN=x", "runtime://beta.example/rt"), "runtime://beta.example/rt"),
        (certificate("", ""), ANA),
    ],
)
def test_a_certificate_that_is_not_for_a_runtime_is_refused(offered: PeerCertificate, runtime: str) -> None:
    assert refusal(gate(), Offered(certificate=offered), runtime) is Code.BAD_TOKEN


def test_an_entry_without_a_name_names_no_certificate() -> None:
    nameless = CertificateEntry(ANA)
    assert not nameless.names(certificate("", ""))
    assert not CertificateEntry(ANA, sha256="11", subject="CN=x").names(certificate("12", "CN=x"))
