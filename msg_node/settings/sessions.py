"""Checks and credentials from the settings of proofs of runtimes.

Source: message specification, section 5.1.
"""

from __future__ import annotations

from collections.abc import Iterator

from msg_node.identity.core.session_tokens import own_rules
from msg_node.kernel.bearer_tokens import IssuerRules
from msg_node.kernel.certificates import CertificateEntry
from msg_node.kernel.credentials import CertificateRules, Credential, Credentials
from msg_node.kernel.issuer_keys import VerificationKey, key_of_pem, keys_of_jwks
from msg_node.kernel.runtime_address import is_pattern
from msg_node.kernel.signed_tokens import ALGORITHMS
from msg_node.settings.model import Settings
from msg_node.settings.problem import Problem
from msg_node.settings.tables.sessions import CertificateSettings, IssuerSettings
from protofly.errors import SettingsError

_PATTERN = "not a runtime address, with or without a final `*` behind the slash after its domain"


def session_problems(settings: Settings) -> Iterator[Problem]:
    """Check the fields of `[sessions]` and the client certificates of `[listen]` against each other."""
    sessions, listen = settings.sessions, settings.listen
    if listen.client_ca is not None and listen.certificate is None:
        yield ("listen", "client_ca"), "client certificates need TLS: `certificate` and `key`"
    if listen.client_certificate == "required" and listen.client_ca is None:
        yield ("listen", "client_certificate"), "`required` goes with `client_ca`"
    for index, pattern in enumerate(sessions.anonymous_runtimes):
        if not is_pattern(pattern):
            yield ("sessions", "anonymous_runtimes", index), _PATTERN
    for index, credential in enumerate(sessions.credential):
        if not is_pattern(credential.runtime):
            yield ("sessions", "credential", index, "runtime"), _PATTERN
    seen: set[str] = set()
    providers = frozenset(one.issuer for one in settings.identity.provider)
    for index, issuer in enumerate(sessions.issuer):
        for key, text in _issuer_problems(issuer, providers, is_first=issuer.issuer not in seen):
            yield ("sessions", "issuer", index, key), text
        seen.add(issuer.issuer)
        if issuer.issuer == _own_rules(settings).issuer:
            yield ("sessions", "issuer", index, "issuer"), "the name of this node's own tokens ([identity.tokens])"
    for index, certificate in enumerate(sessions.certificate):
        for key, text in _certificate_problems(certificate, has_authorities=listen.client_ca is not None):
            yield ("sessions", "certificate", index, key), text


def _issuer_problems(issuer: IssuerSettings, providers: frozenset[str], *, is_first: bool) -> Iterator[tuple[str, str]]:
    if not is_first:
        yield "issuer", f"a second entry for {issuer.issuer}"
    if not issuer.issuer.isprintable() or " " in issuer.issuer:
        yield "issuer", "a name without spaces, as `iss` says it"
    if issuer.jwks is not None and issuer.public_keys:
        yield "jwks", "either `jwks` or `public_keys` says its keys"
    if not issuer.has_keys and issuer.issuer not in providers:
        yield "jwks", "`jwks`, `public_keys` or an `[[identity.provider]]` of this name says its keys"
    for pattern in issuer.runtimes:
        if not is_pattern(pattern):
            yield "runtimes", f"{pattern!r}: {_PATTERN}"


def _certificate_problems(certificate: CertificateSettings, *, has_authorities: bool) -> Iterator[tuple[str, str]]:
    if not has_authorities:
        yield "runtime", "client certificates are not asked for: set `client_ca` in [listen]"
    if bool(certificate.sha256) == bool(certificate.subject):
        yield "sha256", "either `sha256` or `subject` says which certificate it is"
    if not is_pattern(certificate.runtime):
        yield "runtime", _PATTERN


def build_credentials(settings: Settings) -> Credentials:
    """Build the accepted credentials from the settings, with the keys of issuers as their files are now.

    Raises:
        SettingsError: A key file cannot be used.
    """
    sessions, listen = settings.sessions, settings.listen
    own = [] if settings.identity.tokens is None else [_own_rules(settings)]
    credentials = Credentials(
        [Credential(one.token_sha256, one.runtime, frozenset(one.roles)) for one in sessions.credential],
        allows_anonymous=sessions.anonymous,
        anonymous_runtimes=sessions.anonymous_runtimes,
        issuers=[*(_rules(one, settings.own_domains) for one in sessions.issuer), *own],
        certificates=None if listen.client_ca is None else _certificate_rules(settings),
    )
    for issuer in sessions.issuer:
        if issuer.has_keys:
            credentials.set_issuer_keys(issuer.issuer, _keys(issuer), are_of_settings=True)
    return credentials


def _certificate_rules(settings: Settings) -> CertificateRules:
    return CertificateRules(
        tuple(_entry(one) for one in settings.sessions.certificate),
        frozenset(settings.own_domains),
        is_needed=settings.listen.client_certificate == "required",
    )


def _own_rules(settings: Settings) -> IssuerRules:
    return own_rules(settings.node.domain, settings.own_domains)


def _rules(issuer: IssuerSettings, own_domains: tuple[str, ...]) -> IssuerRules:
    return IssuerRules(
        issuer=issuer.issuer,
        audience=issuer.audience,
        runtimes=issuer.runtimes or tuple(f"runtime://{domain}/*" for domain in own_domains),
        algorithms=frozenset(issuer.algorithms or ALGORITHMS),
        skew_seconds=issuer.skew_seconds,
        runtime_claim=issuer.runtime_claim,
        roles_claim=issuer.roles_claim,
    )


def _entry(certificate: CertificateSettings) -> CertificateEntry:
    fingerprint = certificate.sha256.replace(":", "").lower()
    return CertificateEntry(certificate.runtime, fingerprint, certificate.subject, frozenset(certificate.roles))


def _keys(issuer: IssuerSettings) -> list[VerificationKey]:
    try:
        if issuer.jwks is not None:
            return keys_of_jwks(issuer.jwks.read_bytes())
        return [key_of_pem(pem) for pem in issuer.public_keys]
    except OSError as exc:
        raise SettingsError(f"issuer {issuer.issuer}: {issuer.jwks}: {exc.strerror}") from exc
    except ValueError as exc:
        raise SettingsError(f"issuer {issuer.issuer}: {issuer.jwks or 'public_keys'}: {exc}") from exc
