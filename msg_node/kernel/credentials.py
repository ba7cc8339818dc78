"""Who may open a session for which runtime address, and with which roles.

Four ways to come: with a bearer token of the settings, with a token of an issuer of ours (JWT), with a client
certificate, or with nothing, where that is allowed. Whatever it was, what is kept with the session is one line of text,
its *credential*, that names the holder and not the proof: a renewed token of the same subject is the same credential.

Tokens of clients that operators have added count like those of the settings.

The node knows only SHA-256 digests of both. A look-up by digest reveals nothing through its timing:
an attacker varies the digest, and cannot steer it towards a known one. Source: message specification,
section 5.1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from msg_node.kernel.bearer_tokens import IssuerRules, TokenProof, check_token, introspect
from msg_node.kernel.certificates import CertificateEntry, PeerCertificate
from msg_node.kernel.issuer_keys import VerificationKey
from msg_node.kernel.proof import ANONYMOUS, Offered, Proven
from msg_node.kernel.runtime_address import covers, covers_any, names_in_full
from msg_node.kernel.signed_tokens import TokenRefusedError, issuer_of, looks_like_token
from policy.core.session_class import SessionClass, shown_to_rules
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.limits import BEARER_TOKEN_CHARS

OPERATOR = "operator"
"""The role that may look at and release what other sessions hold."""

POLICY_MANAGER = "policy-manager"
"""The role that may manage policies, and nothing else of what operators may. Source: message specification,
section 15.2."""

JWT = "jwt"
"""First word of a credential that a token of an issuer has proved; issuer and subject follow."""

_CERTIFICATE = "certificate"


@dataclass(frozen=True, slots=True)
class Credential:
    """One accepted bearer token.

    Attributes:
        digest: Hex SHA-256 of it.
        runtime: The runtime address it is for; a final `*` stands for any rest.
        roles: What it gives.
        expires_at: When it ends, in seconds since the Unix epoch; None: never.
    """

    digest: str
    runtime: str
    roles: frozenset[str] = frozenset()
    expires_at: float | None = None

    def is_for(self, runtime_key: str) -> bool:
        """True if this token may open the runtime with that canonical key."""
        return covers(self.runtime, runtime_key)

    def is_over(self, now: float) -> bool:
        """True when it has ended."""
        return self.expires_at is not None and self.expires_at <= now


def digest_of(token: str) -> str:
    """Hex SHA-256 of a token: the only form in which one is kept."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def shown_of(proven: Proven) -> frozenset[str]:
    """Collect the roles and the class of a session of our own domain, for rules.

    A proof that names a subject at an issuer makes a user; any other proof is that of a client.
    """
    if OPERATOR in proven.roles:
        class_ = SessionClass.OPERATOR
    elif not proven.credential:
        class_ = SessionClass.ANONYMOUS
    elif proven.credential.startswith(f"{JWT} "):
        class_ = SessionClass.USER
    else:
        class_ = SessionClass.PROVED
    return shown_to_rules(proven.roles, class_)


@dataclass(frozen=True, slots=True)
class CertificateRules:
    """Settings of client certificates.

    Attributes:
        entries: Certificates that are named in the settings.
        domains: Domains for whose runtimes a certificate may speak by its own names.
        is_needed: No session without one, whatever else is offered.
    """

    entries: tuple[CertificateEntry, ...] = ()
    domains: frozenset[str] = frozenset()
    is_needed: bool = False


