"""Names that look like others, and values that stay behind (trust and hosts, section 7, attacks 53 and 54)."""

from __future__ import annotations

from typing import Any

import pytest

from policy.core.engine import Effect
from policy.core.gate import Gate, PeerRule
from protofly.errors import Code
from tests.support.policies import a_message, deny, one_policy, permit, some_facts
from tests.support.policies import test as check

LOOK_ALIKES = (
    "b.example",
    "xb.example",
    "x.b.example.evil.example",
    "b.example.evil.example",
    "x-b.example",
    "xxb.example",
)


@pytest.mark.parametrize("operator", ["like", "equals", "in"])
@pytest.mark.parametrize("domain", LOOK_ALIKES)
def test_wildcard_fits_no_look_alike(operator: str, domain: str) -> None:
    policies = one_policy(permit("p", check("linkDomain", operator, "*.b.example")))
    decision = policies.decide(some_facts(a_message(to=f"hyperty://{domain}/h")))
    assert decision.effect is Effect.NOT_APPLICABLE


@pytest.mark.parametrize("domain", ["x.b.example", "y.x.b.example"])
def test_wildcard_fits_true_subdomains(domain: str) -> None:
    policies = one_policy(permit("p", check("linkDomain", "like", "*.b.example")))
    assert policies.decide(some_facts(a_message(to=f"hyperty://{domain}/h"))).effect is Effect.PERMIT


@pytest.mark.parametrize("domain", LOOK_ALIKES)
def test_look_alike_gets_nothing_of_a_peers_entry(domain: str) -> None:
    gate = Gate(None, {"*.b.example": PeerRule()})
    assert gate.judge(some_facts(a_message(to=f"hyperty://{domain}/h"))).code is Code.DOMAIN_BLOCKED


@pytest.mark.parametrize(
    "domain", ["b.example.", "B.example", "b.example:443", "b@b.example", "127.0.0.1", "*", "*.b.example", ""]
)
def test_what_is_no_canonical_name_is_nobodys_peer(domain: str) -> None:
    gate = Gate(None, {"b.example": PeerRule(), "*": PeerRule()})
    assert not gate.judge(some_facts(link_domain=domain, to_domain=domain)).permitted


@pytest.mark.parametrize(
    "address", ["COMM://B.EXAMPLE/x", "comm://b.example/x/", "comm://b.example./x", " comm://b.example/x"]
)
def test_other_spelling_of_an_address_does_not_slip_past_a_rule(address: str) -> None:
    policies = one_policy(deny("d", check("msgTo", "equals", "comm://b.example/x")))
    assert policies.decide(some_facts(a_message(to=address))).effect is Effect.DENY


def test_glob_must_fit_from_end_to_end() -> None:
    policies = one_policy(permit("p", check("msgFrom", "like", "hyperty://*.b.example/*")))
    evil = a_message(from_="hyperty://x.b.example.evil.example/h")
    assert policies.decide(some_facts(evil, hook="in")).effect is Effect.NOT_APPLICABLE


def test_identity_of_one_message_is_never_used_for_the_next() -> None:
    policies = one_policy(permit("p", check("identity.user", "equals", "ana@idp.example")))
    with_identity = some_facts(identity_verified=True, identity_user="ana@idp.example")
    for _ in range(3):
        assert policies.decide(with_identity).effect is Effect.PERMIT
        assert policies.decide(some_facts()).effect is Effect.INDETERMINATE


def test_claims_in_the_body_are_not_believed() -> None:
    claims: dict[str, Any] = {
        "identity": {"userProfile": {"username": "ana@idp.example"}, "idp": "idp.example"},
        "assertedIdentity": True,
        "auth": True,
        "roles": ["policy-manager"],
    }
    facts = some_facts(a_message(**claims))
    for condition in (
        check("identity.user", "equals", "ana@idp.example"),
        check("srcUsername", "equals", "ana@idp.example"),
        check("srcIDP", "equals", "idp.example"),
        check("identity.verified", "equals", True),
        check("auth", "equals", True),
        check("session.roles", "contains", "policy-manager"),
    ):
        assert one_policy(permit("p", condition)).decide(facts).effect is not Effect.PERMIT
