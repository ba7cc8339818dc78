"""Interworking stubs: which the operator admits, what their signed manifests claim, whose address is whose.

What such a stub may speak for is what its manifest signs *and* the settings grant. Grants never overlap and are there
from the start, so an address leads to one stub before that stub is here; whether it is a legacy address is known once
the manifest has been verified, and never guessed from the text.

Source: message specification, section 16; feature rows LI-07, LI-08 and AD-08.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from federation.core.service_tokens import ServiceTokens
from federation.core.stub_status import StubAddresses
from protofly.address import destination_of, domain_of
from protofly.documents import Manifest
from protofly.errors import Code, PeerError
from protofly.legacy_range import LegacyRange, covers_any, host_of, parse_range
from protofly.message import Message

INTERWORKING_TYPES = frozenset({"init", "register"})
"""Message types that no model defines: opaque, and only for interworking stubs.

Source: message specification, section 16, rule 2.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The operator's grants to the interworking stub of one domain.

    `ranges` are the most that it may speak for; `allows_http` whether it may open channels of kind `http`;
    `token_origins` where access tokens may go, and `has_token` whether there is one for the stub itself.
    """

    domain: str
    ranges: tuple[LegacyRange, ...]
    allows_http: bool = False
    token_origins: frozenset[str] = frozenset()
    has_token: bool = False


NOWHERE = StubAddresses("")
"""For who asks about ranges only and runs no stub."""


class Interworking:
    """All interworking stubs of a node.

    Args:
        admissions: Their ranges do not overlap.
        own_domains: Whose addresses are never a legacy's, whatever a range says.
        addresses: Where stubs are on our node.
    """

    def __init__(
        self,
        admissions: Iterable[Admission] = (),
        *,
        own_domains: Collection[str] = (),
        addresses: StubAddresses = NOWHERE,
    ) -> None:
        self._addresses = addresses
        self._own_domains = own_domains
        self._admissions: dict[str, Admission] = {}
        self._by_scheme: dict[str, list[tuple[LegacyRange, str]]] = {}
        self._tokens: dict[str, ServiceTokens] = {}
        self._signed: dict[str, tuple[LegacyRange, ...]] = {}
        self._live: set[str] = set()
        self.follow(admissions)

    def follow(self, admissions: Iterable[Admission]) -> frozenset[str]:
        """Grant this from the next message on; returns the domains of whose stubs that is not what was granted before.

        What runs of them has to begin anew: its manifest is held against what it is granted when it starts.
        """
        before, self._admissions = self._admissions, {one.domain: one for one in admissions}
        self._by_scheme = {}
        for one in self._admissions.values():
            for granted in one.ranges:
                self._by_scheme.setdefault(granted.scheme, []).append((granted, one.domain))
        others = {domain for domain in before.keys() | self._admissions if before.get(domain) != self.admission(domain)}
        for domain in others:
            self._tokens.pop(domain, None)
            other = self._admissions.get(domain)
            if other is not None:
                self._tokens[domain] = ServiceTokens(other.token_origins, has_service_token=other.has_token)
        return frozenset(others)

    @property
    def domains(self) -> tuple[str, ...]:
        """Domains whose interworking stubs are admitted, as the settings order them."""
        return tuple(self._admissions)

    def admission(self, domain: str) -> Admission | None:
        """Return the grants to the stub of a domain; None when it may not be of this kind."""
        return self._admissions.get(domain)

    def stub_address(self, domain: str) -> str:
        """Address of the stub of a domain on our node."""
        return self._addresses.of(domain)

    # Whether it is there.

    def came(self, domain: str) -> None:
        """The stub of a domain can take messages from now on."""
        if domain in self._admissions:
            self._live.add(domain)

    def went(self, domain: str) -> bool:
        """The stub of a domain can take no more; whether that changes anything."""
        if domain not in self._live:
            return False
        self._live.remove(domain)
        return True

    def is_live(self, domain: str) -> bool:
        """True when the interworking stub of a domain can take messages."""
        return domain in self._live

    # What may go where.

    def handed_over(self, domain: str, message: Message, handle: str) -> Message:
        """Return a message to a domain as its stub may see it: `handle` is in place of a user's access token.

        Raises:
            PeerError: See `check_sent` and `ServiceTokens.veiled`.
        """
        self.check_sent(domain, message)
        tokens = self._tokens.get(domain)
        return message if tokens is None else tokens.veiled(message, handle)

    def tokens(self, domain: str) -> ServiceTokens | None:
        """The access tokens that we keep for the interworking stub of a domain."""
        return self._tokens.get(domain)

    def check_sent(self, domain: str, message: Message) -> None:
        """Judge what one of us sends to a domain, as far as its stub is known.

        Raises:
            PeerError: BAD_TYPE for what only interworking stubs understand, NO_ROUTE for an address that the settings
                would grant to its stub and its manifest does not claim.

        Source: message specification, section 16, rules 1 and 2.
        """
        signed = self._signed.get(domain)
        is_known = signed is not None or domain not in self._admissions
        if message.type in INTERWORKING_TYPES and is_known and not signed:
            raise PeerError(Code.BAD_TYPE, "only interworking stubs know this type", domain=domain)
        if is_known and self.granted_to(message.to) == domain and not covers_any(signed or (), message.to):
            raise PeerError(Code.NO_ROUTE, "the stub does not claim this address", domain=domain)

    def speaks_for(self, domain: str, text: str) -> bool | None:
        """True when the link of a domain may use an address as a sender; None for what is in nobody's range.

        Raises:
            PeerError: BAD_HEADER for an address that nobody could mean.
        """
        return self.stub_of(text) == domain if self.granted_to(text) else None

    # What manifests say.

    def verified(self, manifest: Manifest) -> None:
        """A stub of this manifest is to run.

        Raises:
            PeerError: INTERWORKING_OFF when it is an interworking stub and the settings admit none of its domain.
        """
        domain = manifest.domain
        if domain in self._admissions:
            self._signed[domain] = tuple(map(parse_range, manifest.permissions.ranges))
        elif manifest.interworking:
            raise PeerError(Code.INTERWORKING_OFF, "no [[interworking]] entry admits this stub", domain=domain)

    def withdrawn(self, domain: str) -> None:
        """The stub of a domain may not run any more, or not yet: it claims nothing."""
        self._signed.pop(domain, None)

    def signed(self, domain: str) -> tuple[LegacyRange, ...]:
        """The ranges that the manifest of a domain's stub claims."""
        return self._signed.get(domain, ())

    def effective(self, domain: str) -> tuple[LegacyRange, ...]:
        """Return the ranges of a stub: the parts of its claims that are granted."""
        one, signed = self._admissions.get(domain), self.signed(domain)
        granted = () if one is None else one.ranges
        inside = [claim for claim in signed if any(claim.is_within(outer) for outer in granted)]
        inside += [outer for outer in granted if any(outer.is_within(claim) for claim in signed)]
        return tuple(dict.fromkeys(inside))

    # Whose an address is.

    def granted_to(self, text: str) -> str:
        """The domain whose stub may be behind an address, "" for none: by the settings alone.

        Raises:
            PeerError: BAD_HEADER for an address that nobody could mean.
        """
        if not self._by_scheme:
            return ""
        granted = self._by_scheme.get(text.strip(" ").partition(":")[0].lower())
        if granted is None or host_of(text) in self._own_domains:
            return ""
        return next((domain for one, domain in granted if covers_any((one,), text)), "")

    def stub_of(self, text: str) -> str:
        """The domain whose stub speaks for a legacy address, "" for all others: granted, and signed by its manifest.

        Raises:
            PeerError: BAD_HEADER for an address that nobody could mean.
        """
        domain = self.granted_to(text)
        return domain if domain and covers_any(self.signed(domain), text) else ""

    def home_of(self, text: str) -> str:
        """The domain that an address belongs to, as far as links are concerned: that of its stub, or its own.

        Raises:
            PeerError: BAD_HEADER for an address that nobody could mean.
        """
        return self.granted_to(text) or domain_of(text)

    def destination_of(self, text: str) -> str:
        """Domain to which a message for this address is carried: to the stub behind it, else as every address.

        Raises:
            PeerError: BAD_HEADER for an address that nobody could mean.
        """
        return self.granted_to(text) or destination_of(text)
