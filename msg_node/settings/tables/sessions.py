"""Tables about sessions of runtimes: `[sessions]` and those in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from msg_node.settings.tables.identity import Algorithm
from msg_node.settings.tables.values import Digest, Fingerprint, NonNegative, Rate
from protofly import limits


class CredentialSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bearer token that local runtimes may open a session with."""

    runtime: Annotated[str, Meta(description="Runtime address it is valid for; `*` at the end stands for any rest.")]
    token_sha256: Annotated[
        Digest, Meta(description="Hex SHA-256 of the token; the token itself is never written down.")
    ]
    roles: Annotated[tuple[str, ...], Meta(description="Roles that policies see as `session.roles`.")] = ()


class IssuerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One issuer of bearer tokens (JWT) that local runtimes may open a session with."""

    issuer: Annotated[
        str, Meta(min_length=1, max_length=512, description="Its name, exactly as the claim `iss` says it.")
    ]
    audience: Annotated[str, Meta(min_length=1, description="Our name, which the claim `aud` must contain.")]
    jwks: Annotated[
        Path | None, Meta(description="File with its keys, a JWK set; or `public_keys`, or an `[[identity.provider]]`.")
    ] = None
    public_keys: Annotated[tuple[str, ...], Meta(description="Its public keys as PEM text; or `jwks`.")] = ()
    algorithms: Annotated[
        tuple[Algorithm, ...], Meta(description="Signature algorithms that it may use; absent: all that fit its keys.")
    ] = ()
    skew_seconds: Annotated[
        Annotated[float, Meta(ge=0.0, le=limits.BEARER_SKEW_MAX_SECONDS)],
        Meta(description="How far its clock may differ from ours."),
    ] = limits.BEARER_SKEW_SECONDS
    runtime_claim: Annotated[
        str,
        Meta(
            min_length=1,
            description="Claim with the runtime address, or several; `*` at the end of one stands for any rest.",
        ),
    ] = "runtime"
    roles_claim: Annotated[
        str, Meta(description="Claim with the roles that policies see as `session.roles`; absent: no roles.")
    ] = ""
    runtimes: Annotated[
        tuple[str, ...],
        Meta(description="Runtimes that it may speak for at most, as patterns; absent: those of our own domains."),
    ] = ()

    @property
    def has_keys(self) -> bool:
        """True if its keys are in this section; else those of the identity provider of that name count."""
        return self.jwks is not None or bool(self.public_keys)


class CertificateSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One client certificate by name, when it does not name its runtime itself (SAN URI) or is to have roles."""

    runtime: Annotated[str, Meta(description="Runtime address it is valid for; `*` at the end stands for any rest.")]
    sha256: Annotated[
        Fingerprint, Meta(description="Its SHA-256 fingerprint in hex, with or without colons; or `subject`.")
    ] = ""
    subject: Annotated[
        str, Meta(description="Its subject as RFC 4514 writes it, for example `CN=ana,O=Example`; or `sha256`.")
    ] = ""
    roles: Annotated[tuple[str, ...], Meta(description="Roles that policies see as `session.roles`.")] = ()


class SessionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sessions of local runtimes."""

    grace_seconds: Annotated[NonNegative, Meta(description="How long a lost session keeps its addresses.")] = (
        limits.SESSION_GRACE_SECONDS
    )
    take_over_grace_seconds: Annotated[
        NonNegative, Meta(description="How long a second opener without credentials waits for a silent first one.")
    ] = limits.TAKE_OVER_GRACE_SECONDS
    ping_seconds: Annotated[Rate, Meta(description="Silence after which a runtime is pinged.")] = limits.PING_SECONDS
    lease_seconds: Annotated[
        Annotated[float, Meta(ge=10.0)] | None,
        Meta(description="Time after which a runtime has to `re-open` its session; absent: no limit."),
    ] = None
    anonymous: Annotated[bool, Meta(description="Runtimes may open sessions without credentials.")] = True
    anonymous_runtimes: Annotated[
        tuple[str, ...],
        Meta(description="Which runtimes may, as patterns: addresses, `*` at the end stands for any rest."),
    ] = ("*",)
    guests: Annotated[
        bool,
        Meta(description="Runtimes of other domains may open sessions, with a credential that covers their address."),
    ] = False
    presence: Annotated[
        bool, Meta(description="Subscribers to `<runtime>/status` are notified when it comes and goes.")
    ] = False
    credential: Annotated[tuple[CredentialSettings, ...], Meta(description="Accepted bearer tokens.")] = ()
    issuer: Annotated[tuple[IssuerSettings, ...], Meta(description="Issuers of accepted bearer tokens.")] = ()
    certificate: Annotated[
        tuple[CertificateSettings, ...], Meta(description="Client certificates that are named here.")
    ] = ()
