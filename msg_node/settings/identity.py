"""Settings of users and identity providers: `[global_registry]`, `[identity]`.

Source: message specification, sections 12, 13 and 20.4.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from urllib.parse import urlsplit

from msg_node.identity.core.assertions import ANY_DOMAIN
from msg_node.settings.problem import Problem
from msg_node.settings.tables.identity import IdentitySettings, ProviderSettings
from protofly.address import valid_domain
from protofly.errors import PeerError


def identity_problems(identity: IdentitySettings) -> Iterator[Problem]:
    """Check the fields of `[identity]` against each other."""
    for domain in identity.demand:
        if not _is_domain(domain):
            yield ("identity", "demand"), f"{domain!r} is not a domain"
    if identity.demand and not identity.provider:
        yield ("identity", "demand"), "needs a [[identity.provider]], or nothing ever passes"
    if identity.registered_users == "proved" and not identity.provider and identity.passwords is None:
        yield (
            ("identity", "registered_users"),
            "needs a [[identity.provider]] or [identity.passwords], or nobody can prove who they are",
        )
    if identity.tokens is not None and not identity.provider and identity.passwords is None:
        yield ("identity", "tokens"), "needs a [[identity.provider]] or [identity.passwords], or nobody can ever log in"
    if identity.passwords is not None and identity.tokens is None:
        yield ("identity", "passwords"), "needs [identity.tokens]: a log-in gives a token"
    seen: set[str] = set()
    for index, provider in enumerate(identity.provider):
        for key, text in _provider_problems(provider, is_first=provider.issuer not in seen):
            yield ("identity", "provider", index, key), text
        seen.add(provider.issuer)


def _provider_problems(provider: ProviderSettings, *, is_first: bool) -> Iterator[tuple[str, str]]:
    if not is_first:
        yield "issuer", f"a second entry for {provider.issuer}"
    if not provider.issuer.isprintable() or " " in provider.issuer:
        yield "issuer", "a name without spaces, as `iss` says it"
    for domain in provider.domains:
        if not _is_domain(domain):
            yield "domains", f"{domain!r} is not a domain"
    if (provider.jwks is not None) + bool(provider.jwks_url) + bool(provider.discovery_url) > 1:
        yield "jwks", "one of `jwks`, `jwks_url` and `discovery_url` says where its keys are"
    if provider.jwks is None and not _is_fetchable(provider.source_url, is_plaintext=provider.insecure_plaintext):
        yield "issuer", f"{provider.source_url!r} is not https://…, so say `discovery_url`, `jwks_url` or `jwks`"
    for text in provider.allow_addresses:
        try:
            ipaddress.ip_network(text)
        except ValueError as exc:
            yield "allow_addresses", str(exc)


def _is_fetchable(url: str, *, is_plaintext: bool) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    schemes = {"https", "http"} if is_plaintext else {"https"}
    return parts.scheme in schemes and bool(parts.hostname) and "@" not in parts.netloc


def _is_domain(text: str) -> bool:
    try:
        return text == ANY_DOMAIN or bool(valid_domain(text))
    except PeerError:
        return False