class Credentials:
    """The proofs that the settings accept.

    Args:
        credentials: Bearer tokens.
        allows_anonymous: One may come without any proof.
        anonymous_runtimes: Patterns of the runtimes for which one may.
        issuers: Whose tokens count; without keys (`set_issuer_keys`) none does.
        certificates: What client certificates prove; None when the listener asks for none.
    """

    def __init__(
        self,
        credentials: Iterable[Credential] = (),
        *,
        allows_anonymous: bool = True,
        anonymous_runtimes: Sequence[str] = ("*",),
        issuers: Iterable[IssuerRules] = (),
        certificates: CertificateRules | None = None,
    ) -> None:
        self._anonymous_runtimes = tuple(anonymous_runtimes) if allows_anonymous else ()
        self._by_digest = _by_digest(credentials)
        self._managed: Mapping[str, Sequence[Credential]] = {}
        self._issuers: Mapping[str, IssuerRules] = {rules.issuer: rules for rules in issuers}
        self._keys: dict[str, tuple[VerificationKey, ...]] = {}
        self._keyed_by_settings: set[str] = set()
        self._takes_certificates = certificates is not None
        self._certificates = certificates or CertificateRules()
        self.wants_keys: Callable[[str], None] = lambda _: None
        """Called with the issuer when a token names a key that is not known."""
        self._checks: dict[str, Callable[[TokenProof], str]] = {}

    def set_issuer_keys(self, issuer: str, keys: Iterable[VerificationKey], *, are_of_settings: bool = False) -> None:
        """From now on these are the keys of an issuer, and no others.

        Args:
            issuer: Its name.
            keys: Its keys.
            are_of_settings: The settings name them; otherwise they were fetched, or are our own.
        """
        self._keys[issuer] = tuple(keys)
        if are_of_settings:
            self._keyed_by_settings.add(issuer)

    def replace(self, other: Credentials) -> None:
        """From now on what `other` accepts counts, and nothing else. Keys that were fetched, and our own, stay."""
        kept = {
            issuer: keys
            for issuer, keys in self._keys.items()
            if issuer in other._issuers and issuer not in self._keyed_by_settings
        }
        self._by_digest, self._issuers = other._by_digest, other._issuers
        self._anonymous_runtimes, self._certificates = other._anonymous_runtimes, other._certificates
        self._keys = {**kept, **other._keys}
        self._keyed_by_settings = other._keyed_by_settings

    def manage(self, credentials: Iterable[Credential]) -> None:
        """From now on these tokens of clients are accepted beside those of the settings, and no other clients'."""
        self._managed = _by_digest(credentials)

    def manage_as(self, other: Credentials) -> None:
        """From now on the clients of `other` are accepted."""
        self._managed = other._managed

    def set_further_check(self, issuer: str, check: Callable[[TokenProof], str]) -> None:
        """Have tokens of an issuer pass `check` as well; it returns the login of one, or raises TokenRefusedError."""
        self._checks[issuer] = check

    def check(self, offered: Offered, runtime_key: str, *, now: float) -> Proven:
        """Judge what an opener offers for a runtime. A token decides; without one the certificate does.

        Raises:
            PeerError: NO_CREDENTIALS or BAD_TOKEN, with what is wrong.
        """
        self.check_connection(offered)
        if offered.token:
            return self._check_token(offered.token, runtime_key, now)
        if offered.certificate is not None:
            proven = self._check_certificate(offered.certificate, runtime_key, now)
            if proven is not None:
                return proven
        if self.allows_anonymous(runtime_key) and not self._certificates.is_needed:
            return ANONYMOUS
        if offered.certificate is not None:
            raise PeerError(Code.BAD_TOKEN, "the client certificate is not for this runtime")
        raise PeerError(Code.NO_CREDENTIALS, "this node wants credentials")

    def check_connection(self, offered: Offered) -> None:
        """Refuse a connection on which no session may be opened.

        Raises:
            PeerError: NO_CREDENTIALS.
        """
        if self._certificates.is_needed and offered.certificate is None:
            raise PeerError(Code.NO_CREDENTIALS, "this node wants a client certificate")

    def allows_anonymous(self, runtime_key: str) -> bool:
        """True if that runtime may open a session without any proof."""
        return covers_any(self._anonymous_runtimes, runtime_key)

    def is_valid(self, credential: str, runtime_key: str) -> bool:
        """True if a credential that once passed is still in the settings; "" stands for no proof.

        When it expires is not asked here: that is known where it is stored.
        """
        if not credential:
            return self.allows_anonymous(runtime_key) and not self._certificates.is_needed
        kind, _, rest = credential.partition(" ")
        if kind == JWT:
            rules = self._issuers.get(rest.partition(" ")[0])
            return rules is not None and covers_any(rules.runtimes, runtime_key)
        if kind == _CERTIFICATE:
            is_named = any(
                one.credential == credential and one.is_for(runtime_key) for one in self._certificates.entries
            )
            return is_named or (credential == _of_runtime(runtime_key) and self._may_name(runtime_key))
        return any(one.is_for(runtime_key) for one in self._of_digest(credential))

    def roles(self, credential: str, runtime_key: str, proved: frozenset[str] = frozenset()) -> frozenset[str]:
        """Roles of a credential that once passed; `proved` are those that its proof named then."""
        kind = credential.partition(" ")[0]
        if kind == JWT:
            return proved if self.is_valid(credential, runtime_key) else frozenset()
        if kind == _CERTIFICATE:
            return _union(
                one.roles
                for one in self._certificates.entries
                if one.credential == credential and one.is_for(runtime_key)
            )
        return _union(one.roles for one in self._of_digest(credential) if one.is_for(runtime_key))

    def _of_digest(self, digest: str) -> list[Credential]:
        return [*self._by_digest.get(digest, ()), *self._managed.get(digest, ())]

    def _check_token(self, token: str, runtime_key: str, now: float) -> Proven:
        if len(token) > BEARER_TOKEN_CHARS:
            raise PeerError(Code.BAD_TOKEN, f"the token is longer than {BEARER_TOKEN_CHARS:,} characters")
        digest = digest_of(token)
        known = self._of_digest(digest)
        accepted = [one for one in known if one.is_for(runtime_key) and not one.is_over(now)]
        if accepted:
            is_in_full = any(names_in_full(one.runtime, runtime_key) for one in accepted)
            return Proven(digest, _union(one.roles for one in accepted), _end_of(accepted), is_in_full)
        if not known and self._issuers and looks_like_token(token):
            rules = self._issuers.get(issuer_of(token))
            if rules is None:
                raise PeerError(Code.BAD_TOKEN, "the token is not accepted: its issuer (`iss`) is not known here")
            with self._keys_wanted(rules):
                proof = check_token(token, runtime_key, rules, self._keys.get(rules.issuer, ()), now=now)
            credential = f"{JWT} {proof.issuer} {proof.subject}"
            return Proven(credential, proof.roles, proof.expires_at, proof.is_in_full, self._login_of(proof))
        raise PeerError(Code.BAD_TOKEN, "the token is not valid for this runtime")

    def introspect(self, token: str, *, now: float) -> Proven | None:
        """Return the holder of a token, whichever runtime it is for; None if it does not count here now."""
        accepted = [one for one in self._of_digest(digest_of(token)) if not one.is_over(now)]
        if accepted:
            return Proven("", _union(one.roles for one in accepted), _end_of(accepted), is_in_full=False)
        if not looks_like_token(token):
            return None
        try:
            rules = self._issuers.get(issuer_of(token))
            if rules is None:
                return None
            with self._keys_wanted(rules):
                proof = introspect(token, rules, self._keys.get(rules.issuer, ()), now=now)
            self._login_of(proof)
        except TokenRefusedError:
            return None
        return Proven(proof.subject, proof.roles, proof.expires_at, is_in_full=False)

    def _login_of(self, proof: TokenProof) -> str:
        check = self._checks.get(proof.issuer)
        return "" if check is None else check(proof)

    @contextmanager
    def _keys_wanted(self, rules: IssuerRules) -> Iterator[None]:
        """Say so when a token of an issuer fails for want of a key."""
        try:
            yield
        except TokenRefusedError as exc:
            if exc.lacks_key:
                self.wants_keys(rules.issuer)
            raise

    def _check_certificate(self, certificate: PeerCertificate, runtime_key: str, now: float) -> Proven | None:
        """Return what a certificate proves for a runtime, None if nothing."""
        if not self._takes_certificates or now >= certificate.expires_at:
            return None
        entries = [one for one in self._certificates.entries if one.names(certificate) and one.is_for(runtime_key)]
        names_itself = runtime_key in certificate.runtimes and self._may_name(runtime_key)
        if not entries:
            own = Proven(_of_runtime(runtime_key), frozenset(), certificate.expires_at, is_in_full=True)
            return own if names_itself else None
        first = entries[0]
        roles = _union(one.roles for one in entries if one.credential == first.credential)
        is_in_full = names_itself or any(one.is_in_full_for(runtime_key) for one in entries)
        return Proven(first.credential, roles, certificate.expires_at, is_in_full)

    def _may_name(self, runtime_key: str) -> bool:
        return self._takes_certificates and domain_of(runtime_key) in self._certificates.domains


def _by_digest(credentials: Iterable[Credential]) -> dict[str, list[Credential]]:
    by_digest: dict[str, list[Credential]] = {}
    for credential in credentials:
        by_digest.setdefault(credential.digest.lower(), []).append(credential)
    return by_digest


def _end_of(credentials: Iterable[Credential]) -> float | None:
    """When the last of them ends."""
    ends = [one.expires_at for one in credentials]
    return None if None in ends else max(end for end in ends if end is not None)


def _of_runtime(runtime_key: str) -> str:
    return f"{_CERTIFICATE} {runtime_key}"


def _union(roles: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*roles)
