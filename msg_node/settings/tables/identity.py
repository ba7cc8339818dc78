"""Settings of users and identity providers: `[global_registry]`, `[identity]`.

Source: message specification, sections 12, 13 and 20.4.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from msg_node.settings.tables.registries import BackendSettings
from protofly import limits

Algorithm = Literal["EdDSA", "Ed25519", "ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]


class GlobalRegistrySettings(BackendSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The global registry of GUID records; without this table `global://registry/` is switched off."""

    attempt_seconds: Annotated[
        Annotated[float, Meta(gt=0.0, le=60.0)], Meta(description="How long a read may take.")
    ] = limits.GLOBAL_REGISTRY_READ_SECONDS
    write_seconds: Annotated[
        Annotated[float, Meta(gt=0.0, le=60.0)], Meta(description="How long a write may take.")
    ] = limits.GLOBAL_REGISTRY_WRITE_SECONDS
    verify: Annotated[
        Literal["enforce", "warn"],
        Meta(description="`warn` hands records that fail the checks to runtimes; the node itself never uses them."),
    ] = "enforce"
    cache_seconds: Annotated[
        Annotated[float, Meta(ge=0.0)], Meta(description="How long a record is used before it is asked for again.")
    ] = limits.GLOBAL_REGISTRY_CACHE_SECONDS


class ProviderSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One identity provider (OpenID Connect) whose assertions about senders count; its keys are fetched and renewed."""

    issuer: Annotated[
        str, Meta(min_length=1, max_length=512, description="Its name, exactly as the claim `iss` says it.")
    ]
    audience: Annotated[tuple[str, ...], Meta(min_length=1, description="Names, one of which `aud` must contain.")]
    domains: Annotated[
        tuple[str, ...],
        Meta(description="Domains whose users it may assert; `*` is any. Absent: our own domains."),
    ] = ()
    discovery_url: Annotated[
        str, Meta(description="Its discovery document; absent: `/.well-known/openid-configuration` behind the issuer.")
    ] = ""
    jwks_url: Annotated[str, Meta(description="Its JWK set, where there is no discovery document.")] = ""
    jwks: Annotated[Path | None, Meta(description="File with its JWK set; then nothing is fetched.")] = None
    algorithms: Annotated[
        tuple[Algorithm, ...], Meta(description="Signature algorithms that it may use; absent: all that fit its keys.")
    ] = ()
    skew_seconds: Annotated[
        Annotated[float, Meta(ge=0.0, le=limits.BEARER_SKEW_MAX_SECONDS)],
        Meta(description="How far its clock may differ from ours."),
    ] = limits.BEARER_SKEW_SECONDS
    user_claim: Annotated[
        str,
        Meta(min_length=1, description="Claim that policies see as `identity.user`; `email` has to be verified."),
    ] = "sub"
    roles_claim: Annotated[
        str, Meta(description="Claim with the roles that a login at this node gives; absent: no roles.")
    ] = ""
    groups_claim: Annotated[
        str, Meta(description="Claim with the groups of users, which policies see as `identity.groups`; absent: none.")
    ] = ""
    stub_claim: Annotated[
        str,
        Meta(description="Claim with the place of the stub of the user's domain, which has to be where we get it."),
    ] = ""
    allow_addresses: Annotated[
        tuple[str, ...], Meta(description="Internal ranges that its host may resolve to, for example `10.7.0.0/16`.")
    ] = ()
    insecure_plaintext: Annotated[bool, Meta(description="Fetch from `http://` as well. Laboratories only.")] = False

    @property
    def source_url(self) -> str:
        """The URL at which fetching its keys begins."""
        return self.jwks_url or self.discovery_url or self.issuer


class TokenSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Session tokens that the node signs for logins with an assertion; without this table logins are off."""

    keys_dir: Annotated[
        Path, Meta(description="Folder with `token` keys of `trapezoid keys token`; the one made last signs.")
    ]
    seconds: Annotated[
        Annotated[float, Meta(ge=60.0, le=limits.SESSION_TOKEN_MAX_SECONDS)],
        Meta(description="How long a token counts; it can be renewed before."),
    ] = limits.SESSION_TOKEN_SECONDS
    login_seconds: Annotated[
        Annotated[float, Meta(ge=60.0, le=limits.LOGIN_MAX_SECONDS)],
        Meta(description="How long after a login its tokens count and can be renewed."),
    ] = limits.LOGIN_SECONDS


class PasswordSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Local users who log in with a password (`trapezoid user`), for domains without an identity provider."""

    memory_kib: Annotated[
        Annotated[int, Meta(ge=19_456, le=1_048_576)], Meta(description="Memory that one check of a password takes.")
    ] = 65_536
    passes: Annotated[
        Annotated[int, Meta(ge=1, le=20)], Meta(description="Passes over that memory; at least 2 below 46 MiB.")
    ] = 3
    checks: Annotated[
        Annotated[int, Meta(ge=1, le=16)], Meta(description="Checks side by side; others wait their turn.")
    ] = 1


class IdentitySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Identities of users: which assertions in messages are believed. See `docs/identity-and-guids.md`."""

    demand: Annotated[
        tuple[str, ...],
        Meta(description="Domains whose requests and events need a valid assertion, else 401; `*` is any."),
    ] = ()
    provider: Annotated[tuple[ProviderSettings, ...], Meta(description="Identity providers that we believe.")] = ()
    registered_users: Annotated[
        Literal["any", "proved"],
        Meta(
            description="Whom our runtimes register in the domain registry: `any` user that they name, or the `proved` "
            "one only, by a log-in or an assertion. Operators register anybody."
        ),
    ] = "any"
    tokens: TokenSettings | None = None
    passwords: PasswordSettings | None = None
