"""Bearer tokens of local issuers (JWT): for which runtimes is a signed token good.

What makes a token a good one at all, its signature, its issuer, its time, is in `signed_tokens`; keys are an argument,
and so is the time: where keys come from, a file or a look-up, is not the business of this module. Refusals are
precise, since the holder of a token may know what is wrong with it.

Source: RFC 7519; RFC 9068; message specification, section 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msg_node.kernel.issuer_keys import VerificationKey
from msg_node.kernel.runtime_address import covers, covers_any, names_in_full
from msg_node.kernel.signed_tokens import (
    ALGORITHMS,
    TokenRefusedError,
    check_times,
    claim_at,
    signed_claims,
    text_claim,
    text_claims,
)

_SUBJECT_CHARS: Final = 512


@dataclass(frozen=True, slots=True)
class IssuerRules:
    """Settings of one issuer.

    Attributes:
        issuer: Its name, exactly as `iss` says it.
        audience: Our name, one of those that `aud` says.
        runtimes: Patterns of the runtimes that it may speak for at most.
        algorithms: Those of `ALGORITHMS` that it may use.
        skew_seconds: How far its clock may differ from ours.
        runtime_claim: The claim with the runtime address, or several; a final `*` stands for any rest.
        roles_claim: The claim with the roles, "" for none.
        proves_in_full: A token that names a runtime, and not only a pattern, speaks for it in anybody's hands.
    """

    issuer: str
    audience: str
    runtimes: tuple[str, ...]
    algorithms: frozenset[str] = frozenset(ALGORITHMS)
    skew_seconds: float = 60.0
    runtime_claim: str = "runtime"
    roles_claim: str = ""
    proves_in_full: bool = True


@dataclass(frozen=True, slots=True)
class TokenProof:
    """The claims of a valid token about the opener of one runtime.

    `expires_at` is when it stops being accepted, in seconds since the Unix epoch. `is_in_full`: it names this runtime
    and not only a pattern. `token_id` is its name (`jti`), "" without one; `signed_in_at` when its
    holder logged in (`auth_time`), 0 when it does not say.
    """

    issuer: str
    subject: str
    roles: frozenset[str]
    expires_at: float
    is_in_full: bool
    token_id: str = ""
    signed_in_at: float = 0.0


def check_token(
    token: str, runtime_key: str, rules: IssuerRules, keys: Sequence[VerificationKey], *, now: float
) -> TokenProof:
    """Check a token of one issuer for one runtime.

    Args:
        token: In compact form; see `looks_like_token`.
        runtime_key: Canonical key of the runtime that is to be opened.
        rules: Of the issuer that the token claims.
        keys: Of the same issuer.
        now: Seconds since the Unix epoch.

    Raises:
        TokenRefusedError: With what is wrong.
    """
    return check_claims(signed_claims(token, keys, algorithms=rules.algorithms), runtime_key, rules, now=now)


def check_claims(claims: Mapping[str, object], runtime_key: str, rules: IssuerRules, *, now: float) -> TokenProof:
    """Check the claims of a token whose signature holds; see `check_token`.

    Raises:
        TokenRefusedError: With what is wrong.
    """
    holder = _holder_of(claims, rules, now)
    named = [pattern.strip() for pattern in text_claims(claim_at(claims, rules.runtime_claim))]
    granted = [pattern for pattern in named if covers(pattern, runtime_key)]
    if not granted or not covers_any(rules.runtimes, runtime_key):
        raise TokenRefusedError(f"it is not for this runtime (claim `{rules.runtime_claim}`)")
    is_in_full = rules.proves_in_full and any(names_in_full(pattern, runtime_key) for pattern in granted)
    return replace(holder, is_in_full=is_in_full)


def introspect(token: str, rules: IssuerRules, keys: Sequence[VerificationKey], *, now: float) -> TokenProof:
    """Check a token of one issuer and return its claims, whichever runtime it is for; see `check_token`.

    Raises:
        TokenRefusedError: With what is wrong.
    """
    return _holder_of(signed_claims(token, keys, algorithms=rules.algorithms), rules, now)


def _holder_of(claims: Mapping[str, object], rules: IssuerRules, now: float) -> TokenProof:
    if text_claim(claims, "iss") != rules.issuer:
        raise TokenRefusedError("it is of another issuer")
    if rules.audience not in text_claims(claims.get("aud")):
        raise TokenRefusedError("it is for another audience")
    expires_at = check_times(claims, skew_seconds=rules.skew_seconds, now=now)
    subject = text_claim(claims, "sub")
    if not subject or len(subject) > _SUBJECT_CHARS or not subject.isprintable():
        raise TokenRefusedError("its subject (`sub`) is missing or unusable")
    has_roles = bool(rules.roles_claim)
    roles = text_claims(claim_at(claims, rules.roles_claim), is_list=True) if has_roles else ()
    token_id, signed_in_at = claims.get("jti"), claims.get("auth_time")
    return TokenProof(
        rules.issuer,
        subject,
        frozenset(roles),
        expires_at,
        is_in_full=False,
        token_id=token_id if isinstance(token_id, str) else "",
        signed_in_at=signed_in_at if isinstance(signed_in_at, int | float) else 0.0,
    )
