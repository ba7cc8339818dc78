"""Identity assertions: who sends a message, as an identity provider that we trust says.

An assertion is a signed token (an OpenID Connect ID token), carried as `body.idToken` or `body.identity.assertion`.
What else senders write about themselves is not looked at. A provider speaks for the domains that the settings give it
and no others: an assertion that names a user of a.example proves nothing in a message that comes from b.example.

An assertion is good for any holder, until it expires; it is not bound to a message. So it says who a sender is as
far as the sender's domain guards the assertions of its users.

Source: message specification, sections 1.4, 13.1 and 13.3; OpenID Connect Core 1.0, section 3.1.3.7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from msg_node.kernel.issuer_keys import VerificationKey
from msg_node.kernel.signed_tokens import (
    ALGORITHMS,
    TokenRefusedError,
    check_times,
    claim_at,
    issuer_of,
    looks_like_token,
    signed_claims,
    text_claim,
    text_claims,
)
from protofly.errors import Code, PeerError
from protofly.limits import GROUP_CHARS, IDENTITY_GROUPS

ANY_DOMAIN: Final = "*"

_USER_CHARS: Final = 512
_PROFILE: Final = ("name", "preferred_username", "email", "picture", "locale")
_PROFILE_CHARS: Final = 512
_ID_TOKEN: Final = b"idToken"
_ASSERTION: Final = b"assertion"


@dataclass(frozen=True, slots=True)
class ProviderRules:
    """Settings of one identity provider.

    Attributes:
        issuer: Its name, exactly as `iss` says it.
        audiences: Names, one of which `aud` has to hold.
        domains: Whose users it may speak for; `*` is everybody's.
        algorithms: Those of `ALGORITHMS` that it may use.
        skew_seconds: How far its clock may differ from ours.
        user_claim: The claim that names the user to policies.
        roles_claim: The claim with the roles that a login gives, "" for none.
        groups_claim: The claim with the groups of the user, "" for none.
        stub_claim: The claim with the place of the stub of the user's domain, "" for none.
    """

    issuer: str
    audiences: frozenset[str]
    domains: frozenset[str]
    algorithms: frozenset[str] = frozenset(ALGORITHMS)
    skew_seconds: float = 60.0
    user_claim: str = "sub"
    roles_claim: str = ""
    groups_claim: str = ""
    stub_claim: str = ""


@dataclass(frozen=True, slots=True)
class Asserted:
    """The user that a provider vouches for. `expires_at` is when it stops counting, seconds since the Unix epoch.

    `groups` is None where nobody asks the provider for groups; `groups_left_out` is how many entries of its claim are
    not taken as groups.
    """

    user: str
    subject: str
    issuer: str
    expires_at: float
    profile: Mapping[str, str]
    roles: frozenset[str] = frozenset()
    stub: str = ""
    groups: frozenset[str] | None = None
    groups_left_out: int = 0


class AssertionRefusedError(PeerError):
    """An assertion does not hold. `lacking_issuer` names a provider of ours whose keys may be new, "" for none."""

    def __init__(self, detail: str, *, lacking_issuer: str = "") -> None:
        super().__init__(Code.BAD_ASSERTION, detail)
        self.lacking_issuer = lacking_issuer


def check_assertion(
    assertion: str,
    domain: str,
    providers: Mapping[str, ProviderRules],
    keys: Mapping[str, Sequence[VerificationKey]],
    *,
    now: float,
) -> Asserted:
    """Check an assertion about somebody of a domain.

    Args:
        assertion: A token in compact form.
        domain: The domain whose user it has to be about.
        providers: Those of the settings, by issuer.
        keys: Their keys, by issuer.
        now: Seconds since the Unix epoch.

    Raises:
        AssertionRefusedError: With what is wrong.
    """
    if not looks_like_token(assertion):
        raise AssertionRefusedError("the assertion is no signed token")
    rules = None
    try:
        rules = providers.get(issuer_of(assertion))
        if rules is None:
            raise AssertionRefusedError("its issuer (`iss`) is no identity provider of ours")
        if domain not in rules.domains and ANY_DOMAIN not in rules.domains:
            raise AssertionRefusedError(f"its issuer does not speak for {domain}")
        claims = signed_claims(assertion, keys.get(rules.issuer, ()), algorithms=rules.algorithms)
        return _asserted(claims, rules, now)
    except TokenRefusedError as exc:
        lacking = rules.issuer if rules is not None and exc.lacks_key else ""
        raise AssertionRefusedError(exc.detail, lacking_issuer=lacking) from exc


def _asserted(claims: Mapping[str, object], rules: ProviderRules, now: float) -> Asserted:
    audiences = text_claims(claims.get("aud"))
    if rules.audiences.isdisjoint(audiences):
        raise AssertionRefusedError("it is for another audience")
    party = text_claim(claims, "azp")
    if (len(audiences) > 1 or party) and party not in rules.audiences:
        raise AssertionRefusedError("it was issued to another party (`azp`)")
    expires_at = check_times(claims, skew_seconds=rules.skew_seconds, now=now)
    subject, user = text_claim(claims, "sub"), claim_at(claims, rules.user_claim)
    if not _is_name(subject) or not isinstance(user, str) or not _is_name(user):
        raise AssertionRefusedError(f"it names nobody (`sub`, `{rules.user_claim}`)")
    if rules.user_claim == "email" and claims.get("email_verified") is not True:
        raise AssertionRefusedError("its address is not verified (`email_verified`)")
    profile = {
        name: value
        for name in _PROFILE
        if isinstance(value := claims.get(name), str) and value.isprintable() and len(value) <= _PROFILE_CHARS
    }
    roles, stub, groups = _roles(claims, rules), _stub(claims, rules), _groups(claims, rules)
    return Asserted(user, subject, rules.issuer, expires_at, profile, roles, stub, *groups)


def _stub(claims: Mapping[str, object], rules: ProviderRules) -> str:
    stub = claim_at(claims, rules.stub_claim) if rules.stub_claim else None
    if stub is not None and not (isinstance(stub, str) and _is_name(stub)):
        raise AssertionRefusedError(f"it names no stub (`{rules.stub_claim}`)")
    return stub or ""


def _roles(claims: Mapping[str, object], rules: ProviderRules) -> frozenset[str]:
    if not rules.roles_claim:
        return frozenset()
    return frozenset(text_claims(claim_at(claims, rules.roles_claim), is_list=True))


def _groups(claims: Mapping[str, object], rules: ProviderRules) -> tuple[frozenset[str] | None, int]:
    """The groups that a claim names, and how many of its entries are none: too long, unprintable, no text, too many."""
    if not rules.groups_claim:
        return None, 0
    claim = claim_at(claims, rules.groups_claim)
    entries = [] if claim is None else claim if isinstance(claim, list) else [claim]
    names = [one for one in entries if isinstance(one, str) and one.isprintable() and 0 < len(one) <= GROUP_CHARS]
    groups = frozenset(names[:IDENTITY_GROUPS])
    return groups, len(entries) - len(names[:IDENTITY_GROUPS])


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _USER_CHARS and text.isprintable()


class _Identity(msgspec.Struct):
    assertion: str = ""


class _Carrier(msgspec.Struct, rename={"id_token": "idToken"}):
    id_token: str = ""
    identity: _Identity | None = None


_decode_carrier = msgspec.json.Decoder(_Carrier).decode


def assertion_in(body: bytes) -> str:
    """The assertion that a body carries, "" for none. Cheap where there is none.

    Raises:
        AssertionRefusedError: It carries something else in that place.

    Source: message specification, section 13.3.
    """
    if _ID_TOKEN not in body and _ASSERTION not in body:
        return ""
    try:
        carrier = _decode_carrier(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise AssertionRefusedError("`idToken` and `identity.assertion` are texts") from exc
    return carrier.id_token or (carrier.identity.assertion if carrier.identity is not None else "")
